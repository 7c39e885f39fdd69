//! Joins Postfix's lines to items.
//!
//! A message is an item from the first `queue active` line on; before, only what is known of its
//! client is kept. It is complete when as many recipients have been seen as it has, or when it
//! is removed. The recipients that were accepted of a message without DATA are not in the log.
//!
//! Of a refusal, most versions do not log who has logged in. It is the login of the message if
//! the line has a queue id, else that of the session if the log shows where it began.

use std::net::IpAddr;

use super::exim_lines::by;
use super::{
    Item, ItemKind, Joiner, LogWriter, LoginShown, Message, OriginShown, Reason, Refusal, Server,
    SessionKey, Stage, Text, Visit, Waiting, add,
};
use crate::event::{Event, Origin};
use crate::logs::exim::Host;
use crate::logs::files::Stamped;
use crate::logs::item::FailedLogin;
use crate::logs::limited;
use crate::logs::postfix::{self, Begin, Client, Recipient, What};
use crate::logs::queue::{Begun, Known};

impl Joiner {
    /// Considers a line of this daemon of Postfix.
    pub(super) fn postfix(
        &mut self,
        source: LogWriter,
        daemon: &str,
        pid: Option<u32>,
        line: &Stamped<'_>,
        visit: Visit<'_>,
    ) {
        self.settle(line.at, visit);
        let queue = self.queue(source.queue);
        queue.host = source.host;
        queue.since.get_or_insert(line.at);
        let what = match postfix::line(daemon, line.rest) {
            None => return self.unused(Reason::NotUnderstood, line),
            Some(What::Known) => return self.unused(Reason::Silent, line),
            Some(what) => what,
        };
        // Other daemons serve many clients at once.
        let process = pid.filter(|_| daemon == "smtpd").map(|pid| (source.service, pid));
        let used = self.postfix_line(source, process, what, line, visit);
        match used {
            Ok(()) => self.counts.used += 1,
            Err(reason) => self.unused(reason, line),
        }
    }

    fn postfix_line(
        &mut self,
        source: LogWriter,
        process: Option<(u32, u32)>,
        what: What<'_>,
        line: &Stamped<'_>,
        visit: Visit<'_>,
    ) -> Result<(), Reason> {
        let at = line.at;
        let queue = source.queue;
        let (session, login, event, what) = match what {
            What::Begin(begin) => {
                let client = begin.client.map(|address| Client { address, port: None });
                let session =
                    client.and_then(|client| self.session(source, process, client, line, false));
                return self.begin(source, &begin, session);
            }
            What::Proxied(begin) => {
                self.proxied(source, process, &begin, line);
                return Ok(());
            }
            What::ProxyAccepted { queued_as, sender, recipient } => {
                self.proxy_accepted(source, process, queued_as, [sender, recipient], at, visit);
                return Ok(());
            }
            What::Active { id, sender, size, recipients } => {
                return self.active(queue, at, (id, sender, size), recipients, visit);
            }
            What::Recipient(recipient) => return self.delivered(source, &recipient, at, visit),
            What::Removed { id, canceled } => {
                if canceled {
                    self.queue(queue).take_begun(id);
                }
                self.submitted.end(queue, id, at);
                self.removed(queue, id, at, visit);
                return Ok(());
            }
            What::Requeued { id } => return self.put_again(queue, id, at, visit),
            What::Notice { id } => return self.written_here(queue, id),
            What::Refusal(found) => {
                let (session, login, event) = self.refused(source, process, &found, line);
                (session, login, event, ItemKind::Refusal(refusal(&found)))
            }
            What::Discarded(found) => {
                let (session, login, event) = self.refused(source, process, &found, line);
                (session, login, event, ItemKind::Discarded(refusal(&found)))
            }
            What::FailedLogin { client, user, temporary } => {
                let session = self.session(source, process, client, line, false);
                let failed = FailedLogin { user: user.map(Text::from), temporary };
                let event = of_client(client).map(Text::from);
                (session, LoginShown::InSession, event, ItemKind::FailedLogin(failed))
            }
            What::Connect { client } => {
                let session = self.session(source, process, client, line, true);
                let event = of_client(client).map(Text::from);
                (session, LoginShown::InSession, event, ItemKind::Connect)
            }
            What::Close { client, has_logged_in } => {
                let session = self.session(source, process, client, line, false);
                self.left(source, process);
                if let Some(process) = process {
                    self.processes.close(process);
                }
                let event = of_client(client).map(Text::from);
                let login = if has_logged_in { LoginShown::Nowhere } else { LoginShown::InSession };
                (session, login, event, ItemKind::Close)
            }
            What::Known => return Err(Reason::Silent),
        };
        self.push(Item { at, session, login, server: Server::Postfix, event, what }, visit);
        Ok(())
    }

