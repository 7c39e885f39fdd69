//! Lines of Sendmail, as syslog has them, after the program's name.
//!
//! What clients choose stands in brackets, or before the last field of its name.

use std::net::IpAddr;

use super::failure::{self, Failure, Maker, Status};
use super::postfix::{closed, is_queue_id};
use super::quotes::Quotes;

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What<'a> {
    /// `AUTH=server, relay=…, authid=…`: a client of this process has logged in.
    Login {
        /// The client's address.
        client: &'a str,
        /// The login.
        auth: &'a str,
    },
    /// `ID: from=…, size=…, …, relay=…`: a message was received.
    Arrival(Arrival<'a>),
    /// `ID: from=…, size=…, …, relay=…` of a message that was given up: who its client is.
    GivenUp(Arrival<'a>),
    /// `ID: Milter: to=<…>, reject=451 …`: a milter has refused a command.
    Refused(MilterRefusal<'a>),
    /// `ID: to=…, …, stat=…`: what became of recipients.
    Delivery(Delivery<'a>),
    /// `ID: done; …`: nothing more follows. Not logged by default.
    Done {
        /// The queue id.
        id: &'a str,
    },
    /// A line that says nothing of who sends how much.
    Known,
}

/// A message was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival<'a> {
    /// The queue id.
    pub id: &'a str,
    /// The envelope sender.
    pub sender: &'a str,
    /// Its size in bytes.
    pub size: Option<u64>,
    /// How many recipients the client named.
    pub recipients: usize,
    /// Its `Message-ID`.
    pub message_id: &'a str,
    /// Whether the client has logged in.
    pub has_login: bool,
    /// The client's address.
    pub client: Option<&'a str>,
    /// The local account that handed it over.
    pub user: Option<&'a str>,
}

/// A milter has refused a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MilterRefusal<'a> {
    /// The queue id.
    pub id: &'a str,
    /// The command, as Sendmail calls it: `from`, `to`, `data`.
    pub command: &'a str,
    /// The sender or the recipient; empty in DATA.
    pub address: &'a str,
    /// The reply.
    pub reply: &'a str,
}

/// What became of recipients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delivery<'a> {
    /// The queue id.
    pub id: &'a str,
    /// The recipients, with commas between them.
    list: &'a str,
    /// Whether they are tried again.
    pub deferred: bool,
    /// The id by which another Sendmail of this machine has the message now.
    pub handed_on_as: Option<&'a str>,
    /// It was tried to deliver to them, and failed for good.
    failed: Option<Failed<'a>>,
}

/// Why a delivery has failed: the status that Sendmail says, and the reply.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Failed<'a> {
    enhanced: Option<(u16, u16, u16)>,
    text: &'a str,
}

/// A recipient of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipient<'a> {
    /// The address.
    pub address: &'a str,
    /// Whether the client named it: what aliases make of one has no brackets.
    pub is_named: bool,
    /// What counts of this attempt, if it is named.
    pub failure: Option<Failure>,
}

impl Recipient<'_> {
    /// Whether it is a program, a file or a list, as in an alias.
    #[must_use]
    pub fn is_program_or_file(&self) -> bool {
        let name = self.address.trim_start_matches('"');
        ["|", "/", ":include:"].iter().any(|start| name.starts_with(start))
    }
}

impl<'a> Delivery<'a> {
    /// Each recipient.
    pub fn recipients(&self) -> impl Iterator<Item = Recipient<'a>> {
        let (failed, deferred) = (self.failed, self.deferred);
        items(self.list).map(move |one| {
            let named = one.strip_prefix('<').and_then(|one| one.strip_suffix('>'));
            let address = named.unwrap_or(one);
            let failure = named.and(failed).and_then(|Failed { enhanced, text }| {
                let mut status = Status::in_text(text, address);
                // Without a reply, Sendmail's own.
                if status.reply.is_none() {
                    status.enhanced = enhanced;
                }
                if deferred { status.throttled() } else { status.failure(Maker::RouterOrServer) }
            });
            Recipient { address, is_named: named.is_some(), failure }
        })
    }
}

/// Whether it is a name of Sendmail's in a log.
#[must_use]
pub fn is_sendmail(program: &str) -> bool {
    ["sendmail", "sm-mta", "sm-msp-queue", "sendmail-msp"].contains(&program)
}

