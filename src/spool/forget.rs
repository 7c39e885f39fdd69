//! Which records may go, because remembering them could change no decision.

use crate::engine::{Block, quiet_from};
use crate::rate::Timestamp;

use super::format::{BUCKET, State};
use super::record::period_is_known;

/// An account that has not sent for so many seconds is forgotten: 400 days, so that recipients of
/// yearly greetings stay known.
pub(super) const HABITS_KEPT: f64 = 400.0 * 86_400.0;

/// What an account sends is forgotten so many seconds after the last day on which it sent.
pub(super) const USAGE_KEPT: f64 = 36.0 * 86_400.0;

/// Whether a record with this state was last written more than so many seconds ago, or forgotten
/// by hand; not before a block has ended.
pub(super) fn is_older(state: &State, seconds: f64, now: Timestamp) -> bool {
    state.is_blank()
        || now.as_seconds() - state.average().at.as_seconds() > seconds
            && Block::in_force(state.last_over, now).is_none()
}

/// Whether a record with this state and algorithm can be forgotten at `now`. `epoch` is
/// the second in which its filter was started, if it has one.
///
/// The size of future events is not known here, so this waits until even the smallest
/// would make no difference: see [`rate::Algorithm::forgettable`](crate::rate::Algorithm::forgettable).
/// A record without a period is kept. The latest over decision must be at least a period ago, since the next one is
/// then a crossing with or without the record; a block must have ended.
pub(super) fn forgettable(
    state: &State,
    algorithm: u8,
    epoch: Option<i64>,
    now: Timestamp,
) -> bool {
    if state.is_blank() {
        return true;
    }
    let period = state.period(algorithm);
    if !period_is_known(period) || now.seconds as f64 <= quiet_from(state.last_over, period) {
        return false;
    }
    let mut average = state.average();
    // What was admitted while apart also counts: see `engine::Authority`. A bucket's leaks
    // more slowly, within a period.
    average.rate += f64::from(state.apart);
    let apart = state.apart > 0.0 && now.as_seconds() - average.at.as_seconds() < period;
    !state.has_rate()
        || !(algorithm == BUCKET && apart)
            && state.counted(algorithm).forgettable(average, epoch, 0.0, now)
}

#[cfg(test)]
mod tests {
    use super::super::format::{CALENDAR, MOVING_AVERAGE};
    use super::*;
    use crate::engine::BlockTime;
    use crate::rate::calendar::pack;

    /// A rate of 1 in second 1000.
    fn state(period: u32) -> State {
        State { at: 1_000_000_000, rate: 1.0, limit: 10.0, period, ..State::blank(1) }
    }

    #[test]
    fn the_period_is_the_stored_one() {
        let at = |seconds| Timestamp { seconds, micros: 0 };
        let forgettable = |period, now| forgettable(&state(period), MOVING_AVERAGE, None, at(now));
        assert!(!forgettable(10, 1000 + 100));
        assert!(forgettable(10, 1000 + 400));
        assert!(!forgettable(20, 1000 + 400));
        assert!(forgettable(20, 1000 + 800));
        assert!(!forgettable(0, 1_000_000), "no period is known");
    }

    #[test]
    fn a_crossing_is_remembered_for_a_period() {
        let at = |seconds| Timestamp { seconds, micros: 0 };
        let rateless = State { period: 60, last_over: 5000, crossings: 1, ..State::blank(1) };
        for state in [rateless, State { last_over: 5000, ..state(60) }] {
            assert!(!forgettable(&state, MOVING_AVERAGE, None, at(5060)));
            assert!(forgettable(&state, MOVING_AVERAGE, None, at(5061)));
            assert!(!forgettable(&state, MOVING_AVERAGE, None, at(4000)), "the clock was set back");
        }
        assert!(forgettable(&State::blank(1), MOVING_AVERAGE, None, at(0)), "forgotten by hand");
        let block = |time: BlockTime| time.begun(at(5000)).unwrap().code();
        let hour = State { last_over: block(BlockTime::Seconds(3600)), ..state(60) };
        assert!(!forgettable(&hour, MOVING_AVERAGE, None, at(8600)));
        assert!(forgettable(&hour, MOVING_AVERAGE, None, at(8661)));
        let lasting = State { last_over: block(BlockTime::UntilLifted), ..state(60) };
        assert!(!forgettable(&lasting, MOVING_AVERAGE, None, at(1 << 33)));
    }

    #[test]
    fn what_was_admitted_apart_is_remembered() {
        let at = |seconds| Timestamp { seconds, micros: 0 };
        let apart = |period| State { rate: 0.0, apart: 1.0, ..state(period) };
        let average = |now| forgettable(&apart(10), MOVING_AVERAGE, None, at(now));
        assert!(!average(1000 + 100) && average(1000 + 400));
        let bucket = |now| forgettable(&apart(50.0_f32.to_bits()), BUCKET, None, at(now));
        assert!(!bucket(1049) && bucket(1050));
    }

    #[test]
    fn a_bucket_goes_when_it_is_empty() {
        let at = |seconds| Timestamp { seconds, micros: 0 };
        let stored = |period: f32| State { limit: 5.0, ..state(period.to_bits()) };
        // A level of 1 leaks out in a fifth of the period.
        let forgettable = |state: &State, now| forgettable(state, BUCKET, None, at(now));
        assert!(!forgettable(&stored(50.0), 1000 + 9));
        assert!(forgettable(&stored(50.0), 1000 + 10));
        assert!(!forgettable(&stored(0.0), 1_000_000), "no period is known");
        assert!(!forgettable(&stored(f32::NAN), 1_000_000));
        assert!(!forgettable(&stored(-1.0), 1_000_000));
        assert!(!forgettable(&stored(f32::INFINITY), 1 << 40), "it never leaks");
        let crossed = State { last_over: 1000, ..stored(50.0) };
        assert!(!forgettable(&crossed, 1050) && forgettable(&crossed, 1051));
    }

    #[test]
    fn a_calendar_window_goes_a_day_after_its_end_and_weighs_nothing_from_then_on() {
        let at = |seconds| Timestamp { seconds, micros: 0 };
        let window = |start| State { limit: pack(5.0, start), ..state(1000) };
        let weighs = |start, now| window(start).rate_at(CALENDAR, at(now));
        let forgettable = |start, now| forgettable(&window(start), CALENDAR, None, at(now));
        assert_eq!((weighs(1000, 1999), weighs(1000, 2000)), (1.0, 0.0));
        assert!(!forgettable(1000, 88_399) && forgettable(1000, 88_400));
        // That of a clock which was far ahead counts nothing, and is kept: perhaps it is this
        // clock that is wrong.
        assert_eq!((weighs(90_000, 3600), weighs(90_000, 3599)), (1.0, 0.0));
        assert!(!forgettable(90_000, 0));
    }
}
