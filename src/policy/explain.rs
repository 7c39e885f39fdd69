//! An event against a limit, in words: for the program and for Exim's functions alike.

use std::fmt;

use crate::engine::{AlgorithmKind, Block, Decision, Overridden};
use crate::rate::share::Counted;
use crate::rate::{Timestamp, Wait};
use crate::text;

/// One limit, and what an event makes of its rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured<'w> {
    /// The limit as written: `100/1h`, `500 daily`.
    pub window: &'w str,
    /// How it is counted.
    pub algorithm: AlgorithmKind,
    /// The rate, level or count right before the event; `None` if that is
    /// not known. Of a share, what went out.
    pub before: Option<f64>,
    /// The same with the event.
    pub after: f64,
    /// The limit; of a bucket, the burst.
    pub limit: f64,
    /// What the event counts; `None` if that is not known. Of a share, what has failed.
    pub count: Option<f64>,
    /// Whether it is over.
    pub over: bool,
}

impl<'w> Measured<'w> {
    /// What was decided, whatever an override says.
    #[must_use]
    pub fn of(decision: &Decision, window: &'w str) -> Self {
        let Decision { rate, limit, count, algorithm, share, .. } = *decision;
        let over = algorithm.over(rate, limit, count);
        let before = match (algorithm, decision.details.written) {
            (AlgorithmKind::Share, _) => Some(share.sent as f64),
            (_, false) => Some(decision.if_counted(0.0).rate),
            // A rate that includes the event does not say what it was before.
            (AlgorithmKind::MovingAverage, true) => None,
            (_, true) => Some((rate - count).max(0.0)),
        };
        Self { window, algorithm, before, after: rate, limit, count: Some(count), over }
    }

    /// The smallest whole limit, or burst, that would let the event pass.
    #[must_use]
    pub fn least_limit(&self) -> f64 {
        self.algorithm.least_limit(self.after)
    }

    /// A rate with as many decimals as it takes to be on its side of the limit.
    fn figure(&self, rate: f64) -> String {
        // A count is whole, as a rule.
        if self.algorithm == AlgorithmKind::Calendar {
            return rate.to_string();
        }
        let side = |rate: f64| rate.partial_cmp(&self.limit);
        let is_right = |text: &String| text.parse().is_ok_and(|shown| side(shown) == side(rate));
        let mut all = (1..7).map(|decimals| format!("{rate:.decimals$}"));
        all.clone().find(is_right).or_else(|| all.next_back()).unwrap_or_default()
    }
}

/// `100/1h: rate 99.4 before, 100.4 with this event, which counts 1: over the limit`.
impl fmt::Display for Measured<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (AlgorithmKind::Share, Some(sent), Some(failed)) =
            (self.algorithm, self.before, self.count)
        {
            let counted = Counted { sent: sent as u64, failed: failed as u64 };
            let stands = if self.over { "over" } else { "under" };
            return write!(f, "{}: {stands} the limit", share_of(counted, self.window));
        }
        let what = self.algorithm.measure();
        write!(f, "{}: {what} ", self.window)?;
        if let Some(before) = self.before {
            write!(f, "{} before, ", self.figure(before))?;
        }
        write!(f, "{} with this event", self.figure(self.after))?;
        match self.count {
            Some(count) => write!(f, ", which counts {count}: ")?,
            None => f.write_str(": ")?,
        }
        match (self.over, self.algorithm) {
            (true, AlgorithmKind::MovingAverage) if self.after == self.limit => {
                f.write_str("at the limit, which is over")
            }
            (true, AlgorithmKind::Bucket) => write!(f, "over the burst of {}", self.limit),
            (true, _) => f.write_str("over the limit"),
            (false, AlgorithmKind::MovingAverage | AlgorithmKind::Share) => {
                f.write_str("under the limit")
            }
            (false, AlgorithmKind::Bucket) => write!(f, "within the burst of {}", self.limit),
            (false, AlgorithmKind::Calendar) => f.write_str("within the limit"),
        }
    }
}

/// `12 of 40 recipients failed (30%), limit 30% in 1d`
#[must_use]
pub fn share_of(counted: Counted, window: &str) -> String {
    format!("{counted}, limit {}", window.replacen('/', " in ", 1))
}

/// `blocked for 23h`, `blocked until it is lifted`
#[must_use]
pub fn blocked(block: Block, now: Timestamp) -> String {
    match block.wait(now) {
        Wait::Seconds(seconds) => format!("blocked for {}", text::rough(seconds)),
        Wait::Never => "blocked until it is lifted".to_owned(),
    }
}

