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
//! | 16 | 8 | `failures` | how many attempts have failed one after the other |
//! | 24 | 8 | `since` | the second (since 1970) in which the shared store was found to be away; 0: it is not |
//! | 32 | 8 | `apart` | events decided without it since then |
//! | 40 | 8 | `apart_over` | how many of these were over a limit |
//! | 48 | 8 | `shared` | events decided by the shared store, ever |
//! | 56 | 8 | `all_apart` | events decided without it, ever |
//! | 64 | 8 | `all_apart_over` | how many of these were over a limit |

use std::ffi::CStr;

use crate::spool::FILE_MODE;
use crate::sys::files;
use crate::sys::mapping::Mapping;
use crate::sys::secure_dir::SecureDir;

/// The file.
pub const STATE: &CStr = c"cluster.state";
/// Its size.
const BYTES: usize = 72;
const MAGIC: u64 = u64::from_le_bytes(*b"EXIRCLU1");
const UNTIL: usize = 8;
const FAILURES: usize = 16;
const SINCE: usize = 24;
const APART: usize = 32;
const APART_OVER: usize = 40;
const SHARED: usize = 48;
const ALL_APART: usize = 56;
const ALL_APART_OVER: usize = 64;

/// The pause after a first failed attempt, in microseconds. It doubles with each further
/// one.
const PAUSE: u64 = 50_000;
/// The longest pause: two seconds after the shared store has come back, all ask it again.
const PAUSE_MAX: u64 = 1_000_000;
/// So many attempts fail one after the other before the shared store is called away: a
/// single one may have met a busy machine.
const FAILURES_AWAY: u64 = 2;

/// A change that is to be logged, by the one process that finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Changed {
    /// The shared store is away.
    Away,
    /// It is back.
    Back {
        /// For how many seconds it was away.
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
    /// The second (since 1970) since which the shared store is away; `None` if it is not.
    pub away_since: Option<u64>,
}

/// The breaker of a host.
#[derive(Debug)]
pub(super) enum Breaker {
    /// In the file.
    Shared(Mapping),
    /// Of this process alone, as the file cannot be used.
    Own { until: u64, failures: u64 },
}

impl Breaker {
    /// Opens the file; creates it if it is missing or damaged.
    pub(super) fn open(directory: &SecureDir) -> Self {
        match map(directory) {
            Some(map) => Self::Shared(map),
            None => Self::Own { until: 0, failures: 0 },
        }
    }

    /// Whether this process is to ask at `now`, a time of the monotonic clock.
    #[inline]
    pub(super) fn may_ask(&mut self, now: u64) -> bool {
        let pause = |failures: u64| (PAUSE << failures.min(10)).min(PAUSE_MAX);
        // A time that is too far ahead is from before the machine was started.
        let waits = |until: u64| until > now && until - now <= PAUSE_MAX;
        match self {
            Self::Shared(map) => {
                let until = map.u64(UNTIL).unwrap_or(0);
                if until == 0 {
                    return true;
                }
                let next = now + pause(map.u64(FAILURES).unwrap_or(0));
                // One process tries; the others go on without.
                !waits(until) && map.replace_u64(UNTIL, until, next) == Some(until)
            }
            Self::Own { until, .. } => !waits(*until),
        }
    }

    /// Notes that the shared store has decided an event.
    #[inline]
    pub(super) fn succeeded(&mut self, seconds: u64) -> Option<Changed> {
        match self {
            Self::Shared(map) => {
                let _ = map.add_u64(SHARED, 1);
                if map.u64(UNTIL) == Some(0) && map.u64(FAILURES) == Some(0) {
                    return None;
                }
                let _ = (map.set_u64(FAILURES, 0), map.set_u64(UNTIL, 0));
                let since = map.u64(SINCE).filter(|since| *since != 0)?;
                if map.replace_u64(SINCE, since, 0) != Some(since) {
                    return None;
                }
                let (apart, over) = (map.u64(APART)?, map.u64(APART_OVER)?);
                let _ = (map.set_u64(APART, 0), map.set_u64(APART_OVER, 0));
                Some(Changed::Back { seconds: seconds.saturating_sub(since), apart, over })
            }
            Self::Own { until, failures } => {
                let was_away = std::mem::take(failures) >= FAILURES_AWAY;
                *until = 0;
                was_away.then_some(Changed::Back { seconds: 0, apart: 0, over: 0 })
            }
        }
    }

    /// Notes that the shared store was asked in vain at `now` of the monotonic clock.
    #[cold]
    pub(super) fn failed(&mut self, now: u64, seconds: u64) -> Option<Changed> {
        match self {
            Self::Shared(map) => {
                let failures = map.add_u64(FAILURES, 1)?;
                map.set_u64(UNTIL, now + (PAUSE << failures.min(10)).min(PAUSE_MAX))?;
                let away = failures + 1 >= FAILURES_AWAY;
                (away && map.replace_u64(SINCE, 0, seconds.max(1)) == Some(0))
                    .then_some(Changed::Away)
            }
            Self::Own { until, failures } => {
                *until = now + (PAUSE << (*failures).min(10)).min(PAUSE_MAX);
                *failures += 1;
                (*failures == FAILURES_AWAY).then_some(Changed::Away)
            }
        }
    }

    /// Counts an event that was decided without the shared store.
    #[cold]
    pub(super) fn count_apart(&self, over: bool) {
        let Self::Shared(map) = self else { return };
        // Before the shared store is called away, nothing is reported as apart.
        let away = map.u64(SINCE).is_some_and(|since| since != 0);
        for (word, counts) in
            [(APART, away), (APART_OVER, away && over), (ALL_APART, true), (ALL_APART_OVER, over)]
        {
            let _ = map.add_u64(word, counts.into());
        }
    }
}

