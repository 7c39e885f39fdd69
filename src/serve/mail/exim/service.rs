//! Decides the requests of Exim.

use std::rc::Rc;

use super::reply;
use super::request::{EximFault, EximRequest, EximStep};
use super::sessions::Sessions;
use crate::serve::mail::decider::Decider;
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

    /// The reply to a request. A delay is Exim's own.
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
        let session = std::mem::take(&mut known.session);
        let EximStep { event, check, .. } = step;
        let (session, reply) = match check {
            None => {
                let (session, verdict) = self.decider.decide(session, event).await;
                (session, reply::policy(&verdict.info(), clock::now().into()))
            }
            Some(check) => {
                let (session, checked) = self.decider.check(session, event, check).await;
                let checked = checked.as_ref().map_err(String::as_str);
                (session, reply::check(checked, clock::now().into()))
            }
        };
        known.session = session;
        self.sessions.decided(&name, stage, &known);
        Ok(reply)
    }
}
