//! The messages that policies hold, and those that wait for room within a limit at delivery: what is
//! known of one, what can be done with it, and which were held for an alarm of habits. `mta::held`
//! has the queues of the mail servers.

use std::fmt::Display;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::accounts::Account;
use super::changer::Changer;
use super::key_text;
use crate::policy::habits::is_held_for_habits;
use crate::spec;
use crate::spool::habits::habits_key;
use crate::spool::{HeldNote, HeldUntil, Spool};
use crate::store::Target;
use crate::text::time::now;
use crate::text::{self, counted, printable};

/// A message may be marked so many seconds before the alarm that it raises: by two clocks.
const LAG: i64 = 2;

/// What keeps a message in the queue.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum HeldState {
    /// It is held until somebody releases it.
    #[default]
    Held,
    /// It leaves as soon as a limit at delivery allows.
    Waiting,
}

/// A message that a policy holds, or that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeldMessage {
    /// Its name in the queue.
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) state: HeldState,
    /// Since when it is held, or in the queue, in seconds since 1970.
    pub(crate) at: i64,
    /// About when its last recipient leaves, if it waits and that can be computed.
    #[serde(default)]
    pub(crate) until: Option<i64>,
    /// The policy that holds it, or over whose limit it is.
    pub(crate) policy: String,
    /// Who was counted, as in `auth:alice@example.org`.
    pub(crate) key: Vec<u8>,
    /// Why it is held.
    pub(crate) why: String,
    /// The envelope's sender.
    pub(crate) sender: String,
    /// How many recipients have not received it; if it waits, how many addresses wait.
    pub(crate) recipients: u64,
    /// Its size in bytes.
    pub(crate) size: u64,
    /// What the daemon was asked about it, if that was not decided; if it waits in Postfix or Sendmail,
    /// its event, or nothing once it has been counted; else empty.
    #[serde(skip)]
    pub(crate) request: Vec<u8>,
}

impl HeldMessage {
    /// What a note says of a message that is held; `None` if it has left, and is on hold for another
    /// reason.
    pub(crate) fn noted(note: &HeldNote) -> Option<Self> {
        let (state, request) = match &note.until {
            HeldUntil::Released => (HeldState::Held, Vec::new()),
            HeldUntil::Room(event) | HeldUntil::Aside(event) => {
                (HeldState::Waiting, event.clone().into_bytes())
            }
            HeldUntil::Now => (HeldState::Waiting, Vec::new()),
            HeldUntil::Left => return None,
        };
        Some(Self {
            id: note.id.clone(),
            state,
            at: note.at,
            policy: note.policy.clone(),
            key: note.key.clone(),
            why: note.why.clone(),
            request,
            ..Self::default()
        })
    }

    /// Whether it is held because nobody has decided about it yet.
    pub(crate) fn is_undecided(&self) -> bool {
        self.policy == UNDECIDED && !self.request.is_empty()
    }
}

/// What stands for the policy of a message that is held until it is decided; no policy has this
/// name. `exim/acl_policy.conf` writes it.
pub(crate) const UNDECIDED: &str = "(undecided)";

/// The held messages of a queue, and those that wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) messages: Vec<HeldMessage>,
    #[serde(default)]
    pub(crate) waiting: Vec<HeldMessage>,
    /// What could not be read, and why.
    pub(crate) unread: Vec<String>,
}

impl Held {
    /// Those of these that are held, and those that wait.
    pub(crate) fn of(all: Vec<HeldMessage>, unread: Vec<String>) -> Self {
        let is_held = |message: &HeldMessage| message.state == HeldState::Held;
        let (messages, mut waiting) = all.into_iter().partition::<Vec<_>, _>(is_held);
        estimate(&mut waiting, now().seconds);
        Self { messages, waiting, unread }
    }

    /// All of its messages, first those that are held.
    pub(crate) fn into_messages(self) -> Vec<HeldMessage> {
        let Self { mut messages, waiting, .. } = self;
        messages.extend(waiting);
        messages
    }
}

