//! What an event counts, each thing once although several ACLs ask.

use crate::event::{AclStage, Scope, Unit};

/// A unit that an event counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Occurrence {
    /// The unit.
    pub unit: Unit,
    /// How many; 0 only looks.
    pub count: f64,
    /// For how long the decision is reused, so that it counts once.
    pub scope: Scope,
}

impl Occurrence {
    /// One of `unit`, counted once in `scope`.
    #[must_use]
    pub fn one(unit: Unit, scope: Scope) -> Self {
        Self { unit, count: 1.0, scope }
    }

    /// Whether it is of a message or a recipient, not of a connection.
    #[must_use]
    pub fn is_of_message(&self) -> bool {
        let only_looks = self.unit.is_share() && self.count == 0.0;
        self.scope != Scope::Connection && !self.unit.is_outcome() && !only_looks
    }
}

/// The numbers of a mail server's session that occurrences are computed from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionFacts {
    /// Recipients of the message that were accepted so far.
    pub recipients: u32,
    /// The size of the message in bytes, if all of it has been received.
    pub message_size: u64,
    /// Recipients of the message that were refused so far.
    pub rejected_recipients: u32,
    /// The latest AUTH command failed. While one runs, it has not succeeded yet.
    pub auth_failed: bool,
    /// There is a message: outside ACLs, whether it has been received.
    pub has_message: bool,
    /// How old the message is, in seconds, where it is delivered.
    pub message_age: u64,
}

/// What a policy has counted in a session, so that each thing is counted once
/// although several ACLs ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlreadyCounted {
    /// Recipients of this message were counted at RCPT.
    recipients: bool,
    /// Refused recipients of this message that were counted.
    rejected_recipients: u32,
    /// This command is AUTH.
    is_auth: bool,
    /// An AUTH command before this one has an outcome that has not been counted.
    auth_pending: bool,
}

impl AlreadyCounted {
    /// Another command begins: the outcome of this one is known.
    pub fn new_command(&mut self) {
        self.auth_pending |= self.is_auth;
        self.is_auth = false;
    }

    /// Forgets what belongs to a message.
    pub fn new_message(&mut self) {
        self.recipients = false;
        self.rejected_recipients = 0;
    }

    /// Whether the recipients are to be counted one by one at `stage`: all are known,
    /// and none was counted at RCPT.
    #[must_use]
    pub fn wants_each_recipient(&self, stage: AclStage) -> bool {
        stage.has_all_recipients() && !self.recipients
    }

