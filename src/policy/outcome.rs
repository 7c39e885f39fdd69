//! What a policy makes of an event: the verdict, its text, and the limit that is
//! the reason.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::counters::Checked;
use super::explain;
use super::habits::Suspicion;
use super::limit::Limit;
use super::model::{DeliverySettings, Piece, PolicySettings, Template};
use super::word::{Action, AfterWaiting, DenialReply, OnHabits, Placeholder, Unit, Verdict};
use crate::engine::{AlgorithmKind, Decision, Overridden};
use crate::event::Event;
use crate::rate::{Timestamp, Wait, score};
use crate::spool::Enforcement;
use crate::text;

/// What the client reads if an override denies the event.
const DENIED: &str = "Blocked by the administrator";
/// What the client reads if a crossing has blocked it.
const BLOCKED: &str = "Blocked after too much mail; please ask the administrator";
/// What the client reads if the account is suspected.
const SUSPECTED: &str = "Held for now; please ask the administrator";

/// The outcome of an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What to do with the event.
    pub verdict: Verdict,
    /// What would be done if the policy was enforced and nobody was exempt.
    pub measured: Verdict,
    /// Whether the event was only observed: the policy observes, or the event is
    /// exempt.
    pub observed: bool,
    /// Whether an entry of `exempt` lifts the limits.
    pub exempt: bool,
    /// Whether the recipient waits, or has waited until now: nothing is refused for being over.
    pub waits: bool,
    /// What becomes of a recipient that has waited for as long as it may.
    pub overdue: Option<AfterWaiting>,
    /// Whether a record crossed its limit.
    pub crossed: bool,
    /// How long to wait before the event is accepted, in seconds, if the verdict is
    /// to delay it.
    pub delay: f64,
    /// The reply to the client; empty unless there is something against the event.
    pub text: String,
    /// The limit that decided. `None` if none applied. Boxed, so that an outcome is
    /// small to move.
    pub reason: Option<Box<Reason>>,
    /// The habits that decided, instead of a limit.
    pub habits: Option<Box<Suspicion>>,
}

impl Default for Outcome {
    fn default() -> Self {
        Self {
            verdict: Verdict::Accept,
            measured: Verdict::Accept,
            observed: false,
            exempt: false,
            waits: false,
            overdue: None,
            crossed: false,
            delay: 0.0,
            text: String::new(),
            reason: None,
            habits: None,
        }
    }
}

/// The limit that decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Reason {
    /// The table that the limit is from: `user news@example.org`.
    pub rule: Cow<'static, str>,
    /// What is counted.
    pub unit: Unit,
    /// The decision.
    pub decision: Decision,
    /// The window and the key, in one allocation, as each check makes one.
    texts: Box<str>,
    key_start: usize,
}

/// A limit that was decided, and may be the reason of the outcome.
#[derive(Clone, Copy, Debug)]
pub struct Decided<'a> {
    /// The policy.
    pub policy: &'a str,
    /// The limit.
    pub limit: Limit<'a>,
    /// Who is counted: see [`Reason::key`].
    pub key: &'a str,
    /// The name of the record in the store.
    pub record: &'a str,
    /// The decision.
    pub decision: Decision,
    /// Whether an entry of `exempt` lifts it.
    pub exempt: bool,
}

impl<'a> Decided<'a> {
    fn verdict(&self, settings: &PolicySettings) -> Verdict {
        match self.decision.overridden {
            None => {
                let verdict = strictest(settings, |from| self.decision.reaches(from));
                // Who tried again would send the same message again.
                let is_final = self.limit.unit == Unit::MessageSize && verdict == Verdict::Defer;
                if is_final { Verdict::Reject } else { verdict }
            }
            Some(Overridden::Allow) => Verdict::Accept,
            Some(denial) => denial_verdict(denial),
        }
    }

    /// What counters count: its own verdict, or what that would have been.
    #[must_use]
    #[inline]
    pub fn checked(&self, settings: &PolicySettings) -> Checked<'a> {
        let denied = self.decision.overridden.is_some_and(Overridden::is_denial);
        let observed = self.exempt && !denied || settings.action == Action::Observe;
        Checked::new(self.policy, &self.limit, observed, self.verdict(settings))
    }

    fn wait(&self) -> f64 {
        seconds(self.decision.retry_after(self.decision.at))
    }
}

