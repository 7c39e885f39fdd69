//! Messages of Postfix that come twice: through a filter, or put into the queue again. Each counts
//! once, as that of whoever sent it first.
//!
//! - A filter after the queue sends it to another port, with XFORWARD (`orig_queue_id=`) or, on
//!   this machine, without; then the line of the delivery to the filter names the new id.
//! - A filter before the queue (`smtpd_proxy_filter`) has it from a `smtpd` that logs the client and
//!   the login (`NOQUEUE: client=…`), and later the new id (`proxy-accept: … queued as ID`).
//! - A scanner that takes it out of the queue says so (MailScanner: `Requeue: OLD to NEW`).
//! - `local` forwards it (`forwarded as ID`).

use std::net::IpAddr;

use super::postfix_lines::is_of_this_machine;
use super::{
    Item, ItemKind, Joiner, LogWriter, LoginShown, Message, OriginShown, SETTLED_AFTER, Server,
    Text, Visit,
};
use crate::event::{Event, Origin};
use crate::logs::files::Stamped;
use crate::logs::postfix::{Begin, Recipient};
use crate::logs::queue::{Begun, Known};
use crate::logs::submitted::Submission;
use crate::rate::Timestamp;

impl Joiner {
    /// The queues of a host, its own first.
    pub(super) fn queues_of(&self, source: LogWriter) -> Vec<u32> {
        let of_host = |number: &u32| {
            self.queues.get(*number as usize).is_some_and(|queue| queue.host == source.host)
        };
        let all = (0..self.queues.len() as u32).filter(of_host);
        [source.queue].into_iter().chain(all.filter(|number| *number != source.queue)).collect()
    }

    /// Whether a message of this id is known, of this client: on the same host, or on another
    /// that has it from this client.
    pub(super) fn is_known(&mut self, source: LogWriter, id: &str, client: Option<&str>) -> bool {
        let client: Option<IpAddr> = client.and_then(|client| client.parse().ok());
        self.queues.iter().any(|queue| {
            let known = queue.active(id).map(|known| known.client);
            let known = known.or_else(|| queue.begun(id).map(|one| one.event.client.address()));
            known.is_some_and(|of| {
                let is_same = client.is_none() || of.is_none() || of == client;
                is_same && (queue.host == source.host || of.is_some() && of == client)
            })
        })
    }

    /// `smtpd` hands a message to a filter before the queue.
    pub(super) fn proxied(
        &mut self,
        source: LogWriter,
        process: Option<(u32, u32)>,
        begin: &Begin<'_>,
        line: &Stamped<'_>,
    ) {
        let Some(process) = process else { return };
        let client = begin.client.and_then(|client| client.parse().ok());
        let mut left = false;
        let (_, now) = self.processes.session(process, client, line.at, false, &mut left);
        let is_another = !left && now.proxied.is_some();
        let host = crate::logs::exim::Host { address: begin.client, ..Default::default() };
        let mut event = super::exim_lines::by(host, begin.auth, None).map(Text::from);
        event.client = begin.client.map_or(event.client, Origin::of_postfix);
        now.auth.clone_from(&event.auth);
        now.proxied = Some(event);
        if left {
            self.filtered(source.host);
        }
        if !is_another {
            let place = source.host as usize;
            if place >= self.proxied.len() {
                self.proxied.resize(place + 1, 0);
            }
            if let Some(count) = self.proxied.get_mut(place) {
                *count += 1;
            }
        }
    }

    /// A message of this host does not wait for a filter before the queue any more.
    pub(super) fn filtered(&mut self, host: u32) {
        if let Some(count) = self.proxied.get_mut(host as usize) {
            *count = count.saturating_sub(1);
        }
    }

    /// The session of a process ends.
    pub(super) fn left(&mut self, source: LogWriter, process: Option<(u32, u32)>) {
        let now = process.and_then(|process| self.processes.now(process));
        if now.is_some_and(|(_, now)| now.proxied.take().is_some()) {
            self.filtered(source.host);
        }
    }

