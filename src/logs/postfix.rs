//! Lines of Postfix, as syslog or `maillog_file` has them, after the program's name.
//!
//! What clients choose stands in brackets, quoted as in SMTP (`info_log_addr_form = external`,
//! the default from 3.5 on); it is read as a whole, and what Postfix writes itself is looked for
//! before and after it.

use super::failure::{self, Failure, InReplyTo, Maker, Status};
use super::quotes::first_outside;

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What<'a> {
    /// `ID: client=…`, `ID: uid=…`, or `ID: message-id=…`: a message begins.
    Begin(Begin<'a>),
    /// `NOQUEUE: client=…`: a message begins, which a filter has to accept first.
    Proxied(Begin<'a>),
    /// `proxy-accept: END-OF-MESSAGE: …; from=<…> …`: the filter has accepted it.
    ProxyAccepted {
        /// The queue id that it has now, if the filter says so.
        queued_as: Option<&'a str>,
        /// The envelope sender.
        sender: Option<&'a str>,
        /// The last recipient.
        recipient: Option<&'a str>,
    },
    /// `ID: from=<…>, size=…, nrcpt=… (queue active)`: it has been received, or is tried again.
    Active {
        /// The queue id.
        id: &'a str,
        /// The envelope sender.
        sender: &'a str,
        /// Its size in bytes.
        size: Option<u64>,
        /// The number of its recipients, after aliases.
        recipients: usize,
    },
    /// `ID: to=<…>, orig_to=<…>, …`: what became of a recipient.
    Recipient(Recipient<'a>),
    /// `ID: removed`: nothing more follows.
    Removed {
        /// The queue id.
        id: &'a str,
        /// The client gave the message up.
        canceled: bool,
    },
    /// `ID: requeued`, by postsuper: it comes back with another id.
    Requeued {
        /// The queue id that it had.
        id: &'a str,
    },
    /// `NOQUEUE: reject: …`
    Refusal(Refusal<'a>),
    /// `discard: …`: it is accepted and ignored.
    Discarded(Refusal<'a>),
    /// `warning: …: SASL … authentication failed: …`
    FailedLogin {
        /// The client.
        client: Client<'a>,
        /// The user that was tried, from 3.6 on.
        user: Option<&'a str>,
        /// The password could not be checked.
        temporary: bool,
    },
    /// `connect from …`
    Connect {
        /// The client.
        client: Client<'a>,
    },
    /// `disconnect from …`
    Close {
        /// The client.
        client: Client<'a>,
        /// Whether a login succeeded.
        has_logged_in: bool,
    },
    /// `postmaster non-delivery notification: ID`: Postfix itself has written a message.
    Notice {
        /// Its queue id.
        id: &'a str,
    },
    /// A line that says nothing of who sends how much.
    Known,
}

/// A client, as Postfix writes it: `host[address]:port`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Client<'a> {
    /// Its address.
    pub address: &'a str,
    /// Its port: `smtpd_client_port_logging`, and postscreen.
    pub port: Option<u16>,
}

/// A message begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Begin<'a> {
    /// The queue id.
    pub id: &'a str,
    /// The client's address.
    pub client: Option<&'a str>,
    /// The login.
    pub auth: Option<&'a str>,
    /// The number of the local account.
    pub uid: Option<&'a str>,
    /// The queue id that it had before: `orig_queue_id=` of a filter, `orig_id=` of postsuper.
    pub before: Option<&'a str>,
    /// The client that a filter has it from: `orig_client=`.
    pub before_client: Option<&'a str>,
}

/// What became of a recipient.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recipient<'a> {
    /// The queue id.
    pub id: &'a str,
    /// The address after aliases.
    pub to: &'a str,
    /// The address that the client gave, if it is another.
    pub original: Option<&'a str>,
    /// The address of the server that it was sent to.
    pub relay: Option<&'a str>,
    /// How many seconds ago the message was received.
    pub delay: Option<f64>,
    /// The queue id that it has at that server.
    pub queued_as: Option<&'a str>,
    /// The queue id of what was made of it here, for other recipients.
    pub forwarded_as: Option<&'a str>,
    /// What counts of this attempt, if the client named this address itself.
    pub failure: Option<Failure>,
}

/// A command or a message was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusal<'a> {
    /// The queue id, if the message has one.
    pub id: Option<&'a str>,
    /// The command: `RCPT`.
    pub command: &'a str,
    /// The client.
    pub client: Option<Client<'a>>,
    /// Whether the client may try again.
    pub temporary: bool,
    /// Postfix's own limits (`smtpd_client_…_rate_limit`).
    pub limited: bool,
    /// Why.
    pub reason: &'a str,
    /// The envelope sender.
    pub sender: Option<&'a str>,
    /// The recipient.
    pub recipient: Option<&'a str>,
    /// The name in HELO.
    pub helo: Option<&'a str>,
    /// The login.
    pub auth: Option<&'a str>,
}

