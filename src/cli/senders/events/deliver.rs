//! `exirate events deliver`: send crossings to the receivers of the policies in use.

use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use super::alert::Alert;
use super::cursor::{Cursor, CursorFile, SavedCursor, exclusively, micros};
use super::program::Account;
use super::receiver::{NAMES, Receiver, Stream};
use crate::cli::shared::database::{Common, require_owner};
use crate::cli::shared::screen::{Screen, complain, note};
use crate::cli::system::cluster;
use crate::cli::{Failure, Outcome};
use crate::policy::image::{ImageError, PolicyFile};
use crate::policy::model::OnCrossing;
use crate::spool::{Enforcement, EventKind, EventReader, LoggedEvent, Spool};
use crate::sys::files;
use crate::text;
use crate::text::time::now;

/// How long a run goes on with one receiver. The others get what is new in the next run.
const RUN_TIME: Duration = Duration::from_secs(60);
/// How long to wait for the details of an event, and how often to look for them.
const DETAILS: (Duration, Duration) = (Duration::from_secs(3), Duration::from_millis(100));
/// How old the crossings are at most that a new receiver gets, in seconds.
const FIRST: i64 = 3600;
/// When an event is given up: after so many attempts, if it is so many seconds old.
const GIVEN_UP: (u32, i64) = (10, 86_400);

/// Send new crossings to the receivers in [on.crossing] of the policies
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Send what is new, as a timer does:
    exirate events deliver
  Which receivers have not got everything?
    exirate events deliver --json

Each receiver that [on.crossing] of the policy file names gets each crossing at least once. What fails
is tried again by a later run. exirate-deliver.path and exirate-deliver.timer, or cron, run this.

Exit status: 0 no receiver has failed, or another process is sending; 1 a receiver has
failed, and gets the rest by a later run; 2 an error.

`log` prints a line, `run` runs a program, `post` sends JSON to a URL, with curl, and `mail`
sends mail. Each receiver gets each crossing at least once; not those of keys that a policy
exempts, and those of policies that only observe with `observed = true`. What fails is attempted again
by a later run, and marked. exirate-deliver.path and exirate-deliver.timer, or cron, run this
command. Programs run as the owner of the spool directory. docs/alerts.md has the details.

Where limits are shared, crossings are also sent to the store that servers share, which `shared`
stands for in JSON. For this, run it as a user who can read the agent's configuration and the
password, such as root.

JSON: an object for each receiver. `sent`, `given_up` and `remaining` count events, and
`failed` says whether the receiver has failed.")]
pub(super) struct Deliver {
    /// Send mail with this program, which must accept the options of sendmail
    #[arg(long, value_name = "FILE", default_value = "/usr/sbin/sendmail")]
    sendmail: String,

    #[command(flatten)]
    common: Common,
}

impl Deliver {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let directory = self.common.directory()?;
        // A policy may be in use before the first check has created the database.
        let Some(mut spool) = self.common.spool_if_any()? else {
            remark("there is no rate database yet: nothing is sent");
            return Ok(Outcome::Fine);
        };
        require_owner(&directory)?;
        let owner = files::info_of(&directory).map_err(|error| {
            Failure::new(format!("cannot read {}: {error}", directory.display()))
        })?;
        let on = receivers(&directory)?;
        let mut all = Receiver::all(&on, &self.sendmail);
        if let (_, Some(settings)) = cluster::settings(&directory)? {
            all.push(Receiver::Shared(Stream::new(settings.config)));
        }
        if all.is_empty() {
            remark("the policies in use have no receiver in [on.crossing]: nothing is sent");
        }
        let mut reports = Vec::new();
        let alone = exclusively(&directory, || {
            // A receiver that is used again later is a new one.
            let is_used = |name: &&str| all.iter().any(|receiver| receiver.name() == *name);
            for name in NAMES.iter().filter(|name| !is_used(name)) {
                CursorFile::open(&directory, name)?.remove()?;
            }
            let account = Account::owner(owner.uid, owner.gid);
            reports = deliver_all(&mut spool, &directory, &all, &on, account)?;
            Ok(())
        })?;
        if !alone {
            remark("another process is sending");
        }
        if self.common.json {
            reports.iter().try_for_each(|report| screen.json(report))?;
        }
        Ok(Outcome::found_if(reports.iter().any(|report| report.failed)))
    }
}

/// Says something to a person; a timer would say it every minute.
fn remark(what: &str) {
    if std::io::stderr().is_terminal() {
        note(what);
    }
}

/// `[on.crossing]` of the policies in use.
fn receivers(spool: &Path) -> Result<OnCrossing, Failure> {
    let file = PolicyFile::open(spool);
    match file.image() {
        Ok(image) => Ok(image.on_crossing()?),
        Err(ImageError::Absent { .. }) => Ok(OnCrossing::default()),
        Err(error) => Err(error.into()),
    }
}