/// A decision in one line: `window` is the limit as written, and `what` is counted.
#[must_use]
pub fn decided(decision: &Decision, window: &str, what: &str, now: Timestamp) -> String {
    let measured = Measured::of(decision, window);
    let next = match (decision.overridden, decision.retry_after(now)) {
        (Some(Overridden::Allow), _) => "an override allows it".to_owned(),
        _ if decision.blocked.is_some() => {
            decision.blocked.map_or_else(String::new, |block| blocked(block, now))
        }
        (Some(Overridden::Deny | Overridden::Reject), _) => "an override denies it".to_owned(),
        (None, Wait::Seconds(seconds)) if seconds > 0.0 => {
            format!("one more would pass in {}", text::rough(seconds))
        }
        (None, Wait::Never) => "one more would never pass".to_owned(),
        (None, Wait::Seconds(_)) if decision.algorithm == AlgorithmKind::Share => {
            "more would pass".to_owned()
        }
        (None, Wait::Seconds(_)) => format!("{:.0} more would pass", decision.remaining(now)),
    };
    format!("{what}, {measured}; {next}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OVER: Measured<'static> = Measured {
        window: "100/1h",
        algorithm: AlgorithmKind::MovingAverage,
        before: Some(99.4),
        after: 100.4,
        limit: 100.0,
        count: Some(1.0),
        over: true,
    };

    #[test]
    fn a_window_is_a_sentence() {
        let algorithm = AlgorithmKind::Bucket;
        let bucket = Measured { window: "5, 1/1h", algorithm, limit: 5.0, ..OVER };
        let algorithm = AlgorithmKind::Calendar;
        let day = Measured { window: "500 daily", algorithm, limit: 500.0, ..OVER };
        for (measured, text) in [
            (
                OVER,
                "100/1h: rate 99.4 before, 100.4 with this event, which counts 1: over the limit",
            ),
            (
                Measured { before: None, after: 100.0, count: None, ..OVER },
                "100/1h: rate 100.0 with this event: at the limit, which is over",
            ),
            (
                Measured { before: Some(98.97), after: 99.97, over: false, ..OVER },
                "100/1h: rate 99.0 before, 99.97 with this event, which counts 1: under the limit",
            ),
            (
                Measured { before: Some(4.5), after: 5.5, ..bucket },
                "5, 1/1h: level 4.5 before, 5.5 with this event, which counts 1: over the burst of 5",
            ),
            (
                Measured { before: Some(4.0), after: 5.0, over: false, ..bucket },
                "5, 1/1h: level 4.0 before, 5.0 with this event, which counts 1: within the burst of 5",
            ),
            (
                Measured { before: Some(499.0), after: 500.0, over: false, ..day },
                "500 daily: count 499 before, 500 with this event, which counts 1: within the limit",
            ),
            (
                Measured { before: Some(499.5), after: 500.5, ..day },
                "500 daily: count 499.5 before, 500.5 with this event, which counts 1: over the limit",
            ),
        ] {
            assert_eq!(measured.to_string(), text);
        }
    }

    #[test]
    fn the_least_limit_is_the_first_that_is_not_over() {
        let bucket =
            |after| Measured { algorithm: AlgorithmKind::Bucket, after, ..OVER }.least_limit();
        let average = |after| Measured { after, ..OVER }.least_limit();
        assert_eq!((average(100.0), average(100.4), average(0.5)), (101.0, 101.0, 1.0));
        assert_eq!((bucket(5.0), bucket(5.4)), (5.0, 6.0));
    }

    #[test]
    fn a_decision_is_a_line() {
        let now = Timestamp { seconds: 1_795_171_837, micros: 0 };
        let kept = Some(crate::rate::Average { at: now, rate: 2.5 });
        let decision = Decision {
            rate: 3.5,
            over: true,
            overridden: None,
            blocked: None,
            algorithm: AlgorithmKind::MovingAverage,
            limit: 3.0,
            period: 3600.0,
            start: 0,
            restarts: 0,
            share: crate::rate::share::Counted::default(),
            leak: 0.0,
            count: 1.0,
            next_count: 1.0,
            at: now,
            kept,
            crossed: true,
            crossings: 1,
            details: crate::engine::Details::default(),
        };
        let line = |decision: Decision| decided(&decision, "3/1h", "recipients of alice", now);
        let start = "recipients of alice, 3/1h: rate 2.5 before, 3.5 with this event, which counts \
                     1: over the limit; ";
        assert_eq!(line(decision), format!("{start}one more would pass in 11m"));
        let deny = Decision { overridden: Some(Overridden::Deny), ..decision };
        assert_eq!(line(deny), format!("{start}an override denies it"));
        let written = crate::engine::Details { written: true, ..decision.details };
        let passed = Decision { rate: 1.0, over: false, details: written, ..decision };
        let kept = Some(crate::rate::Average { at: now, rate: 1.0 });
        assert_eq!(
            line(Decision { kept, ..passed }),
            "recipients of alice, 3/1h: rate 1.0 with this event, which counts 1: under the limit; \
             2 more would pass"
        );
    }
}
