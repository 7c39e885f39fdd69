//! Decides events that are described, not received: those of `exirate policy check`,
//! `exirate policy run` and simulations.
//!
//! A [`ReplayEvent`] → the steps of its SMTP session → [`decide`], with the
//! same count of each thing as in a real session ([`Counted`]). The time is that of the
//! event, and the store is whatever the caller has.

mod event;
mod json;
mod sessions;

use std::net::IpAddr;

pub use event::{RECIPIENTS_MAX, Recipients, ReplayEvent, ReplayOutcome, Stage};
use sessions::{Session, Sessions};

use super::decide::{DecideError, Decided, Rules, decide};
#[cfg(doc)]
use super::event::Counted;
use super::event::{Event, Occurrence, SessionFacts};
use super::image::{Image, ImageError};
use super::outcome::Outcome;
use super::word::{Unit, Verdict};
use crate::engine::Decision;
use crate::rate::Timestamp;
use crate::stage::{AclStage, Scope};
use crate::store::Store;
use crate::toml_file::diagnostic::similar;

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
        let mut own = Session::default();
        let (image, names) = (self.image, &self.names);
        let session = match &event.session {
            Some(name) => self.sessions.get(name),
            None => &mut own,
        };
        let mut steps = Steps { image, names, session, event, decisions: Decisions::default() };
        steps.all(store)?;
        Ok(steps.decisions)
    }
}

/// The steps of an event.
struct Steps<'a> {
    image: &'a Image,
    names: &'a [String],
    session: &'a mut Session,
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
            self.session.accepted += 1;
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
        self.session.new_command();
        let mut strictest = Verdict::Accept;
        for name in self.names {
            let outcome = self.evaluate(name, stage, recipient, all_recipients, store)?;
            strictest = strictest.max(outcome.verdict);
            let refuses = outcome.verdict >= Verdict::Defer;
            let before = &mut self.decisions.outcome;
            if outcome.outweighs(before) {
                *before = outcome;
                self.decisions.policy = Some(name.clone());
            }
            if refuses {
                break;
            }
        }
        Ok(strictest)
    }

    /// Evaluates one policy, as the front end for Exim does.
    fn evaluate<S: Store>(
        &mut self,
        name: &str,
        stage: AclStage,
        recipient: Option<&str>,
        all_recipients: &[&str],
        store: &mut S,
    ) -> Result<Outcome, ReplayError<S::Error>> {
        let event = self.event;
        let Some(policy) = self.image.policy(name).map_err(DecideError::Tables)? else {
            return Ok(Outcome::default());
        };
        let identity = self.image.identity().map_err(DecideError::Tables)?;
        let rules = Rules { name, identity, head: policy.head(), tables: &policy };
        let listed = u32::try_from(all_recipients.len()).unwrap_or(u32::MAX);
        let facts = SessionFacts {
            recipients: listed.max(event.recipients.count()).max(self.session.accepted),
            message_size: event.size.unwrap_or(0),
            rejected_recipients: 0,
            auth_failed: false,
            has_message: event.stage == Stage::Router,
        };
        let (cache, counted) = self.session.of(name);
        let mut occurrences = Vec::with_capacity(8);
        counted.occurrences(stage, &facts, &mut occurrences);
        let came_of_it = event.outcome.map(ReplayOutcome::unit);
        for one in occurrences.iter_mut().filter(|one| Some(one.unit) == came_of_it) {
            one.count = 1.0;
        }
        let wants_each_recipient = counted.wants_each_recipient(stage);
        let policy_event = policy_event(event, recipient);
        let (decisions, at) = (&mut self.decisions, event.time);
        let mut of = |event: &Event<'_>, occurrences: &[Occurrence]| {
            let visit = |decided: &Decided<'_>| decisions.add(decided);
            decide(&rules, event, occurrences, false, cache, store, || at, visit)
        };
        let mut outcome = of(&policy_event, &occurrences)?;
        if wants_each_recipient && outcome.verdict < Verdict::Defer {
            let one = [Occurrence::one(Unit::UniqueRecipients, Scope::Evaluation)];
            for address in all_recipients {
                let event = Event { recipient: Some(address), ..policy_event };
                let each = of(&event, &one)?;
                if each.outweighs(&outcome) {
                    outcome = each;
                }
            }
        }
        Ok(outcome)
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
    let at_home = || event.client.is_none_or(|client: IpAddr| client.is_loopback());
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
        local: event.local.unwrap_or_else(at_home),
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
