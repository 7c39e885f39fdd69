//! What is sent to one receiver, and how far it has got.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;

use super::alert::{Alert, Head};
use super::cursor::{Cursor, CursorFile, SavedCursor, micros};
use super::digest::Digest;
use super::known::{AlertContext, Sources};
use super::program::Account;
use super::receiver::{Receiver, account_of};
use crate::policy::model::OnCrossing;
use crate::rate::Timestamp;
use crate::spool::{Enforcement, LoggedEvent};
use crate::standing::databases::StandingError;
use crate::sys::files;
use crate::text;
use crate::text::Voice;
use crate::text::time::now;

/// How long a run goes on with one receiver. The others get what is new in the next run.
const RUN_TIME: Duration = Duration::from_secs(60);
/// How old the crossings are at most that a new receiver gets, in seconds.
const FIRST: i64 = 3600;
/// When an event is given up: after so many attempts, if it is so many seconds old.
const GIVEN_UP: (u32, i64) = (10, 86_400);
/// More alerts than this within [`BURST`] seconds are sent together.
const SINGLE_MAX: usize = 10;
const BURST: i64 = 60;
/// An alert of something so many seconds ago is late. More than [`SINGLE_MAX`] late ones are sent
/// together, or not at all: whoever begins to send, or could not for a while, floods nobody.
const LATE: i64 = 300;
/// A contact gets at most one alert in so many seconds.
const DAY: i64 = 86_400;
/// The most alerts that are sent together.
const TOGETHER_MAX: usize = 1000;

/// What was done for one receiver.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ReceiverReport {
    pub(crate) receiver: &'static str,
    /// How many events.
    pub(crate) sent: usize,
    /// How many events.
    given_up: usize,
    /// How many events.
    pub(crate) remaining: usize,
    /// Whether the receiver has failed.
    pub(crate) failed: bool,
    /// Those that remain wait to be sent together.
    #[serde(skip)]
    waits: bool,
}

impl ReceiverReport {
    fn of(receiver: &Receiver<'_>) -> Self {
        let receiver = receiver.name();
        Self { receiver, sent: 0, given_up: 0, remaining: 0, failed: false, waits: false }
    }

    /// That of a receiver for which nothing could be done.
    pub(super) fn failed(receiver: &Receiver<'_>, remaining: usize) -> Self {
        Self { remaining, failed: true, ..Self::of(receiver) }
    }
}

/// An event that may be sent.
pub(super) struct AlertEvent<'a> {
    pub(super) event: &'a LoggedEvent,
    pub(super) id: String,
    /// There is an alert of it.
    is_due: bool,
    /// There was no other alert of its account in the day before.
    is_first_of_day: bool,
    /// It is one of more alerts within a minute than are sent one by one.
    in_burst: bool,
}

/// What is sent.
pub(super) struct Events<'a> {
    /// All crossings, in the order of the journal.
    pub(super) crossings: Vec<AlertEvent<'a>>,
    /// Refusals of keys that were still over a limit `repeat` seconds after their last
    /// alert; `None` if alerts are not repeated.
    pub(super) repeats: Option<Vec<AlertEvent<'a>>>,
}

impl<'a> Events<'a> {
    pub(super) fn of(
        crossings: &'a [LoggedEvent],
        refusals: &'a [LoggedEvent],
        on: &OnCrossing,
    ) -> Self {
        let all = crossings.iter().map(|event| (event, has_alert(event, on.observed)));
        let firsts = if on.contact { firsts_of_day(crossings) } else { HashSet::new() };
        let again = |repeat| repeats(crossings, refusals, repeat, on.observed);
        Self {
            crossings: with_bursts(all, &firsts),
            repeats: on.repeat.map(|repeat| {
                with_bursts(again(repeat).into_iter().map(|e| (e, true)), &HashSet::new())
            }),
        }
    }
}