/// Programs of Postfix of which lines are read or known: the last part of `postfix/smtpd`.
const DAEMONS: [&str; 30] = [
    "anvil",
    "bounce",
    "cleanup",
    "defer",
    "discard",
    "dnsblog",
    "error",
    "flush",
    "lmtp",
    "local",
    "master",
    "oqmgr",
    "pickup",
    "pipe",
    "postdrop",
    "postfix-script",
    "postlog",
    "postlogd",
    "postqueue",
    "postscreen",
    "postsuper",
    "proxymap",
    "qmgr",
    "retry",
    "scache",
    "smtp",
    "smtpd",
    "tlsproxy",
    "trivial-rewrite",
    "virtual",
];

/// The instance and the daemon of a program's name: `postfix-out/submission/smtpd`.
#[must_use]
pub fn daemon(program: &str) -> Option<(&str, &str)> {
    let (instance, _) = program.split_once('/')?;
    let (_, daemon) = program.rsplit_once('/')?;
    (instance.contains("postfix") || DAEMONS.contains(&daemon)).then_some((instance, daemon))
}

/// `Requeue: OLD.AE4DF to NEW`, as MailScanner logs that a message has another queue id.
#[must_use]
pub fn requeued(rest: &str) -> Option<(&str, &str)> {
    let (old, new) = rest.strip_prefix("Requeue: ")?.split_once(" to ")?;
    let old = old.split_once('.').map_or(old, |(id, _)| id);
    (is_queue_id(old) && is_queue_id(new)).then_some((old, new))
}

/// Reads a line of this daemon. `None` if it is not understood.
#[must_use]
pub fn line<'a>(daemon: &str, rest: &'a str) -> Option<What<'a>> {
    if daemon == "smtpd"
        && let Some(what) = of_client(rest)
    {
        return Some(what);
    }
    if let Some(after) = rest.strip_prefix("NOQUEUE: ") {
        if let Some(from) = after.strip_prefix("client=") {
            return begin("", from).map(What::Proxied);
        }
        return action(None, after).or_else(|| proxied(after)).or(Some(What::Known));
    }
    if let Some(what) = proxied(rest) {
        return Some(what);
    }
    if let Some(after) = rest.strip_prefix("DISCONNECT ") {
        // postscreen's.
        let client = client(after)?.0;
        return Some(What::Close { client, has_logged_in: false });
    }
    let Some((id, after)) = queue_id(rest) else {
        let is_known = daemon != "smtpd" || KNOWN.iter().any(|start| rest.starts_with(start));
        return is_known.then_some(What::Known);
    };
    if let "bounce" | "defer" = daemon
        && let Some((_, id)) =
            after.rsplit_once(" notification: ").filter(|(_, id)| is_queue_id(id))
    {
        return Some(What::Notice { id });
    }
    of_message(id, after)
}