    /// The administrator has put a message into the queue again.
    fn put_again(
        &mut self,
        queue: u32,
        id: &str,
        at: crate::rate::Timestamp,
        visit: Visit<'_>,
    ) -> Result<(), Reason> {
        let known = self.queue(queue).active(id);
        self.removed(queue, id, at, visit);
        // It is looked for when it comes back.
        if let Some(known) = known {
            self.queue(queue).set_active(id, known);
        }
        Ok(())
    }

    /// Postfix itself has written a message, which has not become active yet.
    fn written_here(&mut self, queue: u32, id: &str) -> Result<(), Reason> {
        if let Some(begun) = self.queue(queue).begun_mut(id) {
            begun.event.system = begun.is_servers();
        }
        Ok(())
    }

    /// The session of a client in a process; of postscreen's by its port.
    fn session(
        &mut self,
        source: LogWriter,
        process: Option<(u32, u32)>,
        client: Client<'_>,
        line: &Stamped<'_>,
        is_connect: bool,
    ) -> Option<SessionKey> {
        let address = client.address.parse().ok();
        let Some(process) = process else {
            let (client, port) = (address?, client.port?);
            return Some(SessionKey::Port { host: source.host, client, port });
        };
        let mut left = false;
        let (key, _) = self.processes.session(process, address, line.at, is_connect, &mut left);
        if left {
            self.filtered(source.host);
        }
        Some(key)
    }

    /// Who a refused command or message is of: the session, where its login is shown, and what is
    /// known of it.
    fn refused(
        &mut self,
        source: LogWriter,
        process: Option<(u32, u32)>,
        found: &postfix::Refusal<'_>,
        line: &Stamped<'_>,
    ) -> (Option<SessionKey>, LoginShown, Event<Text>) {
        let is_of_message = found.command == "END-OF-MESSAGE";
        let mut event = event(found).map(Text::from);
        // What is refused after DATA never becomes active.
        let queue = self.queue(source.queue);
        let begun = found.id.and_then(|id| match is_of_message {
            true => queue.take_begun(id),
            false => queue.begun(id).cloned(),
        });
        if let Some(begun) = begun.filter(|begun| !begun.is_nobodys && !begun.is_again) {
            let Event { auth, client, local_account, .. } = begun.event;
            (event.auth, event.client) = (auth, client);
            event.local_account = local_account;
            return (begun.session, LoginShown::InLine, event);
        }
        let session = match found.client {
            Some(client) => self.session(source, process, client, line, false),
            None => None,
        };
        let Some((key, now)) = process.and_then(|process| self.processes.now(process)) else {
            // postscreen's clients do not log in.
            let is_known = session.is_some() || event.auth.is_some();
            let login = if is_known { LoginShown::InLine } else { LoginShown::Nowhere };
            return (session, login, event);
        };
        if found.client.is_none() {
            // `proxy-reject`.
            event.client = Origin::of_client(now.client);
            if let Some(proxied) = now.proxied.take() {
                event.auth = proxied.auth;
                self.filtered(source.host);
                return (Some(key), LoginShown::InLine, event);
            }
        }
        if event.auth.is_some() {
            return (Some(key), LoginShown::InLine, event);
        }
        match now.is_whole {
            true => {
                event.auth.clone_from(&now.auth);
                let is_shown = event.auth.is_some();
                let login = if is_shown { LoginShown::InLine } else { LoginShown::InSession };
                (Some(key), login, event)
            }
            // Somebody else may have had the process before, or the same client another login.
            false => (None, LoginShown::Nowhere, event),
        }
    }