/// Marks the alerts of which there are too many within a minute to be sent one by one. This
/// depends on the logs alone, as what is repeated does.
fn with_bursts<'a>(
    events: impl Iterator<Item = (&'a LoggedEvent, bool)>,
    firsts: &HashSet<String>,
) -> Vec<AlertEvent<'a>> {
    let mut all: Vec<AlertEvent<'a>> = events
        .map(|(event, is_due)| {
            let id = event.id();
            let is_first_of_day = firsts.contains(&id);
            AlertEvent { event, id, is_due, is_first_of_day, in_burst: false }
        })
        .collect();
    let mut due: Vec<usize> =
        (0..).zip(&all).filter(|(_, one)| one.is_due).map(|(n, _)| n).collect();
    let second =
        |all: &[AlertEvent<'a>], n: usize| all.get(n).map_or(0, |one| one.event.at.seconds);
    due.sort_by_key(|n| second(&all, *n));
    let many: Vec<usize> = due
        .windows(SINGLE_MAX + 1)
        .filter(|many| match many {
            [first, .., last] => second(&all, *last) - second(&all, *first) < BURST,
            _ => false,
        })
        .flatten()
        .copied()
        .collect();
    for n in many {
        if let Some(one) = all.get_mut(n) {
            one.in_burst = true;
        }
    }
    all
}

/// The ids of the crossings of accounts that are the first ones in a day, each of its account. This
/// depends on the journal alone, too.
fn firsts_of_day(crossings: &[LoggedEvent]) -> HashSet<String> {
    let mut last: HashMap<String, i64> = HashMap::new();
    let alerts = crossings.iter().filter(|event| has_alert(event, false));
    let firsts = alerts.filter(|event| {
        let Some(account) = account_of(event) else { return false };
        let at = event.at.seconds;
        let is_first = last.get(&account).is_none_or(|last| at.saturating_sub(*last) >= DAY);
        if is_first {
            last.insert(account, at);
        }
        is_first
    });
    firsts.map(LoggedEvent::id).collect()
}

/// Whether there is an alert of a crossing; `observed`: also of what is only observed.
pub(crate) fn has_alert(event: &LoggedEvent, observed: bool) -> bool {
    match event.enforcement {
        Enforcement::Enforced => true,
        Enforcement::Observed => observed,
        // What waits is sent later.
        Enforcement::Exempt | Enforcement::Waits => false,
    }
}

/// The refusals that repeat an alert. They depend on the logs alone, so that each run and
/// each receiver finds the same.
fn repeats<'a>(
    crossings: &[LoggedEvent],
    refusals: &'a [LoggedEvent],
    repeat: f64,
    observed: bool,
) -> Vec<&'a LoggedEvent> {
    let mut crossed: HashMap<&[u8], Vec<f64>> = HashMap::new();
    for event in crossings.iter().filter(|event| has_alert(event, observed)) {
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
            found.push(event);
        }
    }
    found
}

/// How far a receiver has got with the crossings of the journal.
pub(crate) struct Delivered {
    pub(crate) name: &'static str,
    /// The first that it has not got; what is before, it has.
    pub(crate) done: usize,
    /// How many alerts it has not got.
    pub(crate) waiting: usize,
    /// The last attempt has failed.
    pub(crate) failing: bool,
    /// When something last looked for alerts to send to it, in seconds since 1970.
    pub(crate) ran: Option<i64>,
}

/// How far each receiver of `on` has got with `crossings`, those of the journal.
///
/// # Errors
/// How far one has got cannot be read.
pub(crate) fn delivered(
    spool: &Path,
    on: &OnCrossing,
    crossings: &[LoggedEvent],
) -> Result<Vec<Delivered>, StandingError> {
    let each = Receiver::all(spool, on, "");
    let states = each.iter().map(|receiver| {
        let file = CursorFile::open(spool, receiver.name())?;
        let ran = files::info_of(&file.path()).ok().map(|info| info.modified);
        let cursor = match file.read()? {
            SavedCursor::Cursor(cursor) => cursor,
            SavedCursor::Nothing | SavedCursor::Damaged(_) => Cursor::default(),
        };
        let done = crossings.iter().rposition(|event| cursor.is_done(&event.id()));
        let done = done.map_or(0, |at| at + 1);
        let new = crossings.iter().skip(done);
        let waiting = new.filter(|event| has_alert(event, on.observed));
        let waiting = waiting.filter(|event| receiver.wants(account_of(event).is_some())).count();
        Ok(Delivered { name: receiver.name(), done, waiting, failing: cursor.is_failing(), ran })
    });
    states.collect()
}

