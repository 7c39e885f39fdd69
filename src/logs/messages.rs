//! Joins the lines of logs to items: messages with their recipients, refusals, sessions.
//!
//! Items come in the order of their first lines. A message waits for the lines of its
//! deliveries only if its arrival does not name its recipients, and for the lines that say who
//! sent it if its own do not; whatever follows it waits as well. What waits is bounded.
//!
//! Each server of a log has queues and processes of its own ([`sources`](super::sources)).

use std::collections::{HashSet, VecDeque};

use super::copies::Copies;
use super::failure::Failure;
use super::files::Stamped;
pub use super::item::{
    FailedLogin, Item, ItemKind, LoginShown, Message, Refusal, Server, SessionKey, Stage, Text,
    Undelivered,
};
use super::limited::Announced;
use super::postfix;
use super::queue::Queue;
use super::sendmail::is_sendmail;
use super::sources::{LogWriter, Processes, Sources};
use super::split::{LinePart, Parts};
use super::stamp::{self, REPEATED, Tag};
use super::submitted::{Submission, Submitted};
use super::unused::{Reason, Unused};
use crate::rate::Timestamp;

mod exim_lines;
mod postfix_lines;
mod relinked;
mod sendmail_lines;

/// At most so many items wait, and so many bytes.
const WAITING_MAX: usize = 65_536;
const BYTES_MAX: usize = 64 << 20;
/// So long after its end or its first failure, in seconds, a line may still say that a message is
/// another one that came back.
const SETTLED_AFTER: i64 = 10;
/// What an item needs besides its texts, about.
const ITEM_BYTES: usize = 320;
/// syslog replaces at most so many equal lines by one that counts them.
const REPEATED_MAX: u32 = 1_000_000;

/// What the items are for.
#[derive(Clone, Copy, Debug)]
pub struct JoinSettings {
    /// List the recipients of messages; where an arrival does not name them, wait for the
    /// lines of its deliveries.
    pub recipients: bool,
    /// Tell what became of the mail: [`ItemKind::Failed`].
    pub failures: bool,
}

impl Default for JoinSettings {
    fn default() -> Self {
        Self { recipients: true, failures: true }
    }
}

/// What became of the lines.
#[derive(Clone, Debug, Default)]
pub struct JoinCounts {
    /// Lines that were used.
    pub used: u64,
    /// Those that were not, by reason.
    pub unused: Unused,
    /// Messages that were not waited for until their end, as too much would have waited:
    /// recipients may be missing.
    pub given_up: u64,
    /// Messages of which the log does not show who handed them over: their clients and logins
    /// are not known.
    pub without_origin: u64,
    /// Messages whose line can be read in two ways, as the client has written what looks like a
    /// login: who has logged in is not known.
    pub ambiguous: u64,
    /// Messages that were received before the log begins, which are not counted.
    pub before: u64,
}

/// Joins the lines of logs to items.
#[derive(Debug, Default)]
pub struct Joiner {
    settings: JoinSettings,
    waiting: VecDeque<Waiting>,
    /// The number of the first that waits; each item has a number.
    first: u64,
    bytes: usize,
    sources: Sources,
    processes: Processes,
    submitted: Submitted,
    /// By the number of the queue.
    queues: Vec<Queue>,
    /// Of each host by its number: messages that wait for a filter before the queue.
    proxied: Vec<u32>,
    /// Messages that count for whoever handed them over from these times on, in seconds, unless a
    /// line says before that they are others that came back; and whether they end then.
    settling: VecDeque<(i64, u64, bool)>,
    /// What syslog may say was repeated: the source, the daemon and the text of the last line.
    last: Option<(Tagged, String)>,
    parts: Parts,
    announced: Announced,
    copies: Copies,
    counts: JoinCounts,
}

/// Whose line it is, as text.
#[derive(Debug, Default)]
struct Tagged {
    host: String,
    program: String,
    pid: Option<u32>,
}

/// An item, and whether more lines may belong to it.
#[derive(Debug)]
struct Waiting {
    item: Item,
    /// The number of the queue it is in.
    queue: u32,
    open: bool,
    /// It is another one that came back: it is not counted.
    is_dropped: bool,
    /// Whether lines to come may say who handed it over.
    origin: OriginShown,
    bytes: usize,
    /// The recipients, where there are many.
    known: HashSet<Text>,
    /// Of Postfix: the recipients after aliases that have been seen, of how many.
    delivered: HashSet<String>,
    expected: usize,
    /// The numbers of its failures, which wait for who handed it over.
    failures: Vec<u64>,
}

/// Whether the log has shown who handed a message over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OriginShown {
    /// It has.
    Yes,
    /// A client of this machine's network has, who may be a filter.
    Perhaps,
    /// It has not.
    No,
}

