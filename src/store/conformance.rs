//! Tests that every store must pass.

use quickcheck::{Arbitrary, Gen};

use crate::engine::{Algorithm, BlockTime, Check, Decision, Overridden, Update};
use crate::rate::{Average, CalendarWindow, Share, Timestamp, Wait};

use super::{Memory, Store};

mod block;
mod bucket;
mod calendar;
mod habits;
mod inspection;
mod share;

pub(crate) use habits::habits;
pub(crate) use inspection::inspection;

/// Runs all tests; `fresh` creates an empty store.
pub(crate) fn all<S: Store>(mut fresh: impl FnMut() -> S) {
    counts_every_event(&mut fresh());
    keeps_records_apart(&mut fresh());
    leaky_counts_what_is_accepted(&mut fresh());
    readonly_changes_nothing(&mut fresh());
    an_enforced_leaky_check_over_its_limit_keeps_all_leaky_ones_from_counting(&mut fresh());
    observed_checks_keep_no_other_from_counting(&mut fresh());
    what_another_refuses_counts_against_no_total(&mut fresh);
    a_check_refuses_from_its_part_of_the_limit(&mut fresh());
    one_record_counts_one_event_once(&mut fresh());
    unique_events_count_once_a_period(&mut fresh());
    filters_survive_a_change_of_limit(&mut fresh());
    a_crossing_is_the_first_over_decision_for_a_period(&mut fresh());
    a_crossing_without_a_rate_changes_no_decision(&mut fresh());
    readonly_checks_do_not_cross(&mut fresh());
    checks_of_one_record_cross_once(&mut fresh());
    an_allowed_check_counts_and_is_never_over(&mut fresh());
    a_denied_check_is_over_and_keeps_leaky_ones_from_counting(&mut fresh());
    reads_the_clock_once(&mut fresh());
    survives_a_panic_of_the_clock(&mut fresh());
    decides_an_empty_slice(&mut fresh());
    block::all(&mut fresh);
    bucket::all(&mut fresh);
    calendar::all(&mut fresh);
    share::all(&mut fresh);
    decides_as_the_memory_store_does(&mut fresh);
}

const START: i64 = 1_700_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp { seconds: START + seconds, micros: 250_000 }
}

/// A strict check of size 1, with a limit of 5 an hour.
fn check(name: &str) -> Check<'_> {
    Check::new(name, Algorithm::MovingAverage { limit: 5.0, period: 3600.0 })
}

fn leaky(name: &str) -> Check<'_> {
    Check { update: Update::Leaky, ..check(name) }
}