/// What was done for one receiver.
#[derive(Debug, Serialize)]
struct Report {
    receiver: &'static str,
    sent: usize,
    given_up: usize,
    remaining: usize,
    failed: bool,
}

/// Sends what is new to all receivers, none of which waits for another.
fn deliver_all(
    spool: &mut Spool,
    directory: &Path,
    receivers: &[Receiver<'_>],
    on: &OnCrossing,
    account: Account,
) -> Result<Vec<Report>, Failure> {
    if receivers.is_empty() {
        return Ok(Vec::new());
    }
    let crossings = read(spool, EventKind::Crossings)?;
    let refusals = match on.repeat {
        Some(_) => read(spool, EventKind::Refusals)?,
        None => Vec::new(),
    };
    let events = Events {
        repeats: on.repeat.map(|repeat| repeats(&crossings, &refusals, repeat, on.observed)),
        crossings: crossings.iter().map(|event| (event, event.id())).collect(),
        observed: on.observed,
    };
    let results: Vec<_> = thread::scope(|scope| {
        let events = &events;
        let begin = |receiver| scope.spawn(move || deliver(directory, receiver, events, account));
        let threads: Vec<_> = receivers.iter().map(begin).collect();
        threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    let reports = receivers.iter().zip(results).map(|(receiver, result)| {
        let result = result.unwrap_or_else(|_| Err(Failure::new("an internal error")));
        result.unwrap_or_else(|failure| {
            if let Failure::Said(what) = failure {
                complain(format_args!("{}: {what}", receiver.name()));
            }
            let remaining = events.crossings.len();
            Report { receiver: receiver.name(), sent: 0, given_up: 0, remaining, failed: true }
        })
    });
    Ok(reports.collect())
}

/// All events in a log; of the latest, the details are waited for.
fn read(spool: &mut Spool, kind: EventKind) -> Result<Vec<LoggedEvent>, Failure> {
    let mut reader = EventReader::new(kind);
    let begun = Instant::now();
    let mut events = spool.read_events(&mut reader, now(), false)?;
    while reader.is_waiting() && begun.elapsed() < DETAILS.0 {
        thread::sleep(DETAILS.1);
        events.extend(spool.read_events(&mut reader, now(), false)?);
    }
    Ok(events)
}

/// An event, and its id.
type Event<'a> = (&'a LoggedEvent, String);

/// What is sent.
struct Events<'a> {
    /// All crossings, in the order of the journal.
    crossings: Vec<Event<'a>>,
    /// Refusals of keys that were still over a limit `repeat` seconds after their last
    /// alert; `None` if alerts are not repeated.
    repeats: Option<Vec<Event<'a>>>,
    /// Whether there are alerts of what is only observed.
    observed: bool,
}

/// Whether there is an alert of a crossing; `observed`: also of what is only observed.
fn alerts(event: &LoggedEvent, observed: bool) -> bool {
    match event.enforcement {
        Enforcement::Enforced => true,
        Enforcement::Observed => observed,
        Enforcement::Exempt => false,
    }
}

/// The refusals that repeat an alert. They depend on the logs alone, so that each run and
/// each receiver finds the same.
fn repeats<'a>(
    crossings: &[LoggedEvent],
    refusals: &'a [LoggedEvent],
    repeat: f64,
    observed: bool,
) -> Vec<Event<'a>> {
    let mut crossed: HashMap<&[u8], Vec<f64>> = HashMap::new();
    for event in crossings.iter().filter(|event| alerts(event, observed)) {
        crossed.entry(&event.stored).or_default().push(event.at.as_seconds());
    }
    let mut alerted: HashMap<&[u8], f64> = HashMap::new();
    let mut found = Vec::new();
    for event in refusals {
        let (key, at) = (&event.stored[..], event.at.as_seconds());
        // Without a crossing that is still in the journal, there was no alert to repeat.
        let times = crossed.get(key).into_iter().flatten().copied().filter(|time| *time <= at);
        let last = times.chain(alerted.get(key).copied()).reduce(f64::max);
        if last.is_some_and(|last| at - last >= repeat) {
            alerted.insert(key, at);
            found.push((event, event.id()));
        }
    }
    found
}

