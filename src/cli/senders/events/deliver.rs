//! `exirate events deliver`: send crossings to the receivers of the policies in use.

use std::collections::HashMap;
use std::ffi::CStr;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use super::alert::{Alert, Head};
use super::cursor::CursorFile;
use super::delivery::{Context, Delivery, Events, Report};
use super::known::{Known, Sources};
use super::program::Account;
use super::receiver::{NAMES, Receiver, Stream};
use crate::cli::shared::database::{Common, exclusively, open_traces, require_owner};
use crate::cli::shared::screen::{Screen, complain, note};
use crate::cli::system::cluster;
use crate::cli::{Failure, Outcome};
use crate::policy::image::{ImageError, PolicyFile};
use crate::policy::model::OnCrossing;
use crate::spool::{EventKind, EventReader, EventWindow, LoggedEvent, Spool};
use crate::sys::{files, host_name};
use crate::text;
use crate::text::time::now;
use crate::trace::Access;

/// The file that is locked while events are delivered.
const LOCK: &CStr = c"delivery.lock";
/// How long to wait for the details of an event, and how often to look for them.
const DETAILS: (Duration, Duration) = (Duration::from_secs(3), Duration::from_millis(100));
/// Of so many alerts at most, the messages that are recorded are counted.
const COUNTED_MAX: usize = 10;

/// Send new crossings to the receivers in [on.crossing] of the policies
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Send what is new, as a timer does:
    exirate events deliver
  Do alerts arrive? Send a test to each receiver, and print how that went:
    exirate events deliver --test
  Which receivers have not received everything?
    exirate events deliver --json

Each receiver that [on.crossing] of the policy file names gets each crossing at least once. A
later run tries again what has failed. exirate-deliver.path and exirate-deliver.timer, or cron,
run this.

Exit status: 0 no receiver has failed, or another process is sending; 1 a receiver has failed, and
a later run sends the rest; 2 an error.

`log` prints a line, `run` runs a program, `post` sends JSON to a URL, with curl, and `mail` sends
mail. Each receiver gets each crossing at least once; crossings of exempt keys are not sent, and
those of policies that only observe are sent if `observed = true`. A later run tries again what
has failed, and marks it. Where more than ten keys cross within a minute, `post` and `mail` get
one message for all of them, a minute later if some were sent already. exirate-deliver.path and
exirate-deliver.timer, or cron, run this command. Programs run as the owner of the spool
directory. docs/alerts.md has the details.

Where limits are shared, crossings are also sent to the shared store (`shared` in JSON). For this,
run it as a user who can read the agent's configuration and the password, such as root.

JSON: an object for each receiver. `sent`, `given_up` and `remaining` count events, and
`failed` says whether the receiver has failed. With --test: `receiver`, `to`, `ok` and `error`.")]
pub(super) struct Deliver {
    /// Send mail with this program, which must accept the options of sendmail
    #[arg(long, value_name = "FILE", default_value = "/usr/sbin/sendmail")]
    sendmail: String,

    /// Send a test alert to each receiver, and nothing else
    #[arg(long)]
    test: bool,

    #[command(flatten)]
    common: Common,
}

impl Deliver {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let directory = self.common.directory()?;
        if self.test {
            return self.test(screen, &directory);
        }
        // A policy may be in use before the first check has created the database.
        let Some(mut spool) = self.common.spool_if_any()? else {
            remark("there is no rate database yet: nothing is sent");
            return Ok(Outcome::Fine);
        };
        let account = account(&directory)?;
        let on = receivers(&directory)?;
        let mut all = Receiver::all(&on, &self.sendmail);
        if let (_, Some(settings)) = cluster::settings(&directory)? {
            all.push(Receiver::Shared(Stream::new(settings.config)));
        }
        if all.is_empty() {
            remark("the policies in use have no receiver in [on.crossing]: nothing is sent");
        }
        let mut reports = Vec::new();
        let alone = exclusively(&directory, LOCK, Duration::ZERO, || {
            // A receiver that is used again later is a new one.
            let is_used = |name: &&str| all.iter().any(|receiver| receiver.name() == *name);
            for name in NAMES.iter().filter(|name| !is_used(name)) {
                CursorFile::open(&directory, name)?.remove()?;
            }
            let directories = (&*directory, self.common.spool.as_deref());
            reports = deliver_all(&mut spool, directories, &all, &on, account)?;
            Ok(())
        })?;
        if alone.is_none() {
            remark("another process is sending");
        }
        if self.common.json {
            reports.iter().try_for_each(|report| screen.json(report))?;
        }
        Ok(Outcome::found_if(reports.iter().any(|report| report.failed)))
    }

    fn test(&self, screen: &mut Screen<'_>, directory: &Path) -> Result<Outcome, Failure> {
        let account = account(directory)?;
        let on = receivers(directory)?;
        let all = Receiver::all(&on, &self.sendmail);
        if all.is_empty() {
            return Err(Failure::new(
                "the policies in use have no receiver in [on.crossing]: nobody is alerted",
            ));
        }
        Ok(Outcome::found_if(!test(screen, &all, account, self.common.json)?))
    }
}

