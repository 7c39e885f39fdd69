//! The counters of the comparison.

use std::path::Path;

use super::compare::{Answer, Difference};
use crate::spool::counter_file::{self, COUNTERS, CounterFile, CounterKind, Name, Ready};
use crate::sys::secure_dir::DirError;

const FILE: CounterKind = CounterKind {
    file: c"shadow.counters",
    new: c"shadow.counters.new",
    damaged: c"shadow.counters.damaged-1",
    magic: *b"EXIRSHD1",
};

// The counters of a limit.
const CHECKS: usize = 0;
const OVER: usize = 1;
const WARMING_UP: usize = 2;
const RATES: usize = 3;
const RATES_CLOSE: usize = 4;
const ONLY_NATIVE: usize = 5;
const ONLY_OURS: usize = 6;
const VERDICTS_CLOSE: usize = 7;
const SINCE: usize = 8;
const LATEST: usize = 9;
/// In thousandths.
const LARGEST: usize = 10;
const ROUNDING: usize = 11;

/// How a limit is called: as in its spec, without the key.
#[derive(Clone, Copy, Debug)]
pub struct LimitName<'a> {
    /// As written.
    pub limit: &'a str,
    /// As written.
    pub period: &'a str,
    /// `per_mail` and so on.
    pub mode: &'a str,
    /// `strict`, `leaky` or `readonly`.
    pub update: &'a str,
}

impl LimitName<'_> {
    fn name(&self) -> Name {
        let Self { limit, period, mode, update } = *self;
        Name::of(&[limit, " / ", period, " / ", mode, " / ", update])
    }
}

/// The counters of a spool directory, to count in.
#[derive(Debug)]
pub struct ShadowCounters(CounterFile);

impl ShadowCounters {
    /// Those of the spool directory `spool`.
    #[must_use]
    pub fn new(spool: &Path) -> Self {
        Self(CounterFile::new(spool, &FILE))
    }

    /// Since when this limit is compared, in seconds since 1970: `now` where it begins.
    /// `None` if it cannot be counted.
    pub fn since(&mut self, limit: &LimitName<'_>, now: u64) -> Option<u64> {
        if self.0.ready() == Ready::No {
            return None;
        }
        let slot = self.0.slot(&limit.name())?;
        Some(self.0.begin(slot, SINCE, now))
    }

    /// Counts a pair of answers and what they differ by.
    pub fn count(
        &mut self,
        limit: &LimitName<'_>,
        now: u64,
        [native, ours]: [Answer; 2],
        difference: Difference,
    ) {
        if self.0.ready() == Ready::No {
            return;
        }
        let Some(slot) = self.0.slot(&limit.name()) else { return self.0.add_error() };
        let add = |counter| self.0.add(Some(slot), counter);
        add(CHECKS);
        if native.over {
            add(OVER);
        }
        match difference {
            Difference::None => {}
            Difference::Rounding => add(ROUNDING),
            Difference::WarmingUp => add(WARMING_UP),
            Difference::Rate { close } => add(if close { RATES_CLOSE } else { RATES }),
            Difference::Verdict { close } => {
                add(if native.over { ONLY_NATIVE } else { ONLY_OURS });
                if close {
                    add(VERDICTS_CLOSE);
                }
            }
        }
        self.0.raise(slot, LATEST, now);
        if difference != Difference::WarmingUp {
            // A number that is too large, or none, becomes the largest, or 0.
            let apart = (native.rate - ours.rate).abs() * 1000.0;
            self.0.raise(slot, LARGEST, apart as u64);
        }
    }

    /// Counts a check that we could not answer, or that belongs to a limit for which there
    /// is no room.
    pub fn count_failed(&mut self) {
        if self.0.ready() != Ready::No {
            self.0.add_error();
        }
    }
}