/// Reads a line. `None` if it is not understood.
#[must_use]
pub fn line(rest: &str) -> Option<What<'_>> {
    if let Some(after) = rest.strip_prefix("AUTH=server, relay=") {
        let (client, after) = client(after)?;
        let after = after.strip_prefix(" (may be forged)").unwrap_or(after);
        let (auth, _) = after.strip_prefix(", authid=")?.rsplit_once(", mech=")?;
        return Some(What::Login { client, auth });
    }
    let Some((id, after)) = rest.split_once(": ").filter(|(id, _)| is_queue_id(id)) else {
        return Some(What::Known);
    };
    if let Some(from) = after.strip_prefix("from=") {
        return arrival(id, from);
    }
    if let Some(to) = after.strip_prefix("to=") {
        return delivery(id, to);
    }
    if let Some(refused) = after.strip_prefix("Milter: ").and_then(|after| refused(id, after)) {
        return Some(What::Refused(refused));
    }
    Some(if after.starts_with("done; ") { What::Done { id } } else { What::Known })
}

/// `<alice@x>, size=9, class=0, nrcpts=2, msgid=<…>, proto=ESMTPA, daemon=…, relay=host [address]`
fn arrival<'a>(id: &'a str, from: &'a str) -> Option<What<'a>> {
    let (sender, rest) = match from.strip_prefix('<') {
        Some(from) => closed(from)?,
        None => from.split_at_checked(from.find(", size=")?)?,
    };
    let (size, rest) = rest.strip_prefix(", size=")?.split_once(", class=")?;
    let (recipients, rest) = rest.split_once(", nrcpts=")?.1.split_once(", ")?;
    // The id of the message is the client's text: Sendmail writes these after it.
    let (rest, relay) = last_field(rest, "relay=")?;
    let (before, proto) = last_field(rest, "proto=").unwrap_or((rest, ""));
    // A message that was given up has none.
    let message_id = before.split_once("msgid=").map(|(_, id)| id);
    let proto = proto.split(',').next().unwrap_or_default();
    let client = client(relay).map(|(client, _)| client);
    let user = relay.rsplit_once('@').map(|(user, _)| user).filter(|_| client.is_none());
    let known = Arrival {
        id,
        sender,
        size: size.parse().ok(),
        recipients: recipients.parse().ok()?,
        message_id: message_id.map_or("", |id| id.strip_suffix(',').unwrap_or(id)),
        has_login: client.is_some() && proto.ends_with('A'),
        client,
        user,
    };
    Some(if message_id.is_some() { What::Arrival(known) } else { What::GivenUp(known) })
}

/// `to=<bob@x>, reject=451 4.7.1 why`, `data, reject=…`, `cmd=data, reject=…`
fn refused<'a>(id: &'a str, after: &'a str) -> Option<MilterRefusal<'a>> {
    let after = after.strip_prefix("cmd=").unwrap_or(after);
    let (command, address, rest) = match after.split_once("=<") {
        Some((command @ ("from" | "to"), after)) => {
            let (address, rest) = closed(after)?;
            (command, address, rest)
        }
        _ => {
            let (command, _) = after.split_once(", reject=")?;
            (command, "", after.get(command.len()..)?)
        }
    };
    let reply = rest.strip_prefix(", reject=")?;
    let is_reply = reply.len() > 3 && reply.bytes().take(3).all(|b| b.is_ascii_digit());
    is_reply.then_some(MilterRefusal { id, command, address, reply })
}

/// What comes before and after the last field of this name.
fn last_field<'a>(text: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    let at = text.rfind(name)?;
    let (before, after) = (text.get(..at)?, text.get(at + name.len()..)?);
    let is_field = before.is_empty() || before.ends_with(", ");
    is_field.then_some((before.trim_end_matches(' '), after))
}

