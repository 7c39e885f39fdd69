//! What a front end knows of an event, and what is counted of it.

use std::net::IpAddr;

use super::word::Unit;
use crate::stage::{AclStage, Scope};

/// What is known of an event, as the client sent it. What is empty or missing is not
/// known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Event<'a> {
    /// The login.
    pub auth: Option<&'a str>,
    /// The local Unix account that hands over the message.
    pub local_account: Option<&'a str>,
    /// The script of a web host that hands over the message.
    pub script: Option<&'a str>,
    /// The client's address.
    pub client: Option<IpAddr>,
    /// The name in HELO.
    pub helo: Option<&'a str>,
    /// The envelope sender; `Some("")` is that of a bounce.
    pub sender: Option<&'a str>,
    /// The recipient of this event.
    pub recipient: Option<&'a str>,
    /// The package that the front end hands over.
    pub package: Option<&'a str>,
    /// The message id of the mail server.
    pub message_id: Option<&'a str>,
    /// Whether it is `local`.
    pub local: Local,
    /// The mail server's own mail, such as a bounce, or root's: handed over without a client's
    /// address or an SMTP dialogue by a process of the mail server's user or of root.
    pub system: bool,
    /// Count each message and each of its recipients at most once a period, by the
    /// message id: for routers, which run again when a delivery is retried.
    pub once_a_message: bool,
}

/// Where an event comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// There is no client address: a program of this machine hands the message over.
    Program,
    /// The client with this address.
    Client(IpAddr),
    /// A client whose address is not known.
    #[default]
    Unknown,
}

impl Origin {
    /// A client, whose address may not be known.
    #[must_use]
    pub fn of_client(client: Option<IpAddr>) -> Self {
        client.map_or(Self::Unknown, Self::Client)
    }

    /// The client's address.
    #[must_use]
    pub fn client(self) -> Option<IpAddr> {
        match self {
            Self::Client(client) => Some(client),
            Self::Program | Self::Unknown => None,
        }
    }
}

/// Whether an event is `local`: handed over by what runs on this machine itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Local(bool);

impl Local {
    /// It is if it has no client address, or if its client is a loopback address or the one of
    /// the `server` that it is connected to; never if the client has used AUTH: it is somebody
    /// who has logged in, as by a webmail on this machine.
    #[must_use]
    #[inline]
    pub fn of(
        has_used_auth: bool,
        origin: Origin,
        server: impl FnOnce() -> Option<IpAddr>,
    ) -> Self {
        Self(match origin {
            _ if has_used_auth => false,
            Origin::Program => true,
            Origin::Unknown => false,
            Origin::Client(client) => {
                let client = client.to_canonical();
                let is_own = || server().is_some_and(|server| server.to_canonical() == client);
                client.is_loopback() || is_own()
            }
        })
    }

    /// Whether it is.
    #[must_use]
    pub fn is(self) -> bool {
        self.0
    }
}

/// Whether what the local account `name` hands over is [`Event::system`], where nothing but
/// the name is known: root, or the mail server's user by a name that distributions give it.
#[must_use]
pub fn is_system_account(name: &str) -> bool {
    ["root", "Debian-exim", "exim", "mail", "mailnull"].contains(&name)
}

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
        let is_outcome = matches!(self.unit, Unit::RejectedRecipients | Unit::AuthFailures);
        self.scope != Scope::Connection && !is_outcome
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
}

/// What a policy has counted in a session, so that each thing is counted once
/// although several ACLs ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Recipients of this message were counted at RCPT.
    recipients: bool,
    /// Refused recipients of this message that were counted.
    rejected_recipients: u32,
    /// This command is AUTH.
    is_auth: bool,
    /// An AUTH command before this one has an outcome that has not been counted.
    auth_pending: bool,
}

