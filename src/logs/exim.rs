//! Lines of Exim's main log, after their time.
//!
//! Senders, HELO names, subjects and the like are chosen by clients, and may imitate the
//! fields around them. So a line is read from its start, in the order in which Exim writes
//! it, quoted texts as a whole, and of a field that occurs twice the first one counts. Where a
//! client could have imitated the field itself ([`is_chosen`]), there is no login and no size.

use super::failure::{Failure, InReplyTo, Maker, Status};
use super::quotes::first_outside;
use crate::text::is_exim_id;
use memchr::{memchr_iter, memchr2, memchr3};

/// What a line says, and of which message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The process that wrote it: logged with `log_selector = +pid`.
    pub pid: Option<u32>,
    /// The id of the message, if the line is about one.
    pub id: Option<&'a str>,
    /// What it says.
    pub what: What<'a>,
}

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// `<=`, `(=`: a message was received.
    Arrival(Arrival<'a>),
    /// `=>`, `->`, `>>`, `*>`, `==`, `**`: a recipient was delivered to, deferred or failed.
    Recipient {
        /// The address before it was redirected.
        address: &'a str,
        /// How it went.
        result: Delivery,
        /// What counts of this attempt, if the client named this address itself.
        failure: Option<Failure>,
    },
    /// `Completed`: nothing more follows about the message.
    Completed,
    /// `rejected …`: an SMTP command or a message was refused.
    Refusal(Refusal<'a>),
    /// `RCPT <…>: discarded by RCPT ACL`: a recipient was accepted, and is ignored.
    Discarded(Refusal<'a>),
    /// `plain authenticator failed for …`
    FailedLogin(FailedLogin<'a>),
    /// `incomplete transaction (…) from <…> for …`
    Incomplete(Incomplete<'a>),
    /// `SMTP connection from …`: the session begins.
    Connect(Host<'a>),
    /// `SMTP connection from … closed by QUIT` and other lines that end a session.
    Close(Host<'a>),
    /// A line that says nothing of who sends how much.
    Known,
    /// Anything else: perhaps what an ACL logs, what follows the id of a message.
    Other(&'a str),
}

/// A client, as Exim writes it: `H=name (helo) [address]:port`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host<'a> {
    /// Its name in HELO.
    pub helo: Option<&'a str>,
    /// Its IP address.
    pub address: Option<&'a str>,
    /// Its port: logged with `log_selector = +incoming_port`.
    pub port: Option<u16>,
}

/// A login that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailedLogin<'a> {
    /// The client.
    pub host: Host<'a>,
    /// The user that was tried (`set_id=`).
    pub user: Option<&'a str>,
    /// The password could not be checked (435).
    pub temporary: bool,
}

/// A message that ended without DATA: logged with `log_selector =
/// +smtp_incomplete_transaction`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Incomplete<'a> {
    /// The client.
    pub host: Host<'a>,
    /// `U=`
    pub user: Option<&'a str>,
    /// `A=`: the authenticated user.
    pub auth: Option<&'a str>,
    /// The envelope sender, without brackets.
    pub sender: &'a str,
    /// The recipients that had been accepted, with spaces between them.
    pub recipients: Option<&'a str>,
    /// The line does not say who has logged in.
    pub hides_login: bool,
}

/// How a delivery went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// `=>`, `->`, `*>`
    Done,
    /// `>>`: while it was received (cutthrough), so before the line of its arrival.
    Passed,
    /// `==`: it is tried again.
    Deferred,
    /// `**`: for good.
    Failed,
}

/// A message that was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival<'a> {
    /// The envelope sender; `<>` is that of a bounce.
    pub sender: &'a str,
    /// `H=`: the client.
    pub host: Host<'a>,
    /// `R=`: it is about another message, as a bounce is.
    pub has_reference: bool,
    /// `U=`: the login of a local user, or what the client's host says of itself.
    pub user: Option<&'a str>,
    /// `P=`: the protocol.
    pub protocol: Option<&'a str>,
    /// `A=`: the authenticated user.
    pub auth: Option<&'a str>,
    /// `S=`: the size in bytes.
    pub size: Option<u64>,
    /// `for …`: the recipients, with spaces between them; logged with `log_selector =
    /// +received_recipients`.
    pub recipients: Option<&'a str>,
    /// The line can be read in two ways: it does not say who has logged in, nor the size.
    pub hides_login: bool,
}

/// A command or a message that was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusal<'a> {
    /// `H=`: the client.
    pub host: Host<'a>,
    /// `F=`: the envelope sender, without brackets.
    pub sender: Option<&'a str>,
    /// `U=`: the login of a local user, or what the client's host says of itself.
    pub user: Option<&'a str>,
    /// `A=`: the authenticated user.
    pub auth: Option<&'a str>,
    /// Whether the client may try again.
    pub temporary: bool,
    /// The recipient, where `what` does not name it.
    pub recipient: Option<&'a str>,
    /// What was refused, and why: `RCPT <bob@example.org>: too much`.
    pub what: &'a str,
    /// Why, where `what` does not say so.
    pub reason: Option<&'a str>,
    /// The line does not say who has logged in.
    pub hides_login: bool,
}

/// Reads a line, after its time.
#[must_use]
pub fn line(rest: &str) -> Line<'_> {
    let (pid, rest) = pid(rest);
    match split(rest, " ") {
        Some((id, rest)) if is_exim_id(id) => Line { pid, id: Some(id), what: of_message(rest) },
        _ => Line { pid, id: None, what: of_session(rest) },
    }
}