impl Waiting {
    /// One that is complete.
    fn of(item: Item, queue: u32) -> Self {
        let bytes = ITEM_BYTES + item.text_bytes();
        Self {
            item,
            queue,
            open: false,
            is_dropped: false,
            origin: OriginShown::Yes,
            bytes,
            known: HashSet::new(),
            delivered: HashSet::new(),
            expected: 0,
            failures: Vec::new(),
        }
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
        let Some(tag) = line.tag else {
            return self.exim(LogWriter::default(), None, line, visit);
        };
        if let Some((count, text)) = repeated(line.rest) {
            for _ in 0..count {
                self.of_program(tag, &Stamped { rest: text, ..*line }, visit);
            }
            return;
        }
        if tag.program.is_empty() {
            return self.repeat(tag, line, visit);
        }
        self.of_program(tag, line, visit);
        let (last, text) = self.last.get_or_insert_default();
        last.host.replace_range(.., tag.host);
        last.program.replace_range(.., tag.program);
        last.pid = tag.pid;
        text.replace_range(.., line.rest);
    }

    /// `last message repeated 4 times`, of the last line of the file.
    fn repeat(&mut self, tag: Tag<'_>, line: &Stamped<'_>, visit: Visit<'_>) {
        let last = self.last.take().filter(|(last, _)| last.host == tag.host);
        let count = line.rest.strip_prefix(REPEATED).and_then(|rest| rest.split_once(' '));
        let count = count.and_then(|(count, _)| count.parse().ok()).unwrap_or(0);
        let Some((last, text)) = last else { return self.unused(Reason::NotUnderstood, line) };
        let tag = Tag { host: tag.host, program: &last.program, pid: last.pid };
        for _ in 0..count.min(REPEATED_MAX) {
            self.of_program(tag, &Stamped { rest: &text, ..*line }, visit);
        }
    }

    fn of_program(&mut self, tag: Tag<'_>, line: &Stamped<'_>, visit: Visit<'_>) {
        let daemon = postfix::daemon(tag.program);
        let instance = match daemon {
            Some((instance, _)) => instance,
            None if tag.program.starts_with("exim") => "exim",
            None if is_sendmail(tag.program) => "sendmail",
            None => {
                if let Some(ids) = postfix::requeued(line.rest) {
                    self.counts.used += 1;
                    return self.requeued(tag.host, ids);
                }
                return self.unused(Reason::OtherProgram, line);
            }
        };
        let Some(source) = self.sources.of(tag.host, instance, tag.program) else {
            return self.unused(Reason::TooManyServers, line);
        };
        if let Some((_, daemon)) = daemon {
            return self.postfix(source, daemon, tag.pid, line, visit);
        }
        if is_sendmail(tag.program) {
            return self.sendmail(source, tag.pid, line, visit);
        }
        match self.parts.line((source.service, tag.pid), line.rest) {
            LinePart::Whole => self.exim(source, tag.pid, line, visit),
            LinePart::Waits => self.unused(Reason::Part, line),
            LinePart::Joined(whole) => {
                let rest = stamp::without_own_time(&whole);
                self.exim(source, tag.pid, &Stamped { rest, ..*line }, visit);
            }
        }
    }

    /// All lines that were written before `now` have been considered.
    pub fn caught_up(&mut self, now: Timestamp, visit: Visit<'_>) {
        self.settle(now, visit);
    }

    /// The log has ended: what waits is complete.
    pub fn finish(&mut self, visit: Visit<'_>) {
        while let Some(one) = self.waiting.pop_front() {
            self.hand_over(one, visit);
        }
        self.bytes = 0;
        self.settling.clear();
        self.queues.clear();
    }

    /// What became of the lines so far.
    #[must_use]
    pub fn counts(&self) -> &JoinCounts {
        &self.counts
    }

    /// When the first of the messages that are in a queue was received: what becomes of them is
    /// not known without the log since then.
    pub fn oldest(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.submitted.oldest(now)
    }