/// What is delivered to one receiver.
pub(super) struct Delivery<'a> {
    receiver: &'a Receiver<'a>,
    events: &'a Events<'a>,
    account: Account,
    voice: &'a dyn Voice,
    file: CursorFile,
    cursor: Cursor,
    /// The first crossing that it has not got, and the time, in microseconds, before which it
    /// has all the same.
    from: (usize, i64),
    /// Alerts of before this second are late, and more than are sent one by one.
    late: i64,
    begun: Instant,
    report: ReceiverReport,
}

/// What all alerts of a run have in common.
pub(super) struct Context<'a> {
    pub(super) host: &'a str,
    /// By the ids of events.
    pub(super) known: &'a HashMap<&'a str, AlertContext>,
}

impl<'a> Delivery<'a> {
    /// Finds what a receiver has not got.
    pub(super) fn begin(
        spool: &Path,
        receiver: &'a Receiver<'a>,
        events: &'a Events<'a>,
        account: Account,
        voice: &'a dyn Voice,
    ) -> Result<Self, StandingError> {
        let file = CursorFile::open(spool, receiver.name())?;
        let mut cursor = match file.read()? {
            SavedCursor::Cursor(cursor) => cursor,
            SavedCursor::Nothing => {
                let from = now().seconds.saturating_sub(FIRST);
                let is_old = |one: &&AlertEvent<'_>| one.is_due && one.event.at.seconds < from;
                let old = events.crossings.iter().take_while(|one| one.event.at.seconds < from);
                let old = old.filter(is_old).count();
                if old > 0 && receiver.is_alerted() {
                    let crossings = text::counted(old, "crossing", "crossings");
                    voice.note(format_args!(
                        "{} begins with the last hour: {crossings} of before, which `exirate events` \
                         lists, not sent",
                        receiver.name(),
                    ));
                }
                first(events, from, i64::MIN)
            }
            SavedCursor::Damaged(written) => {
                voice.note(format_args!(
                    "{} is damaged: the crossings of the hour before {} and later are sent again",
                    file.path().display(),
                    text::local_second(written)
                ));
                first(events, written.saturating_sub(FIRST), written.saturating_add(1))
            }
        };
        let known = events.crossings.iter().rposition(|one| cursor.is_done(&one.id));
        let from = match known {
            Some(at) => (at + 1, i64::MIN),
            None => (0, cursor.lose_place()),
        };
        let (begun, report) = (Instant::now(), ReceiverReport::of(receiver));
        let late = i64::MIN;
        let mut all =
            Self { receiver, events, account, voice, file, cursor, from, late, begun, report };
        let late = now().seconds.saturating_sub(LATE);
        let of_late = all.due().iter().filter(|one| one.event.at.seconds < late).count();
        if of_late > SINGLE_MAX {
            all.late = late;
        }
        Ok(all)
    }

    /// Whether it is one of many late ones.
    fn is_late(&self, one: &AlertEvent<'_>) -> bool {
        one.event.at.seconds < self.late
    }

    /// The crossings that it has not got.
    fn new_crossings(&self) -> Vec<&'a AlertEvent<'a>> {
        let (at, from) = self.from;
        let new = self.events.crossings.iter().skip(at);
        new.filter(|one| micros(one.event.at) >= from).collect()
    }

    /// The refusals that repeat an alert and that it has not got.
    fn new_repeats(&self) -> Vec<&'a AlertEvent<'a>> {
        let all = self.events.repeats.iter().flatten().filter(|_| self.receiver.is_alerted());
        all.filter(|one| !self.cursor.is_repeated(one.event.at)).collect()
    }

    /// The events of which it is to get an alert.
    pub(super) fn due(&self) -> Vec<&'a AlertEvent<'a>> {
        let mut all = self.new_crossings();
        all.extend(self.new_repeats());
        all.retain(|one| self.is_due(one));
        all
    }

    fn is_due(&self, one: &AlertEvent<'_>) -> bool {
        // Others get to see all: what they have is their own list.
        one.is_due && self.receiver.wants(one.is_first_of_day) || !self.receiver.is_alerted()
    }