/// What a line that begins with the id of a message says.
fn of_message(rest: &str) -> What<'_> {
    let (flag, after) = split(rest, " ").unwrap_or((rest, ""));
    let result = match flag {
        "<=" | "(=" => return What::Arrival(arrival(after)),
        "=>" | "->" | "*>" => Delivery::Done,
        ">>" => Delivery::Passed,
        "==" => Delivery::Deferred,
        "**" => Delivery::Failed,
        "Completed" => return What::Completed,
        _ => return other_of_message(rest),
    };
    // `=> blackhole (DATA ACL discarded recipients)`: no recipient, but what became of all.
    if flag == "=>" && after.starts_with("blackhole ") && !after.contains(" R=") {
        return What::Known;
    }
    let (address, rest) = recipient(after, result);
    let is_own = || {
        let first = self::address(after).0;
        let first = first.strip_suffix(':').unwrap_or(first);
        // Of a local transport, Exim may write the local part alone: `bob <bob@example.org>`.
        let local = address.rsplit_once('@').map_or(address, |(local, _)| local);
        first.eq_ignore_ascii_case(address) || first.eq_ignore_ascii_case(local)
    };
    let failure = match result {
        Delivery::Failed | Delivery::Deferred if is_own() => {
            let (reason, maker) = reason(rest);
            let (reply, to) = in_reply_to(reason);
            let mut status = Status::in_text(reply, address);
            status.to = to;
            if result == Delivery::Failed { status.failure(maker) } else { status.throttled() }
        }
        _ => None,
    };
    What::Recipient { address, result, failure }
}

/// `… error from remote mail server after RCPT TO:<bob@example.org>: 550 …`: the reply, without the
/// command, whose address is a client's text, and what it was to.
fn in_reply_to(reason: &str) -> (&str, InReplyTo) {
    let says = [
        "SMTP error from remote mail server after ",
        // Before 4.86.
        "SMTP error from remote mailer after ",
        "LMTP error after ",
    ];
    let Some((_, command)) = says.iter().find_map(|says| split(reason, says)) else {
        return (reason, InReplyTo::Recipient);
    };
    let command = command.strip_prefix("pipelined ").unwrap_or(command);
    let addressed = [("RCPT TO:<", InReplyTo::Recipient), ("MAIL FROM:<", InReplyTo::Sender)];
    for (start, to) in addressed {
        let after = command.strip_prefix(start).and_then(bracketed);
        if let Some((_, reply)) = after {
            return (reply, to);
        }
    }
    let is_of_message = ["end of data", "sending data block", "DATA", "BDAT"];
    match is_of_message.iter().any(|start| command.starts_with(start)) {
        true => (command, InReplyTo::Message),
        false => (command, InReplyTo::Sender),
    }
}

/// What follows the fields of a line of delivery, and who says it: `R=r T=t H=host [address]: reason`.
fn reason(rest: &str) -> (&str, Maker) {
    let (mut rest, mut maker) = (rest, Maker::RouterOrServer);
    loop {
        if let Some((_, after)) = rest.strip_prefix("H=").and_then(host) {
            rest = after;
            continue;
        }
        let (field, after) = if rest.starts_with("F=<") { address(rest) } else { token(rest) };
        let is_field = field.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric())
        });
        if !is_field {
            return (rest, maker);
        }
        if field.starts_with("T=") {
            maker = Maker::Transport;
        }
        rest = after;
    }
}