/// Sends a receiver what it has not got.
fn deliver(
    spool: &Path,
    receiver: &Receiver<'_>,
    events: &Events<'_>,
    account: Account,
) -> Result<Report, Failure> {
    let file = CursorFile::open(spool, receiver.name())?;
    let cursor = match file.read()? {
        SavedCursor::Cursor(cursor) => cursor,
        SavedCursor::Nothing => first(events, now().seconds.saturating_sub(FIRST), i64::MIN),
        SavedCursor::Damaged(written) => {
            note(format_args!(
                "{} is damaged: the crossings of the hour before {} and later are sent again",
                file.path().display(),
                text::iso(crate::rate::Timestamp { seconds: written, micros: 0 })
            ));
            first(events, written.saturating_sub(FIRST), written.saturating_add(1))
        }
    };
    let report =
        Report { receiver: receiver.name(), sent: 0, given_up: 0, remaining: 0, failed: false };
    let begun = Instant::now();
    let mut delivery = Delivery { receiver, account, file, cursor, begun, report };
    let complete = delivery.crossings(events)?;
    match &events.repeats {
        Some(repeats) if complete && receiver.is_alerted() => delivery.repeats(repeats)?,
        Some(_) => {}
        None => delivery.cursor.skip_repeats(now()),
    }
    delivery.file.write(&delivery.cursor)?;
    let report = delivery.report;
    if report.remaining > 0 && !report.failed {
        let Report { receiver, remaining, .. } = report;
        let events = text::counted(remaining, "more event", "more events");
        note(format_args!("{receiver}: no time for {events} in this run"));
    }
    Ok(report)
}

/// A cursor for a receiver that has none: it gets the events since the second `from`.
fn first(events: &Events<'_>, from: i64, marked: i64) -> Cursor {
    let mut cursor = Cursor::new(from, marked);
    let is_old = |event: &&Event<'_>| event.0.at.seconds < from;
    for (event, id) in events.crossings.iter().take_while(is_old) {
        cursor.finish(id, event.at);
    }
    cursor
}

/// What is delivered to one receiver.
struct Delivery<'a> {
    receiver: &'a Receiver<'a>,
    account: Account,
    file: CursorFile,
    cursor: Cursor,
    begun: Instant,
    report: Report,
}

impl Delivery<'_> {
    /// Sends the crossings that are new; false if some remain.
    fn crossings(&mut self, events: &Events<'_>) -> Result<bool, Failure> {
        let Events { crossings: events, observed, .. } = events;
        let known = events.iter().rposition(|(_, id)| self.cursor.is_done(id));
        let from = known.map_or_else(|| self.cursor.lose_place(), |_| i64::MIN);
        let new: Vec<_> = events
            .iter()
            .skip(known.map_or(0, |at| at + 1))
            .filter(|(event, _)| micros(event.at) >= from)
            .collect();
        for (sent, (event, id)) in new.iter().enumerate() {
            // Others get to see all: what they have is their own list.
            let is_due = alerts(event, *observed) || !self.receiver.is_alerted();
            if is_due && !self.send(event, id)? {
                self.report.remaining = new.len() - sent;
                return Ok(false);
            }
            self.cursor.finish(id, event.at);
            if is_due {
                self.file.write(&self.cursor)?;
            }
        }
        Ok(true)
    }

    /// Sends the refusals that repeat an alert.
    fn repeats(&mut self, events: &[Event<'_>]) -> Result<(), Failure> {
        let new: Vec<_> =
            events.iter().filter(|(event, _)| !self.cursor.is_repeated(event.at)).collect();
        for (sent, (event, id)) in new.iter().enumerate() {
            if !self.send(event, id)? {
                self.report.remaining = new.len() - sent;
                return Ok(());
            }
            self.cursor.finish_repeat(event.at);
            self.file.write(&self.cursor)?;
        }
        Ok(())
    }

    /// Sends an event; true if it was sent or is given up.
    fn send(&mut self, event: &LoggedEvent, id: &str) -> Result<bool, Failure> {
        if self.cursor.must_wait(id, now()) {
            self.report.failed = true;
            return Ok(false);
        }
        if self.begun.elapsed() > RUN_TIME {
            return Ok(false);
        }
        let attempt = self.cursor.attempt(id);
        // An attempt that is not on the disk could be repeated without a mark.
        self.file.write(&self.cursor)?;
        let alert = Alert::new(event, id, attempt, self.cursor.is_marked(event.at));
        let Err(fault) = self.receiver.send(&alert, self.account) else {
            self.report.sent += 1;
            return Ok(true);
        };
        let name = self.receiver.name();
        let is_old = now().seconds.saturating_sub(event.at.seconds) > GIVEN_UP.1;
        if is_old && attempt >= GIVEN_UP.0 {
            complain(format_args!("{name}: {fault}; event {id} is given up"));
            self.report.given_up += 1;
            return Ok(true);
        }
        let wait = text::duration(self.cursor.fail(now()) as f64);
        complain(format_args!("{name}: {fault}; event {id} is attempted again in {wait}"));
        self.report.failed = true;
        Ok(false)
    }
}