fn with_limit(limit: f64, check: Check<'_>) -> Check<'_> {
    Check { algorithm: Algorithm::MovingAverage { limit, period: 3600.0 }, ..check }
}

fn decide<S: Store>(store: &mut S, checks: &[Check<'_>], now: Timestamp) -> Vec<Decision> {
    let mut decisions = vec![];
    store.decide(checks, || now, &mut decisions).unwrap();
    assert_eq!(decisions.len(), checks.len());
    decisions
}

/// The remembered rate; 0 if there is none.
fn rate<S: Store>(store: &mut S, name: &str, now: Timestamp) -> f64 {
    let read = Check { update: Update::ReadOnly, count: 0.0, ..check(name) };
    store.decide_one(&read, || now).unwrap().kept.map_or(0.0, |kept| kept.rate)
}

fn counts_every_event<S: Store>(store: &mut S) {
    let mut average: Option<Average> = None;
    for n in 0..200 {
        let now = at(n * 37 % 1000);
        let count = (n % 4) as f64;
        let expected = match average {
            None => Average::first(now, count),
            Some(average) => average.next(now, 3600.0, count),
        };
        let one = Check { count, ..check("key") };
        // Single checks and slices of one give the same result.
        let decision = match n % 2 {
            0 => store.decide_one(&one, || now).unwrap(),
            _ => decide(store, &[one], now)[0],
        };
        assert_eq!((decision.rate, decision.at), (expected.rate, now));
        assert_eq!(decision.over, expected.rate >= 5.0);
        assert_eq!((decision.kept, decision.count), (Some(expected), count));
        assert_eq!(decision.details.found, average.is_some());
        average = Some(expected);
    }
}

fn keeps_records_apart<S: Store>(store: &mut S) {
    let name = |n: u32| match n % 4 {
        0 => format!("{n}"),
        1 => format!("1h/per_mail/{n}"),
        2 => "x".repeat(n as usize),
        _ => format!("\0/\u{ff}{n}"),
    };
    for n in 0..3000 {
        let name = name(n);
        decide(store, &[Check { count: f64::from(n), ..check(&name) }], at(0));
    }
    decide(store, &[Check { count: 7.0, ..check("") }], at(0));
    for n in 0..3000 {
        assert_eq!(rate(store, &name(n), at(0)), f64::from(n), "{n}");
    }
    assert_eq!(rate(store, "", at(0)), 7.0);
}

fn leaky_counts_what_is_accepted<S: Store>(store: &mut S) {
    for n in 1..=4 {
        let decision = decide(store, &[leaky("key")], at(0))[0];
        assert!(!decision.over && decision.details.written, "{n}");
    }
    let before = rate(store, "key", at(0));
    for _ in 0..3 {
        let decision = decide(store, &[leaky("key")], at(0))[0];
        assert!(decision.over && !decision.details.written && decision.rate > before + 0.9);
        assert_eq!(decision.kept.map(|kept| kept.rate), Some(before));
        assert_eq!(rate(store, "key", at(0)), before);
    }
}

fn readonly_changes_nothing<S: Store>(store: &mut S) {
    decide(store, &[check("key")], at(0));
    let read =
        Check { update: Update::ReadOnly, count: 0.0, event: Some(b"event"), ..check("key") };
    for name in ["key", "none"] {
        let decision = decide(store, &[Check { key: name.into(), ..read }], at(9))[0];
        assert!(!decision.details.written);
        assert_eq!((decision.details.found, decision.details.seen), (name == "key", None));
        assert_eq!(decision.kept, (name == "key").then_some(Average { at: at(0), rate: 1.0 }));
    }
}

fn an_enforced_leaky_check_over_its_limit_keeps_all_leaky_ones_from_counting<S: Store>(
    store: &mut S,
) {
    let (narrow, wide) = (with_limit(1.5, leaky("narrow")), with_limit(100.0, leaky("wide")));
    // Of the same identity, and of another.
    let other = with_limit(100.0, leaky("other"));
    let read = Check { update: Update::ReadOnly, count: 0.0, ..check("wide read") };
    let checks = [wide, narrow, with_limit(4.5, check("strict")), other, read];
    for n in 0..5 {
        let decisions = decide(store, &checks, at(n));
        let over: Vec<_> = decisions.iter().map(|decision| decision.over).collect();
        assert_eq!(over, [false, n > 0, n >= 4, false, false], "{n}");
        let written: Vec<_> = decisions.iter().map(|one| one.details.written).collect();
        assert_eq!(written, [n == 0, n == 0, true, n == 0, false], "{n}");
    }
    for (name, expected) in [("narrow", 1.0), ("wide", 1.0), ("other", 1.0), ("strict", 5.0)] {
        assert_eq!(rate(store, name, at(4)).round(), expected, "{name}");
    }
    // A strict check that is over keeps nothing from counting.
    let decisions = decide(store, &[with_limit(0.0, check("strict")), wide], at(5));
    assert!(decisions[0].over && decisions[1].details.written);
}

fn observed_checks_keep_no_other_from_counting<S: Store>(store: &mut S) {
    let observed = Check { refuses: None, ..with_limit(0.0, leaky("observed")) };
    for n in 0..3 {
        let decisions = decide(store, &[observed, leaky("enforced")], at(n));
        assert!(decisions[0].over && decisions[0].details.written);
        assert!(!decisions[1].over && decisions[1].details.written);
    }
    assert_eq!(rate(store, "observed", at(3)).round(), 3.0);
    let refused = decide(store, &[observed, with_limit(0.0, leaky("enforced"))], at(3));
    assert!(refused[0].details.written && !refused[1].details.written);
}

/// Whatever else refuses the event, and whichever comes first.
fn what_another_refuses_counts_against_no_total<S: Store>(fresh: &mut impl FnMut() -> S) {
    let total = |update| {
        let one = Check { update, ..with_limit(100.0, check("domain")) };
        Check { total: true, event: Some(b"x"), ..one }
    };
    let read = |name| Check { update: Update::ReadOnly, count: 0.0, ..check(name) };
    let denied = |one| Check { overridden: Some(Overridden::Deny), ..with_limit(100.0, one) };
    let grade = |from, one| Check { refuses: Some(from), ..with_limit(4.0, one) };
    for (own, refused) in [
        (with_limit(1.0, check("own")), true),
        (with_limit(1.0, leaky("own")), true),
        (with_limit(0.0, read("own")), true),
        (denied(check("own")), true),
        (denied(read("own")), true),
        (grade(0.25, leaky("own")), true),
        (grade(0.26, check("own")), false),
        (grade(1.5, Check { count: 5.0, ..check("own") }), false),
        (grade(1.25, Check { count: 5.0, ..check("own") }), true),
        (Check { refuses: Some(f64::INFINITY), ..denied(check("own")) }, true),
        (Check { refuses: None, ..denied(check("own")) }, false),
        (Check { refuses: None, ..with_limit(1.0, leaky("own")) }, false),
        (Check { overridden: Some(Overridden::Allow), ..with_limit(1.0, leaky("own")) }, false),
        (check("own"), false),
    ] {
        for update in [Update::Leaky, Update::Strict] {
            let total = total(update);
            for checks in [[own, total], [total, own]] {
                let store = &mut fresh();
                decide(store, &[Check { event: Some(b"w"), ..total }], at(0));
                let decisions = decide(store, &checks, at(0));
                let decided = decisions[usize::from(checks[0] == own)];
                let counted = f64::from(u8::from(!refused));
                let what = format!("{own:?}");
                assert_eq!(rate(store, "domain", at(0)).round(), 1.0 + counted, "{what}");
                assert_eq!((decided.rate.round(), decided.count), (1.0 + counted, counted));
                assert_eq!((decided.details.written, decided.next_count), (!refused, 1.0));
                // What was not counted is not remembered either.
                let seen = decide(store, &[total], at(0))[0].details.seen;
                assert_eq!(seen, Some(!refused), "{what}");
                let strict = own.update == Update::Strict || own.refuses.is_none();
                let kept = decisions[usize::from(checks[1] == own)].details.written;
                assert_eq!(kept, own.update != Update::ReadOnly && (strict || !refused), "{what}");
            }
        }
    }
    // A refused event does not take a total over its limit, and so is no crossing of it.
    let store = &mut fresh();
    let total = with_limit(1.5, total(Update::Strict));
    let own = with_limit(1.0, check("own"));
    for n in 0..100 {
        let event = n.to_string();
        let total = Check { event: Some(event.as_bytes()), ..total };
        let before = Check { event: Some(b"first"), ..total };
        decide(store, &[before], at(0));
        let refused = decide(store, &[own, total], at(0))[1];
        assert!(!refused.over && !refused.crossed && refused.crossings == 0, "{refused:?}");
    }
    // A total refuses too, and does not count that; no strict check is kept from counting by it.
    let decisions = decide(store, &[check("other"), with_limit(0.5, total)], at(0));
    let written: Vec<_> = decisions.iter().map(|one| one.details.written).collect();
    assert!(decisions[1].over && decisions[1].crossed);
    assert_eq!(written, [true, false]);
    let decisions =
        decide(store, &[leaky("third"), Check { update: Update::Leaky, ..total }], at(0));
    assert!(decisions[1].over && decisions.iter().all(|one| !one.details.written));
}

fn a_check_refuses_from_its_part_of_the_limit<S: Store>(store: &mut S) {
    let graded = |from, name| Check { refuses: Some(from), ..with_limit(4.0, leaky(name)) };
    for (from, name, most) in [(0.5, "half", 1.0), (1.0, "all", 3.0), (2.0, "twice", 7.0)] {
        for _ in 0..12 {
            decide(store, &[graded(from, name), with_limit(100.0, leaky("other"))], at(0));
        }
        assert_eq!(rate(store, name, at(0)).round(), most, "{name}");
    }
    let never = graded(f64::INFINITY, "never");
    let denied = Check { overridden: Some(Overridden::Deny), ..never };
    for check in [never, never, never, never, never, denied, denied] {
        decide(store, &[check], at(0));
    }
    assert_eq!(rate(store, "never", at(0)).round(), 5.0);
}

fn one_record_counts_one_event_once<S: Store>(store: &mut S) {
    let read = Check { update: Update::ReadOnly, count: 0.0, ..check("key") };
    let lower = with_limit(2.0, check("key"));
    let decisions = decide(store, &[read, check("key"), lower, read], at(0));
    let rates: Vec<_> = decisions.iter().map(|decision| decision.rate).collect();
    assert_eq!(rates, [0.0, 1.0, 1.0, 1.0]);
    assert_eq!(rate(store, "key", at(0)), 1.0);
    // A leaky check with a lower limit keeps both from counting.
    let decisions = decide(store, &[leaky("l"), with_limit(1.0, leaky("l"))], at(0));
    let over: Vec<_> = decisions.iter().map(|decision| decision.over).collect();
    assert_eq!((&over[..], rate(store, "l", at(0))), (&[false, true][..], 0.0));
    // A strict check counts for both.
    let decisions = decide(store, &[with_limit(1.0, leaky("l")), check("l")], at(0));
    assert!(decisions.iter().all(|decision| decision.details.written && decision.rate == 1.0));
    assert_eq!(rate(store, "l", at(0)), 1.0);
}

fn unique_events_count_once_a_period<S: Store>(store: &mut S) {
    let unique = |event: &'static str, now| {
        (Check { event: Some(event.as_bytes()), ..check("key") }, at(now))
    };
    for ((one, now), seen, expired) in [
        (unique("a", 0), false, false),
        (unique("b", 1), false, false),
        (unique("a", 2), true, false),
        (unique("", 3), false, false),
        (unique("", 3600), true, false),
        (unique("a", 3601), false, true),
        (unique("b", 3602), false, false),
        (unique("a", 3603), true, false),
    ] {
        let decision = decide(store, &[one], now)[0];
        let (details, count) = (decision.details, f64::from(u8::from(!seen)));
        assert_eq!((details.seen, details.filter_expired), (Some(seen), expired), "{now:?}");
        assert_eq!(decision.count, count);
    }
    // A leaky event that was refused is not remembered.
    let refused = Check { event: Some(b"c"), ..with_limit(0.5, leaky("key")) };
    for _ in 0..2 {
        assert_eq!(decide(store, &[refused], at(3604))[0].details.seen, Some(false));
    }
}

fn filters_survive_a_change_of_limit<S: Store>(store: &mut S) {
    let events: Vec<_> = (0..20).map(|n| format!("{n}@example.org")).collect();
    for limit in [5.0, 21.0, 1e6, f64::INFINITY] {
        for (n, event) in events.iter().enumerate() {
            let one = Check { event: Some(event.as_bytes()), ..with_limit(limit, check("key")) };
            let first = decide(store, &[one], at(n as i64))[0];
            // With more events than its limit, a filter may take a new one for a known one.
            if limit > 5.0 || n < 5 {
                assert_eq!(first.details.seen, Some(limit > 5.0), "{limit} {event}");
            }
            // A check without an event leaves the filter alone.
            decide(store, &[with_limit(limit, check("key"))], at(n as i64));
        }
    }
    let large = |now| {
        let one = Check { event: Some(b"x"), ..with_limit(1e6, check("key")) };
        (one, at(now))
    };
    for ((one, now), seen) in
        [(large(4000), false), (large(4000), true), (large(9000), false), (large(9001), true)]
    {
        assert_eq!(decide(store, &[one], now)[0].details.seen, Some(seen), "{now:?}");
    }
}

/// Whether the decision is a crossing, and the number of the latest.
fn crossing<S: Store>(store: &mut S, check: Check<'_>, now: i64) -> (bool, u32) {
    let decision = decide(store, &[check], at(now))[0];
    (decision.crossed, decision.crossings)
}

fn a_crossing_is_the_first_over_decision_for_a_period<S: Store>(store: &mut S) {
    for one in [with_limit(2.0, leaky("leaky")), with_limit(2.0, check("strict"))] {
        assert_eq!(crossing(store, one, 0), (false, 0));
        assert_eq!(crossing(store, one, 0), (true, 1));
        assert_eq!(crossing(store, with_limit(0.0, one), 1), (false, 1));
        // It ends with a period without over decisions, not with an event that passes.
        assert_eq!(crossing(store, with_limit(100.0, one), 2), (false, 1));
        assert_eq!(crossing(store, with_limit(0.0, one), 3601), (false, 1));
        assert_eq!(crossing(store, with_limit(0.0, one), 7202), (true, 2));
        assert_eq!(crossing(store, with_limit(0.0, one), 7203), (false, 2));
        // A clock that was set back makes no crossing.
        assert_eq!(crossing(store, with_limit(0.0, one), 0), (false, 2));
    }
}

fn a_crossing_without_a_rate_changes_no_decision<S: Store>(store: &mut S) {
    let large = Check { count: 9.0, event: Some(b"event"), ..leaky("key") };
    let first = decide(store, &[large], at(0))[0];
    assert_eq!((first.crossed, first.crossings, first.kept), (true, 1, None));
    let second = decide(store, &[large], at(1))[0];
    assert_eq!((second.crossed, second.crossings, second.kept), (false, 1, None));
    assert_eq!((second.rate, second.details.seen), (9.0, Some(false)));
    // The first event that is counted has the rate of a first event.
    let small = decide(store, &[leaky("key")], at(2))[0];
    assert_eq!((small.rate, small.details.written, small.crossings), (1.0, true, 1));
    assert_eq!(crossing(store, large, 3), (false, 1));
}

fn readonly_checks_do_not_cross<S: Store>(store: &mut S) {
    let read = Check { update: Update::ReadOnly, count: 0.0, ..with_limit(0.0, check("key")) };
    let decision = decide(store, &[read], at(0))[0];
    assert!(decision.over && !decision.crossed);
    assert_eq!(crossing(store, with_limit(0.0, check("key")), 1), (true, 1));
    assert_eq!(crossing(store, read, 2), (false, 1));
    // The next over decision is still a crossing.
    assert_eq!(crossing(store, read, 3601), (false, 1));
    assert_eq!(crossing(store, with_limit(0.0, check("key")), 3602), (true, 2));
}

fn checks_of_one_record_cross_once<S: Store>(store: &mut S) {
    let (passes, over) = (with_limit(9.0, leaky("key")), with_limit(0.5, leaky("key")));
    let other = with_limit(0.5, leaky("other"));
    let decisions = decide(store, &[passes, over, other, over], at(0));
    let crossed: Vec<_> = decisions.iter().map(|decision| decision.crossed).collect();
    assert_eq!(crossed, [false, true, true, true]);
    assert!(decisions.iter().all(|decision| decision.crossings == 1));
    let decisions = decide(store, &[over, passes, other], at(1));
    assert!(decisions.iter().all(|decision| !decision.crossed && decision.crossings == 1));
}

fn reads_the_clock_once<S: Store>(store: &mut S) {
    let names: Vec<_> = (0..20).map(|n| format!("identity {n}")).collect();
    let checks: Vec<_> = names.iter().map(|name| check(name)).collect();
    let (mut reads, mut decisions) = (0, vec![]);
    let clock = || {
        reads += 1;
        at(7)
    };
    store.decide(&checks, clock, &mut decisions).unwrap();
    assert_eq!(reads, 1);
    assert!(decisions.iter().all(|decision| decision.at == at(7) && decision.rate == 1.0));
    // Again, with existing records.
    for decision in decide(store, &checks, at(7)) {
        assert_eq!(decision.rate.round(), 2.0);
    }
}

fn survives_a_panic_of_the_clock<S: Store>(store: &mut S) {
    decide(store, &[check("key")], at(0));
    for checks in [&[check("key")][..], &[check("key"), check("other")]] {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = store.decide(checks, || panic!("on purpose"), &mut vec![]);
        }));
        assert!(result.is_err());
    }
    assert_eq!((rate(store, "key", at(0)), rate(store, "other", at(0))), (1.0, 0.0));
}