fn other_of_message(rest: &str) -> What<'_> {
    const KNOWN: [&str; 30] = [
        "failed to find ",
        "no IP address",
        "remote host address",
        "qualify/rewrite:",
        "frozen by ",
        "DANE ",
        "TLS session:",
        "Message is frozen",
        "Frozen",
        "Unfrozen",
        "unfrozen",
        "DKIM",
        "SPF",
        "removed by",
        "cancelled by",
        "no immediate delivery",
        "Spool file is locked",
        "Remote host closed",
        "SMTP error from remote",
        "retry time not reached",
        "TLS error",
        "TLS:",
        "[",
        "H=",
        "no recipients found",
        "sender address changed",
        "host ",
        "Warning:",
        "mailing list",
        "Delivery status",
    ];
    // Of the address of a bounce, and of Exim's own login at another server.
    const SECOND: [&str; 3] =
        ["error ignored", "authenticator failed H=", "authenticator cancelled "];
    let begins = |rest: &str, starts: &[&str]| starts.iter().any(|start| rest.starts_with(start));
    match refused(rest).or_else(|| connection(rest)) {
        Some(what) => what,
        None if begins(rest, &KNOWN) || begins(token(rest).1, &SECOND) => What::Known,
        None => What::Other(rest),
    }
}

/// `SMTP connection from …`: a session begins or ends. From 4.98 on, the connection's id may come
/// first: `SMTP connection Ci=712 from …`. Other ends are of a message too, as `SMTP data timeout …`.
fn connection(rest: &str) -> Option<What<'_>> {
    const ENDS: [&str; 5] = [
        "unexpected disconnection while reading SMTP command ",
        "SMTP command timeout on ",
        "SMTP data timeout ",
        "SMTP call ",
        "SMTP connection lost ",
    ];
    if ENDS.iter().any(|start| rest.starts_with(start)) {
        let after = split(rest, " from ").or_else(|| split(rest, " H=")).map_or("", |(_, of)| of);
        return Some(What::Close(host(after).map_or(Host::default(), |(host, _)| host)));
    }
    let after = rest.strip_prefix("SMTP connection ")?;
    let (id, others) = token(after);
    let after = if id.starts_with("Ci=") { others } else { after };
    after.strip_prefix("from ").map(session)
}

/// What a line of no message says: of a session, or of the daemon.
fn of_session(rest: &str) -> What<'_> {
    const KNOWN: [&str; 35] = [
        "failed to find ",
        "exim ",
        "cwd=",
        "Start queue run",
        "End queue run",
        "no MAIL in SMTP",
        "no host name",
        "no IP address",
        "SMTP syntax error",
        "SMTP protocol",
        "TLS error",
        "TLS:",
        "H=",
        "U=",
        "Warning:",
        "SIGHUP",
        "SIGTERM",
        "pid ",
        "daemon: ",
        "socket bind",
        "listening",
        "remote host address",
        "host name alias",
        "lookup of",
        "sender verify",
        "no data",
        "ident ",
        "daemon ",
        "DNS list",
        "dnslists",
        "IPv6",
        "DKIM",
        "Node",
        "proxy",
        "[",
    ];
    if let Some(what) = connection(rest) {
        return what;
    }
    // `(input sent without waiting for greeting): rejected connection from H=…`
    if let Some(after) = rest.strip_prefix("SMTP protocol synchronization error ")
        && let Some((why, after)) = split(after, ": rejected connection from ")
        && let Some((host, _)) = after.strip_prefix("H=").and_then(host)
    {
        let (what, reason) = ("connection", Some(why));
        return What::Refusal(Refusal { host, what, reason, ..Refusal::default() });
    }
    match refused(rest).or_else(|| failed_login(rest)) {
        Some(what) => what,
        None if KNOWN.iter().any(|start| rest.starts_with(start)) => What::Known,
        None => What::Other(rest),
    }
}

