//! What a thread does with mail that waits at delivery.

use std::sync::Arc;

use super::{Level, Note, Noting, Worker, note_incidents, open};
use crate::event::AclStage;
use crate::policy::evaluator::{Evaluated, Evaluator, OnErrors, PolicySession, Step};
use crate::policy::outcome::Outcome;
use crate::policy::word::{OnError, Verdict};
use crate::serve::mail::event::{Hold, MailEvent, MailVerdict};
use crate::serve::mail::later::{Against, Behind, LaterMessage, Queues, WaitsBy};
use crate::spool::{HeldNote, HeldUntil};
use crate::sys::clock;

impl Worker {
    /// What becomes of a message that is complete and accepted, by the policies at delivery: the verdict
    /// if it is not to go on now. What waits is noted first.
    pub(super) fn later(
        &mut self,
        event: &MailEvent,
        names: &str,
        on_error: OnError,
    ) -> Option<MailVerdict> {
        let spool = &self.spool;
        let evaluator = self.evaluator.get_or_insert_with(|| Evaluator::open(spool));
        // What cannot be read has been reported, and decided, for acceptance.
        if !evaluator.sends_later().unwrap_or(false) {
            return None;
        }
        let message = LaterMessage::new(event, clock::now().into());
        let on_error = OnErrors { of_front_end: on_error, ..OnErrors::default() };
        let mut queues = std::mem::take(&mut self.queues);
        let read = self.store.as_mut().map_or(Ok(()), |store| queues.refresh(store.spool_mut()));
        if let Err(why) = read {
            let is_open = on_error.of_front_end == OnError::FailOpen || self.bypass.is_active();
            let (subject, level) = ("notes of mail that waits", Level::Warning);
            let text = format!("mail that waits keeps none behind it: {why}");
            self.notes.push(Note { subject, level, text });
            if !is_open {
                return Some(MailVerdict::unavailable(Verdict::Defer, &why));
            }
            // What is known may have left long ago.
            queues = Queues::default();
        }
        let wait = self.wait(&message, names, on_error, &queues);
        self.queues = queues;
        let wait = match wait {
            Ok(wait) => wait?,
            Err(failed) => return Some((*failed).into()),
        };
        let mut outcome =
            Outcome { verdict: Verdict::Hold, text: wait.text.clone(), ..Outcome::default() };
        if !wait.fits {
            outcome.verdict = Verdict::Defer;
            return Some(MailVerdict { policy: wait.policy, outcome, unavailable: None });
        }
        let Some(id) = event.event.message_id.clone() else {
            let why = "the mail server does not name a message that is to wait";
            return Some(MailVerdict::unavailable(Verdict::Defer, why));
        };
        let WaitsBy { policy, key, why, .. } = wait;
        let hold = Hold { policy: Arc::clone(&policy), key, why, text: String::new() };
        match self.note(id, message.at.seconds, hold, HeldUntil::Room(message.to_json())) {
            Ok(()) => Some(MailVerdict { policy, outcome, unavailable: None }),
            // Nobody would release it.
            Err(why) => Some(MailVerdict::unavailable(Verdict::Defer, &why)),
        }
    }

