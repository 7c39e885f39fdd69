//! What an event that was logged did to each limit, and when it would have passed.
//!
//! Logged is the rate that was remembered, not decayed since, and the rate with the event.
//! From both and what the event counts follows how long ago the remembered rate was
//! computed, and so all else.

use super::rule;
use crate::engine::{AlgorithmKind, RecordKey};
use crate::identity::fold::TOTALS;
use crate::rate::{Algorithm, Average, Timestamp, Wait};
use crate::spool::{Enforcement, EventWindow, LoggedEvent};

/// More periods than a rate needs to decay to nothing.
const PERIODS_MAX: f64 = 800.0;

/// One limit at the time of an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PastWindow {
    /// What was logged.
    pub logged: EventWindow,
    /// What the event counted; `None` if that is not known.
    pub count: Option<f64>,
    /// The rate or level right before the event; `None` if that is not known.
    pub before: Option<f64>,
    /// How long after the event one of the same size would have passed, if nothing
    /// else was counted since; `None` if that is not known.
    pub wait: Option<Wait>,
}

impl PastWindow {
    /// Each limit of an event.
    #[must_use]
    pub fn all(event: &LoggedEvent) -> Vec<Self> {
        // A total counts nothing that is refused; of a crossing that its policy only logs or delays,
        // the journal does not say so.
        let is_refused = event.enforcement == Enforcement::Enforced;
        let is_counted = event.strict && !(is_refused && is_total(&event.record_key()));
        event.windows.iter().map(|window| Self::of(*window, event.at, is_counted)).collect()
    }

    fn of(logged: EventWindow, at: Timestamp, strict: bool) -> Self {
        let unknown = Self { logged, count: None, before: None, wait: None };
        let count = f64::from(logged.count);
        if count <= 0.0 || !count.is_finite() || !logged.after.is_finite() {
            return unknown;
        }
        if logged.algorithm == AlgorithmKind::Share {
            return Self { count: Some(count), before: Some(logged.before), ..unknown };
        }
        let known = |before: f64, wait| Self {
            count: Some(count),
            before: Some(before.max(0.0)),
            wait: Some(wait),
            ..unknown
        };
        let before = logged.after - count;
        let kept = if strict { logged.after } else { before };
        let EventWindow { algorithm, limit, period, restarts, .. } = logged;
        let start = restarts.saturating_sub(period as i64);
        let counted = Algorithm::of_record(algorithm, limit, period, start);
        if algorithm != AlgorithmKind::MovingAverage {
            let kept = Average { at, rate: kept };
            return known(before, counted.retry_after(Some(kept), at, count));
        }
        // An isolated event counts in full, whatever is left of the rate.
        if logged.before > 0.0 && logged.after <= count * (1.0 + f64::from(f32::EPSILON)) {
            let wait = if logged.over { Wait::Never } else { Wait::Seconds(0.0) };
            return Self { before: None, ..known(0.0, wait) };
        }
        let elapsed = elapsed(&logged, count);
        let decayed = logged.before * (-elapsed).exp();
        let kept = match strict {
            true => Average { at, rate: logged.after },
            false => {
                let micros = (elapsed * logged.period * 1e6).min(1e17) as i64;
                let then = Timestamp::from_micros(at.as_micros().saturating_sub(micros));
                Average { at: then, rate: logged.before }
            }
        };
        known(decayed, counted.retry_after(Some(kept), at, count))
    }
}

/// Whether a record is a total.
fn is_total(record: &RecordKey<'_>) -> bool {
    let identity = rule::parts(record).map(|[.., identity]| identity);
    let field = identity.and_then(|identity| identity.split_once(':'));
    field.is_some_and(|(field, _)| TOTALS.contains(&field))
}

/// How many periods before the event the remembered rate was computed: the longer, the lower
/// is the rate with the event.
fn elapsed(window: &EventWindow, count: f64) -> f64 {
    let after = |periods: f64| {
        let fresh = if periods > 0.0 { -(-periods).exp_m1() / periods } else { 1.0 };
        fresh * count + (-periods).exp() * window.before
    };
    let (mut low, mut high) = (0.0, PERIODS_MAX);
    // Halved until it is below a microsecond of a year.
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if after(middle) > window.after { low = middle } else { high = middle }
    }
    low
}

