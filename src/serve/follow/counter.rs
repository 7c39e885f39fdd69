//! Counts failed recipients by the policies in use.

use std::path::{Path, PathBuf};

use crate::bypass::Watch;
use crate::cluster::ClusterStore;
use crate::event::session::SessionFacts;
use crate::event::{AclStage, Event, Unit};
use crate::policy::decide::Decided;
use crate::policy::evaluator::{Evaluated, Evaluator, Observer, OnErrors, PolicySession, Step};
use crate::rate::Timestamp;
use crate::spool::Options;

/// Counts in a database.
pub(super) struct Counter {
    spool: PathBuf,
    store: Option<ClusterStore>,
    evaluator: Option<Evaluator<'static>>,
    bypass: Watch,
}

/// What is seen of an evaluation.
#[derive(Default)]
struct SeenEvaluation {
    failure: Option<String>,
    /// Whether any policy has decided.
    has_decided: bool,
    /// When any of their rates was counted last.
    latest: Option<Timestamp>,
}

impl Observer for SeenEvaluation {
    fn decided(&mut self, decided: &Decided<'_>) {
        self.has_decided = true;
        self.latest = self.latest.max(decided.decision.kept.map(|kept| kept.at));
    }

    fn evaluated(&mut self, evaluated: &Evaluated) {
        self.failure = self.failure.take().or(evaluated.failure.as_ref().map(ToString::to_string));
    }
}

impl Counter {
    pub(super) fn new(spool: &Path) -> Self {
        let bypass = Watch::new(spool);
        Self { spool: spool.to_owned(), store: None, evaluator: None, bypass }
    }

    /// Counts a recipient of `unit` at that time, of a message that was then so many seconds old. Why
    /// a policy could not count it, if another one did.
    ///
    /// # Errors
    /// No policy has counted it, in words.
    pub(super) fn count(
        &mut self,
        event: &Event<&str>,
        unit: Unit,
        at: Timestamp,
        age: u64,
    ) -> Result<Option<String>, String> {
        self.evaluate(event, unit, at, Some(age)).map(|seen| seen.failure)
    }

    /// Whether a recipient that was to be counted at that time, before this process began, was.
    ///
    /// # Errors
    /// It is not known, in words.
    pub(super) fn has(
        &mut self,
        event: &Event<&str>,
        unit: Unit,
        at: Timestamp,
    ) -> Result<bool, String> {
        let seen = self.evaluate(event, unit, at, None)?;
        Ok(seen.latest.is_some_and(|latest| latest >= at))
    }

    fn evaluate(
        &mut self,
        event: &Event<&str>,
        unit: Unit,
        at: Timestamp,
        counted_after: Option<u64>,
    ) -> Result<SeenEvaluation, String> {
        let Self { spool, store, evaluator, bypass } = self;
        if store.is_none() {
            let opened = ClusterStore::open(spool, Options::default());
            *store = Some(opened.map_err(|error| error.to_string())?);
        }
        let bypassed = bypass.is_active();
        let step = Step {
            stage: AclStage::Delivery,
            event: *event,
            facts: SessionFacts {
                message_age: counted_after.unwrap_or(0),
                ..SessionFacts::default()
            },
            recipients: &Vec::new,
            is_one_of: Some(unit),
            marked: &|| false,
            only_looks: counted_after.is_none(),
            bypassed,
            on_error: OnErrors::default(),
        };
        let store = store.as_mut().ok_or("");
        let evaluator = evaluator.get_or_insert_with(|| Evaluator::open(spool));
        let (session, mut seen) = (&mut PolicySession::default(), SeenEvaluation::default());
        evaluator.evaluate(session, "*", &step, store, || at, &mut seen);
        match seen.failure {
            // What some policies have counted is not tried again: they would count it twice.
            Some(failure) if !seen.has_decided => Err(failure),
            failure => Ok(SeenEvaluation { failure, ..seen }),
        }
    }
}