/// The account that programs run as.
fn account(directory: &Path) -> Result<Account, Failure> {
    require_owner(directory)?;
    let owner = files::info_of(directory)
        .map_err(|error| Failure::new(format!("cannot read {}: {error}", directory.display())))?;
    Ok(Account::owner(owner.uid, owner.gid))
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

/// Sends what is new to all receivers, none of which waits for another.
fn deliver_all(
    spool: &mut Spool,
    (directory, named): (&Path, Option<&Path>),
    receivers: &[Receiver<'_>],
    on: &OnCrossing,
    account: Account,
) -> Result<Vec<Report>, Failure> {
    if receivers.is_empty() {
        return Ok(Vec::new());
    }
    let crossings = read(spool, EventKind::Crossings)?;
    // They say how it went on after a crossing, and repeat alerts.
    let is_new = match crossings.last() {
        Some(last) => receivers.iter().any(|one| !one.has_got(directory, &last.id())),
        None => false,
    };
    let refusals = match on.repeat.is_some() || is_new {
        true => read(spool, EventKind::Refusals)?,
        false => Vec::new(),
    };
    let events = Events::of(&crossings, &refusals, on);
    let begun: Vec<Result<Delivery<'_>, Failure>> = receivers
        .iter()
        .map(|receiver| Delivery::begin(directory, receiver, &events, account))
        .collect();
    let host = host_name();
    let due = begun.iter().flatten().flat_map(Delivery::due);
    let due: HashMap<&str, &LoggedEvent> = due.map(|one| (&*one.id, one.event)).collect();
    let known = known(&due, &refusals, host, directory, named);
    let context = Context { host, known: &known };
    let results: Vec<Result<Report, Failure>> = thread::scope(|scope| {
        let context = &context;
        let run = |one: Result<Delivery<'_>, Failure>| one.and_then(|one| one.run(context));
        let threads: Vec<_> = begun.into_iter().map(|one| scope.spawn(move || run(one))).collect();
        let ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
        ended.map(|one| one.unwrap_or_else(|_| Err(Failure::new("an internal error")))).collect()
    });
    let reports = receivers.iter().zip(results).map(|(receiver, result)| {
        result.unwrap_or_else(|failure| {
            if let Failure::Said(what) = failure {
                complain(format_args!("{}: {what}", receiver.name()));
            }
            Report::failed(receiver, events.crossings.len())
        })
    });
    Ok(reports.collect())
}

/// What is known of the events that are due. How many messages there were is counted only if
/// these are few.
fn known<'a>(
    due: &HashMap<&'a str, &LoggedEvent>,
    refusals: &[LoggedEvent],
    host: &str,
    directory: &Path,
    named: Option<&Path>,
) -> HashMap<&'a str, Known> {
    let mut sources = Sources { spool: named, ..Sources::of(host) };
    for event in refusals {
        sources.refusals.entry(&event.stored).or_default().push(event);
    }
    // What cannot be read is not known; other commands say why.
    let traces =
        (1..=COUNTED_MAX).contains(&due.len()).then(|| open_traces(directory, Access::Read));
    let traces = traces.and_then(Result::ok).flatten();
    sources.traces = traces.as_ref();
    due.iter().map(|(id, event)| (*id, Known::of(event, &sources))).collect()
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

/// What a test alert did.
#[derive(Serialize)]
struct Tested {
    receiver: &'static str,
    to: String,
    ok: bool,
    error: Option<String>,
}

/// Sends an alert that is none to each receiver, and says what each did; false if one has
/// failed.
fn test(
    screen: &mut Screen<'_>,
    all: &[Receiver<'_>],
    account: Account,
    json: bool,
) -> Result<bool, Failure> {
    let host = host_name();
    let at = now();
    let window = EventWindow {
        limit: 100.0,
        period: 3600.0,
        after: 101.0,
        before: 100.0,
        count: 1.0,
        over: true,
        ..EventWindow::default()
    };
    let event = LoggedEvent::invented(b"1h/per_rcpt/exirate-test", window, at);
    let mut known = Known::of(&event, &Sources::of(host));
    known.text = format!(
        "This is a test of the alerts of {host}, sent at {}: nobody is over a limit.",
        text::local(at)
    );
    let id = event.id();
    let head = Head { test: true, ..Head::new(&id, 1, false) };
    let alert = Alert::new(&event, head, host, &known);
    let mut well = true;
    for receiver in all {
        let sent = receiver.send(&alert, account);
        well &= sent.is_ok();
        let (receiver, to) = (receiver.name(), receiver.destination());
        match (json, sent) {
            (true, sent) => {
                screen.json(&Tested { receiver, to, ok: sent.is_ok(), error: sent.err() })?;
            }
            (false, Ok(())) => writeln!(screen, "{receiver}: {to} has accepted it")?,
            (false, Err(fault)) => writeln!(screen, "{receiver}: {to} has failed: {fault}")?,
        }
        screen.flush()?;
    }
    Ok(well)
}