/// `<a@x>,<b@x>, ctladdr=<…> (8/0), delay=…, xdelay=…, mailer=…, pri=…, relay=…, dsn=5.1.1, reply=550 …,
/// stat=User unknown`
fn delivery<'a>(id: &'a str, to: &'a str) -> Option<What<'a>> {
    let (list, mut rest) = to.split_at_checked(list_end(to)?)?;
    if let Some(after) = rest.strip_prefix(", ctladdr=<") {
        rest = closed(after)?.1;
    }
    let (mut was_tried, mut enhanced, mut is_here) = (false, None, false);
    let (reply, state) = loop {
        let (field, after) = rest.split_once(", ")?.1.split_once('=')?;
        let value = after.split(", ").next().unwrap_or_default();
        match field {
            "stat" => break (None, after),
            "reply" => {
                let (reply, state) = after.rsplit_once(", stat=")?;
                break (Some(reply), state);
            }
            "xdelay" => was_tried = true,
            "relay" => is_here = is_loopback(value),
            "dsn" => enhanced = failure::enhanced(value),
            _ => {}
        }
        rest = after.get(value.len()..)?;
    };
    let is_final = enhanced.is_some_and(|(class, ..)| class == 5);
    // A bounce that cannot be delivered either is not tried.
    let deferred = enhanced.is_none_or(|(class, ..)| class == 4);
    let failed = was_tried && (is_final || deferred);
    let failed = failed.then(|| Failed { enhanced, text: reply.unwrap_or(state) });
    let said = state.strip_prefix("Sent (").filter(|_| is_here);
    let handed_on_as = said.and_then(|said| said.split(' ').next()).filter(|id| is_queue_id(id));
    Some(What::Delivery(Delivery { id, list, deferred, handed_on_as, failed }))
}

/// Whether `localhost [127.0.0.1]` is this machine, whatever its name.
fn is_loopback(relay: &str) -> bool {
    let address = relay.rsplit_once('[').and_then(|(_, rest)| rest.strip_suffix(']'));
    let address = address.map(|one| one.strip_prefix("IPv6:").unwrap_or(one).parse::<IpAddr>());
    matches!(address, Some(Ok(one)) if one.to_canonical().is_loopback())
}

/// Where a list of recipients ends: at the first `, ` that is not in quotes.
fn list_end(text: &str) -> Option<usize> {
    let mut quotes = Quotes::new(true);
    let mut pairs = text.bytes().zip(text.bytes().skip(1));
    pairs.position(|(b, next)| quotes.is_outside(b.into()) && (b, next) == (b',', b' '))
}

/// The items of a list with commas between them, that are not in quotes.
fn items(list: &str) -> impl Iterator<Item = &str> {
    let mut quotes = Quotes::new(true);
    list.split(move |c| quotes.is_outside(c) && c == ',')
}

