//! What was counted of the messages that Postfix is receiving.
//!
//! Postfix names each message by `instance`: the process that receives it, the time of MAIL
//! and a number that counts the messages of the connection from 0. So it is known, whichever
//! restriction list and connection a request comes by, that it is about the same message;
//! and a message of the same process and client with a higher number is of the same SMTP
//! connection. Before MAIL there is no instance: those requests belong to the connection
//! that they come by.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::rc::{Rc, Weak};

use tokio::sync::Mutex;

use crate::event::AclStage;
use crate::policy::evaluator::PolicySession;
use crate::serve::mail::event::Hold;
use crate::serve::mail::recent::Recent;

/// The longest instance.
const INSTANCE_MAX: usize = 128;
/// The longest address of a client.
const CLIENT_MAX: usize = 64;
/// How much memory a session without an instance may take; then it begins again.
pub(super) const OWN_MAX: usize = 64 << 10;
/// How many actions of a message are remembered: of each recipient.
const ACTIONS_MAX: usize = 100_000;

/// What is remembered of a message, and of its SMTP connection.
#[derive(Default)]
pub(super) struct KnownMessage {
    pub(super) session: PolicySession,
    /// The actions in replies to Postfix, by stage and recipient.
    actions: HashMap<u64, Rc<str>>,
    /// How long all of them are.
    actions_bytes: usize,
    /// A header was added.
    pub(super) has_header: bool,
    /// Those that were accepted: Postfix names none of several at the end of a message.
    pub(super) recipients: Vec<String>,
    /// A step has the message held.
    pub(super) hold: Option<Hold>,
}

impl KnownMessage {
    /// A message begins.
    pub(super) fn new_message(&mut self) {
        self.session.new_message();
        self.actions = HashMap::new();
        self.actions_bytes = 0;
        (self.has_header, self.hold) = (false, None);
        self.recipients = Vec::new();
    }

    /// The action in the reply when Postfix asked the same before.
    pub(super) fn action(&self, question: u64) -> Option<Rc<str>> {
        self.actions.get(&question).map(Rc::clone)
    }

    /// Remembers the action in a reply.
    pub(super) fn keep(&mut self, question: u64, action: &Rc<str>) {
        if self.actions.len() < ACTIONS_MAX {
            self.actions_bytes += 64 + action.len();
            self.actions.insert(question, Rc::clone(action));
        }
    }

    /// Remembers an accepted recipient.
    pub(super) fn accept(&mut self, recipient: Option<String>) {
        if self.recipients.len() < ACTIONS_MAX {
            self.recipients.extend(recipient);
        }
    }

    /// How much memory it takes, about.
    pub(super) fn bytes(&self) -> usize {
        let recipients = self.recipients.iter().map(|one| size_of::<String>() + one.len());
        let outcomes = self.session.bytes(|outcome| outcome.text.len());
        outcomes + self.actions_bytes + recipients.sum::<usize>()
    }
}

/// Shared by those who ask about the same message at the same time.
pub(super) type Shared = Rc<Mutex<KnownMessage>>;

/// A message that has an instance.
#[derive(Clone)]
struct InstanceMessage {
    known: Shared,
    /// Who sends it, if the instance says so.
    of: Option<ClientProcess>,
}

/// The process that receives a message, and its client.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ClientProcess {
    process: String,
    client: String,
}

/// The latest message of a source.
struct LatestMessage {
    number: u64,
    instance: String,
}

/// What a policy connection asked about most recently.
#[derive(Default)]
pub(super) struct Current {
    client: String,
    /// What is known of it, if there was no instance.
    own: Option<Shared>,
    /// The same if there was one: it may be forgotten.
    named: Weak<Mutex<KnownMessage>>,
    /// The stage, if there was no instance.
    latest: Option<AclStage>,
}

impl Current {
    /// A message that has an instance.
    fn of(client: &str, known: &Shared) -> Self {
        let (client, named) = (client.to_owned(), Rc::downgrade(known));
        Self { client, own: None, named, latest: None }
    }

    /// What is known, if it is of this client.
    fn take(&mut self, client: &str) -> Option<Shared> {
        let known = self.own.take().or_else(|| self.named.upgrade());
        known.filter(|_| self.client == client)
    }
}

/// The messages.
#[derive(Default)]
pub(super) struct Sessions {
    hasher: RandomState,
    recent: Recent<InstanceMessage>,
    latest: RefCell<HashMap<ClientProcess, LatestMessage>>,
}

impl Sessions {
    /// A number for a question, which no peer can find another question for.
    pub(super) fn question(&self, stage: AclStage, recipient: Option<&str>) -> u64 {
        self.hasher.hash_one((stage as u8, recipient))
    }

