//! Whether the shared store is away: how many attempts have failed, since when it is away,
//! and when it is back.
//!
//! All of it is one word, which is replaced in one atomic step, so processes that fail and
//! succeed at the same time leave nothing half changed:
//!
//! | bits | content |
//! |---|---|
//! | 0 to 7 | how many attempts have failed one after the other; 255 means so many or more |
//! | 8 to 31 | the seconds from `since` to the latest failure |
//! | 32 to 63 | `since`: the second (since 1970) in which it was found to be away; 0: it is not |
//!
//! It is away when two attempts have failed one after the other. It is back when an attempt
//! succeeds and none has failed in the [`FLAP`] seconds before. So an absence in which some
//! attempts succeed is one absence: the link flaps. That a part of the shared store cannot
//! decide its keys, as one primary of a Redis Cluster, is no failure: the agent has replied.

/// So many attempts fail one after the other before the shared store is called away: a
/// single one may have met a busy machine.
const FAILURES_AWAY: u64 = 2;
/// Failures that are less than so many seconds apart belong to one absence.
const FLAP: u64 = 10;

const FAILURES_MAX: u64 = (1 << 8) - 1;
const LATEST_MAX: u64 = (1 << 24) - 1;
const SINCE_MAX: u64 = (1 << 32) - 1;

/// The state of the shared store, as the processes of a host have found it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Absence {
    /// How many attempts have failed one after the other.
    pub(super) failures: u64,
    /// The second in which it was found to be away; 0: it is not away.
    since: u64,
    /// The second of the latest failure, while it is away.
    latest: u64,
}

/// What an attempt has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AbsenceChange {
    /// The shared store is away.
    Away,
    /// It was away, and is back.
    Back {
        /// For how many seconds it was away: until the latest failure.
        seconds: u64,
    },
}

impl Absence {
    /// Reads the word.
    #[inline]
    pub(super) fn of(word: u64) -> Self {
        let since = word >> 32;
        let latest = since + (word >> 8 & LATEST_MAX);
        Self { failures: word & FAILURES_MAX, since, latest }
    }

    /// The word.
    #[inline]
    pub(super) fn word(self) -> u64 {
        let latest = (self.latest - self.since).min(LATEST_MAX);
        self.since << 32 | latest << 8 | self.failures
    }

    /// Since when it is away, if it is at `now`.
    pub(super) fn since(self, now: u64) -> Option<u64> {
        (self.is_known() && (self.failures != 0 || !self.is_past(now))).then_some(self.since)
    }

    /// Whether it was found to be away, and no attempt has noted that it is back.
    #[inline]
    pub(super) fn is_known(self) -> bool {
        self.since != 0
    }

    /// Whether the latest failure is too long ago for one at `now` to belong to the same
    /// absence. So it is if the clock was set back.
    #[inline]
    fn is_past(self, now: u64) -> bool {
        now >= self.latest.saturating_add(FLAP) || now.saturating_add(FLAP) < self.latest
    }

    fn back(self) -> AbsenceChange {
        AbsenceChange::Back { seconds: self.latest - self.since }
    }

    /// After an attempt at `now` that has succeeded.
    #[inline]
    pub(super) fn succeeded(self, now: u64) -> (Self, Option<AbsenceChange>) {
        if self.is_known() && self.is_past(now) {
            return (Self::default(), Some(self.back()));
        }
        (Self { failures: 0, ..self }, None)
    }

