//! Joins Postfix's lines to items.
//!
//! A message is an item from the first `queue active` line on; before, only what is known of its
//! client is kept. It is complete when as many recipients have been seen as it has, or when it
//! is removed. The recipients that were accepted of a message without DATA are not in the log.

use super::super::postfix::{self, Begin, What};
use super::{
    Begun, Item, ItemKind, Joiner, Message, Refusal, SessionKey, Stage, Visit, Waiting, add, size,
};
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
        let kind = match what {
            What::Begin(begin) => return self.begin(key(begin.id), &begin, session),
            What::Active { id, sender, size, recipients } => {
                let Some(begun) = self.begun.remove(&key(id)) else { return };
                let message = Message {
                    id: key(id),
                    sender: sender.to_owned(),
                    client: begun.client,
                    helo: None,
                    auth: begun.auth,
                    user: begun.user,
                    local: begun.local,
                    size,
                    recipients: Vec::new(),
                    recipients_known: false,
                };
                return self.active(line, begun.session, message, recipients, visit);
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
                ItemKind::Refusal(refused(&refusal))
            }
            What::FailedLogin { client, user } => ItemKind::FailedLogin(FailedLogin {
                client: client.parse().ok(),
                helo: None,
                user: user.map(str::to_owned),
                temporary: false,
            }),
            What::Connect { client } => ItemKind::Connect { client: client.parse().ok() },
            What::Close { client } => ItemKind::Close { client: client.parse().ok() },
            What::Known => return,
        };
        self.push(Item { at: line.at, session, what: kind }, visit);
    }

    fn begin(&mut self, id: String, begin: &Begin<'_>, session: Option<SessionKey>) {
        // `message-id=` follows `client=` and `uid=`; of a bounce, it comes alone.
        let is_known = || self.open.contains_key(&id) || self.begun.contains_key(&id);
        if begin.client.is_none() && begin.uid.is_none() && is_known() {
            return;
        }
        if self.begun.len() >= BEGUN_MAX {
            self.begun.clear();
        }
        let begun = Begun {
            session: session.filter(|_| begin.client.is_some()),
            client: begin.client.and_then(|client| client.parse().ok()),
            local: begin.client.is_none(),
            auth: begin.auth.map(str::to_owned),
            user: begin.uid.map(str::to_owned),
        };
        self.begun.insert(id, begun);
    }

    fn active(
        &mut self,
        line: &Stamped<'_>,
        session: Option<SessionKey>,
        message: Message,
        expected: usize,
        visit: Visit<'_>,
    ) {
        let id = message.id.clone();
        let item = Item { at: line.at, session, what: ItemKind::Message(message) };
        if !self.settings.recipients {
            return self.push(item, visit);
        }
        let number = self.first + self.waiting.len() as u64;
        if let Some(before) = self.open.insert(id, number) {
            self.close(before);
        }
        let mut one = Waiting::of(item, size);
        (one.open, one.expected) = (true, expected);
        self.wait(one);
        self.release(visit);
    }

    fn delivered(&mut self, id: &str, to: &str, original: &str, visit: Visit<'_>) {
        let Some(&number) = self.open.get(id) else { return };
        let Some(one) = self.at(number) else { return };
        let ItemKind::Message(message) = &mut one.item.what else { return };
        let mut more = 0;
        if add(&mut message.recipients, &mut one.known, original.to_owned()) {
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

fn refused(found: &postfix::Refusal<'_>) -> Refusal {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    let stage = match found.command {
        "CONNECT" => Stage::Connect,
        "HELO" | "EHLO" => Stage::Helo,
        "AUTH" => Stage::Auth,
        "MAIL" => Stage::Mail,
        "RCPT" => Stage::Rcpt,
        "DATA" | "BDAT" | "END-OF-MESSAGE" => Stage::Data,
        _ => Stage::Other,
    };
    Refusal {
        stage,
        temporary: found.temporary,
        limited: found.limited || limited::mentions(found.reason),
        reason: found.reason.to_owned(),
        recipient: owned(found.recipient),
        sender: owned(found.sender),
        client: found.client.and_then(|client| client.parse().ok()),
        helo: owned(found.helo),
        auth: owned(found.auth),
        user: None,
        local: false,
        message_id: owned(found.id),
    }
}
