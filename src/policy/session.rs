//! One SMTP session: what policies have counted in it, and what they make of its next step.
//!
//! The mail front ends and replayed events use it, so that they count the same. The front
//! end for Exim does the same with Exim's variables.

use super::decide::{DecideError, Decided, Rules, decide};
use super::event::{Counted, Event, Occurrence, SessionFacts};
use super::image::{Image, ImageError};
use super::model::Head;
use super::outcome::Outcome;
use super::word::{Unit, Verdict};
use crate::rate::Timestamp;
use crate::stage::{AclStage, DecisionCache, Scope};
use crate::store::Store;

/// What is remembered of an SMTP connection, its message and its command.
#[derive(Default)]
pub struct PolicySession {
    cache: DecisionCache,
    /// By policy.
    counted: Vec<(String, Counted)>,
    /// Recipients of the message that were accepted.
    accepted: u32,
}

/// A step of a session: one run of an ACL.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The ACL stage.
    pub stage: AclStage,
    /// What is known of it.
    pub event: Event<'a>,
    /// The numbers of the session. The recipients are at least those that are listed, and
    /// those that the session has accepted.
    pub facts: SessionFacts,
    /// The recipients of the message, where all are known.
    pub recipients: &'a [&'a str],
    /// A unit of which this step is one, for reasons other than a policy.
    pub is_one_of: Option<Unit>,
}

impl PolicySession {
    /// A message begins: forgets what belongs to the one before.
    pub fn new_message(&mut self) {
        self.cache.new_message();
        self.counted.iter_mut().for_each(|(_, counted)| counted.new_message());
        self.accepted = 0;
    }

    /// A command begins.
    pub fn new_command(&mut self) {
        self.cache.new_command();
        self.counted.iter_mut().for_each(|(_, counted)| counted.new_command());
    }

    /// A recipient was accepted.
    pub fn accept_recipient(&mut self) {
        self.accepted = self.accepted.saturating_add(1);
    }

    /// Recipients of the message that were accepted.
    #[must_use]
    pub fn accepted(&self) -> u32 {
        self.accepted
    }

    /// How much memory it takes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let counted = self.counted.iter().map(|(name, _)| name.len() + 64);
        size_of::<Self>() + self.cache.bytes() + counted.sum::<usize>()
    }

    /// Evaluates one policy of `image` at a step, as the front end for Exim does. A policy
    /// that does not exist has nothing against the event. `visit` is called with each limit
    /// that was decided.
    ///
    /// # Errors
    /// The image is damaged, or the store could not be used.
    pub fn evaluate<S: Store>(
        &mut self,
        image: &Image,
        name: &str,
        step: &Step<'_>,
        store: &mut S,
        clock: impl Fn() -> Timestamp,
        mut visit: impl FnMut(&Head, &Decided<'_>),
    ) -> Result<Outcome, DecideError<ImageError, S::Error>> {
        let Some(policy) = image.policy(name).map_err(DecideError::Tables)? else {
            return Ok(Outcome::default());
        };
        let identity = image.identity().map_err(DecideError::Tables)?;
        let head = policy.head();
        let rules = Rules { name, identity, head, tables: &policy };
        let listed = u32::try_from(step.recipients.len()).unwrap_or(u32::MAX);
        let recipients = step.facts.recipients.max(listed).max(self.accepted);
        let facts = SessionFacts { recipients, ..step.facts };
        let at = self.counted.iter().position(|(known, _)| known == name);
        let at = at.unwrap_or_else(|| {
            self.counted.push((name.to_owned(), Counted::default()));
            self.counted.len() - 1
        });
        let counted = &mut self.counted[at].1;
        let mut occurrences = Vec::with_capacity(8);
        counted.occurrences(step.stage, &facts, &mut occurrences);
        for one in occurrences.iter_mut().filter(|one| Some(one.unit) == step.is_one_of) {
            one.count = 1.0;
        }
        let wants_each_recipient = counted.wants_each_recipient(step.stage);
        let cache = &mut self.cache;
        let mut of = |event: &Event<'_>, occurrences: &[Occurrence]| {
            let visit = |decided: &Decided<'_>| visit(head, decided);
            decide(&rules, event, occurrences, false, cache, store, &clock, visit)
        };
        let mut outcome = of(&step.event, &occurrences)?;
        if wants_each_recipient && outcome.verdict < Verdict::Defer {
            let one = [Occurrence::one(Unit::UniqueRecipients, Scope::Evaluation)];
            for address in step.recipients {
                let event = Event { recipient: Some(address), ..step.event };
                let each = of(&event, &one)?;
                if each.outweighs(&outcome) {
                    outcome = each;
                }
            }
        }
        Ok(outcome)
    }
}

/// The outcome of several policies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Strictest<'n> {
    /// The strictest outcome.
    pub outcome: Outcome,
    /// Its policy; `None` if no policy applies.
    pub policy: Option<&'n str>,
}

/// Evaluates policies in this order until one refuses the event; the strictest outcome
/// counts.
///
/// # Errors
/// The first one of `evaluate`.
pub fn strictest<'n, E>(
    names: impl IntoIterator<Item = &'n str>,
    mut evaluate: impl FnMut(&'n str) -> Result<Outcome, E>,
) -> Result<Strictest<'n>, E> {
    let mut strictest = Strictest::default();
    for name in names {
        let outcome = evaluate(name)?;
        let refuses = outcome.verdict >= Verdict::Defer;
        if outcome.outweighs(&strictest.outcome) {
            strictest = Strictest { outcome, policy: Some(name) };
        }
        if refuses {
            break;
        }
    }
    Ok(strictest)
}