/// `[address]:port I=… (TCP/IP connection count = 1)` and `(helo) [address]:port … closed by
/// QUIT`, after `SMTP connection from `. Of a local user: `root`, `root closed by QUIT`.
fn session(after: &str) -> What<'_> {
    let (host, rest) = match host(after) {
        Some(found) => found,
        None => (Host::default(), after.split_once(' ').map_or("", |(_user, rest)| rest)),
    };
    let is_end =
        |text: &str| ["closed by ", "lost", "closed after"].iter().any(|s| text.starts_with(s));
    let mut rest = rest;
    while !rest.is_empty() {
        if is_end(rest) {
            return What::Close(host);
        }
        let (field, after) = token(rest);
        if !field.contains('=') {
            break;
        }
        rest = after;
    }
    What::Connect(host)
}

/// `plain authenticator failed for (helo) [address]:port I=…: 535 … (set_id=user)`
fn failed_login(rest: &str) -> Option<What<'_>> {
    // The name has no spaces: a line that quotes what a client sends has some before these words.
    let (_name, after) = rest.trim_start().split_once([' ', '\t'])?;
    let after = after.trim_start().strip_prefix("authenticator failed for ")?;
    let (host, after) = host(after.strip_prefix("H=").unwrap_or(after))?;
    // The user is the last thing on the line, and may contain anything.
    let user = after.split_once(" (set_id=").and_then(|(_, user)| user.strip_suffix(')'));
    let code = after.split_once(": ").map_or(after, |(_, code)| code);
    let user = user.filter(|user| !user.is_empty());
    Some(What::FailedLogin(FailedLogin { host, user, temporary: code.starts_with('4') }))
}

/// `[PID]`, which is logged with `log_selector = +pid`, and what follows it.
fn pid(rest: &str) -> (Option<u32>, &str) {
    let after = rest.strip_prefix('[').and_then(|rest| split(rest, "] "));
    match after {
        Some((pid, after)) if pid.bytes().all(|b| b.is_ascii_digit()) => (pid.parse().ok(), after),
        _ => (None, rest),
    }
}

/// `SENDER [R=] H=… U=… P=… A=… S=… T="…" from <…> for …`
fn arrival(text: &str) -> Arrival<'_> {
    let (sender, mut rest) = address(text);
    let has_reference = rest.starts_with("R=");
    let mut arrival = Arrival { sender, has_reference, ..Arrival::default() };
    let (mut first_for, mut from_client) = (None, None);
    while !rest.is_empty() {
        let (field, after) = token(rest);
        if from_client.is_none() && is_chosen(field, arrival.host) {
            from_client = Some(rest);
        }
        if arrival.host.address.is_none()
            && let Some((host, after)) = rest.strip_prefix("H=").and_then(host)
        {
            arrival.host = host;
            rest = after;
            continue;
        }
        // A message's id may contain the word, but no addresses alone after it.
        if field == "for" && arrival.size.is_some() {
            if recipients(after).all(|one| one.contains('@')) {
                arrival.recipients = Some(after);
                break;
            }
            first_for = first_for.or(Some(after));
        }
        match split(field, "=") {
            Some(("U", user)) => arrival.user = arrival.user.or(Some(user)),
            Some(("P", protocol)) => arrival.protocol = arrival.protocol.or(Some(protocol)),
            Some(("A", _)) if arrival.auth.is_none() => {
                let (user, after) = authenticated(rest);
                arrival.auth = user;
                rest = after;
                continue;
            }
            Some(("S", size)) if arrival.size.is_none() => arrival.size = size.parse().ok(),
            _ => {}
        }
        rest = after;
    }
    arrival.recipients = arrival.recipients.or(first_for);
    match from_client {
        Some(text) => sure(arrival, text),
        None => arrival,
    }
}

/// An arrival of which the client may have written fields from the start of `text` on. Exim writes
/// the login, the size and what follows it after these, in forms that nothing before can imitate.
fn sure<'a>(mut arrival: Arrival<'a>, text: &'a str) -> Arrival<'a> {
    // Exim ends the protocol so after a login. What a host says of its user is before it.
    let is_login = arrival.protocol.is_some_and(|protocol| protocol.ends_with('a'));
    let tail_at = |at: &usize| is_size(text, *at) && Tail::read(text.get(at + 1..)).is_some();
    let end = memchr_iter(b' ', text.as_bytes()).find(tail_at);
    let (before, tail) = end.and_then(|end| text.split_at_checked(end)).unwrap_or((text, ""));
    let protocol_is_sure = !text.starts_with("U=") || is_once(before, " P=");
    let field = before.rfind(" A=").and_then(|at| before.get(at + 1..));
    let login = field.and_then(field_user);
    // Without `server_set_id` there is no user: `A=plain`.
    let is_read = login.is_some() || field.is_some() && is_once(before, " A=");
    let tail = Tail::read(tail.get(1..)).filter(|_| protocol_is_sure);
    arrival.hides_login = tail.is_none() || is_login && !is_read;
    arrival.auth = login.filter(|_| is_login && !arrival.hides_login);
    let tail = tail.filter(|_| !arrival.hides_login).unwrap_or_default();
    (arrival.size, arrival.recipients) = (tail.size, tail.recipients);
    arrival
}

