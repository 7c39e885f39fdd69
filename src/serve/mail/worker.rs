//! A thread that decides: it has the database, the policies and the counters open.

mod delivery;

use std::borrow::Cow;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::event::{Hold, MailEvent, MailVerdict};
use super::exim::request::EximCheck;
use super::later::Queues;
use crate::bypass::Watch;
use crate::cluster::ClusterStore;
use crate::engine::Decision;
use crate::event::AclStage;
use crate::policy::check_info::CheckInfo;
use crate::policy::evaluator::PolicySession;
use crate::policy::evaluator::{Evaluated, Evaluator, Observer, OnErrors, Step, describe};
use crate::policy::word::{OnError, Verdict};
use crate::serve::log::Level;
use crate::spec::{SpecArguments, SpecCache};
use crate::spool::{HeldUntil, Options};
use crate::store::Store as _;
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

/// What a thread notes of an evaluation.
struct Noting<'a> {
    notes: &'a mut Vec<Note>,
    bypass: &'a mut Watch,
}

impl Observer for Noting<'_> {
    fn lifts(&mut self, what: &dyn Display) -> bool {
        // One that has just begun is noticed where it matters.
        let is_active = self.bypass.is_active();
        let (subject, level) = ("the bypass", Level::Warning);
        let line = self.bypass.line(what);
        self.notes.extend(line.map(|text| Note { subject, level, text }));
        is_active
    }

    fn evaluated(&mut self, evaluated: &Evaluated) {
        if let Some(failure) = &evaluated.failure {
            let (subject, level) = ("policies that could not be evaluated", Level::Error);
            self.notes.push(Note { subject, level, text: failure.to_string() });
        }
    }
}

/// What a thread decides with.
pub(crate) struct Worker {
    spool: PathBuf,
    store: Option<ClusterStore>,
    evaluator: Option<Evaluator<'static>>,
    specs: SpecCache,
    bypass: Watch,
    /// What waits for room within limits at delivery.
    queues: Queues,
    /// What is to be logged.
    pub(super) notes: Vec<Note>,
}

impl Worker {
    /// One for the spool directory `spool`. Everything is opened when it is needed.
    pub(crate) fn new(spool: &Path) -> Self {
        let bypass = Watch::new(spool);
        let (specs, notes, queues) = (SpecCache::default(), Vec::new(), Queues::default());
        Self { spool: spool.to_owned(), store: None, evaluator: None, specs, bypass, queues, notes }
    }

    /// Decides a step by the policies of these names, as [`Evaluator::evaluate`] takes them.
    pub(super) fn decide(
        &mut self,
        session: &mut PolicySession,
        event: &MailEvent,
        names: &str,
        on_error: OnError,
    ) -> MailVerdict {
        #[cfg(test)]
        assert!(event.event.helo.as_deref() != Some("panic"), "a test");
        let Self { spool, store, evaluator, bypass, notes, .. } = self;
        let bypassed = bypass.is_active();
        let opened = open(store, spool);
        let call = event.exim.as_ref();
        let names = call.and_then(|call| call.policies.as_deref()).unwrap_or(names);
        let why = opened.as_ref().err().map_or("", String::as_str);
        let evaluator = evaluator.get_or_insert_with(|| Evaluator::open(spool));
        let step = Step {
            stage: event.stage,
            event: event.event.view(),
            facts: event.facts,
            recipients: &|| event.recipients.iter().map(|to| Cow::Borrowed(&**to)).collect(),
            is_one_of: None,
            marked: &|| event.marked,
            only_looks: call.is_some_and(|call| call.only_looks),
            bypassed,
            on_error: OnErrors {
                of_call: call.and_then(|call| call.on_error),
                of_front_end: on_error,
                of_store: call.filter(|call| call.is_of_account).map(|_| OnError::FailClosed),
            },
        };
        if call.is_none_or(|call| call.is_new_command) {
            session.new_command();
        }
        let clock = || clock::now().into();
        if let Some(store) = store.as_mut() {
            store.set_bypassed(bypassed);
        }
        let opened = store.as_mut().ok_or(why);
        let mut noting = Noting { notes: &mut *notes, bypass };
        let evaluated = evaluator.evaluate(session, names, &step, opened, clock, &mut noting);
        note_incidents(store, notes);
        let accepts = event.stage == AclStage::Rcpt && evaluated.outcome.verdict < Verdict::Defer;
        if accepts && call.is_none() {
            session.accept_recipient();
        }
        let verdict = MailVerdict::from(evaluated);
        let is_end = matches!(event.stage, AclStage::Data | AclStage::NotSmtp);
        // Exim's ACL marks what it holds in its own queue, and its router asks at delivery.
        if event.exim.is_some() || !is_end || verdict.outcome.verdict >= Verdict::Defer {
            return verdict;
        }
        if let Some(hold) = event.hold.clone().or_else(|| verdict.hold()) {
            self.note_held(event, hold);
            return verdict;
        }
        self.later(event, names, on_error).unwrap_or(verdict)
    }