/// How other lines of `smtpd` begin.
const KNOWN: [&str; 21] = [
    "bare <LF> ",
    "discarding EHLO keywords",
    "table ",
    "warning: ",
    "error: ",
    "fatal: ",
    "panic: ",
    "lost connection ",
    "timeout ",
    "improper ",
    "too many errors ",
    "SSL_",
    "TLS ",
    "Anonymous TLS ",
    "Trusted TLS ",
    "Untrusted TLS ",
    "Verified TLS ",
    "setting up TLS ",
    "initializing ",
    "name_mask: ",
    "auto_clnt_",
];

/// What Postfix says where the server that checks passwords has failed: the client may be right.
const SERVER_FAULTS: [&str; 6] = [
    "Connection lost to authentication server",
    "Can't connect to authentication server",
    "Temporary authentication failure",
    "Internal authentication failure",
    "generic failure",
    "no mechanism available",
];

fn of_client(rest: &str) -> Option<What<'_>> {
    if let Some(after) = rest.strip_prefix("connect from ") {
        return Some(What::Connect { client: client(after)?.0 });
    }
    if let Some(after) = rest.strip_prefix("disconnect from ") {
        let (client, after) = client(after)?;
        // `auth=1`, `auth=1/6`: those that succeeded, of all.
        let logins = after.split(' ').find_map(|field| field.strip_prefix("auth="));
        let has_logged_in = logins.is_some_and(|count| !count.starts_with("0"));
        return Some(What::Close { client, has_logged_in });
    }
    let after = rest.strip_prefix("warning: ")?;
    if let Some((what, from)) = after.split_once(" limit exceeded: ") {
        let command = match what {
            "Message delivery request rate" => "MAIL",
            "Recipient address rate" => "RCPT",
            "Connection rate" | "Connection concurrency" => "CONNECT",
            _ => return None,
        };
        let (_count, from) = from.split_once(" from ")?;
        let client = Some(client(from)?.0);
        let (temporary, limited) = (true, true);
        let refusal =
            Refusal { command, client, temporary, limited, reason: after, ..Refusal::default() };
        return Some(What::Refusal(refusal));
    }
    let (client, after) = client(after)?;
    let (_mechanism, reason) =
        after.strip_prefix(": SASL ")?.split_once(" authentication failed")?;
    let (reason, user) = match reason.rsplit_once(", sasl_username=") {
        Some((reason, user)) => (reason, Some(user).filter(|user| *user != "(unavailable)")),
        None => (reason, None),
    };
    let temporary = SERVER_FAULTS.iter().any(|fault| reason.contains(fault));
    Some(What::FailedLogin { client, user, temporary })
}

/// `host[address], sasl_method=…, sasl_username=…, sasl_sender=…, orig_queue_id=…,
/// orig_client=…`: a user's name may contain anything, and the others nothing of these.
fn begin<'a>(id: &'a str, from: &'a str) -> Option<Begin<'a>> {
    let (client, rest) = client(from)?;
    let mut begin = Begin { id, client: Some(client.address), ..Begin::default() };
    let mut rest = rest;
    if let Some((before, host)) = rest.rsplit_once(", orig_client=") {
        begin.before_client = self::client(host).map(|(client, _)| client.address);
        rest = before;
    }
    if let Some((before, id)) = rest.rsplit_once(", orig_queue_id=") {
        begin.before = Some(id);
        rest = before;
    }
    let auth = rest.split_once(", sasl_username=").map(|(_, user)| user);
    begin.auth = auth.map(|user| user.rsplit_once(", sasl_sender=").map_or(user, |(user, _)| user));
    Some(begin)
}