/// What was counted of a limit.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "cli", derive(serde::Serialize, schemars::JsonSchema))]
pub struct Seen {
    /// The limit, as in its spec, without the key.
    pub limit: String,
    /// Since when it is compared, in seconds since 1970.
    pub since: u64,
    /// The latest comparison, in seconds since 1970.
    pub latest: u64,
    /// Pairs of answers.
    pub checks: u64,
    /// In how many of these native was over the limit.
    pub over: u64,
    /// In how many native knew events from before the comparison.
    pub warming_up: u64,
    /// In how many only the last digit of the rates differed, as they are printed.
    pub rounding: u64,
    /// In how many the rates differed by more than the event, not the verdicts.
    pub rates: u64,
    /// In how many the rates differed by at most the event, not the verdicts.
    pub rates_close: u64,
    /// In how many only native was over.
    pub only_native: u64,
    /// In how many only we were over.
    #[cfg_attr(feature = "cli", serde(rename = "only_exirate"))]
    pub only_ours: u64,
    /// In how many of these the rates differed by at most the event.
    pub verdicts_close: u64,
    /// The largest difference of the rates.
    pub largest: f64,
}

impl Seen {
    fn of(limit: String, counters: &[u64; COUNTERS]) -> Self {
        Self {
            limit,
            since: counters[SINCE],
            latest: counters[LATEST],
            checks: counters[CHECKS],
            over: counters[OVER],
            warming_up: counters[WARMING_UP],
            rounding: counters[ROUNDING],
            rates: counters[RATES],
            rates_close: counters[RATES_CLOSE],
            only_native: counters[ONLY_NATIVE],
            only_ours: counters[ONLY_OURS],
            verdicts_close: counters[VERDICTS_CLOSE],
            largest: counters[LARGEST] as f64 / 1000.0,
        }
    }
}

/// Reads what was counted in the spool directory `spool`, by limit; and how many checks
/// could not be answered or counted. `None` if nothing was compared.
///
/// # Errors
/// The directory or the file cannot be read.
pub fn read(spool: &Path) -> Result<Option<(Vec<Seen>, u64)>, DirError> {
    let Some(contents) = counter_file::read(spool, &FILE)? else { return Ok(None) };
    let mut seen: Vec<Seen> =
        contents.names.into_iter().map(|(limit, counters)| Seen::of(limit, &counters)).collect();
    seen.sort_by(|a, b| a.limit.cmp(&b.limit));
    Ok(Some((seen, contents.errors)))
}

/// Forgets what was counted; returns of how many limits.
///
/// # Errors
/// The file cannot be written.
pub fn forget(spool: &Path) -> Result<usize, DirError> {
    counter_file::retain(spool, &FILE, |_| false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool;

    const LIMIT: LimitName<'static> =
        LimitName { limit: "100", period: "1h", mode: "per_mail", update: "strict" };

    #[test]
    fn pairs_are_counted_by_limit_and_difference() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), None);
        assert_eq!(forget(dir.path()).unwrap(), 0);
        drop(spool::open_directory(dir.path(), true).unwrap());
        let mut counters = ShadowCounters::new(dir.path());
        assert_eq!(counters.since(&LIMIT, 1000), Some(1000));
        assert_eq!(counters.since(&LIMIT, 2000), Some(1000));
        let [over, under] = [true, false].map(|over| Answer { over, rate: 100.0 });
        let none = Answer { over: false, rate: 60.0 };
        for (pair, difference, times) in [
            ([over, over], Difference::None, 5),
            ([over, none], Difference::WarmingUp, 3),
            ([under, Answer { rate: 100.1, ..under }], Difference::Rounding, 7),
            ([under, under], Difference::Rate { close: true }, 2),
            ([under, Answer { rate: 97.5, ..under }], Difference::Rate { close: false }, 1),
            ([over, under], Difference::Verdict { close: true }, 4),
            ([under, over], Difference::Verdict { close: false }, 1),
        ] {
            (0..times).for_each(|_| counters.count(&LIMIT, 3000, pair, difference));
        }
        counters.count_failed();
        let (seen, uncounted) = read(dir.path()).unwrap().unwrap();
        let expected = Seen {
            limit: "100 / 1h / per_mail / strict".into(),
            since: 1000,
            latest: 3000,
            checks: 23,
            over: 12,
            warming_up: 3,
            rounding: 7,
            rates: 1,
            rates_close: 2,
            only_native: 4,
            only_ours: 1,
            verdicts_close: 4,
            largest: 2.5,
        };
        assert_eq!((seen, uncounted), (vec![expected], 1));
        assert_eq!(forget(dir.path()).unwrap(), 1);
        assert_eq!(counters.since(&LIMIT, 4000), Some(4000));
    }
}