    /// The filter before the queue has accepted a message of this process.
    pub(super) fn proxy_accepted(
        &mut self,
        source: LogWriter,
        process: Option<(u32, u32)>,
        queued_as: Option<&str>,
        [sender, recipient]: [Option<&str>; 2],
        at: Timestamp,
        visit: Visit<'_>,
    ) {
        let now = process.and_then(|process| self.processes.now(process));
        let Some((session, event)) =
            now.and_then(|(session, now)| Some((session, now.proxied.take()?)))
        else {
            return;
        };
        self.filtered(source.host);
        let found = match queued_as {
            Some(id) => self.of_filter(source, id),
            None => self.only_one_of(source, sender),
        };
        let Some((queue, id)) = found else {
            // The queue is not in the log.
            let message = Message {
                recipients: recipient.map(Text::from).into_iter().collect(),
                ..Message::default()
            };
            let event = Event { sender: sender.map(Text::from), ..event };
            let (session, login) = (Some(session), LoginShown::InLine);
            let what = ItemKind::Message(message);
            return {
                let server = Server::Postfix;
                self.push(Item { at, session, login, server, event, what }, visit)
            };
        };
        self.set_origin(queue, &id, Begun { session: Some(session), event, ..Begun::default() });
        self.end_if_complete(queue, &id, visit);
    }

    /// The queue of a message of this id on the host that has not been handed over.
    fn of_filter(&self, source: LogWriter, id: &str) -> Option<(u32, String)> {
        let has = |number: &u32| {
            let queue = self.queues.get(*number as usize);
            queue.is_some_and(|queue| queue.begun(id).is_some() || queue.open.contains_key(id))
        };
        let queue = self.queues_of(source).into_iter().find(has)?;
        Some((queue, id.to_owned()))
    }

    /// The only message of this sender on the host which waits for who sent it.
    fn only_one_of(&self, source: LogWriter, sender: Option<&str>) -> Option<(u32, String)> {
        let mut found = None;
        for one in &self.waiting {
            let is_of = one.origin == OriginShown::Perhaps
                && one.open
                && one.item.event.sender.as_deref() == sender
                && self.queues.get(one.queue as usize).is_some_and(|q| q.host == source.host);
            if is_of {
                if found.is_some() {
                    return None;
                }
                found = Some((one.queue, one.item.event.message_id.as_deref()?.to_owned()));
            }
        }
        found
    }

    /// It is known now who handed over a message.
    fn set_origin(&mut self, queue: u32, id: &str, of: Begun) {
        if let Some(begun) = self.queue(queue).begun_mut(id) {
            *begun = of;
            return;
        }
        let Some(&number) = self.queue(queue).open.get(id) else { return };
        let Some(one) = self.at(number) else { return };
        let Event { auth, client, local_account, .. } = of.event;
        let event = &mut one.item.event;
        (event.auth, event.client, event.local_account) = (auth, client, local_account);
        one.item.session = of.session;
        one.origin = OriginShown::Yes;
        let (at, event) = (one.item.at, event.clone());
        if self.settings.failures {
            let server = Server::Postfix;
            self.submitted.add(queue, id, Submission { at, event, hides_login: false, server });
            self.settle_failures(number, (queue, id));
        }
    }

    /// A message that waited for its origin alone is complete.
    fn end_if_complete(&mut self, queue: u32, id: &str, visit: Visit<'_>) {
        let lists = self.settings.recipients;
        let Some(&number) = self.queue(queue).open.get(id) else { return };
        let is_complete =
            self.at(number).is_some_and(|one| !lists || one.delivered.len() >= one.expected);
        if is_complete {
            self.complete(queue, id, visit);
        }
    }

