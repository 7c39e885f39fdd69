//! What is remembered of the SMTP connections of Exim.
//!
//! The ACLs name a connection by Exim's process and the time of its first request, and a message
//! by the time of its first one, in variables that Exim forgets with the message: nothing that a
//! client can choose. Commands are not named. Within a message, RCPT commands have numbers; of
//! the other commands a new one is known by a request that was made before: an ACL makes each
//! once.

use std::hash::{BuildHasher as _, RandomState};
use std::rc::Rc;

use tokio::sync::Mutex;

use super::request::EximStep;
use crate::event::AclStage;
use crate::policy::evaluator::PolicySession;
use crate::serve::mail::recent::Recent;

/// The longest name of a connection.
const NAME_MAX: usize = 64;
/// How many requests of one command are remembered: more than any ACL makes.
const ASKED_MAX: usize = 100;

/// What is remembered of a connection.
#[derive(Default)]
pub(super) struct KnownConnection {
    pub(super) session: PolicySession,
    message: Vec<u8>,
    /// The command: its stage, and its number if it has one.
    command: Option<(AclStage, Vec<u8>)>,
    /// What was asked in it.
    asked: Vec<u64>,
}

impl KnownConnection {
    /// Forgets what has ended before a step; whether another command begins.
    pub(super) fn begin(&mut self, step: &EximStep, question: u64) -> bool {
        if self.message != step.message {
            self.session.new_message();
            self.message.clone_from(&step.message);
            self.command = None;
        }
        let stage = step.event.stage;
        let number = if stage == AclStage::Rcpt { &step.number[..] } else { b"" };
        let is_same = match &self.command {
            Some((before, of)) if *before == stage && of == number => {
                stage == AclStage::Rcpt || !self.asked.contains(&question)
            }
            _ => false,
        };
        if !is_same {
            self.command = Some((stage, number.to_owned()));
            self.asked.clear();
        }
        if self.asked.len() < ASKED_MAX {
            self.asked.push(question);
        }
        !is_same
    }

    /// How much memory it takes, about.
    fn bytes(&self) -> usize {
        self.session.bytes(|outcome| outcome.text.len()) + self.message.len() + 8 * self.asked.len()
    }
}

/// Shared by requests of one connection.
pub(super) type Shared = Rc<Mutex<KnownConnection>>;

/// The connections.
#[derive(Default)]
pub(super) struct Sessions {
    hasher: RandomState,
    recent: Recent<Shared>,
}

impl Sessions {
    /// A number for what a request asks.
    pub(super) fn question(&self, step: &EximStep) -> u64 {
        let call = step.event.exim.as_ref();
        let policies = call.and_then(|call| call.policies.as_deref());
        let check = step.check.as_ref().map(|check| (&check.spec, &check.key, &check.unique));
        self.hasher.hash_one((policies, check))
    }

    /// What is known of the connection `name`.
    pub(super) fn find(&self, name: &str) -> Shared {
        while self.recent.remove_surplus().is_some() {}
        if name.is_empty() || name.len() > NAME_MAX {
            return Shared::default();
        }
        self.recent.touch(name).unwrap_or_else(|| {
            let known = Shared::default();
            self.recent.insert(name, Rc::clone(&known));
            known
        })
    }

    /// Updates how much memory a connection takes, or forgets it at its end.
    pub(super) fn decided(&self, name: &str, stage: AclStage, known: &KnownConnection) {
        match stage {
            AclStage::Quit | AclStage::NotQuit => drop(self.recent.remove(name)),
            _ => self.recent.measure(name, known.bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use crate::event::session::SessionFacts;
    use crate::serve::mail::event::MailEvent;

    fn step(stage: AclStage, message: &str, number: &str) -> EximStep {
        let (event, facts) = (Event::default(), SessionFacts::default());
        EximStep {
            session: b"1.2".to_vec(),
            message: message.into(),
            number: number.into(),
            event: MailEvent {
                stage,
                event,
                facts,
                recipients: Vec::new(),
                exim: None,
                marked: false,
                hold: None,
            },
            check: None,
        }
    }

    #[test]
    fn commands_are_told_apart() {
        use AclStage as S;
        let mut known = KnownConnection::default();
        for (stage, message, number, question, is_new) in [
            (S::Connect, "1", "0", 1, true),
            // Two lines of one ACL.
            (S::Connect, "1", "0", 2, false),
            (S::Auth, "2", "0", 1, true),
            // The same again: another AUTH.
            (S::Auth, "2", "0", 1, true),
            (S::Auth, "2", "0", 2, false),
            (S::Mail, "2", "0", 1, true),
            (S::Rcpt, "2", "1", 1, true),
            // The number says that it is the same.
            (S::Rcpt, "2", "1", 1, false),
            (S::Rcpt, "2", "2", 1, true),
            (S::Rcpt, "3", "2", 1, true),
            (S::Data, "3", "2", 1, true),
            (S::Data, "3", "2", 2, false),
        ] {
            let is = known.begin(&step(stage, message, number), question);
            assert_eq!(is, is_new, "{stage:?} {message} {number} {question}");
        }
    }

    #[test]
    fn a_connection_is_forgotten_at_its_end() {
        let sessions = Sessions::default();
        let known = sessions.find("1.2");
        sessions.decided("1.2", AclStage::Rcpt, &known.try_lock().unwrap());
        assert!(Rc::ptr_eq(&known, &sessions.find("1.2")));
        assert!(sessions.recent.size().1 > 0);
        sessions.decided("1.2", AclStage::NotQuit, &known.try_lock().unwrap());
        assert_eq!(sessions.recent.size(), (0, 0));
        // One that has no name, or a long one, is not remembered.
        for name in [String::new(), "1".repeat(NAME_MAX + 1)] {
            assert!(!Rc::ptr_eq(&sessions.find(&name), &sessions.find(&name)));
        }
        for n in 0..50_000 {
            sessions.find(&format!("{n}.1"));
        }
        assert!(sessions.recent.size().0 <= crate::serve::mail::recent::ENTRIES_MAX + 1);
    }
}
