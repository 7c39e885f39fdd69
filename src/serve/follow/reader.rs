//! Reads the log, and counts what became of the mail.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::tz::TimeZone;

use super::counter::Counter;
use super::ledger::{Ledger, hash_of};
use super::state::State;
use crate::event::{Event, Unit};
use crate::logs::files::Stamped;
use crate::logs::follow::{Follow, Followed};
use crate::logs::messages::{Item, ItemKind, JoinSettings, Joiner};
use crate::rate::Timestamp;
use crate::serve::config::{self, FollowedLog};
use crate::serve::log::{Level, Log};
use crate::text::time::{now, timestamp, zone};

/// How long the log is not looked at.
const PAUSE: Duration = Duration::from_millis(500);
/// How long after an error.
const AFTER_ERROR: Duration = Duration::from_secs(2);
/// How often what is remembered is written.
const STATE_EVERY: Duration = Duration::from_secs(5);

/// What the thread that reads shares with others.
#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<SharedState>,
    stopped: Condvar,
}

#[derive(Debug, Default)]
struct SharedState {
    stop: bool,
    /// The configuration has changed.
    new: Option<config::Follow>,
    /// What the reader does, in words.
    status: String,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reader is to end.
    pub(super) fn stop(&self) {
        self.lock().stop = true;
        self.stopped.notify_all();
    }

    pub(super) fn stops(&self) -> bool {
        self.lock().stop
    }

    /// The reader is to go on with another configuration.
    pub(super) fn set(&self, new: config::Follow) {
        self.lock().new = Some(new);
    }

    fn has_new(&self) -> bool {
        self.lock().new.is_some()
    }

    pub(super) fn take_new(&self) -> Option<config::Follow> {
        self.lock().new.take()
    }

    pub(super) fn status(&self) -> String {
        self.lock().status.clone()
    }

    fn show(&self, status: String) {
        self.lock().status = status;
    }

    /// Waits, unless it is to stop.
    fn wait(&self, time: Duration) {
        let _ = self.stopped.wait_timeout_while(self.lock(), time, |state| !state.stop);
    }
}

/// Reads and counts.
pub(super) struct Reader {
    config: config::Follow,
    shared: Arc<Shared>,
    log: Log,
    ledger: Ledger,
    counter: Counter,
    state: State,
    written: Instant,
    /// The last failure that was entered before this process began, if it may not have been
    /// counted.
    in_doubt: Option<(u64, Timestamp)>,
    zone: TimeZone,
    /// All that had been logged has been read: lines are of now.
    is_live: bool,
}

impl Reader {
    pub(super) fn open(config: config::Follow, shared: Arc<Shared>) -> Result<Self, String> {
        let directory = config.state.display().to_string();
        let failed = |error| format!("cannot use {directory}: {error}");
        let ledger = Ledger::open(&config.state, now()).map_err(failed)?;
        let begins = now().seconds;
        let known = State::read(&config.state).map_err(failed)?;
        let state = known.unwrap_or(State { began: begins, from: begins, ..State::default() });
        // It is remembered from the start: what fails from now on is counted.
        let state = State { log: config.log.to_string(), error: None, ..state };
        state.write(&config.state).map_err(failed)?;
        let in_doubt = ledger.last();
        let counter = Counter::new(&config.spool);
        let (log, zone) = (Log::stderr(), zone());
        let written = Instant::now();
        let is_live = false;
        Ok(Self { config, shared, log, ledger, counter, state, written, in_doubt, zone, is_live })
    }

    /// Follows the log until it is to stop, or the configuration has changed.
    pub(super) fn run(mut self) {
        while !self.shared.stops() && !self.shared.has_new() {
            if let Err(why) = self.follow() {
                self.log.write_seldom("the log", Level::Error, &why);
                self.state.error = Some(why);
                self.keep();
                self.shared.wait(AFTER_ERROR);
            }
        }
        self.keep();
    }

    /// Reads the log from where it is needed, and then as it grows.
    fn follow(&mut self) -> Result<(), String> {
        let mut joiner = Joiner::new(JoinSettings { recipients: false, failures: true });
        let from = Timestamp { seconds: self.state.from, micros: 0 };
        self.is_live = false;
        let mut follow = match self.config.log.clone() {
            FollowedLog::File(path) => {
                Follow::file(&path, from, &mut |line| self.line(&mut joiner, &line))
            }
            FollowedLog::Journal => Ok(Follow::journal(from)),
        }
        .map_err(|error| error.to_string())?;
        let log = &self.config.log;
        self.log.write(Level::Notice, format_args!("following {log}"));
        loop {
            let read = follow.poll(&mut |line| self.line(&mut joiner, &line));
            let read = read.map_err(|error| error.to_string())?;
            if self.shared.stops() || self.shared.has_new() {
                return Ok(());
            }
            self.is_live = true;
            self.state.error = None;
            if self.written.elapsed() > STATE_EVERY {
                let now = now();
                self.state.read = now.seconds;
                // The clock of the log may be another, and its zone.
                self.state.from = joiner.oldest(now).unwrap_or(now).min(now).seconds - 86_400;
                self.keep();
            } else {
                self.show();
            }
            if read == Followed::Rotated {
                return Ok(());
            }
            self.shared.wait(PAUSE);
        }
    }