/// What else is known of a message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Details {
    /// Its recipients, without those that have got it.
    pub(crate) recipients: Vec<String>,
    /// The lines of its headers.
    pub(crate) headers: Vec<String>,
}

/// A queue of a mail server in which policies hold messages.
pub(crate) trait HoldQueue {
    /// Exim's spool directory.
    fn spool(&self) -> Option<&Path> {
        None
    }

    /// The messages that policies hold, and those that wait.
    ///
    /// # Errors
    /// The queue cannot be read.
    fn held(&self) -> Result<Held, String>;

    /// The recipients and headers of a held message.
    ///
    /// # Errors
    /// It cannot be read, or is gone.
    fn details(&self, id: &str) -> Result<Details, String>;

    /// Has these messages delivered, from now on, as others are, or at once, if they wait: the
    /// outcome of each, in order.
    fn release(&self, ids: &[&str]) -> Vec<Result<(), String>>;

    /// Removes these messages, so that nobody gets them: the outcome of each, in order.
    fn delete(&self, ids: &[&str]) -> Vec<Result<(), String>>;

    /// Gives a message without a sender the address of the account that has handed it over: a
    /// server may deliver what has none after some time, held or not.
    ///
    /// # Errors
    /// The server refuses it.
    fn name_sender(&self, id: &str) -> Result<(), String> {
        let _ = id;
        Ok(())
    }
}

/// A message that a policy holds, or that waits for room within a limit at delivery.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HeldJson {
    /// Its name in the queue.
    id: String,
    /// Whether it is held until it is released, or leaves as soon as the limit allows.
    state: HeldState,
    /// Who was counted, as the routes and commands take it.
    key: String,
    /// The policy that holds it, or over whose limit it is.
    policy: String,
    /// Since when, in seconds since 1970; if it waits, when it was received.
    at: i64,
    /// About when the last recipient that waits leaves, in seconds since 1970; null if it is held,
    /// or that is not known.
    until: Option<i64>,
    /// The envelope's sender.
    sender: String,
    /// How many recipients have not received it; if it waits, how many addresses wait.
    recipients: u64,
    /// Its size.
    bytes: u64,
    /// Why.
    why: String,
}

impl HeldJson {
    pub(crate) fn of(message: &HeldMessage) -> Self {
        let HeldMessage { id, state, at, until, policy, key, why, sender, recipients, .. } =
            message.clone();
        let (key, bytes) = (key_text::key(&key), message.size);
        Self { id, state, key, policy, at, until, sender, recipients, bytes, why }
    }
}

impl HeldMessage {
    /// Whether it is mail of this account.
    fn is_of(&self, account: &Account) -> bool {
        let mut name = Vec::new();
        account.key.key().identity() == habits_key(&self.key, &mut name).identity()
    }

    /// Whether it was held for the last alarm of this account, as it stood before an answer.
    fn is_for_alarm(&self, account: &Account) -> bool {
        let habits = &account.habits;
        let Some(alarm) = habits.alarm_at() else { return false };
        let since = habits.since().min(alarm) - LAG;
        self.is_of(account) && self.at >= since && is_held_for_habits(&self.why)
    }

    /// Whether `target` names the identity that was counted.
    pub(crate) fn is_of_target(&self, target: &Target) -> bool {
        let mut name = Vec::new();
        target.applies_to(&habits_key(&self.key, &mut name))
    }

    /// In a line: `1abc: <alice@example.org> to 3 recipients, key auth:alice@example.org`.
    pub(crate) fn line(&self) -> String {
        let Self { id, key, sender, recipients, .. } = self;
        format!(
            "{}: <{}> to {}, key {}",
            printable(id.as_bytes()),
            printable(sender.as_bytes()),
            counted(*recipients, "recipient", "recipients"),
            key_text::key(key)
        )
    }