    /// Sends it what it has not got.
    pub(super) fn run(mut self, context: &Context<'_>) -> Result<ReceiverReport, StandingError> {
        let crossings = self.new_crossings();
        let complete = self.send_all(&crossings, Cursor::finish, context)?;
        match &self.events.repeats {
            Some(_) if complete => {
                let repeats = self.new_repeats();
                self.send_all(&repeats, |cursor, _, at| cursor.finish_repeat(at), context)?;
            }
            Some(_) => {}
            None => self.cursor.skip_repeats(now()),
        }
        self.file.write(&self.cursor)?;
        let report = self.report;
        if report.remaining > 0 && !report.failed && !report.waits {
            let ReceiverReport { receiver, remaining, .. } = report;
            let events = text::counted(remaining, "more event", "more events");
            self.voice.note(format_args!("{receiver}: no time for {events} in this run"));
        }
        Ok(report)
    }

    /// Sends events, in their order; false if some remain.
    fn send_all(
        &mut self,
        new: &[&'a AlertEvent<'a>],
        finish: impl Fn(&mut Cursor, &str, Timestamp),
        context: &Context<'_>,
    ) -> Result<bool, StandingError> {
        let mut rest = new;
        while let Some((one, after)) = rest.split_first() {
            if !self.is_due(one) {
                finish(&mut self.cursor, &one.id, one.event.at);
                rest = after;
                continue;
            }
            if let Some(after) = self.give_up_late(rest, &finish) {
                rest = after;
                continue;
            }
            let together = self.together(rest);
            let (now_sent, after) = rest.split_at_checked(together).unwrap_or((rest, &[]));
            let due: Vec<&AlertEvent<'_>> =
                now_sent.iter().copied().filter(|one| self.is_due(one)).collect();
            if self.waits_for_more(one, &due) {
                self.report.waits = true;
                self.report.remaining = rest.len();
                return Ok(false);
            }
            if !self.send(&due, context)? {
                self.report.remaining = rest.len();
                return Ok(false);
            }
            now_sent.iter().for_each(|one| finish(&mut self.cursor, &one.id, one.event.at));
            self.file.write(&self.cursor)?;
            rest = after;
        }
        Ok(true)
    }

    /// How many of the next events are sent together.
    fn together(&self, rest: &[&AlertEvent<'_>]) -> usize {
        let are_many = |one: &AlertEvent<'_>| one.in_burst || self.is_late(one);
        let is_many = |one: &&&AlertEvent<'_>| are_many(one) || !self.is_due(one);
        match rest.first() {
            Some(first) if are_many(first) && self.receiver.takes_digests() => {
                rest.iter().take(TOGETHER_MAX).take_while(is_many).count()
            }
            _ => 1,
        }
    }

    /// Gives up many alerts that are older than a day, and were never attempted, of a receiver that
    /// gets each by itself. What remains, if it is so.
    fn give_up_late<'r>(
        &mut self,
        rest: &'r [&'a AlertEvent<'a>],
        finish: &impl Fn(&mut Cursor, &str, Timestamp),
    ) -> Option<&'r [&'a AlertEvent<'a>]> {
        let day = now().seconds.saturating_sub(GIVEN_UP.1);
        let is_old = |one: &AlertEvent<'_>| self.is_late(one) && one.event.at.seconds < day;
        let first = rest.first().filter(|one| is_old(one) && !self.cursor.is_pending(&one.id))?;
        if self.receiver.takes_digests() || !self.receiver.is_alerted() {
            return None;
        }
        let old = rest.iter().take_while(|one| is_old(one) || !self.is_due(one)).count();
        let (old, after) = rest.split_at_checked(old)?;
        let count = old.iter().filter(|one| self.is_due(one)).count();
        self.voice.complain(format_args!(
            "{}: {} of more than a day ago given up, the first of {}: `exirate events` lists them",
            self.receiver.name(),
            text::counted(count, "event", "events"),
            text::local(first.event.at),
        ));
        self.report.given_up += count;
        old.iter().for_each(|one| finish(&mut self.cursor, &one.id, one.event.at));
        Some(after)
    }

    /// Whether more alerts are likely to come, to be sent with these: some of this minute were
    /// sent already.
    fn waits_for_more(&self, first: &AlertEvent<'_>, due: &[&AlertEvent<'_>]) -> bool {
        let age = now().seconds.saturating_sub(first.event.at.seconds);
        first.in_burst
            && self.receiver.takes_digests()
            && due.len() < TOGETHER_MAX
            && (0..BURST).contains(&age)
            && self.cursor.has_sent_since(first.event.at, BURST)
            && !self.cursor.is_pending(&first.id)
    }

    /// Sends alerts, several of them together; true if they were sent or are given up.
    fn send(
        &mut self,
        due: &[&AlertEvent<'_>],
        context: &Context<'_>,
    ) -> Result<bool, StandingError> {
        let (Some(first), Some(last)) = (due.first(), due.last()) else { return Ok(true) };
        let (id, name) = (&*first.id, self.receiver.name());
        if self.cursor.must_wait(id, now()) {
            self.report.failed = true;
            return Ok(false);
        }
        if self.begun.elapsed() > RUN_TIME {
            return Ok(false);
        }
        let attempt = self.cursor.attempt(id);
        let known: Vec<AlertContext> = due.iter().map(|one| context.known(one)).collect();
        let alerts: Vec<Alert<'_>> = due
            .iter()
            .zip(&known)
            .map(|(one, known)| {
                let head = Head::new(&one.id, attempt, self.cursor.is_marked(one.event.at));
                Alert::new(one.event, head, context.host, known)
            })
            .collect();
        let marked = alerts.iter().any(|alert| alert.head.redelivered);
        // What arrives by an attempt that fails is marked the next time, with whatever it is
        // sent then.
        let marked_before =
            self.cursor.mark(if due.len() > 1 { Some(last.event.at) } else { None });
        // An attempt that is not on the disk could be repeated without a mark.
        self.file.write(&self.cursor)?;
        let sent = match <[Alert<'_>; 1]>::try_from(alerts) {
            Ok([alert]) => self.receiver.send(&alert, self.account),
            Err(alerts) => {
                let head = Head::new(id, attempt, marked);
                self.receiver.send_digest(&Digest::new(head, context.host, alerts), self.account)
            }
        };
        let Err(fault) = sent else {
            self.cursor.unmark(marked_before);
            self.report.sent += due.len();
            return Ok(true);
        };
        let what = match due.len() {
            1 => format!("event {id} is"),
            several => format!("{several} events from {id} on are"),
        };
        let is_old = now().seconds.saturating_sub(last.event.at.seconds) > GIVEN_UP.1;
        if is_old && attempt >= GIVEN_UP.0 {
            self.voice.complain(format_args!("{name}: {fault}; {what} given up"));
            self.report.given_up += due.len();
            return Ok(true);
        }
        let wait = text::duration(self.cursor.fail(now()) as f64);
        self.voice.complain(format_args!("{name}: {fault}; {what} attempted again in {wait}"));
        self.report.failed = true;
        Ok(false)
    }
}