    /// Shows what it does.
    fn show(&mut self) {
        self.state.counted = self.ledger.len() as u64;
        let counted = || format!("{} failed recipients counted", self.state.counted);
        self.shared.show(self.state.error.clone().unwrap_or_else(counted));
    }

    /// Shows what it does, and writes what is remembered.
    fn keep(&mut self) {
        self.show();
        self.written = Instant::now();
        if let Err(error) = self.state.write(&self.config.state) {
            let directory = self.config.state.display();
            let text = format_args!("cannot write in {directory}: {error}");
            self.log.write_seldom("the state", Level::Error, text);
        }
        self.log.summarize();
    }

    /// Considers a line. Returns whether to go on.
    fn line(&mut self, joiner: &mut Joiner, line: &Stamped<'_>) -> bool {
        let has_zone = line.has_zone;
        joiner.line(line, &mut |item| self.item(&item, has_zone));
        !self.shared.stops()
    }

    fn item(&mut self, item: &Item, has_zone: bool) {
        let ItemKind::Failed(failed) = item.what else { return };
        let event = item.submitter();
        let (Some(id), Some(recipient)) = (&event.message_id, &event.recipient) else { return };
        let hash = hash_of(id, failed.received, recipient);
        let in_doubt = self.in_doubt.take_if(|(of, _)| *of == hash);
        if self.ledger.has(hash) && in_doubt.is_none() {
            return;
        }
        let real = self.real_time(item.at, has_zone);
        let at = match in_doubt {
            Some((_, at)) => at,
            None if real.seconds < self.state.began => return,
            None => self.ledger.time(real),
        };
        let (view, unit) = (event.view(), failed.failure.unit());
        // What is not counted now would be missing: nothing goes on before it is.
        while !self.shared.stops() {
            let has = in_doubt.map_or(Ok(false), |_| self.counter.has(&view, unit, at));
            let done = has.and_then(|has| match has {
                true => Ok(None),
                false => self.enter_and_count(hash, &view, unit, at),
            });
            let (is_done, why) = match done {
                Ok(None) => break,
                Ok(Some(why)) => (true, why),
                Err(why) => (false, why),
            };
            self.log.write_seldom(
                "failed recipients that could not be counted",
                Level::Error,
                &why,
            );
            if is_done {
                break;
            }
            self.state.error = Some(why);
            self.keep();
            self.shared.wait(AFTER_ERROR);
        }
    }

    /// Counts a failure that has not been entered, or not been counted.
    fn enter_and_count(
        &mut self,
        hash: u64,
        event: &Event<&str>,
        unit: Unit,
        at: Timestamp,
    ) -> Result<Option<String>, String> {
        if !self.ledger.has(hash) {
            let entered = self.ledger.enter(hash, at);
            let directory = self.config.state.display();
            entered.map_err(|error| format!("cannot write in {directory}: {error}"))?;
        }
        self.counter.count(event, unit, at)
    }

    /// When a line was written: as it is read at once, now; else the time that it has, in the
    /// zone of this machine if it has none.
    fn real_time(&self, at: Timestamp, has_zone: bool) -> Timestamp {
        let now = now();
        if self.is_live {
            return now;
        }
        let real = if has_zone { Some(at) } else { in_zone(at, &self.zone) };
        real.unwrap_or(at).min(now)
    }
}

/// The time in this zone that has been taken as UTC.
fn in_zone(at: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let as_utc = jiff::Timestamp::from_microsecond(at.as_micros()).ok()?;
    let civil = TimeZone::UTC.to_datetime(as_utc);
    let real = zone.to_timestamp(civil).ok()?;
    Some(timestamp(real))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_without_a_zone_are_of_this_machine() {
        let at = |text: &str| {
            Timestamp::from_micros(text.parse::<jiff::Timestamp>().unwrap().as_microsecond())
        };
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let (written, real) = (at("2026-11-26T11:00:00.25Z"), at("2026-11-26T09:00:00.25Z"));
        assert_eq!(in_zone(written, &zone), Some(real));
    }
}
