//! Decides events that are described, not received: those of `exirate check`,
//! `exirate policy run` and simulations.
//!
//! A [`ReplayEvent`] → the steps of its SMTP session → [`Evaluator`], with the
//! same count of each thing as in a real session ([`AlreadyCounted`]). The time is that of the
//! event, and the store is whatever the caller has.

mod event;
mod json;
mod sessions;

use std::borrow::Cow;
use std::sync::Arc;

pub use event::{RECIPIENTS_MAX, Recipients, ReplayEvent, ReplayOutcome, Stage};
use sessions::Sessions;

use super::decide::Decided;
use super::evaluator::{Evaluated, Evaluator, Observer, PolicySession, Step};
use super::image::Image;
use super::outcome::Outcome;
use super::word::{Unit, Verdict};
use crate::engine::Decision;
#[cfg(doc)]
use crate::event::session::AlreadyCounted;
use crate::event::session::SessionFacts;
use crate::event::{AclStage, Circumstances, Event, HandedOver, Local, Origin};
use crate::rate::Timestamp;
use crate::rate::habits::Alarm;
use crate::store::{Judged, Store};
use crate::toml_file::diagnostic::similar;

/// The least that a policy counts: a message, a recipient, a byte. What would count nothing
/// only looks at a rate: for [`Memory::forget`](crate::store::Memory::forget).
pub const LEAST_COUNT: f64 = 1.0;

/// Why an event could not be decided: a policy could not be evaluated.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReplayError(String);

/// Decides events by the policies of an image.
pub struct Replay<'i> {
    evaluator: Evaluator<'i>,
    names: String,
    sessions: Sessions,
    /// Windows that are not needed any more, for their memory.
    spare: Vec<Window>,
}

/// What the policies make of an event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decisions {
    /// The strictest outcome of its steps.
    pub outcome: Outcome,
    /// The policy of that outcome; `None` if no policy applies to the event.
    pub policy: Option<Arc<str>>,
    /// Whether a record crossed its limit, also one that is not the reason.
    pub crossed: bool,
    /// How many of its recipients were refused.
    pub refused_recipients: u32,
    /// Whether a message was compared with the habits of its account.
    pub compared: bool,
    /// The alarm that this has raised, and the key of the account.
    pub alarm: Option<(Box<str>, Alarm)>,
    /// Each record that was used: of the step in which it was over first, else of the
    /// last.
    pub windows: Vec<Window>,
}

/// A limit and what was decided by it.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// The table that the limit is from.
    pub rule: Cow<'static, str>,
    /// What is counted.
    pub unit: Unit,
    /// The decision.
    pub decision: Decision,
    /// The limit and the name of the record, in one allocation, as each decision makes one.
    texts: String,
    /// Where in it the record begins, where the name of the policy ends, and the key begins.
    record_start: usize,
    policy_end: usize,
    key_start: usize,
}

impl Window {
    /// In the memory of `texts`.
    fn of(decided: &Decided<'_>, mut texts: String) -> Self {
        let (window, record) = (decided.limit.text, decided.record);
        texts.clear();
        texts.reserve(window.len() + record.len());
        texts.push_str(window);
        texts.push_str(record);
        Self {
            rule: decided.limit.rule_text(),
            unit: decided.limit.unit,
            decision: decided.decision,
            record_start: window.len(),
            policy_end: window.len() + decided.policy.len(),
            key_start: texts.len().saturating_sub(decided.key.len()),
            texts,
        }
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &str {
        self.texts.get(self.record_start..self.policy_end).unwrap_or_default()
    }

    /// The limit as written.
    #[must_use]
    pub fn text(&self) -> &str {
        self.texts.get(..self.record_start).unwrap_or_default()
    }

    /// Who is counted.
    #[must_use]
    pub fn key(&self) -> &str {
        self.texts.get(self.key_start..).unwrap_or_default()
    }

    /// The name of the record in the store: it begins with the policy's, and ends with the key.
    #[must_use]
    pub fn record(&self) -> &str {
        self.texts.get(self.record_start..).unwrap_or_default()
    }
}

impl<'i> Replay<'i> {
    /// By the policies `names`, several separated by commas, or `*` for all: they are
    /// evaluated in this order until one refuses the event, as `policy` does in Exim.
    ///
    /// # Errors
    /// There is no such policy; the text says which there are.
    pub fn new(image: &'i Image, names: &str) -> Result<Self, String> {
        let unknown = |name: &&str| image.names().all(|known| known != *name);
        let mut named = names.split(',').map(str::trim).filter(|_| names.trim() != "*");
        if let Some(unknown) = named.find(unknown) {
            let instead = match similar(unknown, image.names()) {
                Some(known) => format!("did you mean {known:?}?"),
                None => {
                    format!("the policies are: {}", image.names().collect::<Vec<_>>().join(", "))
                }
            };
            return Err(format!("there is no policy {unknown:?}; {instead}"));
        }
        let evaluator = Evaluator::of_image(image);
        Ok(Self {
            evaluator,
            names: names.to_owned(),
            sessions: Sessions::default(),
            spare: Vec::new(),
        })
    }

