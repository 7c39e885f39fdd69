//! Joins Exim's lines to items.

use std::collections::HashSet;

use super::{
    FailedLogin, Item, ItemKind, Joiner, LogWriter, LoginShown, Message, Reason, Refusal, Server,
    SessionKey, Stage, Text, Visit, Waiting, add,
};
use crate::event::{Event, Origin};
use crate::logs::exim::{self, Arrival, Delivery, Host, What};
use crate::logs::files::Stamped;
use crate::rate::Timestamp;

impl Joiner {
    pub(super) fn exim(
        &mut self,
        source: LogWriter,
        syslog_pid: Option<u32>,
        line: &Stamped<'_>,
        visit: Visit<'_>,
    ) {
        let at = line.at;
        let exim::Line { pid, id, what } = exim::line(line.rest);
        let (pid, mail) = (pid.or(syslog_pid), id.unwrap_or_default());
        let is_login = matches!(what, What::FailedLogin(_));
        let is_refused = is_login || matches!(what, What::Refusal(_) | What::Discarded(_));
        if is_refused
            && let Some(pid) = syslog_pid
            && self.copies.is_copy(source, pid, line, is_login)
        {
            return self.unused(Reason::Copy, line);
        }
        let session = host_of(&what).and_then(|host| self.exim_session(source, host, pid, at));
        let item = |hides_login, event: Event<&str>, what| {
            let (session, login) = login_of(session, hides_login);
            Item { at, session, login, server: Server::Exim, event: event.map(Text::from), what }
        };
        let item = match what {
            What::Arrival(arrival) => {
                self.counts.used += 1;
                return self.arrival(source.queue, at, session, mail, &arrival, visit);
            }
            What::Recipient { address, result, failure } => {
                self.counts.used += 1;
                self.recipient(source.queue, mail, address, result);
                if let Some(failure) = failure {
                    self.failed((source.queue, mail), address, failure, at, visit);
                }
                return;
            }
            What::Completed => {
                self.counts.used += 1;
                self.submitted.end(source.queue, mail, at);
                return self.complete(source.queue, mail, visit);
            }
            What::Refusal(refusal) => {
                let (event, mut found) = refused(&refusal, id);
                let client = event.client.address();
                found.limited =
                    self.announced.is_limited(at, (source.host, pid), client, &found.reason);
                item(refusal.hides_login, event, ItemKind::Refusal(found))
            }
            What::Discarded(refusal) => {
                let (event, found) = refused(&refusal, id);
                item(refusal.hides_login, event, ItemKind::Discarded(found))
            }
            What::FailedLogin(login) => {
                let user = login.user.map(Text::from);
                let failed = FailedLogin { user, temporary: login.temporary };
                item(false, of_client(login.host), ItemKind::FailedLogin(failed))
            }
            What::Incomplete(found) => {
                let sender = Some(found.sender);
                let event = Event { sender, ..by(found.host, found.auth, found.user) };
                let recipients = exim::recipients(found.recipients.unwrap_or_default());
                let recipients = recipients.map(Text::from).collect();
                let what = ItemKind::Incomplete { recipients };
                item(found.hides_login, event, what)
            }
            What::Connect(host) => item(false, of_client(host), ItemKind::Connect),
            What::Close(host) => item(false, of_client(host), ItemKind::Close),
            What::Known => return self.unused(Reason::Silent, line),
            What::Other(text) => {
                return match self.announced.line(at, (source.host, pid), text) {
                    Some(_) => self.counts.used += 1,
                    None => self.unused(Reason::NotUnderstood, line),
                };
            }
        };
        self.counts.used += 1;
        self.push(item, visit);
    }

    /// The session of a client: by its port, else by the process.
    fn exim_session(
        &mut self,
        source: LogWriter,
        host: Host<'_>,
        pid: Option<u32>,
        at: Timestamp,
    ) -> Option<SessionKey> {
        let client = address(host);
        if let (Some(client), Some(port)) = (client, host.port) {
            return Some(SessionKey::Port { host: source.host, client, port });
        }
        let process = (source.service, pid?);
        Some(self.processes.session(process, client, at, false, &mut false).0)
    }

    fn arrival(
        &mut self,
        queue: u32,
        at: Timestamp,
        session: Option<SessionKey>,
        id: &str,
        arrival: &Arrival<'_>,
        visit: Visit<'_>,
    ) {
        let early = self.queue(queue).take_early(id);
        let event = Event {
            sender: Some(bare(arrival.sender)),
            message_id: Some(id),
            protocol: arrival.protocol,
            ..by(arrival.host, arrival.auth, arrival.user)
        };
        let mut message = Message {
            size: arrival.size,
            recipients: Vec::new(),
            recipients_known: arrival.recipients.is_some(),
        };
        let mut known = HashSet::new();
        if self.settings.recipients {
            // Exim counts a recipient as often as the client names it.
            let named = exim::recipients(arrival.recipients.unwrap_or_default());
            message.recipients.extend(named.map(Text::from));
        }
        for one in early {
            add(&mut message.recipients, &mut known, one);
        }
        let is_open = !message.recipients_known && self.settings.recipients;
        self.counts.ambiguous += u64::from(arrival.hides_login);
        let (session, login) = login_of(session, arrival.hides_login);
        let what = ItemKind::Message(message);
        let item =
            Item { at, session, login, server: Server::Exim, event: event.map(Text::from), what };
        // Any local user can submit a message without a sender.
        let is_bounce = arrival.sender == "<>" && arrival.has_reference && item.submitter().system;
        self.submit(queue, &item, is_bounce);
        if !is_open {
            return self.push(item, visit);
        }
        self.await_more(Waiting { known, ..Waiting::of(item, queue) }, visit);
    }

