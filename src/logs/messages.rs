//! Joins the lines of logs to items: messages with their recipients, refusals, sessions.
//!
//! Items come in the order of their first lines. A message waits for the lines of its
//! deliveries only if its arrival does not name its recipients; whatever follows it waits
//! as well. What waits is bounded.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;

use super::exim::{self, Arrival, Delivery, Host, What};
use super::files::Stamped;
pub use super::item::{FailedLogin, Item, ItemKind, Message, Refusal, SessionKey, Stage, Text};
use super::limited::Announced;
use super::postfix;
use super::split::{Part, Parts};
use super::stamp;
use crate::event::{Event, Origin};
use crate::rate::Timestamp;

mod postfix_lines;

/// At most so many items wait, and so many bytes.
const WAITING_MAX: usize = 65_536;
const BYTES_MAX: usize = 64 << 20;
/// At most so many messages were delivered (cutthrough) before their arrival.
const EARLY_MAX: usize = 1024;
/// What an item needs besides its texts, about.
const ITEM_BYTES: usize = 320;
/// So many characters of the first line that was not understood are kept.
const EXAMPLE_MAX: usize = 200;

/// What the items are for.
#[derive(Clone, Copy, Debug)]
pub struct JoinSettings {
    /// List the recipients of messages; where an arrival does not name them, wait for the
    /// lines of its deliveries.
    pub recipients: bool,
}

impl Default for JoinSettings {
    fn default() -> Self {
        Self { recipients: true }
    }
}

/// What became of the lines.
#[derive(Clone, Debug, Default)]
pub struct JoinCounts {
    /// Lines of which items were made.
    pub used: u64,
    /// Lines that say nothing of who sends how much.
    pub known: u64,
    /// Lines of other programs in the same log.
    pub of_others: u64,
    /// Lines of another form than is known: what ACLs log, for instance.
    pub not_understood: u64,
    /// The first of these: `FILE:LINE`, and its start.
    pub first_not_understood: Option<(String, String)>,
    /// Messages that were not waited for until their end, as too much would have waited:
    /// recipients may be missing.
    pub given_up: u64,
}

/// Joins the lines of logs to items.
#[derive(Debug, Default)]
pub struct Joiner {
    settings: JoinSettings,
    waiting: VecDeque<Waiting>,
    /// The number of the first that waits; each item has a number.
    first: u64,
    bytes: usize,
    /// The numbers of messages that are not complete, by id.
    open: HashMap<Text, u64>,
    /// Recipients of messages that were delivered before their arrival was logged.
    early: HashMap<String, Vec<Text>>,
    /// Messages of Postfix that have not been received yet.
    begun: HashMap<String, Begun>,
    parts: Parts,
    announced: Announced,
    counts: JoinCounts,
}

/// What is known of a message that is not active yet.
#[derive(Clone, Debug, Default)]
struct Begun {
    session: Option<SessionKey>,
    event: Event<Text>,
}

/// An item, and whether more lines may belong to it.
#[derive(Debug)]
struct Waiting {
    item: Item,
    open: bool,
    bytes: usize,
    /// The recipients, where there are many.
    known: HashSet<Text>,
    /// Of Postfix: the recipients after aliases that have been seen, of how many.
    delivered: HashSet<String>,
    expected: usize,
}

impl Waiting {
    /// One that is complete.
    fn of(item: Item, size: fn(&Item) -> usize) -> Self {
        let bytes = size(&item);
        let (known, delivered) = (HashSet::new(), HashSet::new());
        Self { item, open: false, bytes, known, delivered, expected: 0 }
    }
}

/// What receives the items.
pub type Visit<'a> = &'a mut dyn FnMut(Item);

