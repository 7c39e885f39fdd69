//! What the processes of a host know together of the shared store: whether it can be
//! reached, and when the next process tries.
//!
//! It is in the file `cluster.state` beside the database, which all processes map. Nothing
//! is locked: each word is changed in one atomic step.
//!
//! | offset | size | field | content |
//! |---|---|---|---|
//! | 0 | 8 | `magic` | `EXIRCLU1` |
//! | 8 | 8 | `until` | no process asks before this time of the monotonic clock, in microseconds; 0: all ask |
//! | 16 | 8 | `absence` | whether the shared store is away, see [`Absence`] |
//! | 24 | 8 | `apart` | events decided without it since it is away |
//! | 32 | 8 | `apart_over` | how many of these were over a limit |
//! | 40 | 8 | `shared` | events decided by the shared store, ever |
//! | 48 | 8 | `all_apart` | events decided without it, ever |
//! | 56 | 8 | `all_apart_over` | how many of these were over a limit |
//! | 64 | 8 | `late` | attempts that took half of the deadline or more, and failed |
//! | 72 | 8 | `all_from` | how many events were decided when `late` was last set to 0 |
//! | 80 | 8 | `apart_from` | how many of these were decided without the shared store |
//! | 88 | 8 | `late_since` | the second (since 1970) of the first attempt in `late` |
//!
//! An attempt that is late a day after `late_since` begins to count again.
//!
//! One process at a time tries while `until` is not 0. The first success makes all ask
//! again; that the shared store is back is noted, and logged, later.

use std::ffi::CStr;
use std::fs::File;

use super::absence::{Absence, AbsenceChange};
use crate::spool::FILE_MODE;
use crate::sys::clock;
use crate::sys::files;
use crate::sys::mapping::{Mapping, Watched};
use crate::sys::secure_dir::SecureDir;
use crate::versions::OtherVersion;

/// The file.
pub const STATE: &CStr = c"cluster.state";
/// Its size.
const BYTES: usize = 96;
/// What it begins with; the last byte is its version.
const MAGIC: [u8; 8] = *b"EXIRCLU1";
const UNTIL: usize = 8;
const ABSENCE: usize = 16;
const APART: usize = 24;
const APART_OVER: usize = 32;
const SHARED: usize = 40;
const ALL_APART: usize = 48;
const ALL_APART_OVER: usize = 56;
const LATE: usize = 64;
const ALL_FROM: usize = 72;
const APART_FROM: usize = 80;
const LATE_SINCE: usize = 88;

/// For so many seconds late attempts are counted together.
const LATE_COUNTED: u64 = 86_400;

/// The pause after a first failed attempt, in microseconds. It doubles with each further
/// one.
pub(super) const PAUSE: u64 = 50_000;
/// The longest pause: two seconds after the shared store has come back, all ask it again.
const PAUSE_MAX: u64 = 1_000_000;

/// A change that is to be logged, by the one process that finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Changed {
    /// The shared store is away.
    Away,
    /// It is back.
    Back {
        /// For how many seconds it was away: until the latest attempt that failed.
        seconds: u64,
        /// How many events were decided without it.
        apart: u64,
        /// How many of these were over a limit.
        over: u64,
    },
}

/// What is counted, for `stats` and `cluster status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterCounts {
    /// Events decided by the shared store.
    pub shared: u64,
    /// Events decided without it.
    pub apart: u64,
    /// How many of these were over a limit.
    pub apart_over: u64,
    /// Attempts that had no reply within about the time of the deadline: since it was set, and
    /// of a day, that of the latest ones or the one before.
    pub late: u64,
    /// Events decided since the first of them.
    pub all_since: u64,
    /// Those decided without the shared store since then.
    pub apart_since: u64,
    /// The second (since 1970) since which the shared store is away, or attempts fail again
    /// and again; `None` if none fails.
    pub away_since: Option<u64>,
}

impl ClusterCounts {
    /// Whether replies that come too late are why much is decided without the shared store.
    #[must_use]
    pub fn is_often_late(&self) -> bool {
        /// So few are a moment in which the machine was busy.
        const FEW: u64 = 20;
        self.late >= FEW && self.apart_since.saturating_mul(100) >= self.all_since
    }
}

/// The breaker of a host.
#[derive(Debug)]
pub(super) enum Breaker {
    /// In the file.
    Shared(Watched, Mapping),
    /// Of this process alone, as the file cannot be used.
    Own { until: u64, absence: Absence },
}