    /// After an attempt at `now` that has failed.
    pub(super) fn failed(self, now: u64) -> (Self, Option<AbsenceChange>) {
        if self.is_known() && self.failures == 0 && self.is_past(now) {
            // The latest attempt has succeeded, and was too early to end the absence.
            return (Self { failures: 1, ..Self::default() }, Some(self.back()));
        }
        let failures = (self.failures + 1).min(FAILURES_MAX);
        let now = now.clamp(1, SINCE_MAX);
        if self.is_known() {
            (Self { failures, latest: now.max(self.latest), ..self }, None)
        } else if failures < FAILURES_AWAY {
            (Self { failures, ..self }, None)
        } else {
            (Self { failures, since: now, latest: now }, Some(AbsenceChange::Away))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The changes after attempts at these seconds; a negative one fails.
    fn changes(attempts: &[i64]) -> Vec<(u64, AbsenceChange)> {
        let mut absence = Absence::default();
        let mut changes = Vec::new();
        for attempt in attempts {
            let now = attempt.unsigned_abs();
            let (next, change) =
                if *attempt < 0 { absence.failed(now) } else { absence.succeeded(now) };
            assert_eq!(Absence::of(next.word()), next, "the word holds it all");
            absence = next;
            changes.extend(change.map(|change| (now, change)));
        }
        changes
    }

    const AWAY: AbsenceChange = AbsenceChange::Away;
    const fn back(seconds: u64) -> AbsenceChange {
        AbsenceChange::Back { seconds }
    }

    #[test]
    fn one_failure_is_no_absence() {
        assert_eq!(changes(&[50, -51, 52, -53, 54, -70, 71, -72]), []);
        assert_eq!(changes(&[50, -51, -90]), [(90, AWAY)]);
    }

    #[test]
    fn an_absence_in_which_some_attempts_succeed_is_one() {
        let flaps = [-50, -50, 51, -51, 52, -53, -54, 55, -63, 64, 72];
        assert_eq!(changes(&flaps), [(50, AWAY)]);
        assert_eq!(changes(&[&flaps[..], &[73]].concat()), [(50, AWAY), (73, back(13))]);
        assert_eq!(changes(&[&flaps[..], &[73, 74, 99]].concat()).len(), 2);
    }

    #[test]
    fn a_later_absence_is_another() {
        let two = [-50, -51, 52, 70, -80, -80, 95];
        let expected = [(51, AWAY), (70, back(0)), (80, AWAY), (95, back(0))];
        assert_eq!(changes(&two), expected);
        // No attempt came in time to note the end of the first.
        let two = [-50, -51, -52, 53, -80, -80, 95];
        let expected = [(51, AWAY), (80, back(1)), (80, AWAY), (95, back(0))];
        assert_eq!(changes(&two)[..2], expected[..2]);
    }

    #[test]
    fn nobody_asked_for_a_long_time() {
        assert_eq!(changes(&[-50, -51, 5000]), [(51, AWAY), (5000, back(0))]);
        assert_eq!(changes(&[-50, -51, -5000, 5001, 5010]), [(51, AWAY), (5010, back(4949)),]);
    }

    #[test]
    fn since_when_it_is_away() {
        let (absence, _) = Absence::default().failed(50);
        assert_eq!(absence.since(50), None);
        let (absence, _) = absence.failed(51);
        assert_eq!((absence.since(51), absence.since(5000)), (Some(51), Some(51)));
        let (absence, _) = absence.succeeded(52);
        assert_eq!((absence.since(60), absence.since(61)), (Some(51), None));
    }

    #[test]
    fn the_clock_may_be_set_and_numbers_may_be_large() {
        // Back by an hour, while it is away and while it is not.
        assert_eq!(changes(&[-5000, -5000, -1400, 1401]).len(), 2);
        assert_eq!(changes(&[-5000, -5000, 5001, 1401]).len(), 2);
        // A process that began earlier ends later.
        assert_eq!(changes(&[-5000, -5000, 4999]).len(), 1);
        let mut absence = Absence::default();
        for now in [u64::MAX, 0, u64::MAX, 7, 1 << 32] {
            for _ in 0..300 {
                absence = absence.failed(now).0;
                assert_eq!(Absence::of(absence.word()).failures, absence.failures);
            }
            absence = Absence::of(absence.word()).succeeded(now).0;
        }
        let years = 400 * 86_400;
        let (absence, _) =
            Absence::of(Absence::default().failed(50).0.failed(50).0.word()).failed(years);
        let (absence, change) = Absence::of(absence.word()).succeeded(years);
        assert_eq!((absence, change), (Absence::default(), Some(back(LATEST_MAX))));
    }
}