impl Counted {
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
    /// | MAIL to DATA, not SMTP | messages, unique_senders: the message |
    /// | RCPT | recipients, unique_recipients: the command |
    /// | DATA, not SMTP | recipients, if none was counted at RCPT: the message |
    /// | MIME, DATA, PRDR, not SMTP | bytes: the message |
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
                self.recipients = true;
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
        let is_complete = matches!(stage, S::Mime | S::Dkim | S::Data | S::Prdr | S::NotSmtp)
            || stage == S::Outside && facts.has_message;
        if is_complete {
            let count = facts.message_size as f64;
            occurrences.push(Occurrence { unit: Unit::Bytes, count, scope: message });
        }
        if is_smtp {
            let scope = Scope::Evaluation;
            let rejected = facts.rejected_recipients.saturating_sub(self.rejected_recipients);
            self.rejected_recipients = facts.rejected_recipients;
            let count = f64::from(rejected);
            occurrences.push(Occurrence { unit: Unit::RejectedRecipients, count, scope });
            let failed = facts.auth_failed && self.auth_pending;
            self.auth_pending = false;
            self.is_auth = stage == S::Auth;
            let count = if failed { 1.0 } else { 0.0 };
            occurrences.push(Occurrence { unit: Unit::AuthFailures, count, scope });
        }
    }
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
    };

    /// The units that are counted, with their numbers.
    fn counts(counted: &mut Counted, stage: AclStage, facts: SessionFacts) -> Vec<(Unit, f64)> {
        let mut all = Vec::new();
        counted.occurrences(stage, &facts, &mut all);
        let counts = all.iter().filter(|one| one.count > 0.0).map(|one| (one.unit, one.count));
        counts.filter(|(unit, _)| !matches!(unit, Unit::UniqueClients)).collect()
    }

    #[test]
    fn local_is_what_has_no_client_or_a_client_of_this_machine_without_a_login() {
        let server = || "2001:db8::25".parse().ok();
        let client = |text: &str| Origin::Client(text.parse().unwrap());
        for (origin, is_local) in [
            (Origin::Program, true),
            (Origin::Unknown, false),
            (client("127.0.0.1"), true),
            (client("127.8.0.1"), true),
            (client("::ffff:127.0.0.1"), true),
            (client("::1"), true),
            (client("2001:db8::25"), true),
            (client("2001:db8::26"), false),
            (client("192.0.2.1"), false),
        ] {
            assert_eq!(Local::of(false, origin, server).is(), is_local, "{origin:?}");
            assert!(!Local::of(true, origin, server).is(), "{origin:?}");
        }
        let mapped = || "::ffff:192.0.2.1".parse().ok();
        assert!(Local::of(false, client("192.0.2.1"), mapped).is());
    }

    #[test]
    fn recipients_are_counted_at_rcpt_or_all_at_once() {
        let three = SessionFacts { recipients: 3, message_size: 500, ..NOTHING };
        let mut counted = Counted::default();
        let of = |counted: &mut Counted, stage, unit| {
            let all = counts(counted, stage, three);
            all.iter().find(|(one, _)| *one == unit).map(|(_, count)| *count)
        };
        assert_eq!(of(&mut counted, AclStage::Rcpt, Unit::Recipients), Some(1.0));
        assert_eq!(of(&mut counted, AclStage::Data, Unit::Recipients), None);
        assert_eq!(of(&mut counted, AclStage::Data, Unit::Bytes), Some(500.0));
        assert_eq!(of(&mut counted, AclStage::Rcpt, Unit::Bytes), None);
        counted.new_message();
        assert_eq!(of(&mut counted, AclStage::Data, Unit::Recipients), Some(3.0));
        assert_eq!(of(&mut Counted::default(), AclStage::NotSmtp, Unit::Recipients), Some(3.0));
    }

    #[test]
    fn refused_recipients_are_counted_once() {
        let mut counted = Counted::default();
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
    fn bytes_are_counted_where_the_size_is_known() {
        let sized = SessionFacts { message_size: 500, has_message: true, ..NOTHING };
        let bytes = |stage| {
            let all = counts(&mut Counted::default(), stage, sized);
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
        let mut counted = Counted::default();
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
            let units = counts(&mut Counted::default(), stage, NOTHING);
            assert_eq!(units, [(Unit::Connections, 1.0)], "{stage:?}");
        }
        assert_eq!(counts(&mut Counted::default(), AclStage::NotSmtpStart, NOTHING), []);
    }
}