impl Breaker {
    /// Opens the file; creates it if it is missing or damaged.
    pub(super) fn open(directory: &SecureDir) -> Self {
        match map(directory) {
            Some((file, map)) => Self::Shared(Watched::of(file, map.len()), map),
            None => Self::Own { until: 0, absence: Absence::default() },
        }
    }

    /// To be called before the file is used: one that was cut off is not. Its counts are lost then;
    /// the next process creates it again.
    fn look(&mut self) {
        if let Self::Shared(file, _) = self
            && !file.look()
        {
            *self = Self::Own { until: 0, absence: Absence::default() };
        }
    }

    /// Whether this process is to ask at `now`, a time of the monotonic clock.
    #[inline]
    pub(super) fn may_ask(&mut self, now: u64) -> bool {
        self.look();
        // A time that is too far ahead is from before the machine was started.
        let waits = |until: u64| until > now && until - now <= PAUSE_MAX;
        match self {
            Self::Shared(_, map) => {
                let until = map.u64(UNTIL).unwrap_or(0);
                if until == 0 {
                    return true;
                }
                let next = now + pause(Absence::of(map.u64(ABSENCE).unwrap_or(0)).failures);
                // One process tries; the others go on without.
                !waits(until) && map.replace_u64(UNTIL, until, next) == Some(until)
            }
            Self::Own { until, .. } => !waits(*until),
        }
    }

    /// Notes that the shared store has decided an event.
    #[inline]
    pub(super) fn succeeded(&mut self, seconds: u64) -> Option<Changed> {
        self.look();
        let change = match self {
            Self::Shared(_, map) => {
                let _ = map.add_u64(SHARED, 1);
                if map.u64(UNTIL) != Some(0) {
                    let _ = map.set_u64(UNTIL, 0);
                }
                change(map, |absence| absence.succeeded(seconds)).1
            }
            Self::Own { until, absence } => {
                let (next, change) = absence.succeeded(seconds);
                (*until, *absence) = (0, next);
                change
            }
        };
        Some(self.changed(change?))
    }

    /// Notes that the agent replies, and that it can decide other keys than those it was asked
    /// for: nobody waits.
    #[cold]
    pub(super) fn reached(&mut self) {
        self.look();
        match self {
            Self::Shared(_, map) => {
                let _ = map.set_u64(UNTIL, 0);
            }
            Self::Own { until, .. } => *until = 0,
        }
    }

    /// Counts an attempt in vain that took long.
    #[cold]
    pub(super) fn late(&mut self, seconds: u64) {
        self.look();
        let Self::Shared(_, map) = self else { return };
        if !is_of_one_day(map.u64(LATE_SINCE).unwrap_or(0), seconds) {
            begin_late(map, seconds);
        }
        let _ = map.add_u64(LATE, 1);
    }

    /// Notes that the shared store was asked in vain at `now` of the monotonic clock.
    #[cold]
    pub(super) fn failed(&mut self, now: u64, seconds: u64) -> Option<Changed> {
        self.look();
        let change = match self {
            Self::Shared(_, map) => {
                let (absence, change) = change(map, |absence| absence.failed(seconds));
                let _ = map.set_u64(UNTIL, now + pause(absence.failures.saturating_sub(1)));
                change
            }
            Self::Own { until, absence } => {
                let (next, change) = absence.failed(seconds);
                (*until, *absence) = (now + pause(absence.failures), next);
                change
            }
        };
        Some(self.changed(change?))
    }

    /// The change, with what was counted meanwhile.
    #[cold]
    fn changed(&self, change: AbsenceChange) -> Changed {
        let AbsenceChange::Back { seconds } = change else { return Changed::Away };
        let take = |word| match self {
            Self::Shared(_, map) => {
                let count = map.u64(word).unwrap_or(0);
                // What another process adds at this moment is not lost.
                let _ = map.add_u64(word, count.wrapping_neg());
                count
            }
            Self::Own { .. } => 0,
        };
        Changed::Back { seconds, apart: take(APART), over: take(APART_OVER) }
    }

