//! Tests of leaky buckets that every store must pass.

use super::{at, check, crossing, decide, leaky, with_limit};
use crate::engine::{Algorithm, AlgorithmKind, Check, Overridden, Update};
use crate::rate::{Average, Timestamp, Wait};
use crate::store::Store;

/// Runs all tests; `fresh` creates an empty store.
pub(super) fn all<S: Store>(fresh: &mut impl FnMut() -> S) {
    strict_buckets_add_every_event(&mut fresh());
    leaky_buckets_add_what_they_have_room_for(&mut fresh());
    an_empty_bucket_admits_any_event(&mut fresh());
    buckets_are_predictable(&mut fresh());
    a_bucket_and_an_average_of_one_name_are_two_records(&mut fresh());
    a_full_bucket_keeps_averages_from_counting(&mut fresh());
    one_bucket_counts_one_event_once(&mut fresh());
    unique_events_count_until_a_full_bucket_is_empty(&mut fresh());
    the_period_of_crossings_is_that_of_a_full_bucket(&mut fresh());
    readonly_buckets_change_nothing(&mut fresh());
    overrides_decide_instead_of_the_level(&mut fresh());
}

/// A check of a bucket with a burst of 4, from which 1 leaks in 8 seconds.
fn bucket(name: &str) -> Check<'_> {
    Check { algorithm: Algorithm::Bucket { burst: 4.0, rate: 0.125 }, ..leaky(name) }
}

fn strict(name: &str) -> Check<'_> {
    Check { update: Update::Strict, ..bucket(name) }
}

