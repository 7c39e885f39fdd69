//! What a mail server says of a step of a session, and the verdict on it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::event::session::SessionFacts;
use crate::event::{AclStage, Event, Local, Origin};
use crate::policy::evaluator::{Evaluated, UNAVAILABLE};
use crate::policy::info::PolicyInfo;
use crate::policy::outcome::Outcome;
use crate::policy::word::{OnError, Verdict, Word as _};

/// The longest that a decision and its delay take, but at the end of a message: Sendmail, and
/// the lines in docs/postfix.md, wait 10 s for a reply.
pub(super) const REPLY_MAX: Duration = Duration::from_secs(8);

/// A step of an SMTP session.
#[derive(Clone, Debug, PartialEq)]
pub struct MailEvent {
    /// The ACL stage that it is for Exim.
    pub stage: AclStage,
    /// What is known of it.
    pub event: Event<String>,
    /// The numbers of the session: at least the recipients that are listed.
    pub facts: SessionFacts,
    /// All accepted recipients of the message, where they are known.
    pub recipients: Vec<String>,
    /// What else Exim says, if it is from Exim: then Exim counts accepted recipients, and its
    /// main log has the verdicts.
    pub exim: Option<EximCall>,
    /// Headers of the message show that a program wrote it or a list sends it: see
    /// [`marks`](crate::rate::habits::marks).
    pub marked: bool,
    /// At the end of a message, that a step before has it held.
    pub hold: Option<Hold>,
}

/// That a message is held, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The policy that holds it.
    pub policy: Arc<str>,
    /// Who was counted.
    pub key: String,
    /// The limit, and how it was reached; or another reason.
    pub why: String,
    /// What the client reads where the mail server cannot hold it.
    pub text: String,
}

/// What Exim's ACLs say of a step, besides what it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EximCall {
    /// Which policies are evaluated, if not those of the configuration.
    pub policies: Option<String>,
    /// What happens if they cannot be, whatever they say.
    pub on_error: Option<OnError>,
    /// Nothing is counted.
    pub only_looks: bool,
    /// It is another command than that of the step before.
    pub is_new_command: bool,
    /// An ordinary account runs that Exim, or has handed the message over: see
    /// [`Caller`](crate::event::Caller).
    pub is_of_account: bool,
}

/// What to do with a step.
#[derive(Clone, Debug, PartialEq)]
pub struct MailVerdict {
    /// The policy that decided.
    pub policy: Arc<str>,
    /// What it made of the step.
    pub outcome: Outcome,
    /// Why it is no decision: exirate, or that policy, could not decide.
    pub unavailable: Option<String>,
}

impl MailVerdict {
    /// The one for a step about which nothing could be decided.
    pub(super) fn unavailable(verdict: Verdict, why: &str) -> Self {
        let text = if verdict == Verdict::Accept { "" } else { UNAVAILABLE };
        let outcome = Outcome { verdict, text: text.to_owned(), ..Outcome::default() };
        Self { policy: "".into(), outcome, unavailable: Some(why.to_owned()) }
    }

    /// One of no policy.
    #[cfg(test)]
    pub(super) fn of(verdict: Verdict, delay: f64, text: &str) -> Self {
        let outcome = Outcome { verdict, delay, text: text.to_owned(), ..Outcome::default() };
        Self { outcome, ..Self::default() }
    }

    /// Whether an ordinary account's Exim is to wait for a decision: it is told none, so that it
    /// does what its ACL says of mail that is undecided.
    #[must_use]
    pub fn is_undecided(&self, is_of_account: bool) -> bool {
        is_of_account && self.unavailable.is_some() && self.outcome.verdict >= Verdict::Defer
    }

    /// What front ends show of it.
    #[must_use]
    pub fn info(&self) -> PolicyInfo<'_> {
        let error = self.unavailable.as_deref().unwrap_or_default();
        PolicyInfo { policy: &self.policy, outcome: &self.outcome, error }
    }

    /// That the message is held, if it is.
    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        let outcome = &self.outcome;
        (outcome.verdict == Verdict::Hold).then(|| Hold {
            policy: Arc::clone(&self.policy),
            key: outcome.counted().map_or_else(String::new, |(key, _)| key.to_owned()),
            why: outcome.why(),
            text: outcome.text.clone(),
        })
    }

    /// How long to wait before the reply, which is to be sent within `most`, if the decision
    /// took so long.
    #[must_use]
    pub fn wait(&self, decision: Duration, most: Duration) -> Duration {
        if self.outcome.verdict != Verdict::Delay {
            return Duration::ZERO;
        }
        let wait = Duration::try_from_secs_f64(self.outcome.delay.max(0.0)).unwrap_or(most);
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
        Self { policy, outcome, unavailable: failure.map(|failure| failure.error) }
    }
}

/// The line of a verdict in the log, as Exim's main log has it. What a client may have
/// chosen comes last.
pub(super) struct LogLine<'a> {
    pub(super) verdict: &'a MailVerdict,
    pub(super) client: Origin,
    /// It is local.
    pub(super) local: Local,
}

impl fmt::Display for LogLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MailVerdict { policy, outcome, .. } = self.verdict;
        write!(f, "policy {policy}: {} ", outcome.verdict.word())?;
        match self.client.address() {
            Some(client) => write!(f, "[{client}]: ")?,
            None if self.local.is() => write!(f, "local: ")?,
            // Postfix could not find out.
            None => write!(f, "unknown: ")?,
        }
        f.write_str(&outcome.why())?;
        match outcome.counted() {
            Some((key, rule)) => write!(f, ", key {key} ({rule})"),
            None => Ok(()),
        }
    }
}
