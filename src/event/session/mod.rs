//! What is remembered of one SMTP session: the decisions that are reused, and what each policy
//! has counted.

mod decisions;
mod occurrences;
mod usage;

use std::sync::Arc;

use crate::store::Judged;

pub use decisions::DecisionCache;
pub use occurrences::{AlreadyCounted, Occurrence, SessionFacts};
pub(crate) use usage::UsageMemory;

/// What policies remember of an SMTP connection, its message and its command. `O` is the
/// outcome of a policy.
#[derive(Clone)]
pub struct SessionMemory<O> {
    cache: DecisionCache,
    known: Vec<ByPolicy<O>>,
    /// Recipients of the message that were accepted, where the front end says so.
    accepted: u32,
    /// What a step counts: kept to be filled again.
    occurrences: Vec<Occurrence>,
    pub(crate) habits: HabitsMemory,
    pub(crate) usage: UsageMemory,
}

impl<O> SessionMemory<O> {
    /// Exchanges the decisions that are reused.
    pub fn swap_decisions(&mut self, other: &mut Self) {
        std::mem::swap(&mut self.cache, &mut other.cache);
    }
}

/// What is remembered of the comparison of a message with the habits of its account.
#[derive(Clone, Default)]
pub(crate) struct HabitsMemory {
    /// What they said of the message, once it was learned.
    pub(crate) judged: Option<Judged>,
    /// The hashes of its recipients, and the name of the record: kept to be filled again.
    pub(crate) recipients: Vec<u64>,
    pub(crate) name: Vec<u8>,
}

/// What one policy has counted.
#[derive(Clone)]
struct ByPolicy<O> {
    policy: Arc<str>,
    counted: AlreadyCounted,
    /// The outcome of the message's recipients one by one, where they were counted all at
    /// once.
    each_recipient: Option<O>,
    /// Recipients of the message that were accepted.
    to: To,
    /// Whether the recipient of this step is exempt.
    recipient_is_exempt: Option<bool>,
}

/// Which recipients were accepted.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum To {
    #[default]
    Nobody,
    /// Those that are exempt only.
    Exempt,
    /// Others too.
    Others,
}

/// What the evaluator uses of a session for one policy.
pub(crate) struct Known<'a, O> {
    pub(crate) policy: &'a Arc<str>,
    pub(crate) counted: &'a mut AlreadyCounted,
    pub(crate) each_recipient: &'a mut Option<O>,
    pub(crate) recipient_is_exempt: &'a mut Option<bool>,
    /// All recipients that were accepted are exempt.
    pub(crate) all_exempt: bool,
    pub(crate) accepted: u32,
}

impl<O> Default for SessionMemory<O> {
    fn default() -> Self {
        Self {
            cache: DecisionCache::default(),
            known: Vec::new(),
            accepted: 0,
            occurrences: Vec::new(),
            habits: HabitsMemory::default(),
            usage: UsageMemory::default(),
        }
    }
}

impl<O> SessionMemory<O> {
    /// A connection begins: forgets everything.
    pub fn new_connection(&mut self) {
        self.cache.new_connection();
        self.known.clear();
        self.accepted = 0;
        self.habits.judged = None;
        self.usage.new_message();
        self.usage.new_command();
    }

    /// A message begins: forgets what belongs to the one before.
    pub fn new_message(&mut self) {
        self.cache.new_message();
        for known in &mut self.known {
            known.counted.new_message();
            known.each_recipient = None;
            known.to = To::Nobody;
        }
        self.accepted = 0;
        self.habits.judged = None;
        self.usage.new_message();
    }

    /// A command begins.
    pub fn new_command(&mut self) {
        self.cache.new_command();
        self.known.iter_mut().for_each(|known| known.counted.new_command());
        self.usage.new_command();
    }

    /// A step of an account begins.
    #[inline]
    pub(crate) fn begin_usage(&mut self) {
        self.cache.forget_key();
    }

    /// The key of an account: what was decided last in this step, if that `is_it`; else that of
    /// `account`, which `fold` folds, or has folded before.
    #[inline]
    pub(crate) fn account_key(
        &mut self,
        account: &str,
        is_it: impl FnOnce(&str) -> bool,
        fold: impl FnOnce() -> String,
    ) -> &str {
        match self.cache.key() {
            key if is_it(key) => key,
            _ => self.usage.key_of(account, fold),
        }
    }

    /// A step was evaluated by all policies.
    pub(crate) fn end_step(&mut self, accepted: bool) {
        for known in &mut self.known {
            match known.recipient_is_exempt.take().filter(|_| accepted) {
                Some(true) if known.to == To::Nobody => known.to = To::Exempt,
                Some(false) => known.to = To::Others,
                Some(true) | None => {}
            }
        }
    }

    /// The decisions that are reused, for checks of specs.
    #[cfg(feature = "cli")]
    pub fn decisions(&mut self) -> &mut DecisionCache {
        &mut self.cache
    }

    /// A recipient was accepted.
    #[cfg(feature = "cli")]
    pub fn accept_recipient(&mut self) {
        self.accepted = self.accepted.saturating_add(1);
    }

    /// Recipients of the message that were accepted, where the front end says so.
    #[must_use]
    pub fn accepted(&self) -> u32 {
        self.accepted
    }

    /// How much memory it takes, about; `text` is how much that of an outcome takes.
    #[cfg(feature = "cli")]
    #[must_use]
    pub fn bytes(&self, text: impl Fn(&O) -> usize) -> usize {
        let known = self.known.iter().map(|known| {
            let text = known.each_recipient.as_ref().map_or(0, &text);
            size_of::<ByPolicy<O>>() + known.policy.len() + text
        });
        let habits = self.habits.recipients.capacity() * 8 + self.habits.name.capacity();
        let habits = habits + self.usage.bytes();
        size_of::<Self>() + habits + self.cache.bytes() + known.sum::<usize>()
    }

    /// What the evaluator uses for the policy of this name.
    pub(crate) fn parts(
        &mut self,
        name: &Arc<str>,
    ) -> (&mut DecisionCache, &mut Vec<Occurrence>, Known<'_, O>) {
        // By the same image it has the same name in memory.
        let by = |is_it: fn(&Arc<str>, &Arc<str>) -> bool| {
            self.known.iter().position(|known| is_it(&known.policy, name))
        };
        let at = by(Arc::ptr_eq).or_else(|| by(|one, other| one == other));
        let at = at.unwrap_or_else(|| {
            let (policy, counted) = (Arc::clone(name), AlreadyCounted::default());
            let (each_recipient, to, recipient_is_exempt) = (None, To::Nobody, None);
            self.known.push(ByPolicy { policy, counted, each_recipient, to, recipient_is_exempt });
            self.known.len() - 1
        });
        let ByPolicy { policy, counted, each_recipient, to, recipient_is_exempt } =
            &mut self.known[at];
        let (accepted, all_exempt) = (self.accepted, *to == To::Exempt);
        let known =
            Known { policy, counted, each_recipient, recipient_is_exempt, all_exempt, accepted };
        (&mut self.cache, &mut self.occurrences, known)
    }
}