fn an_allowed_check_counts_and_is_never_over<S: Store>(store: &mut S) {
    let allowed =
        |update, name| Check { update, overridden: Some(Overridden::Allow), ..check(name) };
    for n in 1..=20 {
        for update in [Update::Leaky, Update::Strict] {
            let decision = decide(store, &[allowed(update, update.word())], at(0))[0];
            assert!(!decision.over && decision.details.written && !decision.crossed, "{n}");
            assert!((decision.rate - f64::from(n)).abs() < 1e-3, "{n}: {}", decision.rate);
            assert_eq!(decision.overridden, Some(Overridden::Allow));
            assert_eq!(decision.remaining(at(0)), f64::INFINITY);
            assert_eq!(decision.retry_after(at(0)), Wait::Seconds(0.0));
            assert!(!decision.against(0.0).over, "against any limit");
        }
    }
    // It keeps no other check from counting.
    let both = decide(store, &[allowed(Update::Leaky, "leaky"), leaky("other")], at(0));
    assert!(both.iter().all(|one| one.details.written));
    // Without the override, the rate decides again, and the crossing is the first.
    let after = decide(store, &[check("strict")], at(1))[0];
    assert!(after.over && after.crossed && after.crossings == 1);
}

fn a_denied_check_is_over_and_keeps_leaky_ones_from_counting<S: Store>(store: &mut S) {
    let denied = |update, name| Check { update, overridden: Some(Overridden::Deny), ..check(name) };
    decide(store, &[leaky("leaky")], at(0));
    let all = [denied(Update::Leaky, "leaky"), leaky("other"), check("strict")];
    let all = decide(store, &all, at(0));
    assert_eq!(all.iter().map(|one| one.over).collect::<Vec<_>>(), [true, false, false]);
    assert_eq!(all.iter().map(|one| one.details.written).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!(rate(store, "leaky", at(0)), 1.0);
    let strict = decide(store, &[denied(Update::Strict, "strict")], at(0))[0];
    assert!(strict.over && strict.details.written && !strict.crossed && strict.crossings == 0);
    assert!((strict.rate - 2.0).abs() < 1e-6 && strict.remaining(at(0)) == 0.0);
    assert_eq!(strict.retry_after(at(0)), Wait::Never);
    assert!(strict.against(f64::INFINITY).over, "against any limit");
    let looked = Check { count: 0.0, ..denied(Update::ReadOnly, "leaky") };
    assert!(decide(store, &[looked], at(0))[0].over);
    // Without the override, nothing of it is left.
    let after = decide(store, &[leaky("leaky")], at(0))[0];
    assert!(!after.over && (after.rate - 2.0).abs() < 1e-6 && after.details.written);
}

fn decides_an_empty_slice<S: Store>(store: &mut S) {
    let mut decisions = decide(store, &[check("key")], at(0));
    store.decide(&[], || at(0), &mut decisions).unwrap();
    assert_eq!(decisions, []);
}

/// From which part of its limit a random check refuses the event.
pub(crate) fn refuses(choice: u8) -> Option<f64> {
    match choice % 8 {
        0 => None,
        1 => Some(0.5),
        2 => Some(1.5),
        3 => Some(f64::INFINITY),
        _ => Some(1.0),
    }
}

/// One check of a random call.
#[derive(Clone, Debug)]
struct Random {
    name: u8,
    limit: u8,
    algorithm: u8,
    count: u8,
    event: Option<u8>,
    update: u8,
    refuses: u8,
    total: bool,
    overridden: u8,
    blocks: BlockTime,
}

impl Arbitrary for Random {
    fn arbitrary(g: &mut Gen) -> Self {
        Self {
            name: u8::arbitrary(g) % 8,
            limit: u8::arbitrary(g),
            algorithm: u8::arbitrary(g),
            count: u8::arbitrary(g) % 4,
            event: Option::<u8>::arbitrary(g).map(|event| event % 4),
            update: u8::arbitrary(g),
            refuses: u8::arbitrary(g),
            total: bool::arbitrary(g),
            overridden: u8::arbitrary(g),
            blocks: BlockTime::arbitrary(g),
        }
    }
}

fn decides_as_the_memory_store_does<S: Store>(fresh: &mut impl FnMut() -> S) {
    const NAMES: [&[u8]; 8] = [b"", b"a", b"b", b"c", b"d", b"e", b"f", b"1h/per_mail/a"];
    const EVENTS: [&[u8]; 4] = [b"", b"x", b"y", b"z"];
    let mut stores = (fresh(), Memory::new(), 0);
    let mut run = |calls: Vec<(u16, Vec<Random>)>| {
        let (store, memory, now) = &mut stores;
        for (later, random) in calls {
            // Sometimes the clock goes back.
            *now += i64::from(later % 2000) - i64::from(later % 3) * 100;
            let checks: Vec<_> = random
                .iter()
                .take(12)
                .map(|one| {
                    let update = match one.update % 5 {
                        0 => Update::ReadOnly,
                        1 | 2 => Update::Leaky,
                        _ => Update::Strict,
                    };
                    let readonly = update == Update::ReadOnly;
                    Check {
                        key: NAMES[usize::from(one.name)].into(),
                        algorithm: match (one.algorithm % 4, f64::from(one.limit) / 4.0) {
                            (0, limit) => {
                                // In one of two zones, which are some hours apart.
                                let zone = i64::from(one.algorithm / 3 % 2) * 1300;
                                let start = (START + *now - zone).div_euclid(3600) * 3600 + zone;
                                let window = CalendarWindow { start, end: start + 3600 };
                                Algorithm::Calendar { limit, window }
                            }
                            (1, burst) => {
                                Algorithm::Bucket { burst: burst.max(0.25), rate: 1.0 / 512.0 }
                            }
                            (2, limit) => Algorithm::Share {
                                share: Share {
                                    limit,
                                    least: u32::from(one.limit % 4),
                                    period: 3600.0,
                                },
                                accepted: (one.count % 2 == 1)
                                    .then_some(START + *now - i64::from(one.limit) * 20),
                            },
                            (_, limit) => Algorithm::MovingAverage { limit, period: 3600.0 },
                        },
                        count: if readonly { 0.0 } else { one.count.into() },
                        event: one.event.map(|event| EVENTS[usize::from(event)]),
                        update,
                        refuses: refuses(one.refuses),
                        total: one.total,
                        overridden: match one.overridden % 6 {
                            0 => Some(Overridden::Allow),
                            1 => Some(Overridden::Deny),
                            _ => None,
                        },
                        blocks: one.blocks,
                    }
                })
                .collect();
            let (expected, found) =
                (decide(memory, &checks, at(*now)), decide(store, &checks, at(*now)));
            for ((check, found), expected) in checks.iter().zip(&found).zip(&expected) {
                assert_eq!(found, expected, "{check:?} of {checks:?}");
            }
        }
    };
    let mut g = kit::generator(20);
    for _ in 0..60 {
        run(Arbitrary::arbitrary(&mut g));
    }
}

#[test]
fn memory_conforms() {
    all(Memory::new);
}