/// The strictest verdict of the parts of the limit that are reached.
#[must_use]
pub fn strictest(settings: &PolicySettings, reached: impl Fn(f64) -> bool) -> Verdict {
    let grades = settings.verdicts.iter().filter(|grade| reached(grade.from));
    grades.map(|grade| grade.verdict).max().unwrap_or(Verdict::Accept)
}

/// The verdict of a denial: what is said in it, whatever the policy says of its limits.
fn denial_verdict(denial: Overridden) -> Verdict {
    if denial == Overridden::Reject { Verdict::Reject } else { Verdict::Defer }
}

fn seconds(wait: Wait) -> f64 {
    match wait {
        Wait::Seconds(seconds) => seconds,
        Wait::Never => f64::INFINITY,
    }
}

impl Outcome {
    /// Whether it counts instead of `before`, of several outcomes of one event: it is
    /// stricter, or the first for which a limit is the reason.
    #[must_use]
    pub fn outweighs(&self, before: &Self) -> bool {
        self.verdict > before.verdict || before.reason.is_none() && self.reason.is_some()
    }

    /// Lifts what is stricter than a line in the log: the event is only observed.
    pub fn lift(&mut self) {
        self.verdict = self.verdict.min(Verdict::Log);
        self.observed = true;
        self.delay = 0.0;
    }

    /// Of a recipient that is routed: what it came to, of a message that is so many seconds old.
    pub(super) fn of_route(&mut self, delivery: &DeliverySettings, age: u64) {
        if self.verdict < Verdict::Defer {
            return;
        }
        self.waits = true;
        self.overdue = (age as f64 >= delivery.longest).then_some(delivery.after_longest);
        self.verdict = match self.overdue {
            None => Verdict::Defer,
            Some(AfterWaiting::Return) => Verdict::Reject,
            Some(AfterWaiting::Deliver) => Verdict::Log,
        };
    }

    /// Whether what was decided is held against whoever sent the event.
    #[must_use]
    pub fn enforcement(&self) -> Enforcement {
        if self.waits {
            return Enforcement::Waits;
        }
        match (self.exempt, self.observed) {
            (_, false) => Enforcement::Enforced,
            (true, true) => Enforcement::Exempt,
            (false, true) => Enforcement::Observed,
        }
    }