    /// What is known of the message `instance`, or of the connection before a message.
    /// Whether a message begins that is not known.
    pub(super) fn find(
        &self,
        current: &mut Current,
        instance: &str,
        client: &str,
        stage: AclStage,
    ) -> (Shared, bool) {
        self.forget_surplus();
        if instance.is_empty() || instance.len() > INSTANCE_MAX {
            return without_instance(current, client, stage);
        }
        if let Some(InstanceMessage { known, .. }) = self.recent.touch(instance) {
            *current = Current::of(client, &known);
            return (known, false);
        }
        let of = source(instance, client);
        // At MAIL, it had no instance.
        let begun = current.take(client);
        let (known, is_new) = match (begun, current.latest) {
            (Some(known), Some(AclStage::Mail)) => (known, false),
            (begun, _) => {
                let same = of.as_ref().and_then(|(source, number)| self.before(source, *number));
                let first = of.as_ref().is_none_or(|(_, number)| *number == 0);
                // A connection that asked before its first message.
                let begun = begun.filter(|known| first && !self.has(known));
                (same.or(begun).unwrap_or_default(), true)
            }
        };
        self.insert(instance, &known, of);
        *current = Current::of(client, &known);
        (known, is_new)
    }

    /// Updates how much memory a message takes.
    pub(super) fn measure(&self, instance: &str, known: &KnownMessage) {
        self.recent.measure(instance, known.bytes());
        self.forget_surplus();
    }

    /// Whether this belongs to a message that has an instance.
    fn has(&self, known: &Shared) -> bool {
        Rc::strong_count(known) > 1
    }

    /// What is known of the message before this one, of the same SMTP connection, which is
    /// forgotten.
    fn before(&self, source: &ClientProcess, number: u64) -> Option<Shared> {
        let latest = self.latest.borrow();
        let before = latest.get(source).filter(|latest| latest.number < number)?;
        let instance = before.instance.clone();
        drop(latest);
        self.remove(&instance)
    }

    fn insert(&self, instance: &str, known: &Shared, of: Option<(ClientProcess, u64)>) {
        let of = of.map(|(source, number)| {
            let latest = LatestMessage { number, instance: instance.to_owned() };
            self.latest.borrow_mut().insert(source.clone(), latest);
            source
        });
        self.recent.insert(instance, InstanceMessage { known: Rc::clone(known), of });
    }

    fn remove(&self, instance: &str) -> Option<Shared> {
        let message = self.recent.remove(instance)?;
        Some(self.forget(instance, message))
    }

    /// Forgets that a message that is no longer remembered was the latest of its source.
    fn forget(&self, instance: &str, InstanceMessage { known, of }: InstanceMessage) -> Shared {
        if let Some(source) = of {
            let mut latest = self.latest.borrow_mut();
            if latest.get(&source).is_some_and(|latest| latest.instance == instance) {
                latest.remove(&source);
            }
        }
        known
    }

    fn forget_surplus(&self) {
        while let Some((instance, message)) = self.recent.remove_surplus() {
            self.forget(&instance, message);
        }
    }
}

/// A request without an instance, as Postfix sends before MAIL: it is about the SMTP
/// connection that the policy connection asked about, as far as that can be known.
fn without_instance(current: &mut Current, client: &str, stage: AclStage) -> (Shared, bool) {
    let is_new = stage == AclStage::Mail;
    let is_same = match stage {
        AclStage::Mail => true,
        // An SMTP connection says it once, as a rule.
        AclStage::Helo => current.latest == Some(AclStage::Connect),
        AclStage::Connect => false,
        // It has an instance when it is Postfix that asks: nothing is remembered.
        _ => return (Shared::default(), true),
    };
    let known = current.take(client).filter(|_| is_same).unwrap_or_default();
    let (client, own) = (client.to_owned(), Some(Rc::clone(&known)));
    *current = Current { client, own, latest: Some(stage), ..Current::default() };
    (known, is_new)
}

