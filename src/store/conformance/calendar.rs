//! Tests of calendar windows that every store must pass.

use super::{START, at, check, crossing, decide, leaky, with_limit};
use crate::engine::{Algorithm, AlgorithmKind, Check, Overridden, Update};
use crate::rate::{CalendarWindow, Wait};
use crate::store::Store;

/// Runs all tests; `fresh` creates an empty store.
pub(super) fn all<S: Store>(fresh: &mut impl FnMut() -> S) {
    a_window_counts_until_its_end(&mut fresh());
    leaky_windows_count_what_they_have_room_for(&mut fresh());
    a_record_never_moves_to_an_earlier_window(&mut fresh());
    the_clock_of_the_store_decides(&mut fresh());
    other_zones_start_nothing_twice(&mut fresh());
    windows_are_predictable(&mut fresh());
    a_window_and_an_average_of_one_name_are_two_records(&mut fresh());
    a_full_window_keeps_others_from_counting(&mut fresh());
    one_window_counts_one_event_once(&mut fresh());
    unique_events_count_once_in_a_window(&mut fresh());
    a_crossing_is_the_first_over_decision_of_a_window(&mut fresh());
    readonly_windows_change_nothing(&mut fresh());
    overrides_decide_instead_of_the_count(&mut fresh());
}

/// The window that begins so many seconds after the start, and has 1000.
fn window(start: i64) -> CalendarWindow {
    CalendarWindow { start: START + start, end: START + start + 1000 }
}

/// A leaky check of a limit of 3 in that window.
fn day(name: &str, start: i64) -> Check<'_> {
    Check { algorithm: Algorithm::Calendar { limit: 3.0, window: window(start) }, ..leaky(name) }
}

fn strict(name: &str, start: i64) -> Check<'_> {
    Check { update: Update::Strict, ..day(name, start) }
}