    /// The outcome of the limits that were decided. The reason is the one with the
    /// strictest verdict; of several, the one with the longest wait; and where none
    /// must wait, the one that is the closest to its limit.
    pub(super) fn of<'a>(
        settings: &PolicySettings,
        limits: impl Iterator<Item = Decided<'a>>,
        exempt: bool,
        event: &Event<&str>,
    ) -> Self {
        let mut crossed = false;
        // The best so far, its verdict, and its wait where it has been needed.
        let mut best: Option<(Decided<'_>, Verdict, Option<f64>)> = None;
        for one in limits {
            crossed |= one.decision.crossed;
            let verdict = one.verdict(settings);
            let Some((before, strictest, known)) = &mut best else {
                best = Some((one, verdict, None));
                continue;
            };
            let mut wait = None;
            let better = verdict > *strictest
                || verdict == *strictest && {
                    let longest = *known.get_or_insert_with(|| before.wait());
                    let wait = *wait.insert(one.wait());
                    (wait, one.decision.part()) > (longest, before.decision.part())
                };
            if better {
                best = Some((one, verdict, wait));
            }
        }
        let Some((one, measured, _)) = best else { return Self { exempt, ..Self::default() } };
        let denied = one.decision.overridden.is_some_and(Overridden::is_denial);
        let observed = exempt && !denied || settings.action == Action::Observe;
        let verdict = match measured {
            // An override is above an exemption.
            _ if exempt && !denied => Verdict::Accept,
            // It is reported, and nothing else.
            Verdict::Accept => Verdict::Accept,
            _ if observed => Verdict::Log,
            verdict => verdict,
        };
        let delay =
            if verdict == Verdict::Delay { one.wait().min(settings.longest_delay) } else { 0.0 };
        let text = match measured {
            Verdict::Accept => String::new(),
            _ if denied && one.decision.blocked.is_some() => BLOCKED.to_owned(),
            _ if denied => DENIED.to_owned(),
            _ => reply(settings, &one, event),
        };
        let mut texts = String::with_capacity(one.limit.text.len() + one.key.len());
        texts.push_str(one.limit.text);
        texts.push_str(one.key);
        let reason = Reason {
            rule: one.limit.rule_text(),
            unit: one.limit.unit,
            decision: one.decision,
            texts: texts.into(),
            key_start: one.limit.text.len(),
        };
        let reason = Some(Box::new(reason));
        // What no limit decides.
        let (waits, overdue, habits) = (false, None, None);
        Self {
            verdict,
            measured,
            observed,
            exempt,
            waits,
            overdue,
            crossed,
            delay,
            text,
            reason,
            habits,
        }
    }

    /// What decided: `9.0 messages, limit 5/1h`, or what the habits say; else the text for the
    /// client.
    #[cold]
    #[must_use]
    pub fn why(&self) -> String {
        match (&self.habits, &self.reason) {
            (Some(suspicion), _) => suspicion.why(),
            (None, Some(reason)) => {
                let blocked = match (reason.decision.blocked, self.measured >= Verdict::Defer) {
                    (Some(block), true) => explain::blocked(block, reason.decision.at) + "; ",
                    _ => String::new(),
                };
                blocked + &reason.measured()
            }
            (None, None) => self.text.clone(),
        }
    }

    /// Who was counted, and the table that the limit is from; `None` if neither a limit nor habits
    /// decided.
    #[must_use]
    pub fn counted(&self) -> Option<(&str, &str)> {
        match (&self.habits, &self.reason) {
            (Some(suspicion), _) => Some((&suspicion.key, &suspicion.rule)),
            (None, reason) => reason.as_ref().map(|reason| (reason.key(), &*reason.rule)),
        }
    }

    /// The outcome of a message of an account that is suspected, with which this is to be done.
    #[cold]
    pub(super) fn of_habits(
        settings: &PolicySettings,
        on: OnHabits,
        reply: DenialReply,
        suspicion: Box<Suspicion>,
    ) -> Self {
        let judged = &suspicion.judged;
        let denial = judged.overridden.filter(|one| one.is_denial());
        let blocked = judged.blocked.filter(|_| on != OnHabits::Observe);
        let denied = denial.or(blocked.map(|_| reply.denial()));
        let measured = denied.map_or_else(|| on.verdict(), denial_verdict);
        let observed = settings.action == Action::Observe;
        let verdict = if observed { Verdict::Log } else { measured };
        // It does not say what has been noticed, as a thief would read it.
        let text = match (denial, blocked) {
            (Some(_), _) => DENIED,
            (None, Some(_)) => BLOCKED,
            (None, None) => SUSPECTED,
        };
        let text = text.to_owned();
        let habits = Some(suspicion);
        Self { verdict, measured, observed, text, habits, ..Self::default() }
    }
}

impl Reason {
    /// The limit as written: `100/1h`, `500 daily`; of a bucket its rate, `1/1h`.
    #[must_use]
    pub fn window(&self) -> &str {
        self.texts.get(..self.key_start).unwrap_or_default()
    }

    /// Who is counted: `auth:alice@example.org`.
    #[must_use]
    pub fn key(&self) -> &str {
        self.texts.get(self.key_start..).unwrap_or_default()
    }

    /// What was measured, and the limit: `9.0 messages, limit 5/1h`, or
    /// `12 of 40 recipients failed (30%), limit 30% in 1d`.
    #[must_use]
    pub fn measured(&self) -> String {
        let Decision { rate, algorithm, share, .. } = self.decision;
        match algorithm {
            AlgorithmKind::Share => explain::share_of(share, self.window()),
            _ => format!("{rate:.1} {}, limit {}", self.unit.word(), self.window()),
        }
    }

