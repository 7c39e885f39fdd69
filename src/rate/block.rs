//! A block that a crossing sets: the record holds until when its identity is refused.
//!
//! It is in [`State::last_over`](crate::engine::State::last_over), in place of a second, as a second that
//! no clock has: an exirate which knows no blocks then keeps the record as long, finds no crossing
//! in it, and ends the block with the next over decision that it makes.

use super::{Timestamp, Wait};

/// From here on, what a state holds is a block: these bits, and the minute (since 1970) in which it
/// ends. As a second it would be in the year 2097.
pub(crate) const BLOCKED: u32 = 0xF000_0000;
/// A block without an end.
const UNTIL_LIFTED: u32 = u32::MAX;
/// The seconds of the unit of ends.
const MINUTE: i64 = 60;

/// For how long a crossing blocks the identity that is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockTime {
    /// None is set, and one that the record holds does not refuse.
    #[default]
    Ignored,
    /// None is set, and one that the record holds refuses.
    Kept,
    /// So many seconds; one minute at least.
    Seconds(u32),
    /// Until somebody ends it.
    UntilLifted,
}

impl BlockTime {
    /// Its number in protocols: 0 and 1 as named here, other numbers of seconds, or all ones.
    #[must_use]
    pub fn code(self) -> u32 {
        match self {
            Self::Ignored => 0,
            Self::Kept => 1,
            Self::Seconds(seconds) => seconds.clamp(2, UNTIL_LIFTED - 1),
            Self::UntilLifted => UNTIL_LIFTED,
        }
    }

    /// The one with this number.
    #[must_use]
    pub fn of_code(code: u32) -> Self {
        match code {
            0 => Self::Ignored,
            1 => Self::Kept,
            UNTIL_LIFTED => Self::UntilLifted,
            seconds => Self::Seconds(seconds),
        }
    }

    /// The block that a crossing at `now` sets, if it sets one.
    #[must_use]
    pub fn begun(self, now: Timestamp) -> Option<Block> {
        match self {
            Self::Ignored | Self::Kept => None,
            Self::UntilLifted => Some(Block(UNTIL_LIFTED)),
            Self::Seconds(seconds) => Block::until(now.seconds.saturating_add(seconds.into())),
        }
    }
}

/// A block, as a state holds it in place of the second of its latest over decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block(u32);

impl Block {
    /// One that ends at this second, or within a minute after it.
    #[must_use]
    pub fn until(end: i64) -> Option<Self> {
        let minute = end.saturating_add(MINUTE - 1).div_euclid(MINUTE);
        let minute = minute.clamp(0, i64::from(!BLOCKED) - 1);
        u32::try_from(minute).ok().map(|minute| Self(BLOCKED | minute))
    }

    /// The block that a state holds, also one that has ended.
    #[must_use]
    #[inline]
    pub fn held(last_over: u32) -> Option<Self> {
        (last_over >= BLOCKED).then_some(Self(last_over))
    }

    /// As [`Block::held`], if it has not ended at `now`.
    #[must_use]
    #[inline]
    pub fn in_force(last_over: u32, now: Timestamp) -> Option<Self> {
        Self::held(last_over).filter(|block| block.lasts_at(now.seconds))
    }

    /// Whether it has not ended at this second.
    #[must_use]
    pub fn lasts_at(self, second: i64) -> bool {
        self.end().is_none_or(|end| end > second)
    }

    /// What a state holds.
    #[must_use]
    pub fn code(self) -> u32 {
        self.0
    }

    /// The second (since 1970) in which it ends; `None` if somebody has to end it.
    #[must_use]
    pub fn end(self) -> Option<i64> {
        (self.0 != UNTIL_LIFTED).then(|| i64::from(self.0 & !BLOCKED) * MINUTE)
    }

    /// How long it lasts from `now` on.
    #[must_use]
    pub fn wait(self, now: Timestamp) -> Wait {
        self.end()
            .map_or(Wait::Never, |end| Wait::Seconds((end as f64 - now.as_seconds()).max(0.0)))
    }
}

/// From which second on an over decision decides nothing any more of a record with this period, as
/// the next one is a crossing with or without the record.
#[must_use]
pub(crate) fn quiet_from(last_over: u32, period: f64) -> f64 {
    match Block::held(last_over) {
        _ if last_over == 0 => f64::NEG_INFINITY,
        Some(block) => block.end().map_or(f64::INFINITY, |end| end as f64),
        None => f64::from(last_over) + period,
    }
}

#[cfg(test)]
impl quickcheck::Arbitrary for BlockTime {
    fn arbitrary(g: &mut quickcheck::Gen) -> Self {
        match u16::arbitrary(g) {
            0..10_000 => Self::Ignored,
            10_000..20_000 => Self::Kept,
            20_000..21_000 => Self::UntilLifted,
            seconds => Self::Seconds(60 + u32::from(seconds) % 4000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_lasts_as_long_as_it_says_and_less_than_a_minute_more() {
        for now in [0, 1_795_000_000, 1_795_000_001, 4_000_000_000] {
            let now = Timestamp { seconds: now, micros: 5 };
            for seconds in [60, 61, 86_400, 31_536_000, u32::MAX - 1] {
                let block = BlockTime::Seconds(seconds).begun(now).unwrap();
                let over = block.end().unwrap() - now.seconds - i64::from(seconds);
                assert!((0..60).contains(&over), "{now:?} {seconds}: {over}");
                assert_eq!(Block::in_force(block.code(), now), Some(block));
                let end = Timestamp { seconds: block.end().unwrap(), micros: 0 };
                assert_eq!(Block::in_force(block.code(), end), None);
                assert_eq!(quiet_from(block.code(), 1e9), end.as_seconds());
            }
            let lifted = BlockTime::UntilLifted.begun(now).unwrap();
            assert_eq!((lifted.end(), lifted.wait(now)), (None, Wait::Never));
            assert_eq!(BlockTime::Kept.begun(now), None);
            // A second of a clock is none.
            assert_eq!(Block::held(now.seconds as u32), None);
        }
        for time in
            [BlockTime::Ignored, BlockTime::Kept, BlockTime::Seconds(60), BlockTime::UntilLifted]
        {
            assert_eq!(BlockTime::of_code(time.code()), time);
        }
    }
}