/// The process of an instance such as `3039.6743a1b2.c350.1`, and the number of the message.
fn source(instance: &str, client: &str) -> Option<(ClientProcess, u64)> {
    let (process, rest) = instance.split_once('.')?;
    let (_, number) = rest.rsplit_once('.')?;
    let number = u64::from_str_radix(number, 16).ok().filter(|_| client.len() <= CLIENT_MAX)?;
    Some((ClientProcess { process: process.to_owned(), client: client.to_owned() }, number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::mail::recent::{BYTES_MAX, ENTRIES_MAX};

    impl Sessions {
        fn clear(&self) {
            while let Some((instance, message)) = self.recent.remove_oldest() {
                self.forget(&instance, message);
            }
        }
    }

    /// Asks about a message, and says which session it is by the recipients that it has
    /// accepted: each request accepts one.
    fn ask(sessions: &Sessions, current: &mut Current, instance: &str, stage: AclStage) -> u32 {
        let (known, is_new) = sessions.find(current, instance, "192.0.2.1", stage);
        let mut known = known.try_lock().unwrap();
        if is_new {
            known.new_message();
        }
        known.session.accept_recipient();
        sessions.measure(instance, &known);
        known.session.accepted()
    }

    #[test]
    fn a_message_is_known_by_whichever_connection_it_comes() {
        let sessions = Sessions::default();
        let [mut one, mut two] = [Current::default(), Current::default()];
        assert_eq!(ask(&sessions, &mut one, "a1.5.6.0", AclStage::Rcpt), 1);
        assert_eq!(ask(&sessions, &mut two, "a1.5.6.0", AclStage::Rcpt), 2);
        assert_eq!(ask(&sessions, &mut two, "a2.5.6.0", AclStage::Rcpt), 1);
        assert_eq!(ask(&sessions, &mut one, "a1.5.6.0", AclStage::Data), 3);
        // The next message forgets the recipients.
        assert_eq!(ask(&sessions, &mut one, "a1.5.9.1", AclStage::Rcpt), 1);
        // Another form, which says nothing of the connection.
        assert_eq!(ask(&sessions, &mut one, "abc", AclStage::Rcpt), 1);
        assert_eq!(ask(&sessions, &mut two, "abc", AclStage::Rcpt), 2);
    }

    #[test]
    fn messages_of_a_connection_share_its_session() {
        let sessions = Sessions::default();
        let mut current = Current::default();
        let mut find = |instance: &str, client: &str, stage| {
            sessions.find(&mut current, instance, client, stage).0
        };
        let first = find("a1.5.6.0", "192.0.2.1", AclStage::Rcpt);
        let second = find("a1.7.6.1", "192.0.2.1", AclStage::Rcpt);
        assert!(Rc::ptr_eq(&first, &second));
        // The process serves the next connection.
        let third = find("a1.8.6.0", "192.0.2.1", AclStage::Rcpt);
        assert!(!Rc::ptr_eq(&second, &third));
        let fourth = find("a1.9.6.1", "192.0.2.2", AclStage::Rcpt);
        assert!(!Rc::ptr_eq(&third, &fourth));
        // Before MAIL there is no instance.
        let fifth = find("", "192.0.2.3", AclStage::Connect);
        assert!(Rc::ptr_eq(&fifth, &find("", "192.0.2.3", AclStage::Helo)));
        assert!(Rc::ptr_eq(&fifth, &find("", "192.0.2.3", AclStage::Mail)));
        assert!(Rc::ptr_eq(&fifth, &find("a1.9.6.0", "192.0.2.3", AclStage::Rcpt)));
        assert!(Rc::ptr_eq(&fifth, &find("", "192.0.2.3", AclStage::Mail)));
        assert!(Rc::ptr_eq(&fifth, &find("a1.9.9.1", "192.0.2.3", AclStage::Rcpt)));
        let sixth = find("", "192.0.2.3", AclStage::Connect);
        assert!(!Rc::ptr_eq(&fifth, &sixth));
        assert!(Rc::ptr_eq(&sixth, &find("", "192.0.2.3", AclStage::Helo)));
        assert!(!Rc::ptr_eq(&sixth, &find("", "192.0.2.3", AclStage::Helo)));
        // Programs other than Postfix: each request counts.
        let [one, two] = [(); 2].map(|()| find("", "192.0.2.3", AclStage::Rcpt));
        assert!(!Rc::ptr_eq(&one, &two));
    }

    #[test]
    fn what_is_remembered_is_limited() {
        let sessions = Sessions::default();
        for n in 0..ENTRIES_MAX + 10 {
            let mut current = Current::default();
            ask(&sessions, &mut current, &format!("{n:x}.1.2.0"), AclStage::Rcpt);
        }
        assert_eq!(sessions.recent.size().0, ENTRIES_MAX);
        assert_eq!(sessions.latest.borrow().len(), ENTRIES_MAX);
        let mut current = Current::default();
        assert_eq!(ask(&sessions, &mut current, "9.1.2.0", AclStage::Rcpt), 1);
        assert_eq!(ask(&sessions, &mut current, "20.1.2.0", AclStage::Rcpt), 2);
        sessions.clear();
        assert_eq!(sessions.recent.size(), (0, 0));
        assert!(sessions.latest.borrow().is_empty());
        let mut large = KnownMessage::default();
        let action: Rc<str> = "x".repeat(400).into();
        (0..1000).for_each(|n| large.keep(n, &action));
        let mut current = Current::default();
        for n in 0..1000 {
            let instance = format!("{n}.1.2.0");
            sessions.find(&mut current, &instance, "", AclStage::Rcpt);
            sessions.measure(&instance, &large);
            assert!(sessions.recent.size().1 <= BYTES_MAX);
        }
        assert!((200..400).contains(&sessions.recent.size().0));
        sessions.clear();
        // Too long to be remembered.
        let long = "a".repeat(INSTANCE_MAX + 1);
        let mut current = Current::default();
        ask(&sessions, &mut current, &long, AclStage::Rcpt);
        assert_eq!(sessions.recent.size().0, 0);
    }
}
