//! Reads the log, and counts what became of the mail.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::tz::TimeZone;

use super::counter::Counter;
use super::ledger::Ledger;
use super::shared::Shared;
use super::state::{FollowerState, Position};
use crate::event::{Event, Unit};
use crate::logs::failure::Failure;
use crate::logs::files::Stamped;
use crate::logs::follow::{Follow, Followed};
use crate::logs::messages::{Item, ItemKind, JoinSettings, Joiner};
use crate::rate::Timestamp;
use crate::serve::config::{self, FollowedLog};
use crate::serve::log::{Level, Log};
use crate::text::time::{midnight, now, zone};

/// How long the log is not looked at.
const PAUSE: Duration = Duration::from_millis(500);
/// How long after an error.
const AFTER_ERROR: Duration = Duration::from_secs(2);
/// How often what it does is written for others.
const STATE_EVERY: Duration = Duration::from_secs(5);
/// How much less of the log has to be needed, in seconds, for that to be written.
const POSITION_STEP: i64 = 600;

/// Reads and counts.
pub(super) struct Reader {
    config: config::Follow,
    shared: Arc<Shared>,
    log: Log,
    ledger: Ledger,
    counter: Counter,
    position: Position,
    state: FollowerState,
    written: Instant,
    /// The last failure that was entered before this process began, if it may not have been
    /// counted.
    in_doubt: Option<(u64, Timestamp)>,
    zone: TimeZone,
    /// When the end of the log was last reached: all other lines were written after that.
    caught_up: Option<Timestamp>,
}

impl Reader {
    pub(super) fn open(config: config::Follow, shared: Arc<Shared>) -> Result<Self, String> {
        let directory = config.state.display().to_string();
        let failed = |error| format!("cannot use {directory}: {error}");
        let ledger = Ledger::open(&config.state, now()).map_err(failed)?;
        let begins = now().seconds;
        let known = Position::read(&config.state).map_err(failed)?;
        let position = known.unwrap_or(Position { began: begins, from: begins });
        // It is remembered from the start: what fails from now on is counted.
        position.write(&config.state).map_err(failed)?;
        let before = FollowerState::read(&config.state).map_err(failed)?.unwrap_or_default();
        let state = FollowerState { log: config.log.to_string(), error: None, ..before };
        let in_doubt = ledger.last();
        let counter = Counter::new(&config.spool);
        let (log, zone) = (Log::stderr(), zone());
        let (written, caught_up) = (Instant::now(), None);
        let mut reader = Self {
            config,
            shared,
            log,
            ledger,
            counter,
            position,
            state,
            written,
            in_doubt,
            zone,
            caught_up,
        };
        reader.keep();
        Ok(reader)
    }