    /// As the audit log has what was done with it.
    fn logged(&self, done: &Deed) -> impl Display + use<> {
        let Self { id, key, policy, recipients, .. } = self;
        let (id, policy) = (printable(id.as_bytes()), printable(policy.as_bytes()));
        let (verb, key) = (done.verb(), key_text::key(key));
        format!("held {verb} id={id} policy={policy} recipients={recipients} key={key}")
    }
}

/// The messages that are held of an account: those for its last alarm, as it stood before an
/// answer, and others.
pub(crate) fn of_account<'m>(
    messages: &'m [HeldMessage],
    account: &Account,
) -> (Vec<&'m HeldMessage>, Vec<&'m HeldMessage>) {
    let all = messages.iter().filter(|message| message.is_of(account));
    all.partition(|message| message.is_for_alarm(account))
}

/// What is done with held messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Deed {
    Release,
    Delete,
}

impl Deed {
    /// As an order.
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Delete => "delete",
        }
    }

    /// As it was done.
    pub(crate) fn done(self) -> &'static str {
        match self {
            Self::Release => "released",
            Self::Delete => "deleted",
        }
    }

    /// Does it with these messages, and logs it in the database's log, where there is one.
    pub(crate) fn with<'m>(
        self,
        queue: &dyn HoldQueue,
        messages: &[&'m HeldMessage],
        spool: Option<&mut Spool>,
        by: &mut Changer,
    ) -> Dealt<'m> {
        let ids: Vec<&str> = messages.iter().map(|message| &*message.id).collect();
        let results = match self {
            _ if ids.is_empty() => Vec::new(),
            Self::Release => queue.release(&ids),
            Self::Delete => queue.delete(&ids),
        };
        let mut dealt = Dealt { done: Vec::new(), failed: Vec::new() };
        let mut spool = spool;
        for (message, result) in messages.iter().zip(results) {
            match result {
                Ok(()) => {
                    let what = message.logged(&self);
                    match &mut spool {
                        Some(spool) => {
                            // Else it would be taken for held, if somebody puts it on hold.
                            if let Err(error) = spool.note_left(&message.id, now().seconds) {
                                by.incomplete(format!("held.log does not say so: {error}"));
                            }
                            by.log(*spool, what);
                        }
                        None => super::audit_log::to_syslog(by.who(), what),
                    }
                    dealt.done.push(message);
                }
                Err(why) => dealt.failed.push((message, why)),
            }
        }
        dealt
    }
}

/// What became of messages.
pub(crate) struct Dealt<'m> {
    pub(crate) done: Vec<&'m HeldMessage>,
    /// With why not.
    pub(crate) failed: Vec<(&'m HeldMessage, String)>,
}

/// `7 messages of it are held, since 2026-11-27 10:00:00 UTC`, or `wait, the first since …`, of messages
/// in one state; `None` without any.
pub(crate) fn sentence(messages: &[&HeldMessage], key: &str) -> Option<String> {
    let first = messages.iter().min_by_key(|message| message.at)?;
    let count = counted(messages.len(), "message", "messages");
    let verb = match (first.state, messages.len()) {
        (HeldState::Held, 1) => "is held",
        (HeldState::Held, _) => "are held",
        (HeldState::Waiting, 1) => "waits",
        (HeldState::Waiting, _) => "wait",
    };
    let since = text::time::local_second(first.at);
    Some(format!("{count} of {key} {verb}, since {since}"))
}

/// Computes about when each of these messages, which wait, has left: what waits of one key leaves one
/// after the other, the oldest message first, as fast as its limit allows.
pub(crate) fn estimate(waiting: &mut [HeldMessage], now: i64) {
    waiting.sort_by(|a, b| (&a.policy, &a.key, a.at, &a.id).cmp(&(&b.policy, &b.key, b.at, &b.id)));
    for of_key in waiting.chunk_by_mut(|a, b| a.policy == b.policy && a.key == b.key) {
        let mut wait = 0.0;
        for message in of_key {
            let own = seconds(message);
            wait += own.unwrap_or_default();
            message.until = own.map(|_| now.saturating_add(wait.ceil() as i64));
        }
    }
}

