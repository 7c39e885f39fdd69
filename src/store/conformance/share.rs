//! Tests of shares of what failed that every store must pass.

use super::{START, at, check, decide, leaky};
use crate::engine::{Algorithm, Check, Decision, Update};
use crate::rate::Share;
use crate::rate::share::Counted;
use crate::store::Store;

/// Runs all tests; `fresh` creates an empty store.
pub(super) fn all<S: Store>(fresh: &mut impl FnMut() -> S) {
    failures_are_of_the_mail_that_failed(&mut fresh());
    little_mail_has_no_share(&mut fresh());
    what_is_refused_does_not_go_out(&mut fresh());
    a_crossing_is_the_first_over_decision_for_a_period(&mut fresh());
    a_failure_of_what_is_not_known_is_not_counted(&mut fresh());
}

/// 30 percent in a day, in which at least so many went out.
fn share(least: u32, accepted: Option<i64>) -> Algorithm {
    let accepted = accepted.map(|seconds| START + seconds);
    Algorithm::Share { share: Share { limit: 30.0, least, period: 86_400.0 }, accepted }
}

fn send<S: Store>(store: &mut S, count: f64, now: i64) -> Decision {
    decide(store, &[Check { algorithm: share(50, None), count, ..leaky("key") }], at(now))[0]
}

fn fail<S: Store>(store: &mut S, accepted: i64, now: i64) -> Decision {
    let failure = Check { algorithm: share(50, Some(accepted)), refuses: None, ..check("key") };
    store.decide_one(&failure, || at(now)).unwrap()
}

fn look<S: Store>(store: &mut S, now: i64) -> Decision {
    let look = Check { count: 0.0, update: Update::ReadOnly, ..check("key") };
    store.decide_one(&Check { algorithm: share(50, None), ..look }, || at(now)).unwrap()
}

fn counted(decision: Decision) -> (u64, u64) {
    let Counted { sent, failed } = decision.share;
    assert_eq!(decision.count, failed as f64);
    (sent, failed)
}

fn failures_are_of_the_mail_that_failed<S: Store>(store: &mut S) {
    assert!(send(store, 60.0, 0).details.written);
    for n in 1..=18 {
        let decision = fail(store, 0, 5 * 3600 + n);
        assert_eq!(counted(decision), (60, n as u64));
        assert_eq!((decision.rate, decision.over), (n as f64 * 100.0 / 60.0, n == 18), "{n}");
    }
    // All of one bucket leave together: the one of the first second has begun before.
    let over = look(store, 6 * 3600);
    assert!(over.over && over.rate == 30.0 && over.limit == 30.0 && over.period == 86_400.0);
    let wait = over.retry_after(at(6 * 3600)).whole_seconds().unwrap() as i64;
    assert!((68_000 - 3600..=68_000).contains(&(wait + 3600)), "{wait}");
    assert!(look(store, 6 * 3600 + wait - 1).over);
    let under = look(store, 6 * 3600 + wait);
    assert_eq!((counted(under), under.over), ((0, 0), false));
}

fn little_mail_has_no_share<S: Store>(store: &mut S) {
    send(store, 49.0, 0);
    for n in 0..60 {
        let decision = fail(store, 0, n);
        // Not more fails than went out.
        assert_eq!(counted(decision), (49, 49.min(n as u64 + 1)));
        assert_eq!((decision.rate, decision.over), (0.0, false));
    }
    let last = send(store, 1.0, 61);
    assert!(!last.over && last.details.written);
    let over = look(store, 62);
    assert_eq!((counted(over), over.rate, over.over), ((50, 49), 98.0, true));
    // What goes out is no excuse: nothing of it can have failed.
    assert!(send(store, 1000.0, 63).over);
}

fn what_is_refused_does_not_go_out<S: Store>(store: &mut S) {
    send(store, 100.0, 0);
    for _ in 0..30 {
        fail(store, 0, 1);
    }
    let refused = send(store, 5.0, 2);
    assert!(refused.over && !refused.details.written);
    assert_eq!(counted(look(store, 3)), (100, 30));
    // Another limit of the same event counts nothing either.
    let both = [Check { algorithm: share(50, None), ..leaky("key") }, leaky("other")];
    assert!(decide(store, &both, at(4)).iter().all(|one| !one.details.written));
    // Who is not refused is counted.
    let observed = Check { algorithm: share(50, None), refuses: None, ..leaky("key") };
    assert!(decide(store, &[observed], at(5))[0].details.written);
    assert_eq!(counted(look(store, 6)), (101, 30));
}

fn a_crossing_is_the_first_over_decision_for_a_period<S: Store>(store: &mut S) {
    send(store, 50.0, 0);
    let crossed: Vec<_> = (0..20).map(|n| fail(store, 0, 10 + n).crossed).collect();
    assert_eq!(crossed.iter().filter(|crossed| **crossed).count(), 1);
    assert!(crossed[14]);
    send(store, 50.0, 200_000);
    assert!((0..20).any(|n| fail(store, 200_000, 200_010 + n).crossed));
}

fn a_failure_of_what_is_not_known_is_not_counted<S: Store>(store: &mut S) {
    assert!(!fail(store, 0, 10).details.written && look(store, 11).kept.is_none());
    send(store, 50.0, 100_000);
    for accepted in [0, 50_000, 300_000] {
        assert!(!fail(store, accepted, 100_010).details.written, "{accepted}");
    }
    assert_eq!(counted(look(store, 100_011)), (50, 0));
}
