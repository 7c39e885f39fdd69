//! A thread that decides: it has the database, the policies and the counters open.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::event::{MailEvent, MailVerdict, UNAVAILABLE};
use crate::bypass::Watch;
use crate::policy::counters::{Checked, Counters};
use crate::policy::decide::{DecideError, Decided};
use crate::policy::image::{ImageError, PolicyFile};
use crate::policy::model::Head;
use crate::policy::outcome::Outcome;
use crate::policy::session::{PolicySession, Step, strictest};
use crate::policy::word::{OnError, Verdict, Word as _};
use crate::remote::{RemoteError, RemoteStore};
use crate::serve::log::Level;
use crate::spool::{EventDetails, Options};
use crate::stage::AclStage;
use crate::sys::clock;

/// How long a lock of the database is waited for: less than in Exim, as others wait for
/// this thread.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// A line for the log, which belongs to another thread.
#[derive(Debug)]
pub(super) struct Note {
    pub(super) subject: &'static str,
    pub(super) level: Level,
    pub(super) text: String,
}

/// Why a policy could not be evaluated.
enum WorkerError {
    /// The policies cannot be used.
    Image(String),
    /// The database cannot be used.
    Store(String),
}

impl fmt::Display for WorkerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(error) | Self::Store(error) => f.write_str(error),
        }
    }
}

impl From<&ImageError> for WorkerError {
    fn from(error: &ImageError) -> Self {
        Self::Image(error.to_string())
    }
}

impl From<DecideError<ImageError, RemoteError>> for WorkerError {
    fn from(error: DecideError<ImageError, RemoteError>) -> Self {
        match error {
            DecideError::Tables(error) => Self::from(&error),
            DecideError::Store(error) => Self::Store(error.to_string()),
        }
    }
}

/// What a thread decides with.
pub(super) struct Worker {
    spool: PathBuf,
    store: Option<RemoteStore>,
    file: Option<PolicyFile>,
    counters: Counters,
    bypass: Watch,
    /// What is to be logged.
    pub(super) notes: Vec<Note>,
}

impl Worker {
    /// One for the spool directory `spool`. Everything is opened when it is needed.
    pub(super) fn new(spool: &Path) -> Self {
        Self {
            spool: spool.to_owned(),
            store: None,
            file: None,
            counters: Counters::new(spool),
            bypass: Watch::new(spool),
            notes: Vec::new(),
        }
    }