fn of_message<'a>(id: &'a str, after: &'a str) -> Option<What<'a>> {
    if let Some(from) = after.strip_prefix("client=") {
        return begin(id, from).map(What::Begin);
    }
    if let Some(uid) = after.strip_prefix("uid=") {
        let (uid, rest) = uid.split_once(" from=<").unwrap_or((uid, ""));
        // The sender is a local user's text: what follows it is the queue id alone.
        let before = closed(rest).and_then(|(_, rest)| rest.strip_prefix(" orig_id="));
        let before = before.filter(|id| is_queue_id(id));
        let uid = uid.split_once(' ').map_or(uid, |(uid, _)| uid);
        return Some(What::Begin(Begin { id, uid: Some(uid), before, ..Begin::default() }));
    }
    if after.starts_with("message-id=") || after.starts_with("resent-message-id=") {
        return Some(What::Begin(Begin { id, ..Begin::default() }));
    }
    if let Some(from) = after.strip_prefix("from=<") {
        // Postfix writes the numbers last: the sender may contain such fields as well.
        let Some((from, count)) = from.rsplit_once(", nrcpt=") else {
            // `from=<>, status=expired, returned to sender`
            return from.contains(">, status=").then_some(What::Known);
        };
        let (sender, size) = from.rsplit_once(">, size=")?;
        let count = count.split_once(' ').map_or(count, |(count, _)| count);
        let (size, recipients) = (size.parse().ok(), count.parse().ok()?);
        return Some(What::Active { id, sender, size, recipients });
    }
    if let Some(to) = after.strip_prefix("to=<") {
        return recipient(id, to).map(What::Recipient);
    }
    if after == "requeued" {
        return Some(What::Requeued { id });
    }
    if let Some(how) = after.strip_prefix("removed") {
        return Some(What::Removed { id, canceled: how.starts_with(" (canceled)") });
    }
    Some(action(Some(id), after).unwrap_or(What::Known))
}

/// `bob@x>, orig_to=<…>, relay=host[address]:port, delay=2, …, status=sent (… queued as ID)`
fn recipient<'a>(id: &'a str, to: &'a str) -> Option<Recipient<'a>> {
    let (to, mut rest) = bracketed(to)?;
    let mut found = Recipient { id, to, ..Recipient::default() };
    if let Some((original, after)) = rest.strip_prefix(", orig_to=<").and_then(bracketed) {
        (found.original, rest) = (Some(original), after);
    }
    let (fields, reply) = rest.split_once(", status=").unwrap_or((rest, ""));
    let mut enhanced = None;
    for field in fields.split(", ") {
        match field.split_once('=') {
            Some(("relay", host)) => found.relay = client(host).map(|(client, _)| client.address),
            Some(("delay", seconds)) => found.delay = seconds.parse().ok(),
            Some(("dsn", status)) => enhanced = failure::enhanced(status),
            _ => {}
        }
    }
    // Postfix completes an address without a domain.
    let is_own = found.original.is_none_or(|original| {
        let local = to.rsplit_once('@').map_or(to, |(local, _)| local);
        original.eq_ignore_ascii_case(to) || original.eq_ignore_ascii_case(local)
    });
    if is_own && let Some((result @ ("bounced" | "deferred"), text)) = reply.split_once(" (") {
        // `host mx[192.0.2.1] said: 550 … (in reply to RCPT TO command)`
        let says = [" said: ", " refused to talk to me: "];
        let said = says.iter().find_map(|says| text.split_once(says));
        let mut status = Status::in_text(said.map_or(text, |(_, said)| said), to);
        (status.enhanced, status.to) = (enhanced, in_reply_to(text));
        found.failure = match result {
            "bounced" => status.failure(Maker::RouterOrServer),
            _ => status.throttled(),
        };
    }
    found.queued_as = queued_as(reply);
    let forwarded = reply.strip_prefix("sent (forwarded as ").and_then(|id| id.strip_suffix(')'));
    found.forwarded_as = forwarded.filter(|id| is_queue_id(id));
    Some(found)
}