impl Joiner {
    /// Of a log's lines, from its start.
    #[must_use]
    pub fn new(settings: JoinSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Considers a line, and calls `visit` with every item that is complete.
    pub fn line(&mut self, line: &Stamped<'_>, visit: Visit<'_>) {
        let Some(program) = line.program else {
            return self.exim(line.at, None, line.rest, line, visit);
        };
        let (name, pid) = process(program);
        if let Some(daemon) = postfix::daemon(name) {
            return self.postfix(daemon, pid, line, visit);
        }
        if !name.starts_with("exim") {
            return self.counts.of_others += 1;
        }
        match self.parts.line(program, line.rest) {
            Part::Whole => self.exim(line.at, pid, line.rest, line, visit),
            Part::Waits => self.counts.known += 1,
            Part::Joined(whole) => {
                let rest = stamp::exim(&whole).map_or(&*whole, |(_, rest)| rest);
                self.exim(line.at, pid, rest, line, visit);
            }
        }
    }

    /// The log has ended: what waits is complete.
    pub fn finish(&mut self, visit: Visit<'_>) {
        for one in self.waiting.drain(..) {
            visit(one.item);
        }
        self.bytes = 0;
        self.open.clear();
        self.early.clear();
        self.begun.clear();
    }

    /// What became of the lines so far.
    #[must_use]
    pub fn counts(&self) -> &JoinCounts {
        &self.counts
    }

    fn exim(
        &mut self,
        at: Timestamp,
        syslog_pid: Option<u32>,
        rest: &str,
        whole: &Stamped<'_>,
        visit: Visit<'_>,
    ) {
        let exim::Line { pid, id, what } = exim::line(rest);
        let pid = pid.or(syslog_pid);
        let item = |event: Event<&str>, host: Host<'_>, what| Item {
            at,
            session: session(host, pid),
            event: event.map(Text::from),
            what,
        };
        let item = match what {
            What::Arrival(arrival) => {
                self.counts.used += 1;
                let session = session(arrival.host, pid);
                return self.arrival(at, session, id.unwrap_or_default(), &arrival, visit);
            }
            What::Recipient { address, result } => {
                self.counts.used += 1;
                return self.recipient(id.unwrap_or_default(), address, result);
            }
            What::Completed => {
                self.counts.used += 1;
                return self.complete(id.unwrap_or_default(), visit);
            }
            What::Refusal(refusal) => {
                let (event, mut found) = refused(&refusal, id);
                let client = event.client.address();
                found.limited = self.announced.is_limited(at, pid, client, &found.reason);
                item(event, refusal.host, ItemKind::Refusal(found))
            }
            What::Discarded(refusal) => {
                let (event, found) = refused(&refusal, id);
                item(event, refusal.host, ItemKind::Discarded(found))
            }
            What::FailedLogin(login) => {
                let user = login.user.map(Text::from);
                let failed = FailedLogin { user, temporary: login.temporary };
                item(of_client(login.host), login.host, ItemKind::FailedLogin(failed))
            }
            What::Incomplete(found) => {
                let sender = Some(found.sender);
                let event = Event { sender, ..by(found.host, found.auth, found.user) };
                let recipients = exim::recipients(found.recipients.unwrap_or_default());
                let recipients = recipients.map(Text::from).collect();
                item(event, found.host, ItemKind::Incomplete { recipients })
            }
            What::Connect(host) => {
                // The line of a client without its port has the daemon's process.
                let session = match host.address {
                    Some(_) => session(host, None),
                    None => session(host, pid),
                };
                Item { session, ..item(of_client(host), host, ItemKind::Connect) }
            }
            What::Close(host) => item(of_client(host), host, ItemKind::Close),
            What::Known => return self.counts.known += 1,
            What::Other(text) => {
                return match self.announced.line(at, pid, text) {
                    Some(_) => self.counts.used += 1,
                    None => self.counts.not_understood(whole),
                };
            }
        };
        self.counts.used += 1;
        self.push(item, visit);
    }

    fn arrival(
        &mut self,
        at: Timestamp,
        session: Option<SessionKey>,
        id: &str,
        arrival: &Arrival<'_>,
        visit: Visit<'_>,
    ) {
        let early = match self.early.is_empty() {
            true => None,
            false => self.early.remove(id),
        };
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
        for one in early.into_iter().flatten() {
            add(&mut message.recipients, &mut known, one);
        }
        let is_open = !message.recipients_known && self.settings.recipients;
        let item =
            Item { at, session, event: event.map(Text::from), what: ItemKind::Message(message) };
        if !is_open {
            return self.push(item, visit);
        }
        self.await_recipients(Waiting { known, ..Waiting::of(item, size) }, visit);
    }

    /// A message waits for the lines of its deliveries.
    fn await_recipients(&mut self, mut one: Waiting, visit: Visit<'_>) {
        let number = self.first + self.waiting.len() as u64;
        let id = one.item.event.message_id.clone().unwrap_or_default();
        // An id that comes twice is that of another message: the log of another server.
        if let Some(before) = self.open.insert(id, number) {
            self.close(before);
        }
        one.open = true;
        self.wait(one);
        self.release(visit);
    }