/// When an event of the same size would have passed all limits: the longest wait.
#[must_use]
pub fn longest_wait(windows: &[PastWindow]) -> Option<Wait> {
    windows.iter().try_fold(Wait::Seconds(0.0), |longest, window| {
        Some(match (longest, window.wait?) {
            (Wait::Seconds(one), Wait::Seconds(other)) => Wait::Seconds(one.max(other)),
            _ => Wait::Never,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Kind;
    use kit::quickcheck;
    use quickcheck::TestResult;

    const AT: Timestamp = Timestamp { seconds: 1_795_171_837, micros: 250_000 };

    fn window(before: Average, period: f64, limit: f64, count: f32) -> EventWindow {
        let after = before.next(AT, period, count.into()).rate;
        let over = after >= limit;
        let before = before.rate;
        EventWindow { limit, period, before, after, count, over, ..EventWindow::default() }
    }

    quickcheck! {
        fn what_was_before_follows(seconds: u16, rate: u16, count: u8) -> TestResult {
            let (rate, count) = (f64::from(rate), f32::from(count) + 1.0);
            let then = Timestamp { seconds: AT.seconds - i64::from(seconds), ..AT };
            let kept = Average { at: then, rate };
            let logged = window(kept, 3600.0, 10.0, count);
            let found = PastWindow::of(logged, AT, false);
            let exact = rate * (-f64::from(seconds) / 3600.0).exp();
            if rate > 0.0 && logged.after <= f64::from(count) * (1.0 + f64::from(f32::EPSILON)) {
                return TestResult::from_bool(found.before.is_none());
            }
            let near = (found.before.unwrap() - exact).abs() < 1e-3 * (1.0 + rate);
            let wait = Algorithm::MovingAverage { limit: 10.0, period: 3600.0 }
                .retry_after(Some(kept), AT, count.into());
            let same = match (wait, found.wait.unwrap()) {
                (Wait::Seconds(one), Wait::Seconds(other)) => (one - other).abs() < 5.0,
                (one, other) => one == other,
            };
            TestResult::from_bool(near && same)
        }
    }

    #[test]
    fn a_domain_and_a_customer_of_a_policy_are_totals() {
        for (kind, identity, expected) in [
            (Kind::Policy, "domain:x.example", true),
            (Kind::Policy, "customer:acme", true),
            (Kind::Policy, "auth:x@x.example", false),
            (Kind::Spec, "domain:x.example", false),
        ] {
            let name = format!("out/messages/1h/{identity}");
            let identity_start = name.len() - identity.len();
            let algorithm = AlgorithmKind::MovingAverage;
            let record = RecordKey { name: name.as_bytes(), identity_start, kind, algorithm };
            assert_eq!(is_total(&record), expected, "{kind:?} {identity}");
        }
    }

    #[test]
    fn a_strict_check_has_counted_the_event() {
        let kept = Average { at: AT, rate: 10.0 };
        let logged = window(kept, 3600.0, 10.0, 1.0);
        let of = |strict| match PastWindow::of(logged, AT, strict).wait {
            Some(Wait::Seconds(seconds)) => seconds,
            other => panic!("{other:?}"),
        };
        assert!(of(true) > of(false) + 300.0);
    }

    #[test]
    fn a_bucket_leaks() {
        let logged = EventWindow {
            limit: 5.0,
            period: 50.0,
            before: 6.0,
            after: 5.5,
            count: 1.0,
            algorithm: AlgorithmKind::Bucket,
            over: true,
            ..EventWindow::default()
        };
        let found = PastWindow::of(logged, AT, false);
        assert_eq!((found.before, found.wait), (Some(4.5), Some(Wait::Seconds(5.0))));
        let unknown = PastWindow::of(EventWindow { count: 0.0, ..logged }, AT, false);
        assert_eq!((unknown.count, unknown.before, unknown.wait), (None, None, None));
        assert_eq!(longest_wait(&[found, unknown]), None);
        let never = PastWindow { wait: Some(Wait::Never), ..found };
        assert_eq!(longest_wait(&[found, never]), Some(Wait::Never));
        assert_eq!(longest_wait(&[found]), Some(Wait::Seconds(5.0)));
    }

    #[test]
    fn a_calendar_window_starts_again() {
        let logged = EventWindow {
            limit: 5.0,
            period: 86_400.0,
            after: 6.0,
            count: 1.0,
            algorithm: AlgorithmKind::Calendar,
            restarts: AT.seconds + 60,
            over: true,
            ..EventWindow::default()
        };
        let found = PastWindow::of(logged, AT, false);
        assert_eq!((found.before, found.wait), (Some(5.0), Some(Wait::Seconds(59.75))));
        let large = EventWindow { after: 9.0, count: 9.0, ..logged };
        assert_eq!(PastWindow::of(large, AT, false).wait, Some(Wait::Never));
    }
}