/// `mail.test [192.0.2.1] (may be forged)`, `[IPv6:2001:db8::1]`: the address, and what follows.
fn client(text: &str) -> Option<(&str, &str)> {
    let (_, after) = text.split_once('[')?;
    let (address, rest) = after.split_once(']')?;
    Some((address.strip_prefix("IPv6:").unwrap_or(address), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "6AQFcjxA000088";

    #[test]
    fn an_arrival_is_read_whatever_the_client_writes() {
        let sender = "\"a, size=9, nrcpts=3\"@x.test";
        let text = format!(
            "{ID}: from=<{sender}>, size=14, class=0, nrcpts=10, msgid=<x, proto=ESMTPA, relay=y [192.0.2.9]>, \
             proto=ESMTP, daemon=MTA-v4, relay=mail.test [IPv6:2001:db8::1] (may be forged)"
        );
        let found = Arrival {
            id: ID,
            sender,
            size: Some(14),
            recipients: 10,
            message_id: "<x, proto=ESMTPA, relay=y [192.0.2.9]>",
            has_login: false,
            client: Some("2001:db8::1"),
            user: None,
        };
        assert_eq!(line(&text), Some(What::Arrival(found)));
        let local = format!(
            "{ID}: from=carol@x.test, size=3, class=0, nrcpts=1, msgid=<a@b>, relay=carol@localhost"
        );
        let found = Arrival {
            sender: "carol@x.test",
            size: Some(3),
            recipients: 1,
            message_id: "<a@b>",
            client: None,
            user: Some("carol"),
            ..found
        };
        assert_eq!(line(&local), Some(What::Arrival(found)));
        // It ended without DATA.
        let ended = format!(
            "{ID}: from=<>, size=0, class=0, nrcpts=2, proto=ESMTP, daemon=M, relay=m [192.0.2.1]"
        );
        let Some(What::GivenUp(found)) = line(&ended) else { panic!("{ended}") };
        assert_eq!((found.client, found.has_login), (Some("192.0.2.1"), false));
        let auth = "AUTH=server, relay=m [192.0.2.1] (may be forged), authid=al, mech=ice, mech=PLAIN, bits=0";
        let expected = What::Login { client: "192.0.2.1", auth: "al, mech=ice" };
        assert_eq!(line(auth), Some(expected));
    }

    #[test]
    fn what_a_milter_refuses_is_read_whatever_the_address() {
        let address = "\"a>, reject=250 x\"@x.test";
        let reply = "451 4.7.1 Over the limit of 5 recipients in 1h; try again in 5m";
        for (text, command, address) in [
            (format!("to=<{address}>, reject={reply}"), "to", address),
            (format!("from=<{address}>, reject={reply}"), "from", address),
            (format!("data, reject={reply}"), "data", ""),
            (format!("cmd=data, reject={reply}"), "data", ""),
        ] {
            let expected = Some(What::Refused(MilterRefusal { id: ID, command, address, reply }));
            assert_eq!(line(&format!("{ID}: Milter: {text}")), expected, "{text}");
        }
        for text in ["no active filter", "accept: message", "to=<a", "to=<a@x>, reject=x", "data"] {
            assert_eq!(line(&format!("{ID}: Milter: {text}")), Some(What::Known), "{text}");
        }
    }

    #[test]
    fn failures_are_of_recipients_that_the_client_named() {
        use Failure::{Other, Throttled, Unknown};
        let tried =
            "delay=00:00:00, xdelay=00:00:00, mailer=relay, pri=9, relay=[127.0.0.1] [127.0.0.1]";
        for (text, expected) in [
            (
                format!("<a@x>,<b@x>,c@x, {tried}, dsn=5.1.1, reply=550 5.1.1 no, stat=User unknown"),
                vec![Some(Unknown), Some(Unknown), None],
            ),
            // The status is Sendmail's guess where there is a reply.
            (format!("<a@x>, {tried}, dsn=5.1.1, reply=550 5.7.1 no, stat=User unknown"), vec![Some(Other)]),
            (format!("<a@x>, {tried}, dsn=5.1.2, stat=Host unknown"), vec![Some(Unknown)]),
            (format!("<a@x>, {tried}, dsn=4.3.1, reply=452 4.2.2 full, stat=Deferred: 452"), vec![None]),
            (
                format!("<a@x>, {tried}, dsn=4.7.0, stat=Deferred: 421 4.7.0 [TSS04] deferred"),
                vec![Some(Throttled)],
            ),
            (
                format!("<a@x>, {tried}, dsn=4.7.28, reply=421 4.7.28 too fast, stat=Deferred"),
                vec![Some(Throttled)],
            ),
            (format!("<a@x>, {tried}, dsn=2.0.0, stat=Sent (2.0.0 kept)"), vec![None]),
            (
                format!("<\"a: 452 x, dsn=2.0.0, stat=Sent\"@x>,<b@x>, ctladdr=<\"c, dsn=2.0.0\"@y> (8/0), {tried}, dsn=5.1.1, reply=550 5.1.1 no, stat=2, stat=User unknown"),
                vec![Some(Unknown), Some(Unknown)],
            ),
            // A bounce of it that could not be delivered.
            (
                "<a@x>, delay=00:00:00, mailer=local, pri=9, dsn=5.1.1, reply=550 5.1.1 no, stat=User unknown".into(),
                vec![None],
            ),
        ] {
            let text = format!("{ID}: to={text}");
            let Some(What::Delivery(found)) = line(&text) else { panic!("{text}") };
            let failures: Vec<_> = found.recipients().map(|one| one.failure).collect();
            assert_eq!(failures, expected, "{text}");
        }
        for text in
            ["to=<a", "to=<a@x>, ", "to=<a@x>, stat", "from=<", "from=<a>, size=", "done; x"]
        {
            let _ = line(&format!("{ID}: {text}"));
        }
    }
}