    /// Notes a message that Postfix or Sendmail is to hold, before the reply says so.
    fn note_held(&mut self, event: &MailEvent, hold: Hold) {
        let id = event.event.message_id.clone().unwrap_or_default();
        let noted = self.note(id.clone(), clock::now().0, hold, HeldUntil::Released);
        if let Err(error) = noted {
            let (subject, level) = ("notes of held messages", Level::Warning);
            let text = format!("`exirate held` will not show message {id}: {error}");
            self.notes.push(Note { subject, level, text });
        }
    }

    /// Checks a spec at a step, as `ratelimit` of the library for Exim does: the decision, or
    /// why there is none.
    pub(super) fn check(
        &mut self,
        session: &mut PolicySession,
        event: &MailEvent,
        check: &EximCheck,
    ) -> Result<CheckInfo, CheckError> {
        let Self { spool, store, specs, bypass, notes, .. } = self;
        let EximCheck { spec, key, unique, .. } = check;
        let arguments = SpecArguments { spec, key: key.as_deref(), unique: unique.as_deref() };
        let spec = specs.parse(arguments).map_err(CheckError::spec)?;
        let request = spec.request(&check.context(event)).map_err(CheckError::spec)?;
        let call = event.exim.as_ref();
        if call.is_none_or(|call| call.is_new_command) {
            session.new_command();
        }
        let looks = call.is_some_and(|call| call.only_looks);
        let request = if looks { request.read_only() } else { request };
        let asked = request.check();
        let recalled = session.decisions().recall(request.scope, &asked.key);
        let decision = match recalled {
            Some(before) => before.against(request.limit),
            None => {
                open(store, spool).map_err(CheckError::Undecided)?;
                let closed = || CheckError::Undecided("the database is not open".to_owned());
                let store = store.as_mut().ok_or_else(closed)?;
                store.set_bypassed(bypass.is_active());
                let clock = || clock::now().into();
                let decision = store.decide_one(&asked, clock);
                let decision =
                    decision.map_err(|error| CheckError::Undecided(error.to_string()))?;
                if store.has_events() {
                    describe(store, None, &event.event.view());
                }
                // What has only looked is still to be counted.
                if !looks {
                    session.decisions().keep(request.scope, &asked.key, decision);
                }
                decision
            }
        };
        note_incidents(store, notes);
        let over = decision.over && !Noting { notes, bypass }.lifts(&"a check is over its limit");
        Ok(CheckInfo {
            decision: Decision { over, ..decision },
            mode: request.mode,
            update: request.update,
            key: request.written_key().to_owned(),
            limit_text: spec.limit_text().to_owned(),
            period_text: spec.period_text().to_owned(),
        })
    }

    /// Whether nothing may be refused now, although `what`. It is logged.
    pub(super) fn lifts(&mut self, what: &dyn Display) -> bool {
        Noting { notes: &mut self.notes, bypass: &mut self.bypass }.lifts(what)
    }
}

/// Why a spec has not been checked.
#[derive(Debug)]
pub(super) enum CheckError {
    /// The spec is wrong.
    Spec(String),
    /// Nothing could be decided.
    Undecided(String),
}

impl CheckError {
    fn spec(error: impl Display) -> Self {
        Self::Spec(error.to_string())
    }

    /// The reason.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Spec(text) | Self::Undecided(text) => text,
        }
    }
}

/// Opens the database, if it is not open yet.
fn open(store: &mut Option<ClusterStore>, spool: &Path) -> Result<(), String> {
    if store.is_none() {
        let opened = ClusterStore::open(spool, Options { timeout: LOCK_TIMEOUT });
        *store = Some(opened.map_err(|error| error.to_string())?);
    }
    Ok(())
}

/// Notes the damage that was found and repaired.
fn note_incidents(store: &mut Option<ClusterStore>, notes: &mut Vec<Note>) {
    let incidents = store.as_mut().map(ClusterStore::take_incidents);
    for text in incidents.into_iter().flatten() {
        let (subject, level) = ("incidents of the database", Level::Warning);
        notes.push(Note { subject, level, text });
    }
}