    /// What an evaluation at `stage` counts.
    ///
    /// | stage | counted, each once in |
    /// |---|---|
    /// | any of SMTP | connections: the connection; unique_clients: the connection; rejected_recipients, auth_failures: what has come since the last evaluation |
    /// | where recipients | failed_share, unknown_share: what goes out, in the same way |
    /// | any | failed_recipients, unknown_recipients, elsewhere the shares: none, they only look; at [`AclStage::Delivery`] nothing else is counted |
    /// | MAIL to DATA, not SMTP | messages, unique_senders: the message |
    /// | RCPT | recipients, unique_recipients: the command |
    /// | DATA, not SMTP | recipients, if none was counted at RCPT: the message |
    /// | RCPT | recipients_per_message: those before, and this one |
    /// | DATA, not SMTP | recipients_per_message: all of them |
    /// | MAIL, RCPT | message_size: what the client declared |
    /// | MIME, DATA, PRDR, not SMTP | message_size: what has been received |
    /// | MIME, DATA, PRDR, not SMTP | bytes: the message |
    /// | [`AclStage::Route`] | one message with one recipient, each evaluation; nothing of a connection, and nothing only looks |
    /// | outside ACLs | one message with one recipient, each evaluation |
    ///
    /// Units that look only (with a count of 0) refuse while their rate is over its
    /// limit.
    pub fn occurrences(
        &mut self,
        stage: AclStage,
        facts: &SessionFacts,
        occurrences: &mut Vec<Occurrence>,
    ) {
        use AclStage as S;
        occurrences.clear();
        if stage == S::Route {
            return of_route(facts, occurrences);
        }
        // The log says what becomes of mail; any stage refuses for it.
        let of_delivery = Unit::ALL.iter().filter(|unit| unit.is_from_log());
        occurrences.extend(of_delivery.map(|&unit| Occurrence {
            unit,
            count: 0.0,
            scope: Scope::Evaluation,
        }));
        if stage == S::Delivery {
            return;
        }
        let mut add = |unit, scope| occurrences.push(Occurrence::one(unit, scope));
        let is_smtp = !matches!(stage, S::NotSmtp | S::NotSmtpStart | S::Outside);
        if is_smtp {
            add(Unit::Connections, Scope::Connection);
        }
        let is_of_message =
            stage.has_all_recipients() || matches!(stage, S::Mail | S::Rcpt | S::Outside);
        let message = if stage == S::Outside { Scope::Evaluation } else { Scope::Message };
        add(Unit::UniqueClients, if is_smtp { Scope::Connection } else { message });
        if is_of_message {
            add(Unit::Messages, message);
            add(Unit::UniqueSenders, message);
        }
        match stage {
            S::Rcpt => {
                add(Unit::Recipients, Scope::Command);
                add(Unit::UniqueRecipients, Scope::Command);
            }
            S::Outside => {
                add(Unit::Recipients, Scope::Evaluation);
                add(Unit::UniqueRecipients, Scope::Evaluation);
            }
            _ if self.wants_each_recipient(stage) && facts.recipients > 0 => {
                let count = f64::from(facts.recipients);
                let (unit, scope) = (Unit::Recipients, Scope::Message);
                occurrences.push(Occurrence { unit, count, scope });
            }
            _ => {}
        }
        let in_message = match stage {
            S::Rcpt => facts.recipients.saturating_add(1),
            _ if stage.has_all_recipients() => facts.recipients,
            _ => 0,
        };
        if in_message > 0 {
            let (unit, count) = (Unit::RecipientsPerMessage, f64::from(in_message));
            occurrences.push(Occurrence { unit, count, scope: Scope::Evaluation });
        }
        if is_of_message && facts.message_size > 0 {
            let (unit, count) = (Unit::MessageSize, facts.message_size as f64);
            occurrences.push(Occurrence { unit, count, scope: Scope::Evaluation });
        }
        let is_complete = matches!(stage, S::Mime | S::Dkim | S::Data | S::Prdr | S::NotSmtp)
            || stage == S::Outside && facts.has_message;
        if is_complete {
            let count = facts.message_size as f64;
            occurrences.push(Occurrence { unit: Unit::Bytes, count, scope: message });
        }
        if is_smtp {
            self.add_refused(facts, occurrences);
        }
        // What goes out counts in the shares of what failed.
        if let Some(&sent) = occurrences.iter().find(|one| one.unit == Unit::Recipients) {
            let shares = occurrences.iter_mut().filter(|one| one.unit.is_share());
            shares.for_each(|one| *one = Occurrence { unit: one.unit, ..sent });
        }
        self.pass(stage, facts);
    }

    /// What the mail server refused since the last evaluation.
    fn add_refused(&self, facts: &SessionFacts, occurrences: &mut Vec<Occurrence>) {
        let scope = Scope::Evaluation;
        let rejected = facts.rejected_recipients.saturating_sub(self.rejected_recipients);
        let count = f64::from(rejected);
        occurrences.push(Occurrence { unit: Unit::RejectedRecipients, count, scope });
        let failed = facts.auth_failed && self.auth_pending;
        let count = if failed { 1.0 } else { 0.0 };
        occurrences.push(Occurrence { unit: Unit::AuthFailures, count, scope });
    }

    /// What an evaluation at `stage` counts is not to be counted later: by a policy that does
    /// not apply, not at all.
    pub fn pass(&mut self, stage: AclStage, facts: &SessionFacts) {
        use AclStage as S;
        self.recipients |= stage == S::Rcpt;
        if !matches!(stage, S::NotSmtp | S::NotSmtpStart | S::Outside) {
            self.rejected_recipients = facts.rejected_recipients;
            self.auth_pending = false;
            self.is_auth = stage == S::Auth;
        }
    }
}