fn with_burst(burst: f64, check: Check<'_>) -> Check<'_> {
    Check { algorithm: Algorithm::Bucket { burst, rate: 0.125 }, ..check }
}

/// The remembered level and its time.
fn level<S: Store>(store: &mut S, name: &str) -> Option<(Timestamp, f64)> {
    let read = Check { update: Update::ReadOnly, count: 0.0, ..bucket(name) };
    // A store whose clock is another one does not report times that are yet to come.
    let decision = store.decide_one(&read, || at(1_000_000)).unwrap();
    assert_eq!(decision.details.found, decision.kept.is_some());
    decision.kept.map(|kept| (kept.at, kept.rate))
}

fn strict_buckets_add_every_event<S: Store>(store: &mut S) {
    for (now, count, rate, over) in [
        (0, 1.0, 1.0, false),
        (0, 3.0, 4.0, false),
        (8, 2.0, 5.0, true),
        (16, 0.5, 4.5, true),
        (20, 0.0, 4.0, false),
        // The clock goes back.
        (12, 1.0, 5.0, true),
        (1000, 1.0, 1.0, false),
    ] {
        let decision = decide(store, &[Check { count, ..strict("key") }], at(now))[0];
        assert_eq!((decision.rate, decision.over), (rate, over), "{now}");
        assert_eq!(decision.algorithm, AlgorithmKind::Bucket);
        assert_eq!((decision.limit, decision.period, decision.leak), (4.0, 32.0, 0.125));
        assert!(decision.details.written && decision.count == count);
        assert_eq!(decision.kept, Some(Average { at: at(now), rate }));
        assert_eq!(level(store, "key"), Some((at(now), rate)));
    }
}

fn leaky_buckets_add_what_they_have_room_for<S: Store>(store: &mut S) {
    for (now, count, rate, over, kept) in [
        (0, 3.0, 3.0, false, 3.0),
        (0, 2.0, 5.0, true, 3.0),
        // A refused event adds nothing, but the level and its time are stored.
        (4, 2.0, 4.5, true, 2.5),
        (8, 2.0, 4.0, false, 4.0),
        (8, 0.5, 4.5, true, 4.0),
        (12, 0.5, 4.0, false, 4.0),
    ] {
        let decision = decide(store, &[Check { count, ..bucket("key") }], at(now))[0];
        assert_eq!((decision.rate, decision.over), (rate, over), "{now}");
        assert_eq!(decision.details.written, !over);
        assert_eq!(decision.kept, Some(Average { at: at(now), rate: kept }), "{now}");
        assert_eq!(level(store, "key"), Some((at(now), kept)), "{now}");
    }
    // What leaked is not lost with a clock that goes back, nor does it leak twice.
    let refused = decide(store, &[Check { count: 9.0, ..bucket("key") }], at(10))[0];
    assert_eq!(refused.kept, Some(Average { at: at(10), rate: 4.0 }));
}

fn an_empty_bucket_admits_any_event<S: Store>(store: &mut S) {
    let large = Check { count: 9.0, ..bucket("key") };
    assert!(!decide(store, &[large], at(0))[0].over);
    assert_eq!(level(store, "key"), Some((at(0), 9.0)));
    assert!(decide(store, &[large], at(71))[0].over);
    assert!(!decide(store, &[large], at(72))[0].over);
    assert!(decide(store, &[bucket("key")], at(72))[0].over);
}

fn buckets_are_predictable<S: Store>(store: &mut S) {
    for left in (0..4).rev() {
        let decision = decide(store, &[bucket("key")], at(0))[0];
        assert_eq!(decision.remaining(at(0)), f64::from(left));
        let wait = if left > 0 { 0.0 } else { 8.0 };
        assert_eq!(decision.retry_after(at(0)), Wait::Seconds(wait));
    }
    let decision = decide(store, &[bucket("key")], at(3))[0];
    assert!(decision.over);
    assert_eq!((decision.remaining(at(3)), decision.remaining(at(8))), (0.0, 1.0));
    assert_eq!(decision.retry_after(at(3)), Wait::Seconds(5.0));
    let narrow = with_burst(2.0, bucket("key"));
    let decision = decide(store, &[narrow], at(3))[0];
    assert_eq!(decision.retry_after(at(3)), Wait::Seconds(21.0));
    assert_eq!(decision.against(4.0).retry_after(at(3)), Wait::Seconds(5.0));
    assert!(decision.against(4.0).over && !decision.against(5.0).over);
    let never = Check { algorithm: Algorithm::Bucket { burst: 1.0, rate: 0.0 }, ..bucket("other") };
    assert_eq!(decide(store, &[never], at(0))[0].retry_after(at(0)), Wait::Never);
    assert!(decide(store, &[never], at(1 << 30))[0].over);
}

fn a_bucket_and_an_average_of_one_name_are_two_records<S: Store>(store: &mut S) {
    let checks = [check("key"), bucket("key"), strict("key")];
    for n in 1..=3 {
        let decisions = decide(store, &checks, at(0));
        let rates: Vec<_> = decisions.iter().map(|decision| decision.rate.round()).collect();
        assert_eq!(rates, [f64::from(n); 3]);
        assert!(decisions.iter().all(|decision| decision.details.found == (n > 1)));
    }
    // Neither crosses for the other.
    assert_eq!(crossing(store, with_limit(0.5, check("key")), 1), (true, 1));
    assert_eq!(crossing(store, with_burst(0.5, bucket("key")), 1), (true, 1));
    assert_eq!(crossing(store, check("key"), 2), (false, 1));
}

fn a_full_bucket_keeps_averages_from_counting<S: Store>(store: &mut S) {
    let average = with_limit(100.0, leaky("average"));
    let checks = [average, with_burst(1.0, bucket("full")), bucket("other"), check("strict")];
    let first = decide(store, &checks, at(0));
    assert!(first.iter().all(|decision| !decision.over && decision.details.written));
    let second = decide(store, &checks, at(4));
    let written: Vec<_> = second.iter().map(|decision| decision.details.written).collect();
    assert_eq!(written, [false, false, false, true]);
    let over: Vec<_> = second.iter().map(|decision| decision.over).collect();
    assert_eq!(over, [false, true, false, false]);
    // All leaky buckets store what is left in them.
    assert_eq!(level(store, "full"), Some((at(4), 0.5)));
    assert_eq!(level(store, "other"), Some((at(4), 0.5)));
    // An average over its limit keeps buckets from counting.
    let refused = decide(store, &[with_limit(0.0, leaky("average")), bucket("other")], at(8));
    assert!(refused[0].over && !refused[1].over && !refused[1].details.written);
    assert_eq!(level(store, "other"), Some((at(8), 0.0)));
    // A bucket that is only observed adds all, and keeps nothing from counting.
    let observed = Check { refuses: None, ..with_burst(1.0, bucket("observed")) };
    for n in 1..4 {
        let decisions = decide(store, &[observed, bucket("with")], at(0));
        assert!(decisions.iter().all(|decision| decision.details.written));
        assert_eq!(decisions[0].over, n > 1);
    }
    assert_eq!(level(store, "observed"), Some((at(0), 3.0)));
}

fn one_bucket_counts_one_event_once<S: Store>(store: &mut S) {
    decide(store, &[bucket("key")], at(0));
    let decisions = decide(store, &[bucket("key"), with_burst(9.0, bucket("key"))], at(8));
    assert!(decisions.iter().all(|decision| decision.rate == 1.0 && decision.details.written));
    let lower = with_burst(1.0, bucket("key"));
    let decisions = decide(store, &[bucket("key"), lower], at(8));
    let over: Vec<_> = decisions.iter().map(|decision| decision.over).collect();
    assert_eq!((&over[..], level(store, "key")), (&[false, true][..], Some((at(8), 1.0))));
    let decisions = decide(store, &[lower, strict("key")], at(8));
    assert!(decisions.iter().all(|decision| decision.details.written));
    assert_eq!(level(store, "key"), Some((at(8), 2.0)));
}

fn unique_events_count_until_a_full_bucket_is_empty<S: Store>(store: &mut S) {
    for (event, now, seen, rate) in [
        ("a", 0, false, 1.0),
        ("b", 0, false, 2.0),
        ("a", 8, true, 1.0),
        ("b", 32, true, 0.0),
        ("a", 33, false, 1.0),
    ] {
        let unique = Check { event: Some(event.as_bytes()), ..bucket("key") };
        let decision = decide(store, &[unique], at(now))[0];
        assert_eq!((decision.details.seen, decision.rate), (Some(seen), rate), "{now}");
    }
    // A refused event is not remembered, and a known one passes a full bucket.
    let unique = |event: &'static [u8]| Check { event: Some(event), ..bucket("full") };
    for event in [&b"a"[..], b"b", b"c", b"d"] {
        assert!(!decide(store, &[unique(event)], at(0))[0].over);
    }
    for _ in 0..2 {
        let refused = decide(store, &[unique(b"e")], at(0))[0];
        assert_eq!((refused.over, refused.details.seen), (true, Some(false)));
    }
    assert!(!decide(store, &[unique(b"d")], at(0))[0].over);
}

fn the_period_of_crossings_is_that_of_a_full_bucket<S: Store>(store: &mut S) {
    for one in [with_burst(2.0, bucket("leaky")), with_burst(2.0, strict("strict"))] {
        let large = Check { count: 9.0, ..one };
        assert_eq!(crossing(store, one, 0), (false, 0));
        assert_eq!(crossing(store, large, 0), (true, 1));
        assert_eq!(crossing(store, large, 7), (false, 1));
    }
    // A full bucket is empty after 16 seconds.
    let one = with_burst(2.0, bucket("leaky"));
    let pair = [one, Check { count: 9.0, ..one }];
    for (now, crossed) in [(100, (true, 2)), (116, (false, 2)), (133, (true, 3))] {
        assert!(!decide(store, &pair[..1], at(now))[0].over);
        assert_eq!(crossing(store, pair[1], now), crossed, "{now}");
    }
}

fn readonly_buckets_change_nothing<S: Store>(store: &mut S) {
    let read = Check { update: Update::ReadOnly, count: 0.0, ..bucket("key") };
    assert_eq!(decide(store, &[read], at(0))[0].kept, None);
    assert_eq!(level(store, "key"), None);
    decide(store, &[Check { count: 5.0, ..bucket("key") }], at(0));
    for (now, rate, over) in [(0, 5.0, true), (8, 4.0, false), (99, 0.0, false)] {
        let decision = decide(store, &[read], at(now))[0];
        assert_eq!((decision.rate, decision.over), (rate, over), "{now}");
        assert_eq!(level(store, "key"), Some((at(0), 5.0)));
    }
    assert_eq!(decide(store, &[read], at(16))[0].remaining(at(16)), 1.0);
}

fn overrides_decide_instead_of_the_level<S: Store>(store: &mut S) {
    let allowed = |check| Check { overridden: Some(Overridden::Allow), ..check };
    let denied = |check| Check { overridden: Some(Overridden::Deny), ..check };
    // An allowed bucket adds every event, and never crosses.
    for n in 1..=6 {
        let decision = decide(store, &[allowed(bucket("key"))], at(0))[0];
        assert_eq!((decision.rate, decision.over), (f64::from(n), false));
        assert!(decision.details.written && !decision.crossed);
        assert_eq!(decision.remaining(at(0)), f64::INFINITY);
        assert_eq!(decision.retry_after(at(0)), Wait::Seconds(0.0));
        assert_eq!(level(store, "key"), Some((at(0), f64::from(n))));
    }
    // A denied one adds nothing, but the level and its time are stored.
    let decision = decide(store, &[denied(bucket("key"))], at(40))[0];
    assert_eq!((decision.rate, decision.over, decision.details.written), (2.0, true, false));
    assert_eq!(decision.retry_after(at(40)), Wait::Never);
    assert_eq!((decision.remaining(at(40)), decision.crossings), (0.0, 0));
    assert_eq!(level(store, "key"), Some((at(40), 1.0)));
    // Nor do other leaky checks of the call; a strict one does.
    let all = [denied(bucket("key")), bucket("other"), strict("strict")];
    let written: Vec<_> =
        decide(store, &all, at(48)).iter().map(|decision| decision.details.written).collect();
    assert_eq!(written, [false, false, true]);
    assert_eq!((level(store, "key"), level(store, "other")), (Some((at(48), 0.0)), None));
    // A denied bucket without a level stores none.
    assert!(decide(store, &[denied(bucket("new"))], at(48))[0].over);
    assert_eq!(level(store, "new"), None);
    let decision = decide(store, &[denied(strict("new"))], at(48))[0];
    assert!(decision.over && decision.details.written && !decision.crossed);
    // The level decides again, and the first crossing is that of the level.
    assert_eq!(crossing(store, with_burst(0.5, bucket("new")), 48), (true, 1));
}
