//! Joins Postfix's lines to items.
//!
//! A message is an item from the first `queue active` line on; before, only what is known of its
//! client is kept. It is complete when as many recipients have been seen as it has, or when it
//! is removed. The recipients that were accepted of a message without DATA are not in the log.

use super::super::postfix::{self, Begin, What};
use super::{
    Begun, Host, Item, ItemKind, Joiner, Message, Refusal, SessionKey, Stage, Text, Visit, Waiting,
    add, by, of_client, size,
};
use crate::event::Event;
use crate::logs::files::Stamped;
use crate::logs::item::FailedLogin;
use crate::logs::limited;

/// At most so many messages have begun and are not active yet.
const BEGUN_MAX: usize = 65_536;

impl Joiner {
    /// Considers a line of this daemon of Postfix.
    pub(super) fn postfix(
        &mut self,
        (instance, daemon): (&str, &str),
        pid: Option<u32>,
        line: &Stamped<'_>,
        visit: Visit<'_>,
    ) {
        let session = pid.map(SessionKey::Process);
        // Several instances have queues of their own.
        let key = |id: &str| match instance {
            "postfix" => id.to_owned(),
            _ => format!("{instance}/{id}"),
        };
        let what = match postfix::line(daemon, line.rest) {
            None => return self.counts.not_understood(line),
            Some(What::Known) => return self.counts.known += 1,
            Some(what) => what,
        };
        self.counts.used += 1;
        let (event, what) = match what {
            What::Begin(begin) => return self.begin(key(begin.id), &begin, session),
            What::Active { id, sender, size, recipients } => {
                let id = key(id);
                let Some(begun) = self.begun.remove(&id) else { return };
                let event = Event {
                    sender: Some(sender.into()),
                    message_id: Some(id.into()),
                    ..begun.event
                };
                let what = ItemKind::Message(Message { size, ..Message::default() });
                let item = Item { at: line.at, session: begun.session, event, what };
                return self.active(item, recipients, visit);
            }
            What::Recipient { id, to, original } => {
                return self.delivered(&key(id), to, original.unwrap_or(to), visit);
            }
            What::Removed { id, canceled } => {
                let id = key(id);
                if canceled {
                    self.begun.remove(&id);
                }
                return self.complete(&id, visit);
            }
            What::Refusal(refusal) => {
                // What END-OF-MESSAGE refuses never becomes active.
                if refusal.command == "END-OF-MESSAGE"
                    && let Some(id) = refusal.id
                {
                    self.begun.remove(&key(id));
                }
                let (event, refusal) = refused(&refusal);
                (event, ItemKind::Refusal(refusal))
            }
            What::FailedLogin { client, user } => {
                let login = FailedLogin { user: user.map(Text::from), temporary: false };
                (of_client(of_host(Some(client))), ItemKind::FailedLogin(login))
            }
            What::Connect { client } => (of_client(of_host(Some(client))), ItemKind::Connect),
            What::Close { client } => (of_client(of_host(Some(client))), ItemKind::Close),
            What::Known => return,
        };
        self.push(Item { at: line.at, session, event: event.map(Text::from), what }, visit);
    }

    fn begin(&mut self, id: String, begin: &Begin<'_>, session: Option<SessionKey>) {
        // `message-id=` follows `client=` and `uid=`; of a bounce, it comes alone.
        let is_known = || self.open.contains_key(&*id) || self.begun.contains_key(&id);
        if begin.client.is_none() && begin.uid.is_none() && is_known() {
            return;
        }
        if self.begun.len() >= BEGUN_MAX {
            self.begun.clear();
        }
        let event = by(of_host(begin.client), begin.auth, begin.uid).map(Text::from);
        let begun = Begun { session: session.filter(|_| begin.client.is_some()), event };
        self.begun.insert(id, begun);
    }

    fn active(&mut self, item: Item, expected: usize, visit: Visit<'_>) {
        match self.settings.recipients {
            true => self.await_recipients(Waiting { expected, ..Waiting::of(item, size) }, visit),
            false => self.push(item, visit),
        }
    }

    fn delivered(&mut self, id: &str, to: &str, original: &str, visit: Visit<'_>) {
        let Some(&number) = self.open.get(id) else { return };
        let Some(one) = self.at(number) else { return };
        let ItemKind::Message(message) = &mut one.item.what else { return };
        let mut more = 0;
        if add(&mut message.recipients, &mut one.known, original.into()) {
            more += original.len() + 48;
        }
        if one.delivered.insert(to.to_owned()) {
            more += to.len() + 64;
        }
        one.bytes += 2 * more;
        let is_all = one.delivered.len() >= one.expected;
        self.bytes += 2 * more;
        if is_all {
            self.complete(id, visit);
        }
    }
}

/// A client, of which lines of messages have no name.
fn of_host(address: Option<&str>) -> Host<'_> {
    Host { address, ..Host::default() }
}

fn refused<'a>(found: &postfix::Refusal<'a>) -> (Event<&'a str>, Refusal) {
    let stage = match found.command {
        "CONNECT" => Stage::Connect,
        "HELO" | "EHLO" => Stage::Helo,
        "AUTH" => Stage::Auth,
        "MAIL" => Stage::Mail,
        "RCPT" => Stage::Rcpt,
        "DATA" | "BDAT" | "END-OF-MESSAGE" => Stage::Data,
        _ => Stage::Other,
    };
    let event = Event {
        recipient: found.recipient,
        sender: found.sender,
        message_id: found.id,
        ..by(Host { helo: found.helo, ..of_host(found.client) }, found.auth, None)
    };
    let limited = found.limited || limited::mentions(found.reason);
    let reason = found.reason.to_owned();
    (event, Refusal { stage, temporary: found.temporary, limited, reason })
}