    /// Decides `event` in `store`, and counts it there.
    ///
    /// # Errors
    /// A policy could not be evaluated.
    pub fn decide<S: Store>(
        &mut self,
        event: &ReplayEvent,
        store: &mut S,
    ) -> Result<Decisions, ReplayError> {
        let mut own = PolicySession::default();
        let Self { evaluator, names, sessions, .. } = self;
        let session = match &event.session {
            Some(name) => sessions.get(name),
            None => &mut own,
        };
        let mut steps = Steps { evaluator, names, session, event, decisions: Decisions::default() };
        steps.all(store)?;
        Ok(steps.decisions)
    }

    /// Decides one step of a session that the caller keeps, as of `now`, and counts it in
    /// `store`. That a message or a command begins, and that a recipient was accepted, is
    /// for the caller to say to the session.
    ///
    /// # Errors
    /// A policy could not be evaluated.
    pub fn step<S: Store>(
        &mut self,
        session: &mut PolicySession,
        step: &Step<'_>,
        now: Timestamp,
        store: &mut S,
    ) -> Result<Decisions, ReplayError> {
        let Self { evaluator, names, spare, .. } = self;
        let mut decisions = Decisions::default();
        let collected = Collected { decisions: &mut decisions, spare, failed: None };
        let verdict = collected.evaluate(evaluator, names, session, step, now, store)?;
        if verdict >= Verdict::Defer && step.event.recipient.is_some() {
            decisions.refused_recipients = 1;
        }
        Ok(decisions)
    }

    /// Takes back the decisions of a step that are not needed any more, for their memory.
    pub fn reuse(&mut self, decisions: Decisions) {
        self.spare.extend(decisions.windows);
    }
}

/// Collects what is decided.
struct Collected<'a> {
    decisions: &'a mut Decisions,
    spare: &'a mut Vec<Window>,
    /// The first policy that could not be evaluated.
    failed: Option<ReplayError>,
}

impl Collected<'_> {
    /// Evaluates policies at a step until one refuses, and adds what they decide; the strictest
    /// verdict.
    fn evaluate<S: Store>(
        mut self,
        evaluator: &mut Evaluator<'_>,
        names: &str,
        session: &mut PolicySession,
        step: &Step<'_>,
        now: Timestamp,
        store: &mut S,
    ) -> Result<Verdict, ReplayError> {
        let strictest = evaluator.evaluate(session, names, step, Ok(store), || now, &mut self);
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        let Evaluated { policy, outcome, .. } = strictest;
        let verdict = outcome.verdict;
        if outcome.outweighs(&self.decisions.outcome) {
            self.decisions.outcome = outcome;
            self.decisions.policy = Some(policy);
        }
        Ok(verdict)
    }
}

impl Observer for Collected<'_> {
    fn decided(&mut self, decided: &Decided<'_>) {
        self.decisions.add(decided, self.spare);
    }

    fn judged(&mut self, key: &str, judged: &Judged) {
        self.decisions.compared = true;
        if let Some(alarm) = judged.alarm {
            self.decisions.alarm = Some((key.into(), alarm));
        }
    }

    fn evaluated(&mut self, evaluated: &Evaluated) {
        if let Some(failure) = &evaluated.failure {
            let (policy, error) = (&failure.policy, &failure.error);
            let text = || ReplayError(format!("cannot evaluate the policy {policy:?}: {error}"));
            self.failed.get_or_insert_with(text);
        }
    }
}

/// The steps of an event.
struct Steps<'a, 'i> {
    evaluator: &'a mut Evaluator<'i>,
    names: &'a str,
    session: &'a mut PolicySession,
    event: &'a ReplayEvent,
    decisions: Decisions,
}