    /// How many messages in queues were forgotten, as there were too many: what becomes of them is
    /// not known.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.submitted.forgotten
    }

    /// A message was received. What becomes of a bounce of the mail server's own is nobody's fault.
    fn submit(&mut self, queue: u32, item: &Item, is_bounce: bool) {
        if self.settings.failures
            && !is_bounce
            && let Some(id) = &item.event.message_id
        {
            let hides_login = item.login != LoginShown::InLine;
            let Item { at, server, .. } = *item;
            let one = Submission { at, event: item.event.clone(), hides_login, server };
            self.submitted.add(queue, id, one);
        }
    }

    /// A recipient could not be delivered to.
    fn failed(
        &mut self,
        (queue, id): (u32, &str),
        recipient: &str,
        failure: Failure,
        at: Timestamp,
        visit: Visit<'_>,
    ) {
        let Some(submission) = self.submitted.get(queue, id) else { return };
        let item = submission.failure(recipient.into(), failure, at);
        let of = self.queue(queue).open.get(id).copied();
        let waits = of.is_some_and(|of| self.awaits_origin(of));
        if !waits && !self.settings.recipients {
            return visit(item);
        }
        let number = self.next_number();
        self.push(item, visit);
        if waits && let Some(one) = of.and_then(|of| self.at(of)) {
            one.failures.push(number);
            let settled = at.seconds.saturating_add(SETTLED_AFTER);
            self.settling.extend(of.map(|of| (settled, of, false)));
        }
    }

    /// Whether lines to come may say who handed over the message of this number.
    fn awaits_origin(&mut self, number: u64) -> bool {
        self.at(number).is_some_and(|one| one.origin == OriginShown::Perhaps)
    }

    /// The failures of a message that waited count for whoever is known now to have submitted it;
    /// for nobody, if nobody is.
    fn settle_failures(&mut self, number: u64, (queue, id): (u32, &str)) {
        let Some(one) = self.at(number) else { return };
        let numbers = std::mem::take(&mut one.failures);
        let submission = self.submitted.get(queue, id).cloned();
        for number in numbers {
            let Some(one) = self.at(number) else { continue };
            let ItemKind::Failed(Undelivered { failure, .. }) = one.item.what else { continue };
            match (&submission, one.item.event.recipient.take()) {
                (Some(submission), Some(recipient)) => {
                    one.item = submission.failure(recipient, failure, one.item.at);
                }
                _ => one.is_dropped = true,
            }
        }
    }

    fn unused(&mut self, reason: Reason, line: &Stamped<'_>) {
        self.counts.unused.add(reason, line.place, line.line);
    }

    /// The queue with this number.
    fn queue(&mut self, number: u32) -> &mut Queue {
        let place = number as usize;
        if place >= self.queues.len() {
            self.queues.resize_with(place + 1, Queue::default);
        }
        &mut self.queues[place]
    }

    fn at(&mut self, number: u64) -> Option<&mut Waiting> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.waiting.get_mut(place)
    }

    /// Adds a recipient to a message that waits. Whether it has as many now as are expected.
    fn add_recipient(&mut self, number: u64, address: &str) -> bool {
        let Some(one) = self.at(number) else { return false };
        let ItemKind::Message(message) = &mut one.item.what else { return false };
        let is_new = add(&mut message.recipients, &mut one.known, address.into());
        let more = if is_new { 2 * (address.len() + 48) } else { 0 };
        one.bytes += more;
        let has_all = message.recipients.len() >= one.expected;
        self.bytes += more;
        has_all
    }

    /// The number of the next item.
    fn next_number(&self) -> u64 {
        self.first + self.waiting.len() as u64
    }

    /// The message of this id waits for more lines.
    fn await_more(&mut self, mut one: Waiting, visit: Visit<'_>) {
        let number = self.next_number();
        let id = one.item.event.message_id.clone().unwrap_or_default();
        // An id that comes twice is that of another message.
        if let Some(before) = self.queue(one.queue).open.insert(id, number) {
            self.close(before);
        }
        one.open = true;
        self.wait(one);
        self.release(visit);
    }

    fn complete(&mut self, queue: u32, id: &str, visit: Visit<'_>) {
        let Some(number) = self.queue(queue).open.remove(id) else { return };
        if let Some(one) = self.at(number)
            && let ItemKind::Message(message) = &mut one.item.what
        {
            message.recipients_known = !message.recipients.is_empty();
        }
        self.close(number);
        self.release(visit);
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
        self.wait(Waiting::of(item, 0));
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
                let id = first.item.event.message_id.as_deref().unwrap_or_default();
                self.queue(first.queue).open.remove(id);
                self.counts.given_up += 1;
            }
            self.first += 1;
            self.bytes = self.bytes.saturating_sub(first.bytes);
            self.hand_over(first, visit);
        }
    }

    fn hand_over(&mut self, one: Waiting, visit: Visit<'_>) {
        if one.is_dropped {
            return;
        }
        self.counts.without_origin += u64::from(one.origin == OriginShown::No);
        visit(one.item);
    }
}

/// `message repeated 4 times: [ text]`, as rsyslog writes it: how often, and the text.
fn repeated(rest: &str) -> Option<(u32, &str)> {
    let (count, text) = rest.strip_prefix("message repeated ")?.split_once(" times: [ ")?;
    let count: u32 = count.parse().ok()?;
    let text = text.strip_suffix(']')?;
    Some((count.min(REPEATED_MAX), stamp::without_own_time(text)))
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

#[cfg(test)]
mod tests;
#[cfg(test)]
mod written_tests;
