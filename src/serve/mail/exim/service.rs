//! Decides the requests of Exim.

use std::rc::Rc;

use super::request::{EximFault, EximRequest, EximStep};
use super::sessions::Sessions;
use crate::policy::reply;
use crate::serve::mail::decider::Decider;
use crate::serve::mail::worker::CheckError;
use crate::sys::clock;

/// What decides for Exim.
pub struct EximService {
    decider: Rc<Decider>,
    sessions: Sessions,
}

impl EximService {
    /// One that asks `decider`.
    #[must_use]
    pub fn new(decider: Rc<Decider>) -> Self {
        Self { decider, sessions: Sessions::default() }
    }

    /// The reply to a request; empty, if an account's Exim is to do as its ACL says of mail that is
    /// undecided. A delay is Exim's own.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn decide(&self, request: &EximRequest) -> Result<Vec<u8>, EximFault> {
        let mut step = request.step()?;
        let name = String::from_utf8_lossy(&step.session).into_owned();
        let question = self.sessions.question(&step);
        let shared = self.sessions.find(&name);
        let mut known = shared.lock().await;
        let is_new = known.begin(&step, question);
        if let Some(call) = &mut step.event.exim {
            call.is_new_command = is_new;
        }
        let stage = step.event.stage;
        let is_of_account = step.event.exim.as_ref().is_some_and(|call| call.is_of_account);
        let session = std::mem::take(&mut known.session);
        let EximStep { event, check, .. } = step;
        let (session, reply) = match check {
            None => {
                let (session, verdict) = self.decider.decide(session, event).await;
                let reply = match verdict.is_undecided(is_of_account) {
                    true => Vec::new(),
                    false => reply::policy(&verdict.info(), clock::now().into()),
                };
                (session, reply)
            }
            Some(check) => {
                let (session, checked) = self.decider.check(session, event, check).await;
                let is_undecided = is_of_account
                    && matches!(&checked, Err(CheckError::Undecided(_)))
                    && !self.decider.is_bypassed();
                let checked = checked.as_ref().map_err(CheckError::text);
                let reply = match is_undecided {
                    true => Vec::new(),
                    false => reply::check(checked, clock::now().into()),
                };
                (session, reply)
            }
        };
        known.session = session;
        self.sessions.decided(&name, stage, &known);
        Ok(reply)
    }
}