impl Steps<'_, '_> {
    fn all<S: Store>(&mut self, store: &mut S) -> Result<(), ReplayError> {
        let event = self.event;
        if event.stage.begins_a_message() {
            self.session.new_message();
        }
        match event.stage {
            Stage::Message => {
                let mut accepted = Vec::new();
                for recipient in event.recipients.addresses() {
                    if self.recipient(AclStage::Rcpt, recipient, store)? < Verdict::Defer {
                        accepted.push(recipient.as_str());
                    }
                }
                if accepted.is_empty() && !event.recipients.addresses().is_empty() {
                    return Ok(());
                }
                self.step(AclStage::Data, None, &accepted, store).map(|_| ())
            }
            Stage::Rcpt | Stage::Router | Stage::Delivery => {
                let stage = event.stage.acl();
                for recipient in event.recipients.addresses() {
                    self.recipient(stage, recipient, store)?;
                }
                if event.recipients.addresses().is_empty() {
                    self.step(stage, None, &[], store)?;
                }
                Ok(())
            }
            _ => {
                let addresses: Vec<&str> =
                    event.recipients.addresses().iter().map(String::as_str).collect();
                self.step(event.stage.acl(), None, &addresses, store).map(|_| ())
            }
        }
    }

    /// A step for one recipient.
    fn recipient<S: Store>(
        &mut self,
        stage: AclStage,
        recipient: &str,
        store: &mut S,
    ) -> Result<Verdict, ReplayError> {
        let verdict = self.step(stage, Some(recipient), &[], store)?;
        if verdict >= Verdict::Defer {
            self.decisions.refused_recipients += 1;
        } else if self.event.outcome != Some(ReplayOutcome::Rejected) && stage != AclStage::Delivery
        {
            self.session.accept_recipient();
        }
        Ok(verdict)
    }

    /// Evaluates the policies at `stage` until one refuses; the strictest verdict.
    fn step<S: Store>(
        &mut self,
        stage: AclStage,
        recipient: Option<&str>,
        all_recipients: &[&str],
        store: &mut S,
    ) -> Result<Verdict, ReplayError> {
        let Self { evaluator, names, session, event, decisions } = self;
        session.new_command();
        let listed = u32::try_from(all_recipients.len()).unwrap_or(u32::MAX);
        let facts = SessionFacts {
            recipients: event.recipients.count().max(listed),
            message_size: event.size.unwrap_or(0),
            has_message: event.stage == Stage::Router,
            ..SessionFacts::default()
        };
        let step = Step {
            facts,
            recipients: &|| all_recipients.iter().map(|&to| to.into()).collect(),
            is_one_of: event.outcome.map(ReplayOutcome::unit),
            ..Step::new(stage, policy_event(event, recipient))
        };
        let collected = Collected { decisions, spare: &mut Vec::new(), failed: None };
        collected.evaluate(evaluator, names, session, &step, event.time, store)
    }
}

impl Decisions {
    fn add(&mut self, decided: &Decided<'_>, spare: &mut Vec<Window>) {
        let decision = decided.decision;
        self.crossed |= decision.crossed;
        let same = |window: &&mut Window| {
            window.record() == decided.record
                && window.text() == decided.limit.text
                && window.decision.algorithm == decision.algorithm
        };
        match self.windows.iter_mut().find(same) {
            Some(window) if window.decision.over => {}
            Some(window) => window.decision = decision,
            None => {
                let texts = spare.pop().map(|window| window.texts).unwrap_or_default();
                self.windows.push(Window::of(decided, texts));
            }
        }
    }
}

/// What the policies know of an event.
pub(crate) fn policy_event<'a>(
    described: &'a ReplayEvent,
    recipient: Option<&'a str>,
) -> Event<&'a str> {
    let said = Event { recipient, ..described.event.view() };
    let client = match (said.client, described.local) {
        (Origin::Unknown, None | Some(true)) => Origin::Program,
        (client, _) => client,
    };
    let has_used_auth = said.auth.is_some_and(|login| !login.trim().is_empty());
    let circumstances = Circumstances {
        has_used_auth,
        server: &|| client.address().filter(|_| described.local == Some(true)),
        handed_over: described.system.map_or(HandedOver::ByAccount, HandedOver::Said),
        in_router: described.stage == Stage::Router,
    };
    let event = Event { client, ..said }.complete(&circumstances);
    match described.local {
        Some(false) => Event { local: Local::default(), ..event },
        _ => event,
    }
}

/// An event of now, for a caller that fills in what it knows.
impl ReplayEvent {
    /// A message of which nothing is known.
    #[must_use]
    pub fn at(time: Timestamp) -> Self {
        Self { time, ..Self::default() }
    }
}

#[cfg(test)]
mod tests;