/// `… said: 550 … (in reply to RCPT TO command))`
fn in_reply_to(text: &str) -> InReplyTo {
    match text.rsplit_once(" (in reply to ").map(|(_, command)| command) {
        Some(command) if command.starts_with("RCPT TO ") => InReplyTo::Recipient,
        Some(command) if command.starts_with("end of DATA ") => InReplyTo::Message,
        Some(command) if command.starts_with("DATA ") => InReplyTo::Message,
        Some(_) => InReplyTo::Sender,
        None if text.contains(" refused to talk to me: ") => InReplyTo::Sender,
        None => InReplyTo::Recipient,
    }
}

/// `250 2.0.0 Ok: queued as ID`
fn queued_as(reply: &str) -> Option<&str> {
    let (_, id) = reply.rsplit_once("queued as ")?;
    let id = id.trim_end_matches([')', '.', '"']);
    is_queue_id(id).then_some(id)
}

/// What lines of `smtpd` and `cleanup` call a refusal, and a message that is ignored.
const REFUSED: [&str; 3] = ["reject: ", "milter-reject: ", "hangup: "];
const DISCARDED: [&str; 2] = ["discard: ", "milter-discard: "];
/// The same of a header that a milter adds.
const OF_MILTERS_HEADER: [(&str, bool); 2] =
    [("milter-header-reject: ", true), ("milter-header-discard: ", false)];

/// What was done to a command or a message, where it was refused or ignored.
fn action<'a>(id: Option<&'a str>, text: &'a str) -> Option<What<'a>> {
    let after = |list: &[&str]| list.iter().find_map(|start| text.strip_prefix(start));
    if let Some(after) = after(&REFUSED) {
        return refused(id, after).map(What::Refusal);
    }
    if let Some((after, is_refused)) =
        OF_MILTERS_HEADER.iter().find_map(|(start, is)| Some((text.strip_prefix(start)?, *is)))
    {
        return of_content(id, after).map(if is_refused { What::Refusal } else { What::Discarded });
    }
    refused(id, after(&DISCARDED)?).map(What::Discarded)
}

/// `proxy-accept: END-OF-MESSAGE: 250 …; from=<…> …`, `proxy-reject: …`, of a filter before the
/// queue.
fn proxied(text: &str) -> Option<What<'_>> {
    if let Some(after) = text.strip_prefix("proxy-accept: ") {
        let (_where, text) = after.split_once(": ")?;
        let (reply, fields) =
            text.find("; from=<").and_then(|at| text.split_at_checked(at)).unwrap_or((text, ""));
        let mut refusal = Refusal::default();
        read_fields(fields.strip_prefix("; ").unwrap_or(fields), &mut refusal)?;
        let Refusal { sender, recipient, .. } = refusal;
        return Some(What::ProxyAccepted { queued_as: queued_as(reply), sender, recipient });
    }
    let (command, reason) = text.strip_prefix("proxy-reject: ")?.split_once(": ")?;
    let mut refusal = Refusal { command, ..Refusal::default() };
    refusal.temporary = reason.starts_with('4');
    with_fields(reason, 0, &mut refusal)?;
    Some(What::Refusal(refusal))
}

/// `RCPT from host[address]: 450 4.7.1 <to>: why; from=<…> to=<…> proto=… helo=<…>`
fn refused<'a>(id: Option<&'a str>, text: &'a str) -> Option<Refusal<'a>> {
    const CONTENTS: [&str; 3] = ["header ", "body ", "content "];
    if CONTENTS.iter().any(|start| text.starts_with(start)) {
        return of_content(id, text);
    }
    let (command, after) = text.split_once(" from ")?;
    let (client, after) = client(after)?;
    let after = after.strip_prefix(": ").or_else(|| after.strip_prefix(';').map(|_| after))?;
    let mut refusal = Refusal { id, command, client: Some(client), ..Refusal::default() };
    refusal.temporary = after.starts_with('4');
    // An address in front is the client's text.
    let skipped = after.find(" <").filter(|at| *at <= "554 5.7.1".len());
    let from = skipped.and_then(|at| {
        let (_, rest) = bracketed(after.get(at + 2..)?)?;
        Some(after.len() - rest.len())
    });
    with_fields(after, from.unwrap_or(0), &mut refusal)?;
    Some(refusal)
}

