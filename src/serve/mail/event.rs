//! What a mail server says of a step of a session, and the verdict on it.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::policy::evaluator::{Evaluated, UNAVAILABLE};
use crate::policy::event::{Event, Local, SessionFacts};
use crate::policy::outcome::{Outcome, Reason};
use crate::policy::word::{Verdict, Word as _};
use crate::stage::AclStage;

/// The longest that a decision and its delay take, but at the end of a message: Sendmail, and
/// the lines in docs/postfix.md, wait 10 s for a reply.
pub(super) const REPLY_MAX: Duration = Duration::from_secs(8);

/// A step of an SMTP session, as the client sent it. What is missing is not known.
#[derive(Clone, Debug, PartialEq)]
pub struct MailEvent {
    /// The ACL stage that it is for Exim.
    pub stage: AclStage,
    /// The login.
    pub auth: Option<String>,
    /// The local Unix account that hands over the message.
    pub local_account: Option<String>,
    /// The client's address.
    pub client: Option<IpAddr>,
    /// The name in HELO.
    pub helo: Option<String>,
    /// The envelope sender; `Some("")` is that of a bounce.
    pub sender: Option<String>,
    /// The recipient of this step.
    pub recipient: Option<String>,
    /// All accepted recipients of the message, where they are known.
    pub recipients: Vec<String>,
    /// How many recipients were accepted, where only that is known.
    pub recipient_count: u32,
    /// The message id of the mail server: the queue id.
    pub message_id: Option<String>,
    /// The size of the message in bytes, when all of it has been received.
    pub size: u64,
    /// Recipients of the message that were refused so far for other reasons.
    pub rejected_recipients: u32,
    /// Whether it is local.
    pub local: Local,
}

impl MailEvent {
    /// A step of which nothing else is known.
    #[must_use]
    pub fn at(stage: AclStage) -> Self {
        Self {
            stage,
            auth: None,
            local_account: None,
            client: None,
            helo: None,
            sender: None,
            recipient: None,
            recipients: Vec::new(),
            recipient_count: 0,
            message_id: None,
            size: 0,
            rejected_recipients: 0,
            local: Local::default(),
        }
    }

    /// What policies are evaluated with.
    pub(super) fn event(&self) -> Event<'_> {
        Event {
            auth: self.auth.as_deref(),
            local_account: self.local_account.as_deref(),
            script: None,
            client: self.client,
            helo: self.helo.as_deref(),
            sender: self.sender.as_deref(),
            recipient: self.recipient.as_deref(),
            package: None,
            message_id: self.message_id.as_deref(),
            local: self.local,
            // Their own bounces reach no filter, and they do not name the local account.
            system: false,
            once_a_message: false,
        }
    }

    /// The numbers of the session.
    pub(super) fn facts(&self) -> SessionFacts {
        let listed = u32::try_from(self.recipients.len()).unwrap_or(u32::MAX);
        SessionFacts {
            recipients: self.recipient_count.max(listed),
            message_size: self.size,
            rejected_recipients: self.rejected_recipients,
            ..SessionFacts::default()
        }
    }
}

/// What to do with a step.
#[derive(Clone, Debug, PartialEq)]
pub struct MailVerdict {
    /// The verdict.
    pub verdict: Verdict,
    /// The text for the client, on one line; empty unless there is something against the
    /// step.
    pub text: String,
    /// How long to wait before it is accepted, in seconds.
    pub delay: f64,
    /// The policy that decided.
    pub policy: Arc<str>,
    /// The limit that decided.
    pub reason: Option<Box<Reason>>,
    /// It is no decision: exirate, or that policy, could not decide.
    pub unavailable: bool,
}

impl MailVerdict {
    /// The one for a step about which nothing could be decided.
    pub(super) fn unavailable(verdict: Verdict) -> Self {
        let text = if verdict == Verdict::Accept { "" } else { UNAVAILABLE };
        Self { verdict, unavailable: true, text: text.to_owned(), ..Self::default() }
    }

    /// How long to wait before the reply, which is to be sent within `most`, if the decision
    /// took so long.
    #[must_use]
    pub fn wait(&self, decision: Duration, most: Duration) -> Duration {
        if self.verdict != Verdict::Delay {
            return Duration::ZERO;
        }
        let wait = Duration::try_from_secs_f64(self.delay.max(0.0)).unwrap_or(most);
        wait.min(most.saturating_sub(decision))
    }
}

impl Default for MailVerdict {
    fn default() -> Self {
        Self::from(Evaluated::default())
    }
}

impl From<Evaluated> for MailVerdict {
    fn from(Evaluated { policy, outcome, failure }: Evaluated) -> Self {
        let Outcome { verdict, text, delay, reason, .. } = outcome;
        Self { verdict, text, delay, policy, reason, unavailable: failure.is_some() }
    }
}

/// The line of a verdict in the log, as Exim's main log has it. What a client may have
/// chosen comes last.
pub(super) struct LogLine<'a> {
    pub(super) verdict: &'a MailVerdict,
    pub(super) client: Option<IpAddr>,
    /// It is local.
    pub(super) local: bool,
}

impl fmt::Display for LogLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MailVerdict { verdict, policy, text, reason, .. } = self.verdict;
        write!(f, "policy {policy}: {} ", verdict.word())?;
        match self.client {
            Some(client) => write!(f, "[{client}]: ")?,
            None if self.local => write!(f, "local: ")?,
            // Postfix could not find out.
            None => write!(f, "unknown: ")?,
        }
        match reason {
            None => f.write_str(text),
            Some(reason) => write!(
                f,
                "{:.1} {}, limit {}, key {} ({})",
                reason.decision.rate,
                reason.unit.word(),
                reason.window(),
                reason.key(),
                reason.rule
            ),
        }
    }
}
