//! Joins Sendmail's lines to items.
//!
//! A local program hands its message to a Sendmail of its own, which sends it to the server's: both
//! log it, and it counts once: the program's line shows whether it is root's.

use super::exim_lines::by;
use super::postfix_lines::is_of_this_machine;
use super::{
    Item, ItemKind, Joiner, LogWriter, LoginShown, Message, OriginShown, Reason, Refusal, Server,
    Stage, Text, Visit, Waiting,
};
use crate::event::{Event, Origin};
use crate::logs::exim::Host;
use crate::logs::files::Stamped;
use crate::logs::limited;
use crate::logs::queue::Known;
use crate::logs::sendmail::{self, Arrival, Delivery, MilterRefusal, What};

/// How many recipients aliases make of one is not known: so long after a delivery to such a one,
/// in seconds, all others of the message have been tried as well.
const ALL_TRIED: i64 = 300;

/// The command that a milter has refused, as Sendmail calls it.
fn stage(command: &str) -> Stage {
    match command {
        "from" => Stage::Mail,
        "to" => Stage::Rcpt,
        "data" | "eom" => Stage::Data,
        _ => Stage::Other,
    }
}

impl Joiner {
    /// Considers a line of Sendmail.
    pub(super) fn sendmail(
        &mut self,
        source: LogWriter,
        pid: Option<u32>,
        line: &Stamped<'_>,
        visit: Visit<'_>,
    ) {
        self.queue(source.queue).host = source.host;
        self.settle(line.at, visit);
        let process = pid.map(|pid| (source.service, pid));
        let used = match sendmail::line(line.rest) {
            None => return self.unused(Reason::NotUnderstood, line),
            Some(What::Known) => return self.unused(Reason::Silent, line),
            Some(What::Login { client, auth }) => {
                if let Some(process) = process {
                    let client = client.parse().ok();
                    // It is the only one of its connection, which has a process of its own.
                    let of = self.processes.session(process, client, line.at, true, &mut false);
                    of.1.auth = Some(auth.into());
                }
                Ok(())
            }
            Some(What::Arrival(arrival)) => {
                self.whose(source, process, &arrival, line, visit);
                self.received(source, process, &arrival, line, visit)
            }
            Some(What::GivenUp(arrival)) => {
                self.whose(source, process, &arrival, line, visit);
                return self.unused(Reason::Silent, line);
            }
            Some(What::Refused(refused)) => {
                self.refused_by_milter(source, process, &refused, line, visit);
                Ok(())
            }
            Some(What::Delivery(delivery)) => self.tried(source, &delivery, line, visit),
            Some(What::Done { id }) => {
                self.submitted.end(source.queue, id, line.at);
                self.complete(source.queue, id, visit);
                Ok(())
            }
        };
        match used {
            Ok(()) => self.counts.used += 1,
            Err(reason) => self.unused(reason, line),
        }
    }

    /// A milter has refused a command. Who sent it is known if somebody has logged in, and else from a
    /// later line.
    fn refused_by_milter(
        &mut self,
        source: LogWriter,
        process: Option<(u32, u32)>,
        found: &MilterRefusal<'_>,
        line: &Stamped<'_>,
        visit: Visit<'_>,
    ) {
        let &MilterRefusal { id, command, address, reply } = found;
        let (stage, at) = (stage(command), line.at);
        let temporary = reply.starts_with('4');
        let (limited, reason) = (limited::mentions(reply), reply.to_owned());
        let what = ItemKind::Refusal(Refusal { stage, temporary, limited, reason });
        let of = |wanted: Stage| Some(address).filter(|_| stage == wanted).map(Text::from);
        let (sender, recipient) = (of(Stage::Mail), of(Stage::Rcpt));
        let event = Event { sender, recipient, ..Event::default() };
        let (login, server) = (LoginShown::InLine, Server::Sendmail);
        let mut item = Item { at, session: None, login, server, event, what };
        let client = process.and_then(|process| self.processes.now(process)?.1.client);
        if let Some((process, client)) = process.zip(client) {
            let of = self.processes.session(process, Some(client), at, false, &mut false);
            if let Some(auth) = &of.1.auth {
                item.session = Some(of.0);
                item.event.auth = Some(Text::clone(auth));
                item.event.client = Origin::Client(client);
                return self.push(item, visit);
            }
        }
        self.queue(source.queue).refuse(id, item);
    }

