//! What a session counts of the usage of its account, each thing once although several policies
//! and ACLs ask.

use super::SessionFacts;
use crate::event::AclStage;
use crate::rate::usage::Sent;

/// What was counted of the usage of an account.
#[derive(Clone, Default)]
pub(crate) struct UsageMemory {
    /// The login or the local account, as the client sent it, and its key.
    account: String,
    key: String,
    /// This message, its bytes, and all of its recipients at once.
    message: bool,
    bytes: bool,
    all_recipients: bool,
    /// There was a recipient of this message at RCPT.
    has_rcpt: bool,
    /// The recipient of this command.
    recipient: bool,
    /// Refused recipients of this message.
    refused: u32,
}

impl UsageMemory {
    pub(super) fn new_message(&mut self) {
        let Self { account, key, recipient, .. } = std::mem::take(self);
        *self = Self { account, key, recipient, ..Self::default() };
    }

    #[inline]
    pub(super) fn new_command(&mut self) {
        self.recipient = false;
    }

    #[cfg(feature = "cli")]
    pub(super) fn bytes(&self) -> usize {
        self.account.capacity() + self.key.capacity()
    }

    /// The key of this account, which `fold` folds, unless it is known.
    pub(super) fn key_of(&mut self, account: &str, fold: impl FnOnce() -> String) -> &str {
        if self.key.is_empty() || self.account != account {
            account.clone_into(&mut self.account);
            self.key = fold();
        }
        &self.key
    }

    /// What an evaluation at `stage`, which was `accepted`, is to count: what limits of these units
    /// count, see [`AlreadyCounted::occurrences`](super::AlreadyCounted::occurrences).
    #[inline]
    pub(crate) fn sent(&mut self, stage: AclStage, facts: &SessionFacts, accepted: bool) -> Sent {
        use AclStage as S;
        let mut sent = Sent::default();
        if !matches!(stage, S::NotSmtp | S::NotSmtpStart | S::Outside | S::Delivery) {
            let refused = facts.rejected_recipients.saturating_sub(self.refused);
            self.refused = facts.rejected_recipients;
            sent.refused = refused.into();
        }
        let had_rcpt = self.has_rcpt;
        self.has_rcpt |= stage == S::Rcpt;
        if !accepted {
            return sent;
        }
        let once = |counted: &mut bool| stage == S::Outside || !std::mem::replace(counted, true);
        let has_all = stage.has_all_recipients();
        if (has_all || matches!(stage, S::Mail | S::Rcpt | S::Outside)) && once(&mut self.message) {
            sent.messages = 1;
        }
        if matches!(stage, S::Rcpt | S::Outside) {
            sent.recipients = once(&mut self.recipient).into();
        } else if has_all && !had_rcpt && facts.recipients > 0 && once(&mut self.all_recipients) {
            sent.recipients = facts.recipients.into();
        }
        let is_complete = matches!(stage, S::Mime | S::Dkim | S::Data | S::Prdr | S::NotSmtp)
            || stage == S::Outside && facts.has_message;
        if is_complete && facts.message_size > 0 && once(&mut self.bytes) {
            sent.bytes = facts.message_size;
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use kit::random::Random;

    use super::super::AlreadyCounted;
    use super::*;
    use crate::event::{Scope, Unit};

    /// What limits count of the same steps: each unit once in its scope.
    #[derive(Default)]
    struct Limits {
        counted: AlreadyCounted,
        message: HashSet<Unit>,
        command: HashSet<Unit>,
    }

    impl Limits {
        fn sent(&mut self, stage: AclStage, facts: &SessionFacts) -> Sent {
            let mut all = Vec::new();
            self.counted.occurrences(stage, facts, &mut all);
            let mut sent = Sent::default();
            for one in all.iter().filter(|one| one.count > 0.0) {
                let is_new = match one.scope {
                    Scope::Message => self.message.insert(one.unit),
                    Scope::Command => self.command.insert(one.unit),
                    Scope::Connection | Scope::Evaluation => true,
                };
                let count = if is_new { one.count as u64 } else { 0 };
                match one.unit {
                    Unit::Messages => sent.messages += count,
                    Unit::Recipients => sent.recipients += count,
                    Unit::Bytes => sent.bytes += count,
                    Unit::RejectedRecipients => sent.refused += count,
                    _ => {}
                }
            }
            sent
        }
    }

    #[test]
    fn it_counts_what_limits_of_these_units_count() {
        use AclStage as S;
        let stages = [
            S::Connect,
            S::Mail,
            S::Rcpt,
            S::Rcpt,
            S::Predata,
            S::Mime,
            S::Data,
            S::Prdr,
            S::NotSmtp,
            S::Outside,
            S::Quit,
        ];
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let (mut limits, mut usage) = (Limits::default(), UsageMemory::default());
            let (mut expected, mut found) = (Sent::default(), Sent::default());
            let mut facts = SessionFacts::default();
            for _ in 0..60 {
                match random.below(8) {
                    0 => {
                        limits.counted.new_message();
                        limits.message.clear();
                        usage.new_message();
                        facts = SessionFacts::default();
                    }
                    1..5 => {
                        limits.counted.new_command();
                        limits.command.clear();
                        usage.new_command();
                    }
                    _ => {}
                }
                let stage = stages[random.below(stages.len())];
                facts.recipients += random.below(2) as u32;
                facts.rejected_recipients += (random.below(4) == 0) as u32;
                facts.has_message = stage == S::Outside && random.below(2) == 0;
                // It is known from then on.
                facts.message_size =
                    if stage.has_all_recipients() { 700 } else { facts.message_size };
                expected += limits.sent(stage, &facts);
                found += usage.sent(stage, &facts, true);
                assert_eq!(found, expected, "seed {seed}, {stage:?}");
            }
        }
    }

    #[test]
    fn what_is_refused_is_not_counted_and_may_be_later() {
        let facts = SessionFacts { rejected_recipients: 1, ..SessionFacts::default() };
        let mut usage = UsageMemory::default();
        let refused = Sent { refused: 1, ..Sent::default() };
        assert_eq!(usage.sent(AclStage::Rcpt, &facts, false), refused);
        usage.new_command();
        let one = Sent { messages: 1, recipients: 1, ..Sent::default() };
        assert_eq!(usage.sent(AclStage::Rcpt, &facts, true), one);
        // Another policy is asked by the same command.
        assert_eq!(usage.sent(AclStage::Rcpt, &facts, true), Sent::default());
    }
}