/// What a router hands over: one message with one recipient.
fn of_route(facts: &SessionFacts, occurrences: &mut Vec<Occurrence>) {
    let units = [Unit::Messages, Unit::Recipients, Unit::UniqueRecipients];
    occurrences.extend(units.map(|unit| Occurrence::one(unit, Scope::Evaluation)));
    let (unit, count) = (Unit::Bytes, facts.message_size as f64);
    occurrences.push(Occurrence { unit, count, scope: Scope::Evaluation });
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: SessionFacts = SessionFacts {
        recipients: 0,
        message_size: 0,
        rejected_recipients: 0,
        auth_failed: false,
        has_message: false,
        message_age: 0,
    };

    /// The units that are counted, with their numbers.
    fn counts(
        counted: &mut AlreadyCounted,
        stage: AclStage,
        facts: SessionFacts,
    ) -> Vec<(Unit, f64)> {
        let mut all = Vec::new();
        counted.occurrences(stage, &facts, &mut all);
        let counts = all.iter().filter(|one| one.count > 0.0).map(|one| (one.unit, one.count));
        counts.filter(|(unit, _)| !matches!(unit, Unit::UniqueClients)).collect()
    }

    #[test]
    fn recipients_are_counted_at_rcpt_or_all_at_once() {
        let three = SessionFacts { recipients: 3, message_size: 500, ..NOTHING };
        let mut counted = AlreadyCounted::default();
        let of = |counted: &mut AlreadyCounted, stage, unit| {
            let all = counts(counted, stage, three);
            all.iter().find(|(one, _)| *one == unit).map(|(_, count)| *count)
        };
        assert_eq!(of(&mut counted, AclStage::Rcpt, Unit::Recipients), Some(1.0));
        assert_eq!(of(&mut counted, AclStage::Data, Unit::Recipients), None);
        assert_eq!(of(&mut counted, AclStage::Data, Unit::Bytes), Some(500.0));
        assert_eq!(of(&mut counted, AclStage::Rcpt, Unit::Bytes), None);
        counted.new_message();
        assert_eq!(of(&mut counted, AclStage::Data, Unit::Recipients), Some(3.0));
        assert_eq!(
            of(&mut AlreadyCounted::default(), AclStage::NotSmtp, Unit::Recipients),
            Some(3.0)
        );
    }

    #[test]
    fn a_cap_sees_all_recipients_of_its_message() {
        let five = SessionFacts { recipients: 5, ..NOTHING };
        let mut counted = AlreadyCounted::default();
        for _ in 0..2 {
            for (stage, count) in [
                (AclStage::Mail, None),
                (AclStage::Rcpt, Some(6.0)),
                (AclStage::Data, Some(5.0)),
                (AclStage::NotSmtp, Some(5.0)),
                (AclStage::Outside, None),
            ] {
                let all = counts(&mut counted, stage, five);
                let cap = all.iter().find(|(unit, _)| *unit == Unit::RecipientsPerMessage);
                assert_eq!(cap.map(|(_, count)| *count), count, "{stage:?}");
            }
        }
    }

    #[test]
    fn a_message_has_the_size_that_is_declared_until_it_is_known() {
        let sized = SessionFacts { message_size: 500, ..NOTHING };
        use AclStage as S;
        for stage in [
            S::Connect,
            S::Auth,
            S::Mail,
            S::Rcpt,
            S::Predata,
            S::Mime,
            S::Data,
            S::NotSmtp,
            S::Outside,
            S::Quit,
        ] {
            let size = |facts| {
                let all = counts(&mut AlreadyCounted::default(), stage, facts);
                all.iter().find(|(unit, _)| *unit == Unit::MessageSize).map(|(_, count)| *count)
            };
            let is_of_one =
                stage.has_all_recipients() || matches!(stage, S::Mail | S::Rcpt | S::Outside);
            assert_eq!(size(sized), is_of_one.then_some(500.0), "{stage:?}");
            assert_eq!(size(NOTHING), None, "{stage:?}");
        }
    }

    #[test]
    fn refused_recipients_are_counted_once() {
        let mut counted = AlreadyCounted::default();
        let mut of = |stage, rejected_recipients| {
            let all = counts(&mut counted, stage, SessionFacts { rejected_recipients, ..NOTHING });
            all.iter().find(|(one, _)| *one == Unit::RejectedRecipients).map(|(_, count)| *count)
        };
        assert_eq!(of(AclStage::Rcpt, 0), None);
        assert_eq!(of(AclStage::Rcpt, 2), Some(2.0));
        assert_eq!(of(AclStage::Rcpt, 2), None);
        assert_eq!(of(AclStage::Quit, 3), Some(1.0));
        // Exim counts them for each message.
        counted.new_message();
        let one = SessionFacts { rejected_recipients: 1, ..NOTHING };
        assert!(
            counts(&mut counted, AclStage::Rcpt, one).contains(&(Unit::RejectedRecipients, 1.0))
        );
    }

    #[test]
    fn what_a_policy_passes_is_as_if_it_had_been_counted() {
        let facts = SessionFacts { rejected_recipients: 2, auth_failed: true, ..NOTHING };
        let (mut passed, mut counted) = (AlreadyCounted::default(), AlreadyCounted::default());
        for stage in [AclStage::Auth, AclStage::Mail, AclStage::Rcpt, AclStage::NotSmtp] {
            passed.new_command();
            counted.new_command();
            passed.pass(stage, &facts);
            counts(&mut counted, stage, facts);
            assert_eq!(passed, counted, "{stage:?}");
        }
    }

    #[test]
    fn a_recipient_that_is_routed_counts_for_itself_alone() {
        let facts = SessionFacts { recipients: 9, message_size: 500, has_message: true, ..NOTHING };
        let mut counted = AlreadyCounted::default();
        for _ in 0..2 {
            let units = counts(&mut counted, AclStage::Route, facts);
            let one = [Unit::Messages, Unit::Recipients, Unit::UniqueRecipients];
            let expected: Vec<_> = one.map(|unit| (unit, 1.0)).into_iter().collect();
            assert_eq!(units, [&expected[..], &[(Unit::Bytes, 500.0)]].concat());
        }
    }

    #[test]
    fn bytes_are_counted_where_the_size_is_known() {
        let sized = SessionFacts { message_size: 500, has_message: true, ..NOTHING };
        let bytes = |stage| {
            let all = counts(&mut AlreadyCounted::default(), stage, sized);
            all.iter().find(|(unit, _)| *unit == Unit::Bytes).map(|(_, count)| *count)
        };
        use AclStage as S;
        for stage in [S::Mime, S::Dkim, S::Data, S::Prdr, S::NotSmtp, S::Outside] {
            assert_eq!(bytes(stage), Some(500.0), "{stage:?}");
        }
        for stage in [S::Connect, S::Mail, S::Rcpt, S::Predata, S::NotSmtpStart] {
            assert_eq!(bytes(stage), None, "{stage:?}");
        }
    }

    #[test]
    fn each_failed_authentication_is_counted_once() {
        let mut counted = AlreadyCounted::default();
        let mut failures = 0;
        // The flag is set while AUTH runs, and stays until one succeeds.
        for (stage, auth_failed) in [
            (AclStage::Auth, true),
            (AclStage::Auth, true),
            (AclStage::Auth, true),
            (AclStage::Mail, true),
            (AclStage::Rcpt, true),
            (AclStage::Auth, true),
            (AclStage::Mail, false),
        ] {
            counted.new_command();
            // Two lines of one ACL.
            for _ in 0..2 {
                let all = counts(&mut counted, stage, SessionFacts { auth_failed, ..NOTHING });
                failures += all.iter().filter(|(unit, _)| *unit == Unit::AuthFailures).count();
            }
        }
        assert_eq!(failures, 3);
    }

    #[test]
    fn nothing_of_a_message_is_counted_before_it() {
        for stage in [AclStage::Connect, AclStage::Helo, AclStage::StartTls, AclStage::Quit] {
            let units = counts(&mut AlreadyCounted::default(), stage, NOTHING);
            assert_eq!(units, [(Unit::Connections, 1.0)], "{stage:?}");
        }
        assert_eq!(counts(&mut AlreadyCounted::default(), AclStage::NotSmtpStart, NOTHING), []);
    }
}