    fn begin(
        &mut self,
        source: LogWriter,
        begin: &Begin<'_>,
        session: Option<SessionKey>,
    ) -> Result<(), Reason> {
        let Begin { id, client, auth, uid, before, before_client } = *begin;
        let is_first = client.is_some() || uid.is_some();
        let queue = self.queue(source.queue);
        if !is_first {
            // `message-id=` follows `client=` and `uid=`; of a bounce, it comes alone.
            let is_known = queue.begun(id).is_some() || queue.active(id).is_some();
            if !is_known {
                let event = by(of_host(None), None, None).map(Text::from);
                queue.begin(id, Begun { event, is_nobodys: true, ..Begun::default() });
            }
            return Ok(());
        }
        // The id may have been another message's.
        queue.remove_active(id);
        if let Some(number) = queue.open.remove(id) {
            self.close(number);
        }
        let mut event = by(of_host(client), auth, uid).map(Text::from);
        if let Some(client) = client {
            event.client = Origin::of_postfix(client);
        }
        let is_again = before.is_some_and(|before| self.is_known(source, before, before_client));
        // What the administrator has put into the queue again is of nobody who is known now.
        let mut is_nobodys = uid.is_some() && before.is_some() && !is_again;
        if is_nobodys {
            event.local_account = None;
        }
        if let Some(client) = before_client
            && auth.is_none()
        {
            // Who handed it to the filter, as the filter says.
            event.client = Origin::of_client(client.parse().ok());
            is_nobodys = before.is_some() && !is_again;
        }
        if auth.is_some()
            && let Some((_, now)) = process_of(session).and_then(|p| self.processes.now(p))
        {
            now.auth.clone_from(&event.auth);
        }
        if is_again && let Some(before) = before {
            let queues = self.queues_of(source);
            let to = (source.queue, id);
            queues.into_iter().any(|number| self.submitted.also((number, before), to));
        }
        let begun = Begun { session, event, is_again, is_nobodys };
        self.queue(source.queue).begin(id, begun);
        Ok(())
    }

    /// A message has been received, or is tried again.
    fn active(
        &mut self,
        number: u32,
        at: crate::rate::Timestamp,
        (id, sender, size): (&str, &str, Option<u64>),
        expected: usize,
        visit: Visit<'_>,
    ) -> Result<(), Reason> {
        let host = self.queue(number).host;
        let queue = self.queue(number);
        if queue.active(id).is_some() {
            return Err(Reason::Again);
        }
        let mut begun = queue.take_begun(id);
        let is_again = begun.as_ref().is_some_and(|begun| begun.is_again);
        let client = begun.as_ref().and_then(|begun| begun.event.client.address());
        queue.set_active(id, Known { client, is_again, has_left: false });
        if is_again {
            return Err(Reason::Again);
        }
        let is_filtering = self.proxied.get(host as usize).is_some_and(|count| *count > 0);
        if let Some(begun) = &mut begun {
            begun.event.system |= begun.is_servers() && is_of_bounces(sender);
        }
        let is_bounce = begun
            .as_ref()
            .is_some_and(|begun| begun.event.system || begun.is_nobodys && sender.is_empty());
        let origin = match &begun {
            Some(_) if is_bounce => OriginShown::Yes,
            Some(begun) if begun.is_nobodys => OriginShown::No,
            Some(Begun { event, .. }) if event.auth.is_some() => OriginShown::Yes,
            Some(Begun { event, .. }) => match event.client {
                Origin::Client(client) if is_filtering || is_of_this_machine(client) => {
                    OriginShown::Perhaps
                }
                _ => OriginShown::Yes,
            },
            None => OriginShown::No,
        };
        let begun = begun.unwrap_or_default();
        let mut event =
            Event { sender: Some(sender.into()), message_id: Some(id.into()), ..begun.event };
        if origin == OriginShown::No && event.client == Origin::Program {
            event.client = Origin::Unknown;
        }
        let what = ItemKind::Message(Message { size, ..Message::default() });
        let login = LoginShown::InLine;
        let server = Server::Postfix;
        let item = Item { at, session: begun.session, login, server, event, what };
        if origin != OriginShown::No {
            self.submit(number, &item, is_bounce);
        }
        if !self.settings.recipients && origin == OriginShown::Yes {
            self.push(item, visit);
            return Ok(());
        }
        self.await_more(Waiting { expected, origin, ..Waiting::of(item, number) }, visit);
        Ok(())
    }

