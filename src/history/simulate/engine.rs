//! Decides attempts by policies.

use std::rc::Rc;

use super::attempt::{Attempt, AttemptPart, InLog};
use super::decided::{Decided, RECORDS_MAX, SimulateError, Totals};
use super::later::{AFTER, Queue, Routed, SentLater};
use super::named::NamedAccounts;
use super::retry::{Added, Retry, Schedule, Waiting};
use crate::event::session::SessionFacts;
use crate::event::{AclStage, Event};
use crate::hash::FastMap;
use crate::logs::item::Text;
use crate::policy::evaluator::{PolicySession, Step};
use crate::policy::image::{Image, PolicyImage};
use crate::policy::replay::{Decisions, LEAST_COUNT, Replay};
use crate::policy::word::Verdict;
use crate::rate::Timestamp;
use crate::store::Memory;

/// With so many records, those that decide nothing any more are dropped.
const FORGET_FROM: usize = 50_000;
/// The most sessions that are open at a time; then the half that began first is forgotten.
pub(super) const SESSIONS_MAX: usize = 100_000;
/// The end of a message may come so much later than another session's attempts.
const BACK_SECONDS: i64 = 600;
/// Retries have sessions of their own, with these numbers.
const RETRY_SESSION: u64 = u64::MAX;

/// How attempts are decided.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulationSettings {
    /// The ACL stages at which policies are evaluated. Without one of these, an attempt at
    /// that stage is not decided.
    pub stages: Vec<AclStage>,
    /// How other mail servers try again.
    pub retry: Schedule,
}

impl Default for SimulationSettings {
    /// As `exim/acl_policy.conf` is included.
    fn default() -> Self {
        let stages = vec![AclStage::Auth, AclStage::Rcpt, AclStage::Data, AclStage::NotSmtp];
        Self { stages, retry: Schedule::default() }
    }
}

/// Decides attempts by the policies of an image, on rates in memory.
pub struct Simulation<'i> {
    replay: Replay<'i>,
    settings: SimulationSettings,
    store: Memory,
    forget_from: usize,
    sessions: FastMap<u64, Box<OpenSession>>,
    waiting: Waiting,
    totals: Totals,
    named: NamedAccounts,
    /// What waits, if a policy is evaluated at delivery.
    later: Option<Queue>,
    messages: u64,
    /// How many sessions have begun.
    began: u64,
    /// When the latest attempt was decided.
    clock: Timestamp,
}

/// A session that is open.
#[derive(Default)]
struct OpenSession {
    policies: PolicySession,
    message: SessionMessage,
    /// The latest AUTH command failed, or has not succeeded yet.
    auth_failed: bool,
    /// When it began: how many sessions had begun.
    since: u64,
}

/// The message of a session.
#[derive(Default)]
struct SessionMessage {
    number: u64,
    /// Its MAIL command was refused, and so all that follows.
    is_refused: bool,
    /// Recipients that were refused for good, by the policies or the server.
    rejected: u32,
    accepted: Vec<Text>,
    /// Those that are tried again.
    deferred: Vec<Text>,
    /// Whether there were any recipients.
    has_recipients: bool,
    /// How many retries there were.
    retry: u32,
    /// When it was refused first.
    refused: Option<Timestamp>,
}

impl<'i> Simulation<'i> {
    /// By the policies `names`, several separated by commas, or `*` for all.
    ///
    /// # Errors
    /// There is no such policy.
    pub fn new(
        image: &'i Image,
        names: &str,
        settings: SimulationSettings,
    ) -> Result<Self, SimulateError> {
        let replay = Replay::new(image, names).map_err(SimulateError::Policy)?;
        let is_used =
            |name: &str| names.trim() == "*" || names.split(',').any(|one| one.trim() == name);
        let is_at_delivery = |policy: PolicyImage<'_>| policy.delivery().is_at_delivery();
        let mut used = image.each().filter(|(name, _)| is_used(name));
        let later = used.any(|(_, policy)| policy.is_ok_and(is_at_delivery)).then(Queue::default);
        Ok(Self {
            replay,
            settings,
            store: Memory::new(),
            forget_from: FORGET_FROM,
            sessions: FastMap::default(),
            waiting: Waiting::default(),
            totals: Totals::default(),
            named: NamedAccounts::default(),
            later,
            messages: 0,
            began: 0,
            clock: Timestamp { seconds: i64::MIN, micros: 0 },
        })
    }