impl Context<'_> {
    fn known(&self, one: &AlertEvent<'_>) -> AlertContext {
        let known = self.known.get(&*one.id).cloned();
        known.unwrap_or_else(|| AlertContext::of(one.event, &Sources::of(self.host)))
    }
}

/// A cursor for a receiver that has none: it gets the events since the second `from`.
fn first(events: &Events<'_>, from: i64, marked: i64) -> Cursor {
    let mut cursor = Cursor::new(from, marked);
    let is_old = |one: &&AlertEvent<'_>| one.event.at.seconds < from;
    for one in events.crossings.iter().take_while(is_old) {
        cursor.finish(&one.id, one.event.at);
    }
    cursor
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Kind;
    use crate::spool::EventWindow;

    #[test]
    fn a_contact_gets_the_first_alert_of_an_account_in_a_day() {
        let of = |kind, identity: &str, seconds| {
            let stored = format!("out/messages/1h/{identity}");
            let at = Timestamp { seconds, micros: 0 };
            let event = LoggedEvent::invented(stored.as_bytes(), EventWindow::default(), at);
            event.of_kind(kind, "out/messages/1h/".len())
        };
        let all = [
            of(Kind::Policy, "auth:ann", 0),
            of(Kind::Habits, "auth:ann", DAY - 1),
            of(Kind::Policy, "auth:bob", DAY - 2),
            of(Kind::Policy, "auth:ann,client:192.0.2.7", DAY),
            of(Kind::Policy, "domain:x.test", DAY + 1),
            of(Kind::Policy, "client:192.0.2.7", DAY + 2),
            of(Kind::Spec, "auth:ann", 3 * DAY),
        ];
        let firsts = firsts_of_day(&all);
        let found: Vec<usize> = (0..all.len()).filter(|n| firsts.contains(&all[*n].id())).collect();
        assert_eq!(found, [0, 2, 3]);
    }
}