    fn recipient(&mut self, id: &str, address: &str, result: Delivery) {
        let Some(&number) = self.open.get(id) else {
            if result == Delivery::Passed && self.settings.recipients {
                if self.early.len() >= EARLY_MAX {
                    self.early.clear();
                }
                self.early.entry(id.to_owned()).or_default().push(address.into());
            }
            return;
        };
        if let Some(one) = self.at(number)
            && let ItemKind::Message(message) = &mut one.item.what
            && add(&mut message.recipients, &mut one.known, address.into())
        {
            let more = 2 * (address.len() + 48);
            one.bytes += more;
            self.bytes += more;
        }
    }

    fn complete(&mut self, id: &str, visit: Visit<'_>) {
        let Some(number) = self.open.remove(id) else { return };
        if let Some(one) = self.at(number)
            && let ItemKind::Message(message) = &mut one.item.what
        {
            message.recipients_known = !message.recipients.is_empty();
        }
        self.close(number);
        self.release(visit);
    }

    fn at(&mut self, number: u64) -> Option<&mut Waiting> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.waiting.get_mut(place)
    }

    fn close(&mut self, number: u64) {
        if let Some(one) = self.at(number) {
            one.open = false;
            (one.known, one.delivered) = (HashSet::new(), HashSet::new());
        }
    }

    /// Adds an item that is complete.
    fn push(&mut self, item: Item, visit: Visit<'_>) {
        if self.waiting.is_empty() {
            self.first += 1;
            return visit(item);
        }
        self.wait(Waiting::of(item, size));
        self.release(visit);
    }

    fn wait(&mut self, one: Waiting) {
        self.bytes += one.bytes;
        self.waiting.push_back(one);
    }

    /// Hands over what is complete, and what is not where too much waits.
    fn release(&mut self, visit: Visit<'_>) {
        loop {
            let is_full = self.waiting.len() > WAITING_MAX || self.bytes > BYTES_MAX;
            let is_ready = self.waiting.front().is_some_and(|first| !first.open || is_full);
            if !is_ready {
                return;
            }
            let Some(first) = self.waiting.pop_front() else { return };
            if first.open {
                self.open.remove(first.item.event.message_id.as_deref().unwrap_or_default());
                self.counts.given_up += 1;
            }
            self.first += 1;
            self.bytes = self.bytes.saturating_sub(first.bytes);
            visit(first.item);
        }
    }
}

impl JoinCounts {
    /// Counts a line that was not understood.
    pub(super) fn not_understood(&mut self, line: &Stamped<'_>) {
        self.not_understood += 1;
        self.first_not_understood.get_or_insert_with(|| {
            let (file, number) = line.place;
            (format!("{file}:{number}"), line.line.chars().take(EXAMPLE_MAX).collect())
        });
    }
}

/// Few recipients are compared one by one.
const FEW: usize = 16;

/// Adds a recipient; `false` if it is known already.
fn add(recipients: &mut Vec<Text>, known: &mut HashSet<Text>, one: Text) -> bool {
    if recipients.len() < FEW {
        if recipients.contains(&one) {
            return false;
        }
    } else {
        if known.is_empty() {
            known.extend(recipients.iter().cloned());
        }
        if !known.insert(one.clone()) {
            return false;
        }
    }
    recipients.push(one);
    true
}

/// About how much memory an item takes.
fn size(item: &Item) -> usize {
    ITEM_BYTES + item.text_bytes()
}

/// `exim4[712]`: the program's name and its process.
fn process(program: &str) -> (&str, Option<u32>) {
    match program.strip_suffix(']').and_then(|program| program.split_once('[')) {
        Some((name, pid)) => (name, pid.parse().ok()),
        None => (program, None),
    }
}

fn session(host: Host<'_>, pid: Option<u32>) -> Option<SessionKey> {
    let port = address(host).zip(host.port).map(|(client, port)| SessionKey::Port(client, port));
    port.or(pid.map(SessionKey::Process))
}

fn address(host: Host<'_>) -> Option<std::net::IpAddr> {
    host.address?.parse().ok()
}

/// What is known of an event of this client; without one, it is of a program.
fn of_client(host: Host<'_>) -> Event<&str> {
    by(host, None, None)
}

/// What is known of an event of this client, by this login or local user.
fn by<'a>(host: Host<'a>, auth: Option<&'a str>, user: Option<&'a str>) -> Event<&'a str> {
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

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(client, port) => write!(f, "[{client}]:{port}"),
            Self::Process(pid) => write!(f, "process {pid}"),
        }
    }
}

#[cfg(test)]
mod tests;
