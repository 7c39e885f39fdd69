//! What front ends show of the latest decision: the fields of `policy_info` and of
//! `ratelimit_info`, which the socket's replies have too.

use std::fmt;

use super::evaluator::Evaluated;
use super::explain;
use super::habits::{HABITS, Suspicion};
use super::outcome::{Outcome, Reason};
use super::word::{Verdict, Word as _};
use crate::rate::habits::UNTIL_ANSWERED;
use crate::rate::{Timestamp, Wait};

/// What a field holds.
#[derive(Debug, PartialEq)]
pub enum Field<'a> {
    /// A rate, printed as `$sender_rate` is.
    Rate(f64),
    /// A text that is a number, a time or a word; tainted unless it is plain.
    Checked(&'a [u8]),
    /// Any text: the key.
    Unchecked(&'a [u8]),
    /// A text that is made for the call; tainted.
    Made(String),
    /// Whole events or seconds.
    Whole(f64),
    /// A size, in its shortest form.
    Size(f64),
    /// A score, with three decimals.
    Score(f64),
}

impl fmt::Display for Field<'_> {
    /// As Exim's variables have it. Bytes that are no UTF-8 are replaced.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(rate) => write!(f, "{rate:.1}"),
            Self::Checked(text) | Self::Unchecked(text) => {
                f.write_str(&String::from_utf8_lossy(text))
            }
            Self::Made(text) => f.write_str(text),
            Self::Whole(number) => write!(f, "{number:.0}"),
            Self::Size(number) => write!(f, "{number}"),
            Self::Score(score) => write!(f, "{score:.3}"),
        }
    }
}

/// All fields of `policy_info`.
pub const POLICY_FIELDS: &str = "verdict, text, why, policy, rule, window, unit, key, rate, limit, remaining, \
                      retry_after, delay, score, crossed, observed, exempt, measured, explain, error, route";

/// What was made of a step, as front ends show it.
#[derive(Clone, Copy, Debug)]
pub struct PolicyInfo<'a> {
    /// The policy that decided.
    pub policy: &'a str,
    /// What it made of the step.
    pub outcome: &'a Outcome,
    /// Why it could not be evaluated; empty if it could.
    pub error: &'a str,
}

impl<'a> From<&'a Evaluated> for PolicyInfo<'a> {
    fn from(Evaluated { policy, outcome, failure }: &'a Evaluated) -> Self {
        Self { policy, outcome, error: failure.as_ref().map_or("", |failure| &failure.error) }
    }
}

impl<'a> PolicyInfo<'a> {
    /// The field `name` as of `now`; `None` if there is none of that name.
    #[must_use]
    pub fn field(&self, name: &[u8], now: Timestamp) -> Option<Field<'a>> {
        let Self { policy, outcome, error } = *self;
        let yes = |is: bool| Field::Checked(if is { b"yes" } else { b"no" });
        let text = |text: &'a str| Field::Unchecked(text.as_bytes());
        let reason = outcome.reason.as_deref();
        if let Some(suspicion) = &outcome.habits
            && let Some(field) = of_habits(suspicion, name)
        {
            return Some(field);
        }
        let decision = reason.map(|reason| &reason.decision);
        let of_reason = |of: fn(&Reason) -> &str| text(reason.map_or("", of));
        Some(match name {
            b"verdict" => Field::Checked(outcome.verdict.word().as_bytes()),
            b"measured" => Field::Checked(outcome.measured.word().as_bytes()),
            b"text" => text(&outcome.text),
            b"why" => Field::Made(outcome.why()),
            b"policy" => text(policy),
            b"rule" => of_reason(|reason| &reason.rule),
            b"window" => of_reason(Reason::window),
            b"unit" => of_reason(|reason| reason.unit.word()),
            b"key" => of_reason(Reason::key),
            b"rate" => Field::Rate(decision.map_or(0.0, |decision| decision.rate)),
            b"limit" => match decision {
                Some(decision) => Field::Size(decision.limit),
                None => Field::Checked(b"unlimited"),
            },
            b"remaining" => match decision.map(|decision| decision.remaining(now)) {
                Some(left) if left.is_finite() => Field::Whole(left),
                _ => Field::Checked(b"unlimited"),
            },
            b"retry_after" => match decision.map(|decision| decision.retry_after(now)) {
                Some(Wait::Seconds(seconds)) => Field::Whole(seconds.ceil()),
                Some(Wait::Never) => Field::Checked(b"never"),
                None => Field::Whole(0.0),
            },
            b"explain" => Field::Made(explanation(policy, outcome, now)),
            b"delay" => Field::Whole(outcome.delay.ceil()),
            b"score" => Field::Score(reason.map_or(0.0, Reason::score)),
            b"crossed" => yes(outcome.crossed),
            b"observed" => yes(outcome.observed),
            b"exempt" => yes(outcome.exempt),
            b"error" => text(error),
            b"route" => Field::Made(route(policy, outcome)),
            _ => return None,
        })
    }
}