/// The reason, and the fields that follow it after `from`.
fn with_fields<'a>(text: &'a str, from: usize, refusal: &mut Refusal<'a>) -> Option<()> {
    // Before MAIL there is no sender.
    let start = |rest: &str| rest.find("; from=<").or_else(|| rest.rfind("; proto="));
    let found = text.get(from..).and_then(start).map(|at| from + at);
    let (reason, fields) = found.and_then(|at| text.split_at_checked(at)).unwrap_or((text, ""));
    refusal.reason = reason;
    read_fields(fields.strip_prefix("; ").unwrap_or(fields), refusal).map(|_| ())
}

/// `header Subject: x from host[address]; from=<…> to=<…> proto=… helo=<…>: 5.7.1 why`: the
/// content may imitate all of it. Of the places where it can end, the sender and the recipient
/// are used if they are the same at each.
fn of_content<'a>(id: Option<&'a str>, text: &'a str) -> Option<Refusal<'a>> {
    let mut found: Option<Refusal<'a>> = None;
    for (at, _) in text.match_indices("]; from=<") {
        let mut refusal = Refusal { id, command: "END-OF-MESSAGE", ..Refusal::default() };
        let Some(rest) = text.get(at + 3..).and_then(|fields| read_fields(fields, &mut refusal))
        else {
            continue;
        };
        refusal.reason = rest.strip_prefix(": ").unwrap_or(rest);
        refusal.temporary = refusal.reason.starts_with('4');
        let same = |one: Option<&'a str>, other: Option<&'a str>| one.filter(|_| one == other);
        if let Some(before) = found {
            refusal.sender = same(before.sender, refusal.sender);
            refusal.recipient = same(before.recipient, refusal.recipient);
            refusal.helo = same(before.helo, refusal.helo);
        }
        found = Some(refusal);
    }
    // The content is cut, and so may be all that follows it.
    found.or(Some(Refusal { id, command: "END-OF-MESSAGE", ..Refusal::default() }))
}

/// `from=<…> to=<…> proto=ESMTP helo=<…> sasl_method=… sasl_username=…`, with commas between
/// them where postscreen writes them; what follows.
fn read_fields<'a>(fields: &'a str, refusal: &mut Refusal<'a>) -> Option<&'a str> {
    const NAMES: [&str; 7] =
        ["from", "to", "proto", "helo", "sasl_method", "sasl_username", "sasl_sender"];
    let mut rest = fields;
    while let Some((name, value)) = rest.split_once('=') {
        if !NAMES.contains(&name) {
            break;
        }
        let (value, after) = match value.strip_prefix('<') {
            Some(value) => bracketed(value)?,
            // The last one but for the sender of the message, and it may contain anything.
            None if name == "sasl_username" => match value.rsplit_once(" sasl_sender=") {
                Some((user, _)) => (user, ""),
                None => (value, ""),
            },
            None => value.split_at_checked(value.find([' ', ',', ':']).unwrap_or(value.len()))?,
        };
        match name {
            "from" => refusal.sender = Some(value),
            "to" => refusal.recipient = Some(value),
            "helo" => refusal.helo = Some(value),
            "sasl_username" => refusal.auth = Some(value),
            _ => {}
        }
        rest = after.strip_prefix(", ").or_else(|| after.strip_prefix(' ')).unwrap_or(after);
    }
    Some(rest)
}

/// `host[address]:port`: the client, and what follows.
fn client(text: &str) -> Option<(Client<'_>, &str)> {
    let (host, rest) = text.split_once('[')?;
    let (address, after) = rest.split_once(']')?;
    // A name is letters, digits, dots, dashes: anything else is another line.
    let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    if !host.bytes().all(is_name) {
        return None;
    }
    // With `smtpd_client_port_logging`, the port follows.
    let number = after.strip_prefix(':').map(|after| {
        after.split_at(after.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(after.len()))
    });
    match number {
        Some((port, rest)) if !port.is_empty() => {
            Some((Client { address, port: port.parse().ok() }, rest))
        }
        _ => Some((Client { address, port: None }, after)),
    }
}

