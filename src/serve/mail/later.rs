//! Mail that Postfix and Sendmail hold until there is room within a limit at delivery.
//!
//! At the end of a message, all of its recipients are evaluated together by the policies at delivery.
//! If they fit, they count, and the message goes on; if not, nothing of it counts, the mail server holds
//! it, and its note has the event. `exirate held decide` evaluates that again, the oldest message first.
//!
//! What waits by a key keeps later mail of that key behind it: [`Queues`] knows from the notes which
//! keys have mail that waits, without a look at the mail server's queue.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use super::event::MailEvent;
use crate::event::session::SessionFacts;
use crate::event::{AclStage, Event};
use crate::policy::decide::Decided;
use crate::policy::evaluator::{Evaluated, Observer, OnErrors, Step};
use crate::policy::outcome::Outcome;
use crate::policy::replay::{Recipients, ReplayEvent, policy_event};
use crate::policy::word::Verdict;
use crate::rate::Timestamp;
use crate::spool::{HeldNote, HeldUntil, NotesRead, Spool};
use crate::store::Judged;

/// What waits, by policy and key: why the first of it does.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    read: NotesRead,
    /// The queue of each message that waits.
    messages: HashMap<String, String>,
    /// How many messages of a queue wait, and why.
    queues: HashMap<String, (usize, String)>,
}

/// That a message waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WaitsBy {
    /// By which policy.
    pub(crate) policy: Arc<str>,
    /// Who is counted.
    pub(crate) key: String,
    pub(crate) why: String,
    /// There will be room for it; else it is too large for the limit.
    pub(crate) fits: bool,
    /// What the client reads.
    pub(super) text: String,
}

/// A message that waits, as the event in its note has it.
#[derive(Debug)]
pub(crate) struct LaterMessage {
    pub(super) event: Event<String>,
    pub(super) recipients: u32,
    pub(super) size: u64,
    /// When it was complete.
    pub(crate) at: Timestamp,
}

impl Queues {
    /// Reads what was noted since the last time.
    pub(super) fn refresh(&mut self, spool: &mut Spool) -> Result<(), String> {
        let (notes, are_all) =
            spool.held_notes_since(&mut self.read).map_err(|error| error.to_string())?;
        if are_all {
            (self.messages, self.queues) = Default::default();
        }
        for HeldNote { id, policy, key, why, until, .. } in notes {
            let queue = self.messages.remove(&id);
            if let Some(queue) = queue
                && let Some((count, _)) = self.queues.get_mut(&queue)
            {
                *count -= 1;
                if *count == 0 {
                    self.queues.remove(&queue);
                }
            }
            if matches!(until, HeldUntil::Room(_)) {
                let queue = queue_name(&policy, &String::from_utf8_lossy(&key));
                self.queues.entry(queue.clone()).or_insert((0, why)).0 += 1;
                self.messages.insert(id, queue);
            }
        }
        Ok(())
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// A message waits, and later ones of its key behind it.
    pub(crate) fn add(&mut self, wait: &WaitsBy) {
        let queue = queue_name(&wait.policy, &wait.key);
        self.queues.entry(queue).or_insert((0, wait.why.clone()));
    }

    /// Whether mail of this policy and key waits.
    pub(crate) fn has(&self, policy: &str, key: &str) -> bool {
        self.why(policy, key).is_some()
    }

    fn why(&self, policy: &str, key: &str) -> Option<&str> {
        self.queues.get(&queue_name(policy, key)).map(|(_, why)| &**why)
    }
}

fn queue_name(policy: &str, key: &str) -> String {
    format!("{policy}\t{key}")
}

/// Sees whether mail waits by a key of the message.
pub(super) struct Behind<'q> {
    queues: &'q Queues,
    pub(super) wait: Option<WaitsBy>,
}

impl<'q> Behind<'q> {
    pub(super) fn new(queues: &'q Queues) -> Self {
        Self { queues, wait: None }
    }
}

impl Observer for Behind<'_> {
    fn decided(&mut self, decided: &Decided<'_>) {
        if decided.exempt || self.wait.is_some() {
            return;
        }
        let why = self.queues.why(decided.policy, decided.key);
        self.wait = why.map(|why| WaitsBy {
            policy: decided.policy.into(),
            key: decided.key.to_owned(),
            why: why.to_owned(),
            fits: true,
            text: "It waits behind earlier mail".to_owned(),
        });
    }

    fn lifts(&mut self, _: &dyn Display) -> bool {
        // So that each policy is asked.
        true
    }
}

/// Sees whether anything but a limit is against a message: a denial, or the habits of its account.
#[derive(Default)]
pub(super) struct Against(pub(super) Option<&'static str>);

impl Observer for Against {
    fn decided(&mut self, decided: &Decided<'_>) {
        if decided.decision.overridden.is_some_and(|one| one.is_denial()) {
            self.0 = Some("its sender is denied");
        }
    }

    fn judged(&mut self, _: &str, judged: &Judged) {
        if judged.blocked.is_some() || judged.overridden.is_some_and(|one| one.is_denial()) {
            self.0 = Some("its sender is denied");
        }
    }

    fn lifts(&mut self, _: &dyn Display) -> bool {
        true
    }

    fn evaluated(&mut self, evaluated: &Evaluated) {
        let Outcome { habits, measured, .. } = &evaluated.outcome;
        if habits.is_some() && *measured >= Verdict::Hold {
            self.0.get_or_insert("its sender is suspected for its habits");
        }
    }
}

impl LaterMessage {
    /// Of a message that is complete at `at`.
    pub(super) fn new(event: &MailEvent, at: Timestamp) -> Self {
        let MailEvent { event, facts, .. } = event;
        let event = Event { recipient: None, once_a_message: false, ..event.clone() };
        Self { event, recipients: facts.recipients, size: facts.message_size, at }
    }

    /// As a note has it.
    pub(super) fn to_json(&self) -> String {
        let Event { local, system, .. } = self.event;
        ReplayEvent {
            recipients: Recipients::Count(self.recipients),
            size: Some(self.size),
            local: Some(local.is()),
            system: Some(system),
            event: self.event.clone(),
            ..ReplayEvent::at(self.at)
        }
        .to_json()
    }

    /// Reads what a note has.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn from_json(text: &str) -> Result<Self, String> {
        let event = ReplayEvent::from_json(text)?;
        let recipients = match event.recipients {
            Recipients::Count(count) => count,
            Recipients::Addresses(_) => return Err("it does not say how many recipients".into()),
        };
        let size = event.size.unwrap_or(0);
        Ok(Self {
            recipients,
            size,
            at: event.time,
            event: policy_event(&event, None).map(str::to_owned),
        })
    }

    /// As a step of all of its recipients, when it has waited so long.
    pub(super) fn step(
        &self,
        stage: AclStage,
        on_error: OnErrors,
        bypassed: bool,
        waited: u64,
    ) -> Step<'_> {
        let once_a_message = stage == AclStage::Route;
        let event = Event { once_a_message, ..self.event.view() };
        let facts = SessionFacts {
            recipients: self.recipients,
            message_size: self.size,
            has_message: true,
            message_age: waited,
            ..SessionFacts::default()
        };
        Step { facts, bypassed, on_error, ..Step::new(stage, event) }
    }
}

impl WaitsBy {
    /// The same of a message that is too large for the limit.
    pub(super) fn too_large(self) -> Self {
        let text = format!("This message alone is over a limit of the policy {}", self.policy);
        Self { fits: false, text, ..self }
    }
}