    /// Follows the log until it is to stop, or the configuration has changed.
    pub(super) fn run(mut self) {
        while !self.shared.is_over() {
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
        let from = Timestamp { seconds: self.position.from, micros: 0 };
        (self.caught_up, self.state.is_of_syslog) = (None, false);
        let mut follow = match self.config.log.clone() {
            FollowedLog::File(path) => {
                Follow::file(&path, from, &mut |line| self.line(&mut joiner, &line))
            }
            FollowedLog::Journal(directory) => Ok(Follow::journal(directory, from)),
        }
        .map_err(|error| error.to_string())?;
        let log = &self.config.log;
        self.log.write(Level::Notice, format_args!("following {log}"));
        let mut forgotten = 0;
        loop {
            let begins = now();
            let read = follow.poll(&mut |line| self.line(&mut joiner, &line));
            let read = read.map_err(|error| error.to_string())?;
            if self.shared.is_over() {
                return Ok(());
            }
            if read == Followed::UpToDate {
                joiner.caught_up(begins, &mut |item| self.item(&item));
            }
            self.caught_up = Some(begins);
            self.state.error = None;
            self.state.read = begins.seconds;
            self.state.forgotten += joiner.forgotten() - forgotten;
            forgotten = joiner.forgotten();
            if self.written.elapsed() > STATE_EVERY {
                self.move_on(&mut joiner);
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

    /// Less of the log is needed.
    fn move_on(&mut self, joiner: &mut Joiner) {
        let now = now();
        // The clock of the log may be another, and its zone.
        let from = joiner.oldest(now).unwrap_or(now).min(now).seconds - 86_400;
        let pruned = self.ledger.prune(now);
        if from < self.position.from + POSITION_STEP {
            return self.cannot_write(pruned);
        }
        self.position.from = from;
        let written = self.position.write(&self.config.state);
        self.cannot_write(pruned.and(written));
    }

    fn cannot_write(&self, done: std::io::Result<()>) {
        if let Err(error) = done {
            let directory = self.config.state.display();
            let text = format_args!("cannot write in {directory}: {error}");
            self.log.write_seldom("the state", Level::Error, text);
        }
    }

    /// Shows what it does.
    fn show(&mut self) {
        self.state.counted = self.ledger.len() as u64;
        let counted = || format!("{} failed recipients counted", self.state.counted);
        self.shared.show(self.state.error.clone().unwrap_or_else(counted));
    }

    /// Shows what it does, also to others.
    fn keep(&mut self) {
        self.show();
        self.written = Instant::now();
        (self.state.alive, self.state.day) = (now().seconds, midnight());
        self.state.today = self.ledger.since(self.state.day) as u64;
        self.cannot_write(self.state.write(&self.config.state));
        self.log.summarize();
    }

    /// Considers a line. Returns whether to go on.
    fn line(&mut self, joiner: &mut Joiner, line: &Stamped<'_>) -> bool {
        let line = line.in_zone(&self.zone);
        self.state.is_of_syslog |=
            line.tag.is_some() && matches!(self.config.log, FollowedLog::File(_));
        joiner.line(&line, &mut |item| self.item(&item));
        if self.caught_up.is_none() && self.written.elapsed() > STATE_EVERY {
            self.state.read = self.state.read.max(self.real_time(line.at).seconds);
            self.keep();
        }
        !self.shared.is_over()
    }

    fn item(&mut self, item: &Item) {
        let ItemKind::Failed(failed) = item.what else { return };
        let event = item.submitter();
        let (Some(id), Some(recipient)) = (&event.message_id, &event.recipient) else { return };
        let mut hash = self.ledger.hash_of(id, failed.received, recipient);
        if failed.failure == Failure::Throttled {
            hash = self.ledger.hash_of_throttled(hash);
        }
        let in_doubt = self.in_doubt.take_if(|(of, _)| *of == hash);
        if self.ledger.has(hash) && in_doubt.is_none() {
            return;
        }
        let real = self.real_time(item.at);
        let at = match in_doubt {
            Some((_, at)) => at,
            None if real.seconds < self.position.began => return,
            None => self.ledger.time(real, now()),
        };
        if failed.hides_login {
            self.state.without_login += 1;
            let client = event.client.address().map(|client| client.to_string());
            let text = format_args!(
                "{id}: the log does not show who has logged in; a failed recipient counts for its \
                 client {}",
                client.unwrap_or_default()
            );
            self.log.write_seldom("failed recipients without a login", Level::Warning, text);
        }
        let (view, unit) = (event.view(), failed.failure.unit());
        // Both are times of the log, whatever its zone.
        let age = item.at.seconds.saturating_sub(failed.received.seconds);
        let age = u64::try_from(age).unwrap_or(0);
        // What is not counted now would be missing: nothing goes on before it is, unless the
        // configuration changes, with which the log is read again.
        while !self.shared.is_over() {
            let has = in_doubt.map_or(Ok(false), |_| self.counter.has(&view, unit, at));
            let done = has.and_then(|has| match has {
                true => Ok(None),
                false => self.enter_and_count(hash, &view, unit, at, age),
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
        age: u64,
    ) -> Result<Option<String>, String> {
        if !self.ledger.has(hash) {
            let entered = self.ledger.enter(hash, at);
            let directory = self.config.state.display();
            entered.map_err(|error| format!("cannot write in {directory}: {error}"))?;
        }
        self.counter.count(event, unit, at, age)
    }

    /// When a line was written: the time that it has, in the zone of this machine if it has none.
    /// That may be of another zone; but it was not before the end of the log was last reached.
    fn real_time(&self, at: Timestamp) -> Timestamp {
        within(at, self.caught_up, now())
    }
}

/// The time nearest to `real` that is possible for a line that is read now.
fn within(real: Timestamp, caught_up: Option<Timestamp>, now: Timestamp) -> Timestamp {
    real.max(caught_up.unwrap_or_default()).min(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_read_late_has_its_own_time() {
        let at = |seconds| Timestamp { seconds, micros: 0 };
        let (hours_ago, now) = (at(1_800_000_000), at(1_800_020_000));
        // What was logged while nobody looked, and what another zone seems to make of it.
        for (real, expected) in [(10_000, 10_000), (-3600, 0), (30_000, 20_000), (20_000, 20_000)] {
            let real = at(hours_ago.seconds + real);
            let expected = at(hours_ago.seconds + expected);
            assert_eq!(within(real, Some(hours_ago), now), expected, "{real:?}");
        }
        assert_eq!(within(at(9), None, now), at(9));
    }
}
