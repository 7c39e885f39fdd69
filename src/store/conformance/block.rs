//! Tests of blocks that every store must pass.

use super::{at, decide, leaky};
use crate::engine::{Algorithm, BlockTime, Check, Decision, Overridden, Update};
use crate::rate::{CalendarWindow, Wait};
use crate::store::Store;

/// Runs all tests; `fresh` creates an empty store.
pub(super) fn all<S: Store>(fresh: &mut impl FnMut() -> S) {
    a_crossing_blocks_until_the_end(&mut fresh());
    a_block_is_known_to_policies_that_enforce(&mut fresh());
    a_block_outlasts_the_window_of_the_calendar(&mut fresh());
    a_blocked_event_counts_in_no_leaky_check_of_the_call(&mut fresh());
}

/// A leaky check of 2 a minute, which blocks for ten minutes.
fn blocking(name: &str) -> Check<'_> {
    Check {
        algorithm: Algorithm::MovingAverage { limit: 2.0, period: 60.0 },
        blocks: BlockTime::Seconds(600),
        ..leaky(name)
    }
}

fn one<S: Store>(store: &mut S, check: Check<'_>, second: i64) -> Decision {
    store.decide_one(&check, || at(second)).unwrap()
}

/// Events at this second until the limit is crossed; the last decision.
fn cross<S: Store>(store: &mut S, check: Check<'_>, second: i64) -> Decision {
    (0..5).map(|_| one(store, check, second)).find(|decision| decision.over).unwrap()
}

fn a_crossing_blocks_until_the_end<S: Store>(store: &mut S) {
    for (begun, number) in [(0, 1), (700, 2)] {
        let crossing = cross(store, blocking("key"), begun);
        assert!(crossing.crossed && crossing.overridden.is_none());
        assert_eq!(crossing.crossings, number);
        let end = crossing.blocked.unwrap().end().unwrap();
        let end = end - at(0).seconds;
        assert!((begun + 600..begun + 660).contains(&end), "{end}");
        for second in [begun, begun + 1, begun + 599, end - 1] {
            for check in [
                blocking("key"),
                Check { blocks: BlockTime::Kept, ..blocking("key") },
                Check { update: Update::ReadOnly, count: 0.0, ..blocking("key") },
                Check { refuses: Some(f64::INFINITY), ..blocking("key") },
            ] {
                let decision = one(store, check, second);
                assert_eq!((decision.over, decision.crossed), (true, false));
                assert_eq!(decision.overridden, Some(Overridden::Deny));
                assert!(decision.refuses(check.refuses) && !decision.details.written);
                assert_eq!(decision.blocked, crossing.blocked);
                assert_eq!(decision.remaining(at(second)), 0.0);
                let left = end as f64 - second as f64 - 0.25;
                assert_eq!(decision.retry_after(at(second)), Wait::Seconds(left));
            }
        }
        // What is blocked is a rate of nobody else.
        let looks = Check { update: Update::ReadOnly, count: 0.0, ..blocking("other") };
        assert!(!one(store, looks, begun).over);
        let after =
            one(store, Check { update: Update::ReadOnly, count: 0.0, ..blocking("key") }, end);
        assert_eq!((after.over, after.overridden, after.blocked), (false, None, None));
    }
    let lasting = Check { blocks: BlockTime::UntilLifted, ..blocking("lasting") };
    assert_eq!(cross(store, lasting, 0).blocked.unwrap().end(), None);
    let late = one(store, lasting, 200_000_000);
    assert_eq!((late.over, late.retry_after(at(200_000_000))), (true, Wait::Never));
}

fn a_block_is_known_to_policies_that_enforce<S: Store>(store: &mut S) {
    cross(store, blocking("key"), 0);
    let ignored = Check { blocks: BlockTime::Ignored, ..blocking("key") };
    let allowed = Check { overridden: Some(Overridden::Allow), ..blocking("key") };
    for check in [ignored, allowed] {
        let decision = one(store, check, 400);
        assert_eq!((decision.over, decision.blocked), (false, None));
        assert!(decision.details.written);
        // It counts, and the block stays.
        assert!(one(store, blocking("key"), 400).blocked.is_some());
    }
    // A crossing that sets none ends it, and is one.
    assert!(cross(store, ignored, 401).crossed);
    assert!(!one(store, blocking("key"), 1000).over);
    // Strict checks count what is refused.
    let strict = Check { update: Update::Strict, ..blocking("strict") };
    cross(store, strict, 0);
    let (first, second) = (one(store, strict, 1), one(store, strict, 1));
    assert!(first.details.written && second.rate > first.rate && !second.crossed);
    assert!(second.blocked.is_some());
}

fn a_block_outlasts_the_window_of_the_calendar<S: Store>(store: &mut S) {
    let start = at(0).seconds.div_euclid(3600) * 3600;
    let daily = |hours: i64| {
        let start = start + hours * 3600;
        let window = CalendarWindow { start, end: start + 3600 };
        let algorithm = Algorithm::Calendar { limit: 1.0, window };
        Check { algorithm, blocks: BlockTime::Seconds(7200), ..blocking("key") }
    };
    let crossing = cross(store, daily(0), 0);
    assert!(crossing.crossed && crossing.blocked.is_some());
    let later = one(store, daily(1), 3600);
    assert_eq!((later.over, later.blocked), (true, crossing.blocked));
    let free = one(store, daily(3), 3 * 3600);
    assert_eq!((free.over, free.rate), (false, 1.0));
    assert!(cross(store, daily(3), 3 * 3600 + 1).blocked.is_some());
}

fn a_blocked_event_counts_in_no_leaky_check_of_the_call<S: Store>(store: &mut S) {
    cross(store, blocking("a/key"), 0);
    let other = Check { algorithm: leaky("").algorithm, ..blocking("b/key") };
    let decisions = decide(store, &[blocking("a/key"), other], at(300));
    assert!(decisions[0].blocked.is_some() && !decisions[1].over);
    assert!(!decisions[1].details.written, "it is refused");
    // Two limits of one record are blocked together.
    let wide = Check {
        algorithm: Algorithm::MovingAverage { limit: 9.0, period: 60.0 },
        ..blocking("a/key")
    };
    let both = decide(store, &[wide, blocking("a/key")], at(301));
    assert!(both.iter().all(|one| one.over && one.blocked.is_some()));
}