    /// A line says whose a message is, of which something was refused before: that counts now.
    fn whose(
        &mut self,
        source: LogWriter,
        process: Option<(u32, u32)>,
        arrival: &Arrival<'_>,
        line: &Stamped<'_>,
        visit: Visit<'_>,
    ) {
        let refused = self.queue(source.queue).take_refused(arrival.id);
        let Some(client) = arrival.client.and_then(|client| client.parse().ok()) else { return };
        for mut item in refused {
            item.at = line.at;
            item.event.client = Origin::Client(client);
            item.event.sender = Some(arrival.sender.into());
            if arrival.has_login {
                item.login = LoginShown::Nowhere;
            }
            if let Some(process) = process {
                let of = self.processes.session(process, Some(client), line.at, false, &mut false);
                item.session = Some(of.0);
            }
            self.push(item, visit);
        }
    }

    fn received(
        &mut self,
        source: LogWriter,
        process: Option<(u32, u32)>,
        arrival: &Arrival<'_>,
        line: &Stamped<'_>,
        visit: Visit<'_>,
    ) -> Result<(), Reason> {
        let &Arrival { id, sender, size, recipients, message_id, has_login, client, user } =
            arrival;
        let number = source.queue;
        let event = by(Host { address: client, ..Host::default() }, None, user);
        let is_here = event.client.address().is_some_and(is_of_this_machine);
        let queue = self.queue(number);
        let again =
            if is_here { queue.handed_on.take(message_id, sender, recipients) } else { None };
        let client = event.client.address();
        queue.set_active(id, Known { client, is_again: again.is_some(), has_left: false });
        if let Some(before) = again {
            self.submitted.also((number, &before), (number, id));
            return Err(Reason::Again);
        }
        if event.client == Origin::Program {
            queue.handed_on.add(id, message_id, sender, recipients);
        }
        queue.set_left(id, recipients);
        let now = event.client.address().zip(process).map(|(client, process)| {
            self.processes.session(process, Some(client), line.at, false, &mut false)
        });
        let auth = now.as_ref().and_then(|(_, now)| now.auth.clone()).filter(|_| has_login);
        let login = match (has_login, &auth) {
            (true, None) => LoginShown::Nowhere,
            _ => LoginShown::InLine,
        };
        let session = now.map(|(session, _)| session);
        let event = Event {
            auth,
            sender: Some(sender.into()),
            message_id: Some(id.into()),
            ..event.map(Text::from)
        };
        let what = ItemKind::Message(Message { size, ..Message::default() });
        let server = Server::Sendmail;
        let item = Item { at: line.at, session, login, server, event, what };
        // A bounce has no such line.
        self.submit(number, &item, false);
        if !self.settings.recipients {
            self.push(item, visit);
            return Ok(());
        }
        let origin = OriginShown::Yes;
        let one = Waiting { expected: recipients, origin, ..Waiting::of(item, number) };
        self.await_more(one, visit);
        Ok(())
    }

    fn tried(
        &mut self,
        source: LogWriter,
        delivery: &Delivery<'_>,
        line: &Stamped<'_>,
        visit: Visit<'_>,
    ) -> Result<(), Reason> {
        let (number, id) = (source.queue, delivery.id);
        let known = self.queue(number).active(id);
        let is_program = known.is_some_and(|known| known.client.is_none());
        // The server's Sendmail says by which id it has the message of a local program.
        let handed_on = delivery.handed_on_as.filter(|_| is_program);
        if let Some(now) = handed_on {
            self.submitted.also((number, id), (number, now));
        }
        for one in delivery.recipients() {
            if let Some(failure) = one.failure {
                self.failed((number, id), one.address, failure, line.at, visit);
            }
            let is_over = (one.is_named || handed_on.is_some()) && !delivery.deferred;
            if is_over && self.queue(number).is_last(id) {
                self.queue(number).handed_on.end(id);
                self.submitted.end(number, id, line.at);
            }
            let Some(&waiting) = self.queue(number).open.get(id) else { continue };
            if !one.is_named && (!is_program || one.is_program_or_file()) {
                let until = line.at.seconds.saturating_add(ALL_TRIED);
                self.settling.push_back((until, waiting, true));
                continue;
            }
            if self.add_recipient(waiting, one.address) {
                self.complete(number, id, visit);
            }
        }
        match known {
            None => Err(Reason::NotBegun),
            Some(known) if known.is_again => Err(Reason::Again),
            Some(_) => Ok(()),
        }
    }
}