    fn recipient(&mut self, queue: u32, id: &str, address: &str, result: Delivery) {
        let lists = self.settings.recipients;
        let of = self.queue(queue);
        let Some(&number) = of.open.get(id) else {
            if result == Delivery::Passed && lists {
                of.add_early(id, address);
            }
            return;
        };
        self.add_recipient(number, address);
    }
}

/// The session and the login of a line, which may not say who has logged in: other lines do, where
/// they are surely of the same session.
fn login_of(session: Option<SessionKey>, is_hidden: bool) -> (Option<SessionKey>, LoginShown) {
    match session {
        _ if !is_hidden => (session, LoginShown::InLine),
        Some(SessionKey::Port { .. }) => (session, LoginShown::InSession),
        _ => (None, LoginShown::Nowhere),
    }
}

/// The client of a line that belongs to a session.
fn host_of<'a>(what: &What<'a>) -> Option<Host<'a>> {
    match what {
        What::Arrival(Arrival { host, .. })
        | What::Refusal(exim::Refusal { host, .. })
        | What::Discarded(exim::Refusal { host, .. })
        | What::FailedLogin(exim::FailedLogin { host, .. })
        | What::Incomplete(exim::Incomplete { host, .. })
        | What::Close(host) => Some(*host),
        // The line of a client without its port has the daemon's process.
        What::Connect(host) if host.address.is_none() || host.port.is_some() => Some(*host),
        _ => None,
    }
}

fn address(host: Host<'_>) -> Option<std::net::IpAddr> {
    host.address?.parse().ok()
}

/// What is known of an event of this client; without one, it is of a program.
pub(super) fn of_client(host: Host<'_>) -> Event<&str> {
    by(host, None, None)
}

/// What is known of an event of this client, by this login or local user.
pub(super) fn by<'a>(
    host: Host<'a>,
    auth: Option<&'a str>,
    user: Option<&'a str>,
) -> Event<&'a str> {
    let client = match host.address {
        None => Origin::Program,
        Some(_) => Origin::of_client(address(host)),
    };
    Event { auth, local_account: user, client, helo: host.helo, ..Event::default() }
}

/// Without the brackets of a bounce's sender.
fn bare(sender: &str) -> &str {
    if sender == "<>" { "" } else { sender }
}

/// A refusal, as Exim's line has it.
fn refused<'a>(found: &exim::Refusal<'a>, id: Option<&'a str>) -> (Event<&'a str>, Refusal) {
    let (stage, command) = stage(found.what);
    let mut event = Event {
        sender: found.sender,
        message_id: id,
        recipient: found.recipient,
        ..by(found.host, found.auth, found.user)
    };
    let reason = match (stage, command.strip_prefix('<')) {
        (Stage::Rcpt | Stage::Mail, Some(after)) => {
            let (address, reason) = exim::bracketed(after).unwrap_or((after, ""));
            match stage {
                Stage::Mail => event.sender = Some(address),
                _ => event.recipient = Some(address),
            }
            reason
        }
        _ => command,
    };
    let reason = reason.split_once(": ").map_or("", |(_, reason)| reason);
    let reason = found.reason.unwrap_or(reason).to_owned();
    (event, Refusal { stage, temporary: found.temporary, limited: false, reason })
}

/// The stage of `RCPT <r@x>: no such user`, and what follows the command.
fn stage(what: &str) -> (Stage, &str) {
    const STAGES: [(&str, Stage); 12] = [
        ("RCPT", Stage::Rcpt),
        ("MAIL", Stage::Mail),
        ("after DATA", Stage::Data),
        ("DATA", Stage::Data),
        ("during MIME ACL", Stage::Data),
        ("by non-SMTP ACL", Stage::Data),
        ("by local_scan", Stage::Data),
        ("message", Stage::Data),
        ("EHLO", Stage::Helo),
        ("HELO", Stage::Helo),
        ("AUTH", Stage::Auth),
        ("connection", Stage::Connect),
    ];
    let found = STAGES.iter().find_map(|(start, stage)| Some((*stage, what.strip_prefix(start)?)));
    let (stage, after) = found.unwrap_or((Stage::Other, what));
    (stage, after.strip_prefix(' ').unwrap_or(after))
}