    /// Decides a step by these policies, `None` for all. `Err` if exirate itself cannot.
    pub(super) fn decide(
        &mut self,
        session: &mut PolicySession,
        event: &MailEvent,
        policies: Option<&[String]>,
    ) -> Result<MailVerdict, String> {
        #[cfg(test)]
        assert!(event.helo.as_deref() != Some("panic"), "a test");
        let opened = match &self.store {
            Some(_) => Ok(()),
            None => RemoteStore::open(&self.spool, Options { timeout: LOCK_TIMEOUT })
                .map(|store| self.store = Some(store))
                .map_err(|error| error.to_string()),
        };
        let file = self.file.get_or_insert_with(|| PolicyFile::open(&self.spool));
        let image = file.refresh().map_err(ToString::to_string)?;
        let names: Vec<&str> = match policies {
            Some(names) => names.iter().map(String::as_str).collect(),
            None => image.names().collect(),
        };
        let recipients: Vec<&str> = event.recipients.iter().map(String::as_str).collect();
        let step = Step {
            stage: event.stage,
            event: event.event(),
            facts: event.facts(),
            recipients: &recipients,
            is_one_of: None,
        };
        session.new_command();
        let bypassed = self.bypass.is_active();
        let mut lifted = None;
        let Self { store, counters, notes, bypass, .. } = self;
        let result = strictest(names, |name| {
            let policy = match image.policy(name) {
                Ok(Some(policy)) => policy,
                Ok(None) => {
                    let known: Vec<&str> = image.names().collect();
                    let known = known.join(", ");
                    return Err(format!("there is no policy {name:?}; the policies are: {known}"));
                }
                Err(error) => return Err(error.to_string()),
            };
            let on_error = policy.head().on_error;
            let evaluated = match (&mut *store, &opened) {
                (Some(store), _) => {
                    store.set_bypassed(bypassed);
                    let count = |head: &Head, decided: &Decided<'_>| {
                        let checked = decided.checked(head);
                        let observed = checked.observed || bypassed;
                        counters.count(&Checked { observed, ..checked });
                    };
                    let clock = || clock::now().into();
                    let evaluated = session.evaluate(image, name, &step, store, clock, count);
                    describe(store, name, evaluated.as_ref().ok(), event);
                    evaluated.map_err(WorkerError::from)
                }
                (None, opened) => {
                    let error = opened.as_ref().err().cloned().unwrap_or_default();
                    Err(WorkerError::Store(error))
                }
            };
            let mut outcome = evaluated.unwrap_or_else(|error| {
                counters.count_error();
                let lifts = on_error == OnError::FailClosed && bypass.is_active_now();
                let on_error = if lifts { OnError::FailOpen } else { on_error };
                notes.push(policy_error(name, &error, on_error));
                match on_error {
                    OnError::FailOpen => Outcome::default(),
                    OnError::FailClosed => Outcome {
                        verdict: Verdict::Defer,
                        text: UNAVAILABLE.to_owned(),
                        ..Outcome::default()
                    },
                }
            });
            // One that has just begun is noticed where it matters.
            if outcome.verdict > Verdict::Log && bypass.is_active_now() {
                let word = outcome.verdict.word();
                lifted.get_or_insert_with(|| format!("the policy {name:?} says {word}"));
                outcome.lift();
            }
            Ok(outcome)
        });
        if let Some(line) = lifted.and_then(|what| self.bypass.line(&what)) {
            self.notes.push(bypass_note(line));
        }
        let incidents = self.store.as_mut().map(RemoteStore::take_incidents);
        for text in incidents.into_iter().flatten() {
            let (subject, level) = ("incidents of the database", Level::Warning);
            self.notes.push(Note { subject, level, text });
        }
        let verdict = MailVerdict::from(result?);
        if event.stage == AclStage::Rcpt && verdict.verdict < Verdict::Defer {
            session.accept_recipient();
        }
        Ok(verdict)
    }
    /// Whether nothing may be refused now, although `what`. It is logged.
    pub(super) fn lifts(&mut self, what: &str) -> bool {
        let is_active = self.bypass.is_active_now();
        self.notes.extend(self.bypass.line(&what).map(bypass_note));
        is_active
    }
}

fn bypass_note(text: String) -> Note {
    Note { subject: "the bypass", level: Level::Warning, text }
}

/// Completes crossings and refusals with what is known of the event.
fn describe(store: &mut RemoteStore, policy: &str, outcome: Option<&Outcome>, event: &MailEvent) {
    if !store.spool().has_events() {
        return;
    }
    let reason = outcome.and_then(|outcome| outcome.reason.as_ref());
    let (rule, unit) = reason.map_or(("", ""), |one| (&one.rule, one.unit.word()));
    let client = event.client.map(|client| client.to_string()).unwrap_or_default();
    let bytes = |text: &Option<String>| text.clone().unwrap_or_default().into_bytes();
    store.spool_mut().describe(&EventDetails {
        policy: policy.as_bytes(),
        rule: rule.as_bytes(),
        unit: unit.as_bytes(),
        login: &bytes(&event.auth),
        client: client.as_bytes(),
        sender: &bytes(&event.sender),
        recipient: &bytes(&event.recipient),
        message_id: &bytes(&event.message_id),
        enforcement: outcome.map(Outcome::enforcement).unwrap_or_default(),
    });
}

/// The line about a policy that could not be evaluated.
fn policy_error(name: &str, error: &WorkerError, on_error: OnError) -> Note {
    let done = match on_error {
        OnError::FailOpen => "the mail is not limited by it",
        OnError::FailClosed => "the mail is deferred",
    };
    let on_error = on_error.word();
    let text =
        format!("cannot evaluate the policy {name:?}, so {done} (on_error = {on_error}): {error}");
    Note { subject: "policies that could not be evaluated", level: Level::Error, text }
}