/// Whether a client has chosen what this field contains, and so perhaps what seems to follow it:
/// what its host says of the user (`U=`, of RFC 1413, with spaces); the subject of its certificate
/// (`DN="…"`, in which OpenSSL leaves quotes as they are); in older Exims the name that it asks
/// for (`SNI="…"`). Exim writes these before the login.
fn is_chosen(field: &str, host: Host<'_>) -> bool {
    match split(field, "=") {
        Some(("U", _)) => host.address.is_some(),
        Some((name, _)) => matches!(name, "DN" | "SNI"),
        None => false,
    }
}

/// Whether this is there at most once.
fn is_once(text: &str, part: &str) -> bool {
    text.match_indices(part).nth(1).is_none()
}

/// The address of a line of delivery, before it was redirected: `bob <bob@example.org> R=…`,
/// `bob@example.org R=…`; where it failed, also `bob@example.org: text`.
/// And what follows it.
fn recipient(text: &str, result: Delivery) -> (&str, &str) {
    let ends = |token: &str| result == Delivery::Failed && token.ends_with(':');
    let without = |token: &str| if ends(token) { token.len() - 1 } else { token.len() };
    let (first, mut rest) = self::address(text);
    let mut address = first.get(..without(first)).unwrap_or(first);
    let mut ended = ends(first);
    while !ended && !rest.is_empty() {
        let (one, after) = self::address(rest);
        let is_field = ["R=", "T=", "F=", "P="].iter().any(|field| one.starts_with(field));
        if is_field {
            break;
        }
        ended = ends(one);
        let one = one.get(..without(one)).unwrap_or(one);
        if let Some(original) = one.strip_prefix('<').and_then(|one| one.strip_suffix('>')) {
            address = original;
        }
        rest = after;
    }
    (address, rest)
}

/// `H=… F=<…> A=… [temporarily ]rejected …`, `… RCPT <…>: discarded by RCPT ACL`,
/// `H=… incomplete transaction (…) …`, and the older forms that begin with what was refused.
fn refused(text: &str) -> Option<What<'_>> {
    // Of other commands Exim writes no sender, and so no login.
    const WITH_SENDER: [&str; 6] = ["RCPT", "MAIL", "DATA", "PRDR", "after ", "during "];
    const STARTS: [&str; 8] =
        ["H=", "U=", "F=", "DS ", "rejected ", "unqualified ", "refused ", "Connection from "];
    if !STARTS.iter().any(|start| text.starts_with(start)) {
        return None;
    }
    if let Some(refusal) = refusal_first(text) {
        return Some(What::Refusal(refusal));
    }
    let mut refusal = Refusal::default();
    let mut rest = text;
    let mut from_client = None;
    let mut after_sender = false;
    loop {
        let is_after_sender = std::mem::take(&mut after_sender);
        if refusal.host.address.is_none()
            && let Some((host, after)) = rest.strip_prefix("H=").and_then(host)
        {
            refusal.host = host;
            rest = after;
            continue;
        }
        let (field, after) = if rest.starts_with("F=<") { address(rest) } else { token(rest) };
        if from_client.is_none() && is_chosen(field, refusal.host) {
            from_client = Some(rest);
        }
        match field.split_once('=') {
            Some(("F", sender)) if refusal.sender.is_none() => {
                refusal.sender = sender.strip_prefix('<').and_then(|s| s.strip_suffix('>'));
                after_sender = true;
            }
            Some(("A", _)) if refusal.auth.is_none() => {
                let (auth, after) = refused_user(rest)?;
                let parts = [" A=", " F=<", " rejected ", " incomplete transaction "];
                let is_sure = |text: &str| parts.iter().all(|part| is_once(text, part));
                // Exim writes it nowhere else.
                let is_sure = |text: &str| is_after_sender && is_sure(text);
                refusal.hides_login = !from_client.is_none_or(is_sure);
                refusal.auth = auth.filter(|_| !refusal.hides_login);
                rest = after;
                continue;
            }
            Some(("U", user)) => refusal.user = refusal.user.or(Some(user)),
            _ if field == "temporarily" => refusal.temporary = true,
            _ if field == "rejected" => {
                refusal.what = after;
                if from_client.is_some() && !WITH_SENDER.iter().any(|what| after.starts_with(what))
                {
                    refusal.hides_login |= refusal.auth.is_some();
                    refusal.auth = None;
                }
                return Some(What::Refusal(refusal));
            }
            _ if field == "RCPT" => {
                discarded_recipient(after)?;
                refusal.what = rest;
                return Some(What::Discarded(refusal));
            }
            _ if field == "dropped" => {
                // `dropped by 'connect' ACL: TEXT`
                let (by, why) = after.strip_prefix("by ")?.split_once(" ACL")?;
                refusal.what = if by.contains("connect") { "connection" } else { "message" };
                refusal.reason = Some(why.strip_prefix(": ").unwrap_or(why));
                return Some(What::Refusal(refusal));
            }
            _ if field == "incomplete" => return incomplete(after, &refusal).map(What::Incomplete),
            // Not a field, so it is another line.
            None if !matches!(field, "DS" | "K" | "PRDR" | "L" | "L-" | "L." | "L.-") => {
                return None;
            }
            _ => {}
        }
        if after.is_empty() {
            return None;
        }
        rest = after;
    }
}