fn limited(limit: f64, check: Check<'_>) -> Check<'_> {
    let window = check.algorithm.window().unwrap();
    Check { algorithm: Algorithm::Calendar { limit, window }, ..check }
}

/// What is counted, and since when.
fn counted<S: Store>(store: &mut S, name: &str, start: i64) -> Option<(f64, i64)> {
    let read = Check { update: Update::ReadOnly, count: 0.0, ..day(name, start) };
    let decision = store.decide_one(&read, || at(start)).unwrap();
    assert_eq!(decision.details.found, decision.kept.is_some());
    decision.kept.map(|kept| (kept.rate, decision.start - START))
}

fn a_window_counts_until_its_end<S: Store>(store: &mut S) {
    for (now, start, count, rate, over) in [
        (0, 0, 1.0, 1.0, false),
        (10, 0, 2.0, 3.0, false),
        (20, 0, 0.5, 3.5, true),
        (999, 0, 1.0, 4.5, true),
        (1000, 1000, 1.0, 1.0, false),
        // A day was left out.
        (3500, 3000, 3.0, 3.0, false),
        (3501, 3000, 0.0, 3.0, false),
    ] {
        let decision = decide(store, &[Check { count, ..strict("key", start) }], at(now))[0];
        assert_eq!((decision.rate, decision.over), (rate, over), "{now}");
        assert_eq!(decision.algorithm, AlgorithmKind::Calendar);
        assert_eq!((decision.limit, decision.period, decision.leak), (3.0, 1000.0, 0.0));
        assert_eq!((decision.start, decision.restarts), (window(start).start, window(start).end));
        assert!(decision.details.written && decision.count == count);
        let found = !matches!(now, 0 | 1000 | 3500);
        assert_eq!(decision.details.found, found, "{now}");
        assert_eq!(decision.kept.map(|kept| (kept.at, kept.rate)), Some((at(now), rate)));
        assert_eq!(counted(store, "key", start), Some((rate, start)));
    }
}

fn leaky_windows_count_what_they_have_room_for<S: Store>(store: &mut S) {
    for (now, start, count, rate, over, kept) in [
        (0, 0, 2.0, 2.0, false, Some(2.0)),
        (1, 0, 2.0, 4.0, true, Some(2.0)),
        (2, 0, 1.0, 3.0, false, Some(3.0)),
        (3, 0, 1.0, 4.0, true, Some(3.0)),
        // Larger than the limit: refused by an empty window, too, unlike a bucket.
        (1000, 1000, 4.0, 4.0, true, None),
        (1001, 1000, 3.0, 3.0, false, Some(3.0)),
    ] {
        let decision = decide(store, &[Check { count, ..day("key", start) }], at(now))[0];
        assert_eq!((decision.rate, decision.over), (rate, over), "{now}");
        assert_eq!(decision.details.written, !over);
        assert_eq!(decision.kept.map(|kept| kept.rate), kept, "{now}");
        assert_eq!(counted(store, "key", start).map(|(count, _)| count), kept, "{now}");
    }
}

fn a_record_never_moves_to_an_earlier_window<S: Store>(store: &mut S) {
    assert!(!decide(store, &[Check { count: 2.0, ..strict("key", 1000) }], at(1000))[0].over);
    // A clock that is behind, or was set back, by days.
    for (now, start) in [(999, 0), (0, 0), (-5000, -5000)] {
        let decision = decide(store, &[strict("key", start)], at(now))[0];
        assert_eq!((decision.start, decision.restarts), (window(1000).start, window(1000).end));
    }
    assert_eq!(counted(store, "key", 1000), Some((5.0, 1000)));
    let last = decide(store, &[strict("key", 1000)], at(1999))[0];
    assert_eq!((last.rate, last.over), (6.0, true));
    assert_eq!(decide(store, &[strict("key", 2000)], at(2000))[0].rate, 1.0);
}

fn the_clock_of_the_store_decides<S: Store>(store: &mut S) {
    // A server that is years ahead, or years behind, asks for windows of its clock.
    let years = 100_000_000;
    for (now, ahead, rate, kept) in [
        (10, years, 1.0, 0),
        (20, 0, 2.0, 0),
        (30, -years, 3.0, 0),
        (990, 20, 4.0, 0),
        (1000, -20, 1.0, 1000),
        (1010, years, 2.0, 1000),
        (1999, 5, 3.0, 1000),
        (5500, years, 1.0, 5000),
        (5999, 0, 2.0, 5000),
    ] {
        let start = (now + ahead) / 1000 * 1000;
        let decision = decide(store, &[strict("shared", start)], at(now))[0];
        let times = (decision.start - START, decision.restarts - START);
        assert_eq!((decision.rate, times), (rate, (kept, kept + 1000)), "{now} {ahead}");
        let wait = if rate < 3.0 { 0 } else { kept + 1000 - now };
        let found = decision.retry_after(at(now)).whole_seconds();
        assert_eq!(found.map(u64::cast_signed), Some(wait), "{now} {ahead}");
    }
    // Months differ in length: that of a clock which is far away, moved to the present, would begin
    // late in the present one.
    assert_eq!(decide(store, &[strict("month", 0)], at(600))[0].rate, 1.0);
    let start = START + 650 + 900 * 1000;
    let window = CalendarWindow { start, end: start + 900 };
    let algorithm = Algorithm::Calendar { limit: 3.0, window };
    for rate in [2.0, 3.0, 4.0] {
        let decision = decide(store, &[Check { algorithm, ..strict("month", 0) }], at(700))[0];
        assert_eq!((decision.rate, decision.start - START, decision.period), (rate, 0, 1000.0));
        assert_eq!(decision.restarts - START, 1000);
    }
    assert_eq!(decide(store, &[strict("month", 1000)], at(1000))[0].rate, 1.0);
    // The clock of the store itself was ahead. By less than a day, the later window is kept.
    for (name, ahead, rate, kept) in
        [("hours", 80_000, 2.0, 80_000), ("days", 90_000, 1.0, 0), ("years", years, 1.0, 0)]
    {
        let unique = |start| Check { event: Some(b"a"), ..strict(name, start) };
        for start in [ahead, ahead] {
            decide(store, &[Check { event: Some(b"b"), ..strict(name, start) }], at(ahead));
        }
        let decision = decide(store, &[unique(0)], at(1))[0];
        assert_eq!((decision.rate, decision.start - START), (rate, kept), "{name}");
        assert_eq!((decision.details.found, decision.details.seen), (rate > 1.0, Some(false)));
        assert_eq!(decide(store, &[unique(0)], at(2))[0].rate, rate);
    }
}

fn other_zones_start_nothing_twice<S: Store>(store: &mut S) {
    // Two servers whose days begin 300 seconds apart.
    for (now, start, rate, kept) in [
        (0, 0, 1.0, 0),
        (300, 300, 2.0, 0),
        (999, 300, 3.0, 0),
        (1000, 1000, 1.0, 1000),
        (1300, 1300, 2.0, 1000),
        (1999, 1000, 3.0, 1000),
    ] {
        let decision = decide(store, &[strict("key", start)], at(now))[0];
        assert_eq!((decision.rate, decision.start - START), (rate, kept), "{now}");
    }
    // The zone is changed: the first day of the new one has more than half of its length.
    for (now, start, rate, kept, restarts) in [
        (0, 0, 1.0, 0, 1000),
        (500, 400, 2.0, 0, 1400),
        (1399, 400, 3.0, 0, 1400),
        (1400, 1400, 1.0, 1400, 2400),
        (1700, 1000, 2.0, 1400, 2000),
        (2000, 2000, 1.0, 2000, 3000),
    ] {
        let decision = decide(store, &[strict("moved", start)], at(now))[0];
        let times = (decision.start - START, decision.restarts - START);
        assert_eq!((decision.rate, times), (rate, (kept, restarts)), "{now}");
    }
}

fn windows_are_predictable<S: Store>(store: &mut S) {
    for left in (0..3).rev() {
        let decision = decide(store, &[day("key", 0)], at(0))[0];
        assert_eq!(decision.remaining(at(0)), f64::from(left));
        let wait = if left > 0 { 0.0 } else { 999.75 };
        assert_eq!(decision.retry_after(at(0)), Wait::Seconds(wait));
    }
    let decision = decide(store, &[day("key", 0)], at(400))[0];
    assert!(decision.over);
    assert_eq!(decision.retry_after(at(400)), Wait::Seconds(599.75));
    assert_eq!((decision.remaining(at(999)), decision.remaining(at(1000))), (0.0, 3.0));
    assert_eq!(decision.against(9.0).remaining(at(400)), 6.0);
    assert!(decision.against(3.5).over && !decision.against(4.0).over);
    let never = decide(store, &[Check { count: 4.0, ..day("other", 0) }], at(0))[0];
    assert_eq!(never.retry_after(at(0)), Wait::Never);
}

fn a_window_and_an_average_of_one_name_are_two_records<S: Store>(store: &mut S) {
    let checks = [check("key"), day("key", 0), strict("key", 0)];
    for n in 1..=3 {
        let decisions = decide(store, &checks, at(0));
        let rates: Vec<_> = decisions.iter().map(|decision| decision.rate.round()).collect();
        assert_eq!(rates, [f64::from(n); 3]);
    }
    assert_eq!(crossing(store, with_limit(0.5, check("key")), 1), (true, 1));
    assert_eq!(crossing(store, strict("key", 0), 1), (true, 1));
}

fn a_full_window_keeps_others_from_counting<S: Store>(store: &mut S) {
    let average = with_limit(100.0, leaky("average"));
    let checks = [average, limited(1.0, day("full", 0)), day("other", 0), check("strict")];
    assert!(decide(store, &checks, at(0)).iter().all(|one| !one.over && one.details.written));
    let second = decide(store, &checks, at(4));
    let written: Vec<_> = second.iter().map(|decision| decision.details.written).collect();
    assert_eq!(written, [false, false, false, true]);
    assert_eq!(
        (counted(store, "full", 0), counted(store, "other", 0)),
        (Some((1.0, 0)), Some((1.0, 0)))
    );
    // A total is not used up by what a user's own limit refuses.
    let total = Check { total: true, ..strict("total", 0) };
    let own = limited(1.0, day("own", 0));
    for expected in [1.0, 1.0, 1.0] {
        decide(store, &[own, total], at(5));
        assert_eq!(counted(store, "total", 0), Some((expected, 0)));
    }
    // Nor by what it refuses itself, or another total does; strict or not.
    for update in [Update::Strict, Update::Leaky] {
        let name = |what: &str| format!("{what}{update:?}");
        let [full, wide, user] = ["full", "wide", "user"].map(name);
        let total = |name| Check { total: true, update, ..strict(name, 0) };
        let checks = [strict(&user, 0), limited(1.0, total(&full)), total(&wide)];
        for n in 1..=3 {
            let decisions = decide(store, &checks, at(5));
            assert_eq!(decisions[1].over, n > 1);
            let of = |store: &mut S, name: &str| counted(store, name, 0).map(|one| one.0);
            assert_eq!(of(store, &full), Some(1.0), "{update:?}");
            assert_eq!(of(store, &wide), Some(1.0), "{update:?}");
            assert_eq!(of(store, &user), Some(f64::from(n)), "{update:?}");
        }
    }
    // One that only observes counts all.
    let observed = Check { refuses: None, ..limited(1.0, day("observed", 0)) };
    for n in 1..4 {
        assert_eq!(decide(store, &[observed, day("with", 0)], at(6))[0].over, n > 1);
    }
    assert_eq!(
        (counted(store, "observed", 0), counted(store, "with", 0)),
        (Some((3.0, 0)), Some((3.0, 0)))
    );
}

fn one_window_counts_one_event_once<S: Store>(store: &mut S) {
    decide(store, &[day("key", 0)], at(0));
    let decisions = decide(store, &[day("key", 0), limited(9.0, day("key", 0))], at(8));
    assert!(decisions.iter().all(|decision| decision.rate == 2.0 && decision.details.written));
    let lower = limited(2.0, day("key", 0));
    let decisions = decide(store, &[day("key", 0), lower], at(8));
    let over: Vec<_> = decisions.iter().map(|decision| decision.over).collect();
    assert_eq!((&over[..], counted(store, "key", 0)), (&[false, true][..], Some((2.0, 0))));
    let decisions = decide(store, &[lower, strict("key", 0)], at(8));
    assert!(decisions.iter().all(|one| one.details.written && one.period == 1000.0));
    assert_eq!(counted(store, "key", 0), Some((3.0, 0)));
}

fn unique_events_count_once_in_a_window<S: Store>(store: &mut S) {
    for (event, now, start, seen, rate) in [
        ("a", 0, 0, false, 1.0),
        ("b", 998, 0, false, 2.0),
        ("a", 999, 0, true, 2.0),
        // However short the time is since.
        ("b", 1000, 1000, false, 1.0),
        ("b", 1001, 1000, true, 1.0),
        // A clock that is behind.
        ("b", 999, 0, true, 1.0),
        ("a", 998, 0, false, 2.0),
    ] {
        let unique = Check { event: Some(event.as_bytes()), ..day("key", start) };
        let decision = decide(store, &[unique], at(now))[0];
        assert_eq!((decision.details.seen, decision.rate), (Some(seen), rate), "{now}");
        assert_eq!(decision.details.filter_expired, now == 1000);
    }
    // The first event of a window comes from a clock that is behind it.
    let unique = |start| Check { event: Some(b"a"), ..day("behind", start) };
    decide(store, &[day("behind", 1000)], at(1000));
    for seen in [false, true, true] {
        let decision = decide(store, &[unique(0)], at(500))[0];
        assert_eq!((decision.details.seen, decision.rate), (Some(seen), 2.0));
    }
    assert_eq!(decide(store, &[unique(1000)], at(1500))[0].details.seen, Some(true));
}

fn a_crossing_is_the_first_over_decision_of_a_window<S: Store>(store: &mut S) {
    for one in [|start| day("leaky", start), |start| strict("strict", start)] {
        let large = |start| Check { count: 9.0, ..one(start) };
        assert_eq!(crossing(store, one(0), 0), (false, 0));
        assert_eq!(crossing(store, large(0), 990), (true, 1));
        assert_eq!(crossing(store, large(0), 999), (false, 1));
        assert_eq!(crossing(store, large(1000), 1000), (true, 2));
        assert_eq!(crossing(store, large(1000), 1999), (false, 2));
        // A clock that is behind: the window in which it counts has crossed, or crosses once.
        assert_eq!(crossing(store, large(0), 999), (false, 2));
        assert_eq!(crossing(store, Check { count: 1.0, ..one(2000) }, 2000), (false, 2));
        assert_eq!(crossing(store, large(1000), 1999), (true, 3));
        assert_eq!(crossing(store, large(1000), 1999), (false, 3));
        assert_eq!(crossing(store, large(2000), 2001), (false, 3));
    }
}

fn readonly_windows_change_nothing<S: Store>(store: &mut S) {
    let read = |start| Check { update: Update::ReadOnly, count: 0.0, ..day("key", start) };
    assert_eq!(decide(store, &[read(0)], at(0))[0].kept, None);
    decide(store, &[Check { count: 4.0, ..strict("key", 0) }], at(0));
    for (now, start, rate, over) in [(0, 0, 4.0, true), (1000, 1000, 0.0, false), (9, 0, 4.0, true)]
    {
        let decision = decide(store, &[read(start)], at(now))[0];
        assert_eq!((decision.rate, decision.over), (rate, over), "{now}");
    }
    assert_eq!(decide(store, &[read(1000)], at(1000))[0].remaining(at(1000)), 3.0);
}

fn overrides_decide_instead_of_the_count<S: Store>(store: &mut S) {
    let allowed = |check| Check { overridden: Some(Overridden::Allow), ..check };
    let denied = |check| Check { overridden: Some(Overridden::Deny), ..check };
    for n in 1..=5 {
        let decision = decide(store, &[allowed(day("key", 0))], at(0))[0];
        assert_eq!((decision.rate, decision.over), (f64::from(n), false));
        assert!(decision.details.written && !decision.crossed);
    }
    let decision = decide(store, &[denied(day("key", 0))], at(1))[0];
    assert_eq!((decision.rate, decision.over, decision.details.written), (6.0, true, false));
    assert_eq!((decision.retry_after(at(1)), decision.crossings), (Wait::Never, 0));
    assert_eq!(crossing(store, day("key", 0), 2), (true, 1));
    assert_eq!(counted(store, "key", 0), Some((5.0, 0)));
}