/// A field of what habits decided; `None` for those that are as of a limit.
#[cold]
fn of_habits<'a>(suspicion: &'a Suspicion, name: &[u8]) -> Option<Field<'a>> {
    let judged = &suspicion.judged;
    Some(match name {
        b"rule" => Field::Unchecked(suspicion.rule.as_bytes()),
        b"unit" => Field::Checked(HABITS.as_bytes()),
        b"key" => Field::Unchecked(suspicion.key.as_bytes()),
        b"window" => Field::Made(format!("{:.0}", judged.threshold)),
        b"rate" => Field::Rate(judged.score),
        b"limit" => Field::Size(judged.threshold),
        b"remaining" => Field::Checked(b"unlimited"),
        b"retry_after" => match judged.suspected {
            _ if suspicion.is_denied() => Field::Checked(b"never"),
            Some((_, UNTIL_ANSWERED)) => Field::Checked(b"never"),
            Some((_, until)) => Field::Whole(until.saturating_sub(suspicion.at) as f64),
            None => Field::Whole(0.0),
        },
        _ => return None,
    })
}

/// What the router `exirate_waits` makes of a recipient: `defer: policy NAME: …`, or `fail: …`;
/// nothing, if it goes on to the other routers.
fn route(policy: &str, outcome: &Outcome) -> String {
    let what = match outcome.verdict {
        Verdict::Defer => "defer",
        Verdict::Reject => "fail",
        _ => return String::new(),
    };
    let mut line = format!("{what}: ");
    if !policy.is_empty() {
        line += &format!("policy {policy}: ");
    }
    line += &match (what, outcome.counted()) {
        ("fail", _) => format!("not delivered in time: {}", outcome.why()),
        (_, Some((key, _))) => format!("{}, key {key}", outcome.why()),
        (_, None) => outcome.why(),
    };
    line.escape_debug().collect()
}

/// A verdict and its reason in a line.
#[cold]
fn explanation(policy: &str, outcome: &Outcome, now: Timestamp) -> String {
    let verdict = outcome.verdict.word();
    let why = match (outcome.exempt, outcome.observed) {
        (true, _) => format!(" (exempt, else {})", outcome.measured.word()),
        (false, true) => format!(" (observed, else {})", outcome.measured.word()),
        (false, false) => String::new(),
    };
    if let Some(suspicion) = &outcome.habits {
        let rule = &suspicion.rule;
        let line = format!("{verdict}{why} by policy {policy}, rule {rule}: {suspicion}");
        return line.escape_debug().collect();
    }
    let Some(reason) = outcome.reason.as_deref() else {
        return format!("{verdict} by policy {policy}: no limit applies");
    };
    let what = format!("{} of {}", reason.unit.word().replace('_', " "), reason.key());
    let decided = explain::decided(&reason.decision, reason.window(), &what, now);
    let line = format!("{verdict}{why} by policy {policy}, rule {}: {decided}", reason.rule);
    line.escape_debug().collect()
}