/// `4jYXLq5nnzz1V: rest`, `3F2504E0: rest`
fn queue_id(rest: &str) -> Option<(&str, &str)> {
    let (id, after) = rest.split_once(": ")?;
    is_queue_id(id).then_some((id, after))
}

pub(super) fn is_queue_id(id: &str) -> bool {
    (5..=32).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric())
        // Short ones are hexadecimal, long ones begin with the time and contain `z`.
        && id.bytes().any(|b| b.is_ascii_digit() || b.is_ascii_uppercase())
}

/// What comes before the first `>` that is not in quotes, and what follows it. A quote that is
/// not closed is an ordinary character.
fn bracketed(text: &str) -> Option<(&str, &str)> {
    match first_outside(text, b'>', false) {
        (None, true) => text.split_once('>'),
        (end, _) => split_at(text, end?),
    }
}

/// The same, of a text in which each quote is closed.
pub(super) fn closed(text: &str) -> Option<(&str, &str)> {
    split_at(text, first_outside(text, b'>', false).0?)
}

fn split_at(text: &str, end: usize) -> Option<(&str, &str)> {
    Some((text.get(..end)?, text.get(end + 1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_choose_cannot_imitate_fields() {
        let id = "4jYXLs3fD1z1Y";
        let sender = "\"a b>, size=5, nrcpt=9 from=<z>\"@x.test";
        let text = format!("{id}: from=<{sender}>, size=307, nrcpt=1 (queue active)");
        let active = What::Active { id, sender, size: Some(307), recipients: 1 };
        assert_eq!(line("qmgr", &text), Some(active));
        let to = "\"q>, orig_to=<ceo@y.test>, relay=x\"@y.test";
        let text =
            format!("{id}: to=<{to}>, orig_to=<al@y.test>, relay=none, status=sent (to=<z>)");
        let recipient = Recipient { id, to, original: Some("al@y.test"), ..Recipient::default() };
        assert_eq!(line("smtp", &text), Some(What::Recipient(recipient)));
        let sender = "\"; from=<ceo@y.test> to=<z> helo=<z>\"@x.test";
        let text = format!(
            "NOQUEUE: reject: MAIL from unknown[2001:db8::1]:4711: 554 5.7.1 <{sender}>: no; why; \
             from=<{sender}> proto=ESMTP helo=<h> sasl_username=<al ice>"
        );
        let Some(What::Refusal(refusal)) = line("smtpd", &text) else { panic!("{text}") };
        assert_eq!((refusal.sender, refusal.helo), (Some(sender), Some("h")), "{refusal:?}");
        let client = Client { address: "2001:db8::1", port: Some(4711) };
        assert_eq!((refusal.client, refusal.auth), (Some(client), Some("al ice")));
        assert_eq!((refusal.recipient, refusal.temporary), (None, false));
        // The sender of a local message, also of a line that syslog has cut.
        let before = |from: &str| match line("pickup", &format!("{id}: uid=1000 from=<{from}")) {
            Some(What::Begin(Begin { uid: Some("1000"), before, .. })) => before.map(str::to_owned),
            other => panic!("{other:?}"),
        };
        assert_eq!(before("a@x.test> orig_id=AB3116645B").as_deref(), Some("AB3116645B"));
        for forged in ["\"a> orig_id=AB3116645B\"@x.test>", "\"a> orig_id=AB3116645B", "a@x.test>"]
        {
            assert_eq!(before(forged), None, "{forged}");
        }
        // A message-id is the client's as well.
        let text = format!("{id}: message-id=<x, client=[192.0.2.9], sasl_username=ceo>");
        let begin = What::Begin(Begin { id, ..Begin::default() });
        assert_eq!(line("cleanup", &text), Some(begin));
    }

    #[test]
    fn a_reply_is_to_a_command() {
        for (text, to) in [
            ("host m[192.0.2.1] said: 550 no (in reply to RCPT TO command))", InReplyTo::Recipient),
            ("host m[192.0.2.1] said: 550 no (in reply to MAIL FROM command))", InReplyTo::Sender),
            (
                "host m[192.0.2.1] said: 550 no (in reply to end of DATA command))",
                InReplyTo::Message,
            ),
            ("host m[192.0.2.1] said: 550 (in reply to DATA command))", InReplyTo::Message),
            (
                "host m[192.0.2.1] said: 550 (in reply to RCPT TO command) x (in reply to EHLO command))",
                InReplyTo::Sender,
            ),
            ("host m[192.0.2.1] refused to talk to me: 554 unknown user)", InReplyTo::Sender),
            ("unknown user: \"b\")", InReplyTo::Recipient),
        ] {
            assert_eq!(in_reply_to(text), to, "{text}");
        }
    }

    #[test]
    fn clients_and_logins_are_read() {
        let id = "3F2504E0";
        let begin = |client, auth| {
            Some(What::Begin(Begin { id, client: Some(client), auth, ..Begin::default() }))
        };
        for (text, expected) in [
            ("client=mx.example.org[192.0.2.7]", begin("192.0.2.7", None)),
            ("client=unknown[2001:db8::7]:52011", begin("2001:db8::7", None)),
            (
                "client=unknown[192.0.2.7], sasl_method=PLAIN, sasl_username=al, ice",
                begin("192.0.2.7", Some("al, ice")),
            ),
            (
                "client=unknown[192.0.2.7], sasl_method=PLAIN, sasl_username=alice, sasl_sender=b",
                begin("192.0.2.7", Some("alice")),
            ),
        ] {
            assert_eq!(line("smtpd", &format!("{id}: {text}")), expected, "{text}");
        }
        for (text, user) in [
            ("warning: unknown[192.0.2.7]: SASL LOGIN authentication failed: UGFzc3dvcmQ6", None),
            (
                "warning: x[192.0.2.7]: SASL PLAIN authentication failed: (reason unavailable), sasl_username=alice",
                Some("alice"),
            ),
        ] {
            let client = Client { address: "192.0.2.7", port: None };
            let expected = What::FailedLogin { client, user, temporary: false };
            assert_eq!(line("smtpd", text), Some(expected), "{text}");
        }
    }

    #[test]
    fn instances_and_daemons_are_told_from_other_programs() {
        for (program, expected) in [
            ("postfix/smtpd", Some(("postfix", "smtpd"))),
            ("postfix-out/submission/smtpd", Some(("postfix-out", "smtpd"))),
            ("relay/qmgr", Some(("relay", "qmgr"))),
            ("dovecot", None),
            ("exim4", None),
            ("a/b", None),
        ] {
            assert_eq!(daemon(program), expected, "{program}");
        }
    }

    #[test]
    fn other_lines_are_known_or_not() {
        for (daemon, text, known) in [
            ("smtpd", "lost connection after RCPT from x[192.0.2.1]", true),
            ("smtpd", "warning: hostname x does not resolve to address 192.0.2.1", true),
            ("smtpd", "discarding EHLO keywords: CHUNKING", true),
            ("smtpd", "something new", false),
            ("qmgr", "statistics: x", true),
            ("smtpd", "3F2504E0: reject_warning: RCPT from x[192.0.2.1]: 450 x; from=<a>", true),
            ("qmgr", "3F2504E0: from=<a>, size=1", false),
            ("smtp", "3F2504E0: to=<a", false),
            ("smtpd", "connect from", false),
        ] {
            let what = line(daemon, text);
            assert_eq!(what, known.then_some(What::Known), "{text}");
        }
    }
}