/// Whether `<…>: discarded by RCPT ACL` or the like follows.
fn discarded_recipient(text: &str) -> Option<()> {
    let (_, after) = bracketed(text.strip_prefix('<')?)?;
    let by = after.strip_prefix(": discarded by ")?;
    let by = ["RCPT ACL", "MAIL ACL"].iter().find_map(|acl| by.strip_prefix(acl))?;
    (by.is_empty() || by.starts_with(": ")).then_some(())
}

/// The user of `A=driver:user`, who may contain spaces, before what was refused, and what
/// follows.
fn refused_user(rest: &str) -> Option<(Option<&str>, &str)> {
    const ENDS: [&str; 5] =
        [" rejected ", " temporarily rejected ", " RCPT <", " incomplete transaction ", " F=<"];
    let end = ENDS.iter().filter_map(|end| find(rest, end)).min()?;
    let (field, after) = rest.split_at_checked(end)?;
    Some((user(field), after.get(1..)?))
}

/// Forms that name the client after what was refused:
/// `rejected from <a@x> H=…: message too big`, `rejected MAIL command H=…: too many`,
/// `unqualified recipient rejected: <x> H=…`, `refused connection from H=…`,
/// `Connection from [address]:port refused: too many connections`.
fn refusal_first(text: &str) -> Option<Refusal<'_>> {
    let mut refusal = Refusal { hides_login: true, ..Refusal::default() };
    let rest = if let Some(after) = text.strip_prefix("rejected from ") {
        let (sender, after) = address(after);
        refusal.sender = sender.strip_prefix('<').and_then(|s| s.strip_suffix('>'));
        refusal.what = "message";
        after
    } else if let Some(after) = text.strip_prefix("rejected MAIL command ") {
        refusal.what = "MAIL";
        after
    } else if let Some(after) = text.strip_prefix("unqualified ") {
        let (kind, after) = after.split_once(" rejected: ")?;
        let (address, after) = address(after);
        let address = address.strip_prefix('<').and_then(|s| s.strip_suffix('>'));
        match kind {
            "sender" => (refusal.what, refusal.sender) = ("MAIL", address),
            "recipient" => (refusal.what, refusal.recipient) = ("RCPT", address),
            _ => refusal.what = kind,
        }
        refusal.host = host(after.strip_prefix("H=")?)?.0;
        return Some(refusal);
    } else if let Some(after) = text.strip_prefix("refused connection from ") {
        refusal.what = "connection";
        after
    } else if let Some(after) = text.strip_prefix("Connection from ") {
        let (host, after) = host(after)?;
        refusal.host = host;
        let is_refused = after.starts_with("refused");
        refusal.what = "connection";
        refusal.temporary = true;
        return is_refused.then_some(refusal);
    } else {
        return None;
    };
    let (host, after) = host(rest.strip_prefix("H=").unwrap_or(rest))?;
    refusal.host = host;
    refusal.reason = match after.starts_with("I=") {
        true => after.split_once(": ").map(|(_, reason)| reason),
        false => Some(after),
    };
    Some(refusal)
}