    /// By what a message waits, as mail of `queues` is before it, or as there is no room; `None` if it
    /// has been counted, and leaves.
    ///
    /// # Errors
    /// A policy could not be evaluated, and so mail is deferred.
    fn wait(
        &mut self,
        message: &LaterMessage,
        names: &str,
        on_error: OnErrors,
        queues: &Queues,
    ) -> Result<Option<WaitsBy>, Box<Evaluated>> {
        let Self { spool, store, evaluator, bypass, notes, .. } = self;
        let bypassed = bypass.is_active();
        let now = || clock::now().into();
        let evaluator = evaluator.get_or_insert_with(|| Evaluator::open(spool));
        let opened = open(store, spool);
        let why = opened.as_ref().err().map_or("", String::as_str);
        if let Some(store) = store.as_mut() {
            store.set_bypassed(bypassed);
        }
        let waited = clock::now().0.saturating_sub(message.at.seconds).try_into().unwrap_or(0);
        let step = message.step(AclStage::Route, on_error, bypassed, waited);
        let fits = |evaluator: &mut Evaluator<'_>| {
            let step = message.step(AclStage::Route, on_error, bypassed, 0);
            evaluator.allows_alone(names, &step, now())
        };
        if !bypassed && !queues.is_empty() {
            let mut behind = Behind::new(queues);
            let looks = Step { only_looks: true, ..step };
            let opened = store.as_mut().ok_or(why);
            let mut session = PolicySession::default();
            evaluator.evaluate(&mut session, names, &looks, opened, now, &mut behind);
            if let Some(wait) = behind.wait {
                let fits = fits(evaluator);
                return Ok(Some(if fits { wait } else { wait.too_large() }));
            }
        }
        let opened = store.as_mut().ok_or(why);
        let mut session = PolicySession::default();
        let mut noting = Noting { notes: &mut *notes, bypass };
        let evaluated = evaluator.evaluate(&mut session, names, &step, opened, now, &mut noting);
        note_incidents(store, notes);
        if evaluated.outcome.verdict < Verdict::Defer {
            return Ok(None);
        }
        if evaluated.failure.is_some() {
            return Err(Box::new(evaluated));
        }
        let outcome = &evaluated.outcome;
        let wait = WaitsBy {
            key: outcome.counted().map_or_else(String::new, |(key, _)| key.to_owned()),
            why: outcome.why(),
            text: outcome.text.clone(),
            policy: evaluated.policy,
            fits: true,
        };
        let fits = fits(evaluator);
        Ok(Some(if fits { wait } else { wait.too_large() }))
    }

    /// By what a message that has waited still waits; `None` if it has been counted, and leaves. Where
    /// its sender is denied or suspected, that is no policy's limit.
    ///
    /// # Errors
    /// Why that cannot be decided.
    pub(crate) fn still_waits(
        &mut self,
        message: &LaterMessage,
        names: &str,
        queues: &Queues,
    ) -> Result<Option<WaitsBy>, String> {
        let Self { spool, store, evaluator, bypass, .. } = self;
        open(store, spool)?;
        let evaluator = evaluator.get_or_insert_with(|| Evaluator::open(spool));
        let sends_later = evaluator.sends_later()?;
        if !bypass.is_active() {
            let looks = Step {
                only_looks: true,
                ..message.step(AclStage::Data, OnErrors::default(), false, 0)
            };
            let (mut against, mut session) = (Against::default(), PolicySession::default());
            let now = || clock::now().into();
            let store = store.as_mut().ok_or("");
            evaluator.evaluate(&mut session, names, &looks, store, now, &mut against);
            if let Some(why) = against.0 {
                let (policy, key) = ("".into(), String::new());
                let (why, text) = (why.to_owned(), String::new());
                return Ok(Some(WaitsBy { policy, key, why, fits: false, text }));
            }
        }
        if !sends_later {
            return Ok(None);
        }
        // What cannot be decided stays, whatever the policy says of mail that is accepted.
        let on_error = OnErrors { of_call: Some(OnError::FailClosed), ..OnErrors::default() };
        let wait = self.wait(message, names, on_error, queues);
        wait.map_err(|failed| failed.failure.map_or_else(String::new, |one| one.error))
    }

    /// What is to be logged.
    pub(crate) fn complaints(&mut self) -> impl Iterator<Item = String> {
        std::mem::take(&mut self.notes).into_iter().map(|note| note.text)
    }

    /// Notes that a message is held.
    ///
    /// # Errors
    /// It could not be written.
    pub(super) fn note(
        &mut self,
        id: String,
        at: i64,
        hold: Hold,
        until: HeldUntil,
    ) -> Result<(), String> {
        let Hold { policy, key, why, .. } = hold;
        let (policy, key) = (policy.to_string(), key.into_bytes());
        let note = HeldNote { at, id, policy, key, why, until };
        match &mut self.store {
            Some(store) => store.spool_mut().note_held(&note).map_err(|error| error.to_string()),
            None => Err("the database is not open".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests;