/// The file, mapped. One that is missing or damaged is created: what was counted is lost.
fn map(directory: &SecureDir) -> Option<Mapping> {
    let file = directory.open_or_create(STATE, FILE_MODE).ok()?;
    let size = files::info(&file).ok()?.size;
    if size < BYTES as u64 {
        files::reserve(&file, 0, BYTES as u64).ok()?;
    }
    let mut map = Mapping::of(&file, true).ok().filter(|map| map.len() >= BYTES)?;
    if map.u64(0) != Some(MAGIC) {
        for word in (8..BYTES).step_by(8) {
            map.set_u64(word, 0)?;
        }
        map.set_u64(0, MAGIC)?;
    }
    Some(map)
}

/// What was counted in the database in `directory`; `None` if nothing was.
#[must_use]
pub fn read_counts(directory: &SecureDir) -> Option<ClusterCounts> {
    let (file, _) = directory.open_file(files::Access::Read, STATE).ok()??;
    let map = Mapping::of(&file, false).ok()?;
    (map.u64(0)? == MAGIC).then_some(())?;
    Some(ClusterCounts {
        shared: map.u64(SHARED)?,
        apart: map.u64(ALL_APART)?,
        apart_over: map.u64(ALL_APART_OVER)?,
        away_since: map.u64(SINCE).filter(|since| *since != 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::open_directory;

    /// Two processes' breakers of one host.
    fn two() -> (tempfile::TempDir, SecureDir, [Breaker; 2]) {
        let spool = tempfile::tempdir().unwrap();
        let directory = open_directory(spool.path(), true).unwrap();
        let breakers = [Breaker::open(&directory), Breaker::open(&directory)];
        (spool, directory, breakers)
    }

    #[test]
    fn one_process_tries_for_all() {
        let (_spool, _, [mut a, mut b]) = two();
        assert!(a.may_ask(1000) && b.may_ask(1000) && a.may_ask(1000), "it is not away");
        assert_eq!(a.failed(1000, 50), None, "a single failure is not logged");
        assert!(!a.may_ask(1000) && !b.may_ask(50_999));
        assert!(b.may_ask(51_000), "after a pause, one tries");
        assert!(!a.may_ask(51_000), "and only one");
        assert_eq!(b.failed(51_000, 51), Some(Changed::Away));
        assert!(!a.may_ask(150_999) && a.may_ask(151_000), "the pause has doubled");
        assert_eq!(a.failed(151_000, 52), None, "it is logged once");
        b.count_apart(false);
        a.count_apart(true);
        for now in (200_000..).step_by(500_000).take(20) {
            if a.may_ask(now) {
                a.failed(now, 53);
            }
        }
        assert!(!b.may_ask(9_800_000) && b.may_ask(10_700_001), "it is a second at the most");
        let back = Changed::Back { seconds: 9, apart: 2, over: 1 };
        assert_eq!(b.succeeded(60), Some(back));
        assert!(a.may_ask(10_700_002) && a.may_ask(10_700_002), "all ask again");
        assert_eq!(a.succeeded(60), None);
    }

    #[test]
    fn a_time_from_before_a_reboot_does_not_wait() {
        let (_spool, _, [mut a, mut b]) = two();
        a.failed(1 << 40, 50);
        assert!(b.may_ask(5));
    }

    #[test]
    fn what_is_counted_can_be_read() {
        let (spool, directory, [mut a, b]) = two();
        a.succeeded(1);
        b.count_apart(true);
        a.count_apart(false);
        a.failed(1, 70);
        let counts =
            |since| ClusterCounts { shared: 1, apart: 2, apart_over: 1, away_since: since };
        assert_eq!(read_counts(&directory), Some(counts(None)));
        a.failed(1, 71);
        assert_eq!(read_counts(&directory), Some(counts(Some(71))));
        let path = spool.path().join("exirate/cluster.state");
        std::fs::write(&path, [7; 40]).unwrap();
        assert_eq!(read_counts(&directory), None);
        let mut again = Breaker::open(&directory);
        assert!(again.may_ask(1), "a damaged file is begun again");
        assert_eq!(read_counts(&directory), Some(ClusterCounts::default()));
    }

    #[test]
    fn without_the_file_a_process_is_on_its_own() {
        let mut breaker = Breaker::Own { until: 0, failures: 0 };
        assert!(breaker.may_ask(1000));
        assert_eq!(breaker.failed(1000, 1), None);
        assert!(!breaker.may_ask(1000) && breaker.may_ask(51_000));
        assert_eq!(breaker.failed(51_000, 1), Some(Changed::Away));
        assert_eq!(breaker.failed(200_000, 1), None);
        assert!(matches!(breaker.succeeded(1), Some(Changed::Back { .. })));
        assert_eq!(breaker.succeeded(1), None);
    }

    #[test]
    fn the_table_is_the_layout() {
        let document: String = include_str!("breaker.rs")
            .lines()
            .filter_map(|line| line.strip_prefix("//! "))
            .fold(String::new(), |all, line| all + line + "\n");
        let fields = crate::spool::fields::documented(&document);
        for (field, offset) in [
            ("magic", 0),
            ("until", UNTIL),
            ("failures", FAILURES),
            ("since", SINCE),
            ("apart", APART),
            ("apart_over", APART_OVER),
            ("shared", SHARED),
            ("all_apart", ALL_APART),
            ("all_apart_over", ALL_APART_OVER),
        ] {
            assert_eq!(fields[field], (offset, 8), "{field}");
        }
        assert_eq!(fields.len() * 8, BYTES);
    }
}