/// `transaction (RSET) from <a@x> for b@x c@x`
fn incomplete<'a>(after: &'a str, before: &Refusal<'a>) -> Option<Incomplete<'a>> {
    let (_how, after) = after.strip_prefix("transaction (")?.split_once(") from <")?;
    let (sender, after) = bracketed(after)?;
    let recipients = after.strip_prefix(" for ");
    let Refusal { host, user, auth, hides_login, .. } = *before;
    Some(Incomplete { host, user, auth, sender, recipients, hides_login })
}

/// What comes before the `>` that ends an address, and what follows it. Quoted parts of the
/// address may contain spaces.
pub(super) fn bracketed(text: &str) -> Option<(&str, &str)> {
    let (first, _) = address(text);
    let end = first.rfind('>')?;
    Some((text.get(..end)?, text.get(end + 1..)?))
}

/// `name (helo) [address]:port`: the address, which the client did not choose, and what
/// follows. A HELO name with `) [` in it needs `helo_accept_junk_hosts`.
fn host(rest: &str) -> Option<(Host<'_>, &str)> {
    let mut helo = None;
    let at = match rest.starts_with('[') {
        true => 0,
        false => {
            // Past the name in parentheses, which may be an address in brackets itself.
            let open =
                find(rest, "(").filter(|open| !rest.get(..*open).is_some_and(|n| n.contains('[')));
            let from = match open {
                Some(open) => {
                    let close = find(rest, ") [")?;
                    helo = rest.get(open + 1..close);
                    close
                }
                None => 0,
            };
            let at = from + find(rest.get(from..)?, " [")? + 1;
            // Exim writes the name once if HELO has the same.
            helo = helo.or(rest.get(..at - 1));
            at
        }
    };
    let (address, after) = split(rest.get(at + 1..)?, "]")?;
    let (port, after) = split(after, " ").unwrap_or((after, ""));
    let port = port.trim_end_matches(':').strip_prefix(':').and_then(|port| port.parse().ok());
    Some((Host { helo, address: Some(address), port }, after))
}

/// The user of `A=driver:user`, which may contain spaces and all that follows it: of the places
/// where it can end, it is the first after which all is as Exim writes it. And what follows.
fn authenticated(rest: &str) -> (Option<&str>, &str) {
    let ends = || memchr_iter(b' ', rest.as_bytes()).filter(|at| is_size(rest, *at));
    let mut all = ends();
    let end = match (all.next(), all.next()) {
        (first, None) => first,
        (first, Some(_)) => ends().find(|at| Tail::read(rest.get(at + 1..)).is_some()).or(first),
    };
    let end = end.unwrap_or(rest.len());
    let (field, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
    (field_user(field), after.strip_prefix(' ').unwrap_or(after))
}

/// The user of `A=driver:user PRX=… K PRDR`.
fn field_user(field: &str) -> Option<&str> {
    let field = split(field, " PRX=").map_or(field, |(before, _)| before);
    let field = field.strip_suffix(" K").unwrap_or(field);
    user(field.strip_suffix(" PRDR").unwrap_or(field))
}

/// Whether ` S=` and a number are there.
fn is_size(text: &str, at: usize) -> bool {
    let after = text.get(at..).and_then(|rest| rest.strip_prefix(" S="));
    after.is_some_and(|after| after.starts_with(|c: char| c.is_ascii_digit()))
}

/// What Exim writes after a login.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tail<'a> {
    size: Option<u64>,
    recipients: Option<&'a str>,
}

