//! A thread that decides: it has the database, the policies and the counters open.

use std::borrow::Cow;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::event::{MailEvent, MailVerdict};
use crate::bypass::Watch;
use crate::cluster::ClusterStore;
use crate::event::AclStage;
use crate::policy::evaluator::PolicySession;
use crate::policy::evaluator::{Evaluated, Evaluator, Observer, OnErrors, Step};
use crate::policy::word::{OnError, Verdict};
use crate::serve::log::Level;
use crate::spool::Options;
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
        let is_active = self.bypass.is_active_now();
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
pub(super) struct Worker {
    spool: PathBuf,
    store: Option<ClusterStore>,
    evaluator: Option<Evaluator<'static>>,
    bypass: Watch,
    /// What is to be logged.
    pub(super) notes: Vec<Note>,
}

impl Worker {
    /// One for the spool directory `spool`. Everything is opened when it is needed.
    pub(super) fn new(spool: &Path) -> Self {
        let bypass = Watch::new(spool);
        Self { spool: spool.to_owned(), store: None, evaluator: None, bypass, notes: Vec::new() }
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
        let Self { spool, store, evaluator, bypass, notes } = self;
        let bypassed = bypass.is_active();
        let opened = match &mut *store {
            Some(_) => Ok(()),
            none => ClusterStore::open(spool, Options { timeout: LOCK_TIMEOUT })
                .map(|opened| *none = Some(opened))
                .map_err(|error| error.to_string()),
        };
        let why = opened.as_ref().err().map_or("", String::as_str);
        let evaluator = evaluator.get_or_insert_with(|| Evaluator::open(spool));
        let step = Step {
            stage: event.stage,
            event: event.event.view(),
            facts: event.facts,
            recipients: &|| event.recipients.iter().map(|to| Cow::Borrowed(&**to)).collect(),
            is_one_of: None,
            only_looks: false,
            bypassed,
            on_error: OnErrors { of_call: None, of_front_end: on_error },
        };
        session.new_command();
        let clock = || clock::now().into();
        if let Some(store) = store.as_mut() {
            store.set_bypassed(bypassed);
        }
        let opened = store.as_mut().ok_or(why);
        let mut noting = Noting { notes: &mut *notes, bypass };
        let evaluated = evaluator.evaluate(session, names, &step, opened, clock, &mut noting);
        let incidents = store.as_mut().map(ClusterStore::take_incidents);
        for text in incidents.into_iter().flatten() {
            let (subject, level) = ("incidents of the database", Level::Warning);
            notes.push(Note { subject, level, text });
        }
        if event.stage == AclStage::Rcpt && evaluated.outcome.verdict < Verdict::Defer {
            session.accept_recipient();
        }
        MailVerdict::from(evaluated)
    }

    /// Whether nothing may be refused now, although `what`. It is logged.
    pub(super) fn lifts(&mut self, what: &dyn Display) -> bool {
        Noting { notes: &mut self.notes, bypass: &mut self.bypass }.lifts(what)
    }
}
