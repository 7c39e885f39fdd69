//! Decides events that are described, not received: those of `exirate policy check`,
//! `exirate policy run` and simulations.
//!
//! A [`ReplayEvent`] → the steps of its SMTP session → [`PolicySession`], with the
//! same count of each thing as in a real session ([`Counted`]). The time is that of the
//! event, and the store is whatever the caller has.

mod event;
mod json;
mod sessions;

pub use event::{RECIPIENTS_MAX, Recipients, ReplayEvent, ReplayOutcome, Stage};
use sessions::Sessions;

use super::decide::{DecideError, Decided};
#[cfg(doc)]
use super::event::Counted;
use super::event::{Event, Local, Origin, SessionFacts, is_system_account};
use super::image::{Image, ImageError};
use super::model::Head;
use super::outcome::Outcome;
use super::session::{PolicySession, Step, Strictest, strictest};
use super::word::{Unit, Verdict};
use crate::engine::Decision;
use crate::rate::Timestamp;
use crate::stage::AclStage;
use crate::store::Store;
use crate::toml_file::diagnostic::similar;

/// The least that a policy counts: a message, a recipient, a byte. What would count nothing
/// only looks at a rate: for [`Memory::forget`](crate::store::Memory::forget).
pub const LEAST_COUNT: f64 = 1.0;

/// Why an event could not be decided.
pub type ReplayError<S> = DecideError<ImageError, S>;

/// Decides events by the policies of an image.
pub struct Replay<'i> {
    image: &'i Image,
    names: Vec<String>,
    sessions: Sessions,
}

/// What the policies make of an event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decisions {
    /// The strictest outcome of its steps.
    pub outcome: Outcome,
    /// The policy of that outcome; `None` if no policy applies to the event.
    pub policy: Option<String>,
    /// Whether a record crossed its limit, also one that is not the reason.
    pub crossed: bool,
    /// How many of its recipients were refused.
    pub refused_recipients: u32,
    /// Each record that was used: of the step in which it was over first, else of the
    /// last.
    pub windows: Vec<Window>,
}

/// A limit and what was decided by it.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// The policy.
    pub policy: String,
    /// The table that the limit is from.
    pub rule: String,
    /// What is counted.
    pub unit: Unit,
    /// The limit as written.
    pub text: String,
    /// Who is counted.
    pub key: String,
    /// The name of the record in the store.
    pub record: String,
    /// The decision.
    pub decision: Decision,
}

impl<'i> Replay<'i> {
    /// By the policies `names`, several separated by commas, or `*` for all: they are
    /// evaluated in this order until one refuses the event, as `policy` does in Exim.
    ///
    /// # Errors
    /// There is no such policy; the text says which there are.
    pub fn new(image: &'i Image, names: &str) -> Result<Self, String> {
        let names: Vec<String> = match names.trim() {
            "*" => image.names().map(str::to_owned).collect(),
            names => names.split(',').map(|name| name.trim().to_owned()).collect(),
        };
        if let Some(unknown) = names.iter().find(|name| image.names().all(|known| known != *name)) {
            let instead = match similar(unknown, image.names()) {
                Some(known) => format!("did you mean {known:?}?"),
                None => {
                    format!("the policies are: {}", image.names().collect::<Vec<_>>().join(", "))
                }
            };
            return Err(format!("there is no policy {unknown:?}; {instead}"));
        }
        Ok(Self { image, names, sessions: Sessions::default() })
    }

    /// Decides `event` in `store`, and counts it there.
    ///
    /// # Errors
    /// The image is damaged, or the store could not be used.
    pub fn decide<S: Store>(
        &mut self,
        event: &ReplayEvent,
        store: &mut S,
    ) -> Result<Decisions, ReplayError<S::Error>> {
        let mut own = PolicySession::default();
        let (image, names) = (self.image, &self.names);
        let session = match &event.session {
            Some(name) => self.sessions.get(name),
            None => &mut own,
        };
        let mut steps = Steps { image, names, session, event, decisions: Decisions::default() };
        steps.all(store)?;
        Ok(steps.decisions)
    }

    /// Decides one step of a session that the caller keeps, as of `now`, and counts it in
    /// `store`. That a message or a command begins, and that a recipient was accepted, is
    /// for the caller to say to the session.
    ///
    /// # Errors
    /// The image is damaged, or the store could not be used.
    pub fn step<S: Store>(
        &self,
        session: &mut PolicySession,
        step: &Step<'_>,
        now: Timestamp,
        store: &mut S,
    ) -> Result<Decisions, ReplayError<S::Error>> {
        let mut decisions = Decisions::default();
        let verdict = evaluate(self.image, &self.names, session, step, now, store, &mut decisions)?;
        if verdict >= Verdict::Defer && step.event.recipient.is_some() {
            decisions.refused_recipients = 1;
        }
        Ok(decisions)
    }
}