    /// What was decided so far.
    #[must_use]
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The accounts that their habits would have named so far.
    #[must_use]
    pub fn named(&self) -> &NamedAccounts {
        &self.named
    }

    /// What policies at delivery would have sent later, if there are any.
    #[must_use]
    pub fn later(&self) -> Option<SentLater> {
        self.later.as_ref().map(Queue::found)
    }

    /// Decides an attempt of the log, after the retries that are due before it, and calls
    /// `visit` with each decision. Attempts come in the order of time; a time that goes back
    /// counts as no time at all.
    ///
    /// # Errors
    /// The policies could not be evaluated, or there are too many keys.
    pub fn decide(
        &mut self,
        attempt: &Attempt,
        visit: &mut impl FnMut(&Decided<'_>),
    ) -> Result<(), SimulateError> {
        self.retries_until(attempt.at, visit)?;
        let (first, last) = self.totals.span.unwrap_or((attempt.at, attempt.at));
        let is_back = last.seconds.saturating_sub(attempt.at.seconds) > BACK_SECONDS;
        // The end of a session that is only guessed comes late.
        self.totals.back += u64::from(is_back && attempt.part != AttemptPart::Close);
        self.totals.span = Some((first.min(attempt.at), last.max(attempt.at)));
        match attempt.part {
            AttemptPart::Mail | AttemptPart::NotSmtp { .. } => self.totals.messages += 1,
            AttemptPart::Auth => self.totals.logins += 1,
            AttemptPart::Rcpt { .. } => self.totals.recipients += 1,
            _ => {}
        }
        if let AttemptPart::NotSmtp { recipients, .. } = &attempt.part {
            self.totals.recipients += recipients.len() as u64;
        }
        self.totals.limited += u64::from(attempt.in_log == InLog::Limited);
        let verdict = self.attempt(attempt, visit)?;
        match (verdict, &attempt.part) {
            (Some(verdict), _) => self.totals.verdicts.add(verdict),
            (None, AttemptPart::Incomplete | AttemptPart::Failed { .. } | AttemptPart::Close) => {}
            (None, _) => self.totals.undecided += 1,
        }
        self.forget(attempt.at)
    }

    /// The log has ended: decides the retries that are due until its last time.
    ///
    /// # Errors
    /// As [`decide`](Self::decide).
    pub fn finish(&mut self, visit: &mut impl FnMut(&Decided<'_>)) -> Result<(), SimulateError> {
        if let Some((_, last)) = self.totals.span {
            self.retries_until(last, visit)?;
            self.run_queue(last.seconds.saturating_add(AFTER))?;
        }
        self.totals.retries.waiting = self.waiting.len() as u64;
        Ok(())
    }

    /// How many sessions are open.
    #[cfg(test)]
    pub(super) fn open_sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Decides one attempt; `None` if no policy is evaluated.
    fn attempt(
        &mut self,
        attempt: &Attempt,
        visit: &mut impl FnMut(&Decided<'_>),
    ) -> Result<Option<Verdict>, SimulateError> {
        let mut session = self.take_session(attempt.session);
        let verdict = self.in_session(&mut session, attempt, visit);
        let is_alone =
            matches!(attempt.part, AttemptPart::NotSmtp { .. } | AttemptPart::Failed { .. });
        if attempt.part != AttemptPart::Close && !is_alone {
            self.sessions.insert(attempt.session, session);
        }
        verdict
    }

    fn take_session(&mut self, number: u64) -> Box<OpenSession> {
        if let Some(session) = self.sessions.remove(&number) {
            return session;
        }
        if self.sessions.len() >= SESSIONS_MAX {
            let mut began: Vec<u64> = self.sessions.values().map(|open| open.since).collect();
            began.sort_unstable();
            let half = began.get(began.len() / 2).copied().unwrap_or(0);
            self.sessions.retain(|_, open| open.since > half);
        }
        self.began += 1;
        Box::new(OpenSession { since: self.began, ..OpenSession::default() })
    }

    fn in_session(
        &mut self,
        session: &mut OpenSession,
        attempt: &Attempt,
        visit: &mut impl FnMut(&Decided<'_>),
    ) -> Result<Option<Verdict>, SimulateError> {
        match &attempt.part {
            AttemptPart::Connect => self.evaluate(session, attempt, AclStage::Connect, None, visit),
            AttemptPart::Auth => {
                // Until it has succeeded, it counts as failed.
                session.auth_failed = true;
                let verdict = self.evaluate(session, attempt, AclStage::Auth, None, visit)?;
                let refused = verdict.is_some_and(|verdict| verdict >= Verdict::Defer);
                // A password that could not be checked has not failed.
                let is_wrong = !matches!(attempt.in_log, InLog::Accepted | InLog::Deferred);
                session.auth_failed = refused || is_wrong;
                Ok(verdict)
            }
            AttemptPart::Mail => {
                self.end_message(session, attempt, None);
                self.begin_message(session);
                let verdict = self.evaluate(session, attempt, AclStage::Mail, None, visit)?;
                session.message.is_refused =
                    verdict.is_some_and(|verdict| verdict >= Verdict::Defer);
                Ok(verdict)
            }
            AttemptPart::Rcpt { recipient } => self.rcpt(session, attempt, recipient, visit),
            AttemptPart::Data { size } => {
                let verdict = self.data(session, attempt, *size, visit)?;
                if attempt.in_log != InLog::Accepted {
                    // Nobody received it: its retries are in the log, if there were any.
                    session.message.deferred.clear();
                }
                self.route(session, attempt, *size, verdict)?;
                self.end_message(session, attempt, *size);
                Ok(verdict)
            }
            AttemptPart::NotSmtp { recipients, size } => {
                self.begin_message(session);
                session.message.accepted.clone_from(recipients);
                let verdict = self.evaluate(session, attempt, AclStage::NotSmtp, *size, visit)?;
                self.route(session, attempt, *size, verdict)?;
                Ok(verdict)
            }
            AttemptPart::Failed { .. } => {
                self.evaluate(session, attempt, AclStage::Delivery, None, visit)?;
                Ok(None)
            }
            AttemptPart::Incomplete => {
                session.message.deferred.clear();
                session.policies.new_message();
                session.message = SessionMessage::default();
                Ok(None)
            }
            AttemptPart::Close => {
                self.end_message(session, attempt, None);
                self.evaluate(session, attempt, AclStage::Quit, None, visit)
            }
        }
    }

    fn begin_message(&mut self, session: &mut OpenSession) {
        self.messages += 1;
        session.policies.new_message();
        session.message = SessionMessage { number: self.messages, ..SessionMessage::default() };
    }

    fn rcpt(
        &mut self,
        session: &mut OpenSession,
        attempt: &Attempt,
        recipient: &Text,
        visit: &mut impl FnMut(&Decided<'_>),
    ) -> Result<Option<Verdict>, SimulateError> {
        session.message.has_recipients = true;
        if session.message.is_refused {
            return Ok(None);
        }
        let verdict = self.evaluate(session, attempt, AclStage::Rcpt, None, visit)?;
        let message = &mut session.message;
        match verdict {
            Some(Verdict::Reject) => message.rejected += 1,
            Some(Verdict::Defer) if attempt.in_log == InLog::Accepted => {
                message.deferred.push(Rc::clone(recipient));
                message.refused.get_or_insert(attempt.at);
            }
            Some(Verdict::Defer) => {}
            _ => match attempt.in_log {
                InLog::Accepted | InLog::Limited => {
                    session.policies.accept_recipient();
                    message.accepted.push(Rc::clone(recipient));
                }
                InLog::Rejected => message.rejected += 1,
                InLog::Deferred => {}
            },
        }
        Ok(verdict)
    }

    fn data(
        &mut self,
        session: &mut OpenSession,
        attempt: &Attempt,
        size: Option<u64>,
        visit: &mut impl FnMut(&Decided<'_>),
    ) -> Result<Option<Verdict>, SimulateError> {
        let message = &session.message;
        if message.is_refused || message.has_recipients && message.accepted.is_empty() {
            // There is nobody left to write to.
            return Ok(None);
        }
        let mut verdict = self.evaluate(session, attempt, AclStage::Predata, None, visit)?;
        if verdict.is_none_or(|verdict| verdict < Verdict::Defer) {
            let at_data = self.evaluate(session, attempt, AclStage::Data, size, visit)?;
            verdict = verdict.max(at_data);
        }
        let message = &mut session.message;
        if verdict == Some(Verdict::Defer) && attempt.in_log == InLog::Accepted {
            message.deferred.append(&mut message.accepted);
            message.refused.get_or_insert(attempt.at);
        }
        Ok(verdict)
    }

    /// The message ends: what was deferred is tried again.
    fn end_message(&mut self, session: &mut OpenSession, attempt: &Attempt, size: Option<u64>) {
        let SessionMessage { deferred, refused, retry, .. } = std::mem::take(&mut session.message);
        let Some(refused) = refused.filter(|_| !deferred.is_empty()) else { return };
        if self.settings.retry.waits().is_empty() || !attempt.event.is_of_a_server() {
            return;
        }
        let (event, recipients, number) = (Rc::clone(&attempt.event), deferred, retry + 1);
        let again = Retry { event, recipients, size, number, refused };
        let added = self.waiting.add(&self.settings.retry, attempt.at, again);
        let retries = &mut self.totals.retries;
        match added {
            Added::Waits => retries.messages += u64::from(number == 1),
            Added::GivenUp => retries.given_up += 1,
            Added::TooMany => retries.forgotten += 1,
        }
    }

    /// Decides the retries that are due at `now`.
    fn retries_until(
        &mut self,
        now: Timestamp,
        visit: &mut impl FnMut(&Decided<'_>),
    ) -> Result<(), SimulateError> {
        while let Some((at, retry)) = self.waiting.due(now) {
            self.run_queue(at.seconds)?;
            self.totals.retries.tries += 1;
            let Retry { event, recipients, size, number, refused } = retry;
            let attempt = |part| Attempt {
                at,
                session: RETRY_SESSION,
                event: Rc::clone(&event),
                part,
                in_log: InLog::Accepted,
            };
            let mut session = OpenSession::default();
            self.begin_message(&mut session);
            (session.message.retry, session.message.refused) = (number, Some(refused));
            let mut rejected = false;
            for part in [AttemptPart::Connect, AttemptPart::Mail] {
                let stage =
                    if part == AttemptPart::Connect { AclStage::Connect } else { AclStage::Mail };
                self.evaluate(&mut session, &attempt(part), stage, None, visit)?;
            }
            for recipient in recipients {
                let one = attempt(AttemptPart::Rcpt { recipient: Rc::clone(&recipient) });
                let verdict = self.rcpt(&mut session, &one, &recipient, visit)?;
                rejected |= verdict == Some(Verdict::Reject);
            }
            let data = attempt(AttemptPart::Data { size });
            let verdict = self.data(&mut session, &data, size, visit)?;
            self.route(&session, &data, size, verdict)?;
            rejected |= verdict == Some(Verdict::Reject);
            let message = &session.message;
            let retries = &mut self.totals.retries;
            if message.deferred.is_empty() && !rejected {
                retries.accepted += 1;
                let took = at.as_seconds() - refused.as_seconds();
                retries.longest = retries.longest.max(took);
            } else if message.deferred.is_empty() {
                retries.given_up += 1;
            }
            self.end_message(&mut session, &data, size);
        }
        self.run_queue(now.seconds)
    }

    /// Routes the recipients of a message that was received: those that wait are queued.
    fn route(
        &mut self,
        session: &OpenSession,
        attempt: &Attempt,
        size: Option<u64>,
        verdict: Option<Verdict>,
    ) -> Result<(), SimulateError> {
        let SessionMessage { number, accepted, is_refused, .. } = &session.message;
        let is_received = !is_refused && verdict.is_none_or(|verdict| verdict < Verdict::Hold);
        let is_received = is_received && matches!(attempt.in_log, InLog::Accepted | InLog::Limited);
        let Some(mut queue) = self.later.take_if(|_| is_received) else { return Ok(()) };
        for recipient in accepted {
            let one = Routed {
                event: Rc::clone(&attempt.event),
                recipient: Rc::clone(recipient),
                message: *number,
                size: size.unwrap_or(0),
                received: attempt.at,
            };
            let decisions = self.routed(&one, attempt.at)?;
            queue.received(one, decisions.policy.as_ref(), &decisions.outcome);
            self.replay.reuse(decisions);
        }
        self.later = Some(queue);
        Ok(())
    }

    /// Runs the queue of what waits, as often as it is until `now`.
    fn run_queue(&mut self, now: i64) -> Result<(), SimulateError> {
        let Some(mut queue) = self.later.take() else { return Ok(()) };
        while let Some(at) = queue.due(now) {
            for by in queue.order() {
                let mut goes_on = true;
                while let Some(one) = queue.first(&by).filter(|_| goes_on) {
                    let decisions = self.routed(&one, at)?;
                    goes_on = queue.again(&by, at, decisions.policy.as_ref(), &decisions.outcome);
                    self.replay.reuse(decisions);
                }
            }
        }
        self.later = Some(queue);
        Ok(())
    }

    /// What the policies at delivery make of a recipient.
    fn routed(&mut self, one: &Routed, at: Timestamp) -> Result<Decisions, SimulateError> {
        let id = one.message.to_string();
        let age = at.seconds.saturating_sub(one.received.seconds);
        let facts = SessionFacts {
            recipients: 1,
            message_size: one.size,
            has_message: true,
            message_age: u64::try_from(age).unwrap_or(0),
            ..SessionFacts::default()
        };
        let event = Event {
            recipient: Some(&*one.recipient).filter(|to| !to.is_empty()),
            message_id: Some(&id),
            once_a_message: true,
            ..one.event.view()
        };
        let step = Step { facts, ..Step::new(AclStage::Route, event) };
        let (now, session) = (self.now(at), &mut PolicySession::default());
        let decided = self.replay.step(session, &step, now, &mut self.store);
        decided.map_err(|error| SimulateError::Decide(error.to_string()))
    }

    /// Evaluates the policies at `stage`, if they are; what they make of it.
    fn evaluate(
        &mut self,
        session: &mut OpenSession,
        attempt: &Attempt,
        stage: AclStage,
        size: Option<u64>,
        visit: &mut impl FnMut(&Decided<'_>),
    ) -> Result<Option<Verdict>, SimulateError> {
        let is_delivery = stage == AclStage::Delivery;
        if !is_delivery && !self.settings.stages.contains(&stage) {
            session.policies.new_command();
            return Ok(None);
        }
        let message = &session.message;
        let accepted = || {
            let known = message.accepted.iter().filter(|to| !to.is_empty());
            known.map(|to| (&**to).into()).collect()
        };
        let recipient = match &attempt.part {
            AttemptPart::Rcpt { recipient } | AttemptPart::Failed { recipient, .. } => {
                Some(&**recipient).filter(|to| !to.is_empty())
            }
            _ => None,
        };
        let (is_one_of, message_age) = match &attempt.part {
            AttemptPart::Failed { failure, age, .. } => (Some(failure.unit()), *age),
            _ => (None, 0),
        };
        let step = Step {
            facts: SessionFacts {
                recipients: u32::try_from(message.accepted.len()).unwrap_or(u32::MAX),
                message_size: size.unwrap_or(0),
                rejected_recipients: message.rejected,
                auth_failed: session.auth_failed,
                has_message: false,
                message_age,
            },
            recipients: &accepted,
            is_one_of,
            ..Step::new(stage, Event { recipient, ..attempt.event.view() })
        };
        session.policies.new_command();
        let now = self.now(attempt.at);
        let decided = self.replay.step(&mut session.policies, &step, now, &mut self.store);
        let decisions = decided.map_err(|error| SimulateError::Decide(error.to_string()))?;
        self.named.compared += u64::from(decisions.compared && !is_delivery);
        if let Some((key, alarm)) = &decisions.alarm {
            self.named.add(key, attempt.at, *alarm);
        }
        // Nobody is refused there.
        if !is_delivery {
            visit(&Decided {
                attempt,
                decisions: &decisions,
                retry: message.retry,
                message: message.number,
            });
        }
        let verdict = decisions.outcome.verdict;
        self.replay.reuse(decisions);
        Ok(Some(verdict))
    }

    /// The time at which an attempt is decided: no two are decided at the same time, as none
    /// are in a mail server. The arithmetic is inexact where no time passes, and many lines
    /// of a log have the same time, as it has no microseconds.
    fn now(&mut self, at: Timestamp) -> Timestamp {
        let next = match self.clock.micros {
            999_999 => Timestamp { seconds: self.clock.seconds.saturating_add(1), micros: 0 },
            micros => Timestamp { micros: micros + 1, ..self.clock },
        };
        self.clock = next.max(at);
        self.clock
    }

    /// Drops the records that decide nothing any more, now and then.
    fn forget(&mut self, now: Timestamp) -> Result<(), SimulateError> {
        if self.store.len() < self.forget_from {
            return Ok(());
        }
        self.store.forget(now, LEAST_COUNT);
        let kept = self.store.len();
        self.forget_from = FORGET_FROM.max(kept + kept.min(RECORDS_MAX / 4));
        match kept > RECORDS_MAX {
            true => Err(SimulateError::TooManyKeys),
            false => Ok(()),
        }
    }
}