    fn delivered(
        &mut self,
        source: LogWriter,
        recipient: &Recipient<'_>,
        at: crate::rate::Timestamp,
        visit: Visit<'_>,
    ) -> Result<(), Reason> {
        let &Recipient { id, to, original, delay, .. } = recipient;
        self.relinked(source, recipient);
        if let Some(failure) = recipient.failure {
            self.failed((source.queue, id), to, failure, at, visit);
        }
        let queue = self.queue(source.queue);
        let known = queue.active(id);
        if known.is_some_and(|known| known.is_again) {
            return Err(Reason::Again);
        }
        let Some(&number) = queue.open.get(id) else {
            return if known.is_some() { Ok(()) } else { Err(Reason::NotBegun) };
        };
        let since = queue.since;
        let lists = self.settings.recipients;
        let Some(one) = self.at(number) else { return Ok(()) };
        if one.origin == OriginShown::No
            && let (Some(delay), Some(since)) = (delay, since)
            && at.as_seconds() - delay < since.as_seconds() - 1.0
        {
            one.is_dropped = true;
            self.counts.before += 1;
            let queue = self.queue(source.queue);
            queue.set_active(id, Known { is_again: true, ..Known::default() });
            self.complete(source.queue, id, visit);
            return Err(Reason::NotBegun);
        }
        let ItemKind::Message(message) = &mut one.item.what else { return Ok(()) };
        let original = original.unwrap_or(to);
        let mut more = 0;
        if lists && add(&mut message.recipients, &mut one.known, original.into()) {
            more += original.len() + 48;
        }
        if one.delivered.insert(to.to_owned()) {
            more += to.len() + 64;
        }
        one.bytes += 2 * more;
        let is_all = one.delivered.len() >= one.expected || !lists;
        let is_waiting = one.origin != OriginShown::Yes;
        self.bytes += 2 * more;
        if is_all && !is_waiting {
            self.complete(source.queue, id, visit);
        }
        Ok(())
    }
}

/// The process of a session.
pub(super) fn process_of(session: Option<SessionKey>) -> Option<(u32, u32)> {
    match session? {
        SessionKey::Process { service, pid, .. } => Some((service, pid)),
        SessionKey::Port { .. } => None,
    }
}

/// Whether it is of this machine, as filters are.
pub(super) fn is_of_this_machine(client: IpAddr) -> bool {
    client.to_canonical().is_loopback()
}

/// Whether Postfix itself writes with this sender: bounces, and by the usual name what it tells the
/// postmaster and its probes of addresses (`double_bounce_sender`).
fn is_of_bounces(sender: &str) -> bool {
    sender.is_empty() || sender.split('@').next() == Some("double-bounce")
}

/// A client, of which lines of messages have no name.
fn of_host(address: Option<&str>) -> Host<'_> {
    Host { address, ..Host::default() }
}

/// What is known of an event of this client.
fn of_client<'a>(client: Client<'a>) -> Event<&'a str> {
    Event { client: Origin::of_postfix(client.address), ..Event::default() }
}

fn event<'a>(found: &postfix::Refusal<'a>) -> Event<&'a str> {
    let host = Host { helo: found.helo, ..of_host(found.client.map(|client| client.address)) };
    let client = match host.address {
        None => Origin::Unknown,
        Some(address) => Origin::of_postfix(address),
    };
    let event = by(host, found.auth, None);
    let (recipient, sender, message_id) = (found.recipient, found.sender, found.id);
    Event { recipient, sender, message_id, client, ..event }
}

fn refusal(found: &postfix::Refusal<'_>) -> Refusal {
    let stage = match found.command {
        "CONNECT" => Stage::Connect,
        "HELO" | "EHLO" => Stage::Helo,
        "AUTH" => Stage::Auth,
        "MAIL" => Stage::Mail,
        "RCPT" => Stage::Rcpt,
        "DATA" | "BDAT" | "END-OF-MESSAGE" => Stage::Data,
        _ => Stage::Other,
    };
    let limited = found.limited || limited::mentions(found.reason);
    let reason = found.reason.to_owned();
    Refusal { stage, temporary: found.temporary, limited, reason }
}