    /// A score that grows with the rate, from 0 towards 2: see [`score`].
    #[must_use]
    pub fn score(&self) -> f64 {
        score(self.decision.rate, self.decision.limit)
    }
}

/// What the client reads because of the limit `one`: the text for its unit, or that of the policy.
/// Of a cap that says nothing of periods and of trying again.
fn reply(settings: &PolicySettings, one: &Decided<'_>, event: &Event<&str>) -> String {
    let unit = one.limit.unit;
    let of_unit = settings.texts.iter().find(|entry| entry.unit == unit);
    match (of_unit.map(|entry| &entry.text), unit) {
        (Some(template), _) => expanded(template, one, event),
        (None, Unit::RecipientsPerMessage) => {
            format!("A message may have at most {} recipients", one.limit.text)
        }
        (None, Unit::MessageSize) => {
            format!("A message may have at most {} bytes", one.limit.text)
        }
        (None, _) => match &settings.text {
            Some(template) => expanded(template, one, event),
            None => text::OVER_THE_LIMIT.to_owned(),
        },
    }
}

/// The text with the values of `one`, as one line. Control characters, which a
/// client could break a reply with, are left out.
fn expanded(template: &Template, one: &Decided<'_>, event: &Event<&str>) -> String {
    let mut text = String::new();
    for piece in &template.0 {
        match piece {
            Piece::Text(plain) => text.push_str(plain),
            Piece::Value(placeholder) => value(*placeholder, one, event, &mut text),
        }
    }
    text.retain(|c| !c.is_control());
    text
}

fn value(placeholder: Placeholder, one: &Decided<'_>, event: &Event<&str>, text: &mut String) {
    let Decided { decision, limit, .. } = one;
    let Limit { text: window, every, .. } = limit;
    let written = decision.algorithm != AlgorithmKind::Bucket;
    // Writing to a String cannot fail.
    let _ = match placeholder {
        Placeholder::Policy => write!(text, "{}", one.policy),
        Placeholder::Key => write!(text, "{}", one.key),
        Placeholder::Rule => write!(text, "{}", one.limit.rule_text()),
        Placeholder::Unit => write!(text, "{}", one.limit.unit.word().replace('_', " ")),
        Placeholder::Rate if decision.algorithm == AlgorithmKind::Share => {
            write!(text, "{:.1}%", decision.rate)
        }
        Placeholder::Rate => write!(text, "{:.1}", decision.rate),
        Placeholder::Limit if one.limit.unit.is_cap() => write!(text, "{window}"),
        Placeholder::Limit => match window.split_once(['/', ' ']) {
            Some((limit, _)) if written => write!(text, "{limit}"),
            _ => write!(text, "{}", decision.limit),
        },
        Placeholder::Period => match (every, window.split_once('/')) {
            (Some(every), _) => write!(text, "one {}", every.noun()),
            (None, Some((_, period))) if written => write!(text, "{period}"),
            _ => write!(text, "{}", text::whole_period(decision.period)),
        },
        Placeholder::Remaining => match decision.remaining(decision.at) {
            left if left.is_finite() => write!(text, "{left:.0}"),
            _ => write!(text, "unlimited"),
        },
        Placeholder::RetryAfter => write!(text, "{}", text::rough(one.wait())),
        Placeholder::Auth => write!(text, "{}", event.auth.unwrap_or_default()),
        Placeholder::Client => match event.client.address() {
            Some(client) => write!(text, "{client}"),
            None => Ok(()),
        },
        Placeholder::Sender => write!(text, "{}", event.sender.unwrap_or_default()),
        Placeholder::Recipient => write!(text, "{}", event.recipient.unwrap_or_default()),
        Placeholder::Script => write!(text, "{}", event.script.unwrap_or_default()),
        Placeholder::MessageId => write!(text, "{}", event.message_id.unwrap_or_default()),
        Placeholder::Time => write!(text, "{}", time(decision.at)),
    };
}

/// Whole seconds since 1970, which every program reads.
fn time(at: Timestamp) -> i64 {
    at.seconds
}