    /// Counts an event that was decided without the shared store.
    #[cold]
    pub(super) fn count_apart(&mut self, over: bool) {
        self.look();
        let Self::Shared(_, map) = self else { return };
        // Before the shared store is called away, nothing is reported as apart.
        let away = map.u64(ABSENCE).is_some_and(|word| Absence::of(word).is_known());
        for (word, counts) in
            [(APART, away), (APART_OVER, away && over), (ALL_APART, true), (ALL_APART_OVER, over)]
        {
            let _ = map.add_u64(word, counts.into());
        }
    }
}

/// How long nobody asks after so many failures and another one, in microseconds.
fn pause(failures: u64) -> u64 {
    (PAUSE << failures.min(10)).min(PAUSE_MAX)
}

/// Changes whether the shared store is away, in one atomic step; returns what it is now,
/// and what has changed.
#[inline]
fn change(
    map: &Mapping,
    step: impl Fn(Absence) -> (Absence, Option<AbsenceChange>),
) -> (Absence, Option<AbsenceChange>) {
    let mut word = map.u64(ABSENCE).unwrap_or(0);
    loop {
        let (next, change) = step(Absence::of(word));
        // Mostly nothing changes, and nothing is written.
        if next.word() == word {
            return (next, change);
        }
        match map.replace_u64(ABSENCE, word, next.word()) {
            Some(found) if found != word => word = found,
            _ => return (next, change),
        }
    }
}

/// The file, mapped. One that is missing or damaged is created: what was counted is lost.
fn map(directory: &SecureDir) -> Option<(File, Mapping)> {
    let file = directory.open_or_create(STATE, FILE_MODE).ok()?;
    let size = files::info(&file).ok()?.size;
    if size < BYTES as u64 {
        files::reserve(&file, 0, BYTES as u64).ok()?;
    }
    let mut map = Mapping::of(&file, true).ok().filter(|map| map.len() >= BYTES)?;
    let own = u64::from_le_bytes(MAGIC);
    let magic = map.u64(0)?;
    // Of another version: each process then finds out for itself whether the store is away.
    if OtherVersion::of_magic(magic, MAGIC).is_some() {
        return None;
    }
    if magic != own {
        for word in (8..BYTES).step_by(8) {
            map.set_u64(word, 0)?;
        }
        map.set_u64(0, own)?;
    }
    Some((file, map))
}

/// What was counted in the database in `directory`; `None` if nothing was.
#[must_use]
pub fn read_counts(directory: &SecureDir) -> Option<ClusterCounts> {
    read_counts_at(directory, u64::try_from(clock::now().0).unwrap_or(0))
}

/// Begins to count late attempts again: there is another deadline.
pub fn forget_late(directory: &SecureDir) {
    if let Some((_, mut map)) = map(directory) {
        begin_late(&mut map, 0);
    }
}

/// Begins to count late attempts, the first of which is in this second.
fn begin_late(map: &mut Mapping, since: u64) {
    let (shared, apart) = (map.u64(SHARED).unwrap_or(0), map.u64(ALL_APART).unwrap_or(0));
    for (word, value) in [
        (ALL_FROM, shared.wrapping_add(apart)),
        (APART_FROM, apart),
        (LATE, 0),
        (LATE_SINCE, since),
    ] {
        let _ = map.set_u64(word, value);
    }
}

/// Whether late attempts are counted together with those since this second.
fn is_of_one_day(since: u64, now: u64) -> bool {
    now.abs_diff(since) < LATE_COUNTED
}

/// As above, at this time.
fn read_counts_at(directory: &SecureDir, now: u64) -> Option<ClusterCounts> {
    let (file, _) = directory.open_file(files::Access::Read, STATE).ok()??;
    let map = Mapping::of(&file, false).ok()?;
    (map.u64(0)? == u64::from_le_bytes(MAGIC)).then_some(())?;
    let (shared, apart) = (map.u64(SHARED)?, map.u64(ALL_APART)?);
    // A release before has written a shorter file.
    let later = |word| map.u64(word).unwrap_or(0);
    // A day without late attempts has followed theirs.
    let is_past = now.abs_diff(later(LATE_SINCE)) >= 2 * LATE_COUNTED;
    Some(ClusterCounts {
        shared,
        apart,
        late: if is_past { 0 } else { later(LATE) },
        all_since: shared.wrapping_add(apart).saturating_sub(later(ALL_FROM)),
        apart_since: apart.saturating_sub(later(APART_FROM)),
        apart_over: map.u64(ALL_APART_OVER)?,
        away_since: Absence::of(map.u64(ABSENCE)?).since(now),
    })
}

#[cfg(test)]
mod tests;