    /// The delivery of a message names another: it is the same one.
    pub(super) fn relinked(&mut self, source: LogWriter, of: &Recipient<'_>) {
        if let Some(id) = of.forwarded_as {
            return self.is_again(source.queue, id);
        }
        let (Some(id), Some(relay)) = (of.queued_as, of.relay) else { return };
        // Another server, even of a private network, may be anybody's, and may say anything.
        if !relay.parse().is_ok_and(is_of_this_machine) {
            return;
        }
        for number in self.queues_of(source) {
            let queue = self.queue(number);
            if number == source.queue && id == of.id {
                continue;
            }
            let client = queue.begun(id).map(|begun| begun.event.client.address());
            let Some(client) = client.or_else(|| queue.active(id).map(|known| known.client)) else {
                continue;
            };
            if client.is_some_and(is_of_this_machine) {
                self.submitted.also((source.queue, of.id), (number, id));
                return self.is_again(number, id);
            }
        }
    }

    /// A message is one that is counted already.
    fn is_again(&mut self, number: u32, id: &str) {
        let queue = self.queue(number);
        if let Some(begun) = queue.begun_mut(id) {
            begun.is_again = true;
            return;
        }
        let Some(&waiting) = queue.open.get(id) else { return };
        let Some(one) = self.at(waiting).filter(|one| one.origin != OriginShown::Yes) else {
            return;
        };
        one.is_dropped = true;
        self.settle_failures(waiting, (number, id));
        let queue = self.queue(number);
        queue.open.remove(id);
        if let Some(known) = queue.active(id) {
            match known.has_left {
                true => _ = queue.remove_active(id),
                false => queue.set_active(id, Known { is_again: true, ..known }),
            }
        }
        self.close(waiting);
    }

    /// `Requeue: OLD to NEW`: a message has another id.
    pub(super) fn requeued(&mut self, host: &str, (old, new): (&str, &str)) {
        let Some(source) = self.sources.of(host, "postfix", "postfix/qmgr") else { return };
        for number in self.queues_of(source) {
            self.submitted.also((number, old), (number, new));
            let queue = self.queue(number);
            let begun = match queue.take_begun(old) {
                Some(begun) => begun,
                None if queue.active(old).is_some() => Begun { is_again: true, ..Begun::default() },
                None => continue,
            };
            // Its line may come after those of the message.
            let waiting = queue.open.get(new).copied();
            let is_waiting = waiting.and_then(|waiting| self.at(waiting));
            match is_waiting.is_some_and(|one| one.origin == OriginShown::No) {
                true if begun.is_again => self.is_again(number, new),
                true => self.set_origin(number, new, begun),
                false => {
                    let queue = self.queue(number);
                    queue.remove_active(new);
                    queue.begin(new, begun);
                }
            }
            return;
        }
    }

    /// A message has left the queue: it is complete, at once or when no line can say any more
    /// that it is another one.
    pub(super) fn removed(&mut self, queue: u32, id: &str, at: Timestamp, visit: Visit<'_>) {
        let known = self.queue(queue).remove_active(id);
        let Some(&number) = self.queue(queue).open.get(id) else { return };
        if !self.awaits_origin(number) {
            return self.complete(queue, id, visit);
        }
        if let Some(known) = known {
            self.queue(queue).set_active(id, Known { has_left: true, ..known });
        }
        self.settling.push_back((at.seconds.saturating_add(SETTLED_AFTER), number, true));
    }

    /// Messages that came from this machine are of whoever handed them over, as no line has said
    /// in time that they are others.
    pub(super) fn settle(&mut self, at: Timestamp, visit: Visit<'_>) {
        while let Some(&(until, number, ends)) = self.settling.front()
            && until < at.seconds
        {
            self.settling.pop_front();
            let lists = self.settings.recipients;
            let Some(one) = self.at(number).filter(|one| one.open) else { continue };
            one.origin = OriginShown::Yes;
            one.failures = Vec::new();
            let is_all = !lists || one.delivered.len() >= one.expected;
            let (queue, id) = (one.queue, one.item.event.message_id.clone().unwrap_or_default());
            let of = self.queue(queue);
            if of.open.get(&id) != Some(&number) {
                continue;
            }
            if of.active(&id).is_some_and(|known| known.has_left) {
                of.remove_active(&id);
            }
            if ends || is_all {
                self.complete(queue, &id, visit);
            }
        }
    }
}