/// The seconds for a message by the limit in `61.0 recipients, limit 60/1m`; `None` if it limits
/// something else.
fn seconds(message: &HeldMessage) -> Option<f64> {
    let (measured, limit) = message.why.split_once(", limit ")?;
    let of_message = match measured.rsplit(' ').next()? {
        "recipients" => message.recipients as f64,
        "messages" => 1.0,
        "bytes" => message.size as f64,
        _ => return None,
    };
    let (count, period) = limit.split_once('/')?;
    let count: f64 = count.parse().ok().filter(|count| *count > 0.0)?;
    Some(spec::period(period.as_bytes()).ok()? / count * of_message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::habits::{Habits, Sensitivity};

    fn message(at: i64, key: &str, why: &str) -> HeldMessage {
        HeldMessage { at, key: key.into(), why: why.to_owned(), ..HeldMessage::default() }
    }

    #[test]
    fn those_of_a_key_leave_one_after_the_other() {
        let one = |at, key, recipients, why| HeldMessage {
            state: HeldState::Waiting,
            recipients,
            ..message(at, key, why)
        };
        let pace = "61.0 recipients, limit 60/1m";
        let mut all = [
            one(30, "destination:google", 120, pace),
            one(10, "destination:google", 30, pace),
            one(20, "destination:yahoo", 5, "1.0 recipients, limit 0.5/1h"),
            one(20, "auth:m", 5, "9.0 messages, limit 5/1h"),
            one(20, "auth:a", 5, "9.0 connections, limit 5/1h"),
            one(20, "auth:b", 5, "denied"),
            one(20, "auth:c", 5, "9.0 recipients, limit 0/1h"),
        ];
        estimate(&mut all, 1000);
        let of = |key: &str| {
            all.iter().filter(|one| one.key == key.as_bytes()).map(|one| one.until).collect()
        };
        let google: Vec<_> = of("destination:google");
        assert_eq!(google, [Some(1030), Some(1150)]);
        let yahoo: Vec<_> = of("destination:yahoo");
        assert_eq!(yahoo, [Some(1000 + 36_000)]);
        let messages: Vec<_> = of("auth:m");
        assert_eq!(messages, [Some(1000 + 720)]);
        for key in ["auth:a", "auth:b", "auth:c"] {
            let unknown: Vec<_> = of(key);
            assert_eq!(unknown, [None], "{key}");
        }
    }

    #[test]
    fn only_what_was_held_for_the_last_alarm_is_of_it() {
        let mut habits = Habits::default();
        let at = |n: i64| 1_800_000_000 + n * 60;
        for n in 0..600 {
            habits.message(at(n * 60), None, [7 << 40], Sensitivity::Normal);
        }
        let begin = 40_000;
        let alarm = (0..100).find_map(|n| {
            let hash = (n as u64 + 1) << 40 | n as u64;
            let update = habits.message(at(begin + n), None, [hash], Sensitivity::Normal);
            update.alarm.map(|_| at(begin + n))
        });
        let alarm = alarm.unwrap();
        let mut name = Vec::new();
        let key = habits_key(b"auth:alice", &mut name).into();
        let account = Account { key, habits };
        let raised = "this message raises an alarm: 14 recipients that it has never written to";
        for (expected, one) in [
            (true, message(alarm, "auth:alice", raised)),
            (true, message(alarm + 300, "auth:alice", "an alarm was raised 5m ago")),
            (false, message(alarm, "auth:bob", raised)),
            (false, message(alarm, "auth:alice", "9.0 messages, limit 5/1h")),
            // Of an earlier alarm, which may have been a thief.
            (false, message(at(begin) - 86_400, "auth:alice", raised)),
        ] {
            assert_eq!(one.is_for_alarm(&account), expected, "{one:?}");
        }
        let never = Account { key: account.key, habits: Habits::default() };
        assert!(!message(alarm, "auth:alice", raised).is_for_alarm(&never));
    }
}