/// Evaluates policies at a step until one refuses, and adds what they decide; the strictest
/// verdict.
fn evaluate<S: Store>(
    image: &Image,
    names: &[String],
    session: &mut PolicySession,
    step: &Step<'_>,
    now: Timestamp,
    store: &mut S,
    decisions: &mut Decisions,
) -> Result<Verdict, ReplayError<S::Error>> {
    let Strictest { outcome, policy } = strictest(names.iter().map(String::as_str), |name| {
        let visit = |_: &Head, decided: &Decided<'_>| decisions.add(decided);
        session.evaluate(image, name, step, store, || now, visit)
    })?;
    let verdict = outcome.verdict;
    if outcome.outweighs(&decisions.outcome) {
        decisions.outcome = outcome;
        decisions.policy = policy.map(str::to_owned);
    }
    Ok(verdict)
}

/// The steps of an event.
struct Steps<'a> {
    image: &'a Image,
    names: &'a [String],
    session: &'a mut PolicySession,
    event: &'a ReplayEvent,
    decisions: Decisions,
}

impl Steps<'_> {
    fn all<S: Store>(&mut self, store: &mut S) -> Result<(), ReplayError<S::Error>> {
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
            Stage::Rcpt | Stage::Router => {
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
    ) -> Result<Verdict, ReplayError<S::Error>> {
        let verdict = self.step(stage, Some(recipient), &[], store)?;
        if verdict >= Verdict::Defer {
            self.decisions.refused_recipients += 1;
        } else if self.event.outcome != Some(ReplayOutcome::Rejected) {
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
    ) -> Result<Verdict, ReplayError<S::Error>> {
        let Self { image, names, session, event, decisions } = self;
        session.new_command();
        let facts = SessionFacts {
            recipients: event.recipients.count(),
            message_size: event.size.unwrap_or(0),
            has_message: event.stage == Stage::Router,
            ..SessionFacts::default()
        };
        let step = Step {
            stage,
            event: policy_event(event, recipient),
            facts,
            recipients: all_recipients,
            is_one_of: event.outcome.map(ReplayOutcome::unit),
        };
        evaluate(image, names, session, &step, event.time, store, decisions)
    }
}

impl Decisions {
    fn add(&mut self, decided: &Decided<'_>) {
        let decision = decided.decision;
        self.crossed |= decision.crossed;
        let same = |window: &&mut Window| {
            window.record == decided.record
                && window.text == decided.limit.text
                && window.decision.algorithm == decision.algorithm
        };
        match self.windows.iter_mut().find(same) {
            Some(window) if window.decision.over => {}
            Some(window) => window.decision = decision,
            None => self.windows.push(Window {
                policy: decided.policy.to_owned(),
                rule: decided.rule_text().into_owned(),
                unit: decided.limit.unit,
                text: decided.limit.text.to_owned(),
                key: decided.key.to_owned(),
                record: decided.record.to_owned(),
                decision,
            }),
        }
    }
}

/// What the policies know of an event.
fn policy_event<'a>(event: &'a ReplayEvent, recipient: Option<&'a str>) -> Event<'a> {
    let known = |text: &'a Option<String>| text.as_deref();
    let has_login = event.auth.as_ref().is_some_and(|login| !login.trim().is_empty());
    let (origin, server) = match (event.client, event.local) {
        (None, Some(false)) => (Origin::Unknown, None),
        (None, _) => (Origin::Program, None),
        (Some(_), Some(false)) => (Origin::Unknown, None),
        (Some(client), Some(true)) => (Origin::Client(client), Some(client)),
        (Some(client), None) => (Origin::Client(client), None),
    };
    let is_systems = || {
        origin == Origin::Program && event.local_account.as_deref().is_some_and(is_system_account)
    };
    Event {
        auth: known(&event.auth),
        local_account: known(&event.local_account),
        script: known(&event.script),
        client: event.client,
        helo: known(&event.helo),
        sender: known(&event.sender),
        recipient,
        package: known(&event.package),
        message_id: known(&event.message_id),
        local: Local::of(has_login, origin, || server),
        system: event.system.unwrap_or_else(is_systems),
        once_a_message: event.stage == Stage::Router && event.message_id.is_some(),
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