impl<'a> Tail<'a> {
    /// `S=9 [M8S=] [DKIM=] [RT=] [Q=] [id=] [T="…"] [from <…>] [for …]`, if all of it is as Exim
    /// writes it, and in its order.
    fn read(text: Option<&'a str>) -> Option<Self> {
        let mut rest = text.filter(|text| text.starts_with("S="))?;
        let (mut tail, mut last) = (Self::default(), 0);
        while !rest.is_empty() {
            let (field, mut after) =
                if rest.starts_with("id") { address(rest) } else { token(rest) };
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            let (place, is_right) = match name {
                "S" => {
                    tail.size = value.parse().ok();
                    (1, tail.size.is_some())
                }
                "id" | "id*" => (3, is_plain_address(value)),
                "T" => (4, is_quoted(value)),
                "from" if field == name => {
                    let sender;
                    (sender, after) = address(after);
                    (5, sender.starts_with('<') && sender.ends_with('>'))
                }
                "for" if field == name => {
                    tail.recipients = Some(after);
                    let is_address = |one: &str| one.contains('@') && is_plain_address(one);
                    return recipients(after).all(is_address).then_some(tail);
                }
                // What Exim writes before the login.
                "H" | "U" | "P" | "L" | "X" | "CV" | "DN" | "SNI" | "K" | "PRDR" | "A" | "PRX" => {
                    (0, false)
                }
                _ => {
                    let is_name = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit();
                    (2, name.bytes().all(is_name) && !value.contains('"'))
                }
            };
            // Only short fields of Exim's own are several.
            if !is_right || place < last || place == last && place != 2 {
                return None;
            }
            (last, rest) = (place, after);
        }
        Some(tail)
    }
}

/// Whether it is an address whose domain has no quotes and brackets, or one without a domain.
fn is_plain_address(text: &str) -> bool {
    let domain = text.rsplit_once('@').map_or(text, |(_, domain)| domain);
    !domain.contains(['"', '\\', '<', '>'])
}

/// Whether it is one text in quotes.
fn is_quoted(text: &str) -> bool {
    let Some(inner) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else {
        return false;
    };
    let mut escaped = false;
    let is_inside = |b: u8| {
        let is_quote = b == b'"' && !escaped;
        escaped = b == b'\\' && !escaped;
        !is_quote
    };
    inner.bytes().all(is_inside) && !escaped
}

/// The user of `A=driver:user`, or of `A=driver:user:sender`, which is logged with
/// `log_selector = +smtp_mailauth`.
fn user(field: &str) -> Option<&str> {
    let (_driver, user) = field.split_once(':')?;
    let user = match user.rsplit_once(':') {
        Some((user, sender)) if sender.contains('@') && !user.is_empty() => user,
        _ => user,
    };
    Some(user).filter(|user| !user.is_empty())
}

/// What comes before the first space that is not in quotes, and what follows it.
fn token(text: &str) -> (&str, &str) {
    let end = match memchr2(b' ', b'"', text.as_bytes()) {
        Some(at) if text.as_bytes().get(at) == Some(&b'"') => quoted_end(text),
        end => end,
    };
    match end {
        Some(end) => (text.get(..end).unwrap_or(text), text.get(end + 1..).unwrap_or_default()),
        None => (text, ""),
    }
}

/// Where a token with quotes in it ends.
fn quoted_end(text: &str) -> Option<usize> {
    let (end, quoted) = first_outside(text, b' ', false);
    // A quote that is not closed is an ordinary character.
    if quoted { text.find(' ') } else { end }
}

/// As [`token`], for an address: Exim also takes a backslash before a character of a local part
/// that is not in quotes, such as a space (`a\ b@example.org`).
fn address(text: &str) -> (&str, &str) {
    let special = memchr3(b' ', b'"', b'\\', text.as_bytes());
    match special {
        Some(at) if text.as_bytes().get(at) != Some(&b' ') => {}
        _ => return token(text),
    }
    match first_outside(text, b' ', true) {
        // It is no address.
        (_, true) => token(text),
        (Some(end), _) => {
            (text.get(..end).unwrap_or(text), text.get(end + 1..).unwrap_or_default())
        }
        (None, _) => (text, ""),
    }
}

/// Where `part`, which is short, begins in `text`: without the preparations of `str::find`,
/// which cost more than the search in a line.
#[inline]
fn find(text: &str, part: &str) -> Option<usize> {
    let (text, part) = (text.as_bytes(), part.as_bytes());
    let (first, others) = part.split_first()?;
    memchr_iter(*first, text).find(|&at| {
        others.is_empty() || text.get(at + 1..).is_some_and(|rest| rest.starts_with(others))
    })
}

/// What comes before and after `part`, which is short.
#[inline]
fn split<'a>(text: &'a str, part: &str) -> Option<(&'a str, &'a str)> {
    let at = find(text, part)?;
    Some((text.get(..at)?, text.get(at + part.len()..)?))
}

/// The recipients of an arrival, one by one.
pub fn recipients(mut list: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (one, rest) = address(list.trim_start());
        list = rest;
        Some(one).filter(|one| !one.is_empty())
    })
}

#[cfg(test)]
mod tests;
