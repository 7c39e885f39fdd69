//! Lines of Postfix, as syslog or `maillog_file` has them, after the program's name.
//!
//! What clients choose stands in brackets, quoted as in SMTP (`info_log_addr_form = external`,
//! the default from 3.5 on); it is read as a whole, and what Postfix writes itself is looked for
//! before and after it.

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// `ID: client=…`, `ID: uid=…`, or `ID: message-id=…`: a message begins.
    Begin(Begin<'a>),
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
    Recipient {
        /// The queue id.
        id: &'a str,
        /// The address after aliases.
        to: &'a str,
        /// The address that the client gave, if it is another.
        original: Option<&'a str>,
    },
    /// `ID: removed`: nothing more follows.
    Removed {
        /// The queue id.
        id: &'a str,
        /// The client gave the message up.
        canceled: bool,
    },
    /// `NOQUEUE: reject: …`
    Refusal(Refusal<'a>),
    /// `warning: …: SASL … authentication failed: …`
    FailedLogin {
        /// The client's address.
        client: &'a str,
        /// The user that was tried, from 3.6 on.
        user: Option<&'a str>,
    },
    /// `connect from …`
    Connect {
        /// The client's address.
        client: &'a str,
    },
    /// `disconnect from …`
    Close {
        /// The client's address.
        client: &'a str,
    },
    /// A line that says nothing of who sends how much.
    Known,
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
}

/// A command or a message was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusal<'a> {
    /// The queue id, if the message has one.
    pub id: Option<&'a str>,
    /// The command: `RCPT`.
    pub command: &'a str,
    /// The client's address.
    pub client: Option<&'a str>,
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

/// Reads a line of this daemon. `None` if it is not understood.
#[must_use]
pub fn line<'a>(daemon: &str, rest: &'a str) -> Option<What<'a>> {
    if daemon == "smtpd"
        && let Some(what) = of_client(rest)
    {
        return Some(what);
    }
    if let Some(after) = rest.strip_prefix("NOQUEUE: ") {
        return Some(refused(None, after).map_or(What::Known, What::Refusal));
    }
    let Some((id, after)) = queue_id(rest) else {
        let is_known = daemon != "smtpd" || KNOWN.iter().any(|start| rest.starts_with(start));
        return is_known.then_some(What::Known);
    };
    of_message(id, after)
}

/// How other lines of `smtpd` begin.
const KNOWN: [&str; 14] = [
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
];

fn of_client(rest: &str) -> Option<What<'_>> {
    if let Some(after) = rest.strip_prefix("connect from ") {
        return Some(What::Connect { client: client(after)?.0 });
    }
    if let Some(after) = rest.strip_prefix("disconnect from ") {
        return Some(What::Close { client: client(after)?.0 });
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
    let user = reason.rsplit_once(", sasl_username=").map(|(_, user)| user);
    Some(What::FailedLogin { client, user })
}

fn of_message<'a>(id: &'a str, after: &'a str) -> Option<What<'a>> {
    if let Some(from) = after.strip_prefix("client=") {
        let (address, rest) = client(from)?;
        // The last two fields, which may be followed by those of XFORWARD or of a filter.
        let auth = rest.split_once(", sasl_username=").map(|(_, user)| user);
        let auth =
            auth.map(|user| user.split_once(", sasl_sender=").map_or(user, |(user, _)| user));
        let auth = auth.map(|user| user.split_once(", orig_").map_or(user, |(user, _)| user));
        let begin = Begin { id, client: Some(address), auth, uid: None };
        return Some(What::Begin(begin));
    }
    if let Some(uid) = after.strip_prefix("uid=") {
        let uid = uid.split_once(' ').map_or(uid, |(uid, _)| uid);
        return Some(What::Begin(Begin { id, uid: Some(uid), ..Begin::default() }));
    }
    if after.starts_with("message-id=") || after.starts_with("resent-message-id=") {
        return Some(What::Begin(Begin { id, ..Begin::default() }));
    }
    if let Some(from) = after.strip_prefix("from=<") {
        // Postfix writes the numbers last: the sender may contain such fields as well.
        let (from, count) = from.rsplit_once(", nrcpt=")?;
        let (sender, size) = from.rsplit_once(">, size=")?;
        let count = count.split_once(' ').map_or(count, |(count, _)| count);
        let (size, recipients) = (size.parse().ok(), count.parse().ok()?);
        return Some(What::Active { id, sender, size, recipients });
    }
    if let Some(to) = after.strip_prefix("to=<") {
        let (to, rest) = bracketed(to)?;
        let original = rest.strip_prefix(", orig_to=<").and_then(bracketed);
        return Some(What::Recipient { id, to, original: original.map(|(original, _)| original) });
    }
    if let Some(how) = after.strip_prefix("removed") {
        return Some(What::Removed { id, canceled: how.starts_with(" (canceled)") });
    }
    Some(refused(Some(id), after).map_or(What::Known, What::Refusal))
}

/// `reject: RCPT from host[address]: 450 4.7.1 <to>: why; from=<…> to=<…> proto=… helo=<…>`
fn refused<'a>(id: Option<&'a str>, text: &'a str) -> Option<Refusal<'a>> {
    let after = text.strip_prefix("reject: ").or_else(|| text.strip_prefix("milter-reject: "))?;
    let (command, after) = after.split_once(" from ")?;
    let (address, after) = client(after)?;
    let after = after.strip_prefix(": ")?;
    let mut refusal = Refusal { id, command, client: Some(address), ..Refusal::default() };
    refusal.temporary = after.starts_with('4');
    // An address in front is the client's text.
    let skipped = after.find(" <").filter(|at| *at <= "554 5.7.1".len());
    let from = skipped.and_then(|at| {
        let (_, rest) = bracketed(after.get(at + 2..)?)?;
        Some(after.len() - rest.len())
    });
    let from = from.unwrap_or(0);
    let found = after.get(from..).and_then(|rest| rest.find("; from=<")).map(|at| from + at);
    let (reason, fields) = found.and_then(|at| after.split_at_checked(at)).unwrap_or((after, ""));
    refusal.reason = reason;
    let mut rest = fields.strip_prefix("; ").unwrap_or(fields);
    while let Some((name, value)) = rest.split_once('=') {
        let (value, after) = match value.strip_prefix('<') {
            Some(value) => bracketed(value)?,
            None => value.split_at_checked(value.find(' ').unwrap_or(value.len()))?,
        };
        match name {
            "from" => refusal.sender = Some(value),
            "to" => refusal.recipient = Some(value),
            "helo" => refusal.helo = Some(value),
            "sasl_username" => refusal.auth = Some(value),
            _ => {}
        }
        rest = after.strip_prefix(' ').unwrap_or(after);
    }
    Some(refusal)
}

/// `host[address]:port`: the address, and what follows.
fn client(text: &str) -> Option<(&str, &str)> {
    let (host, rest) = text.split_once('[')?;
    let (address, after) = rest.split_once(']')?;
    // A name is letters, digits, dots, dashes: anything else is another line.
    let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    if !host.bytes().all(is_name) {
        return None;
    }
    // With `smtpd_client_port_logging`, the port follows.
    let port =
        after.strip_prefix(':').map(|after| after.trim_start_matches(|c: char| c.is_ascii_digit()));
    match port {
        Some(rest) if rest.len() + 1 < after.len() => Some((address, rest)),
        _ => Some((address, after)),
    }
}

/// `4jYXLq5nnzz1V: rest`, `3F2504E0: rest`
fn queue_id(rest: &str) -> Option<(&str, &str)> {
    let (id, after) = rest.split_once(": ")?;
    let is_id = (5..=32).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric())
        // Short ones are hexadecimal, long ones begin with the time and contain `z`.
        && id.bytes().any(|b| b.is_ascii_digit() || b.is_ascii_uppercase());
    is_id.then_some((id, after))
}

/// What comes before the first `>` that is not in quotes, and what follows it.
fn bracketed(text: &str) -> Option<(&str, &str)> {
    let (mut quoted, mut escaped) = (false, false);
    let is_end = |b: u8| {
        let is_end = b == b'>' && !quoted;
        match b {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ => {}
        }
        is_end
    };
    let end = text.bytes().position(is_end);
    // A quote that is not closed is an ordinary character.
    let end = if quoted { text.find('>')? } else { end? };
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
        let recipient = What::Recipient { id, to, original: Some("al@y.test") };
        assert_eq!(line("smtp", &text), Some(recipient));
        let sender = "\"; from=<ceo@y.test> to=<z> helo=<z>\"@x.test";
        let text = format!(
            "NOQUEUE: reject: MAIL from unknown[2001:db8::1]:4711: 554 5.7.1 <{sender}>: no; why; \
             from=<{sender}> proto=ESMTP helo=<h> sasl_username=<al ice>"
        );
        let Some(What::Refusal(refusal)) = line("smtpd", &text) else { panic!("{text}") };
        assert_eq!((refusal.sender, refusal.helo), (Some(sender), Some("h")), "{refusal:?}");
        assert_eq!((refusal.client, refusal.auth), (Some("2001:db8::1"), Some("al ice")));
        assert_eq!((refusal.recipient, refusal.temporary), (None, false));
        // A message-id is the client's as well.
        let text = format!("{id}: message-id=<x, client=[192.0.2.9], sasl_username=ceo>");
        let begin = What::Begin(Begin { id, ..Begin::default() });
        assert_eq!(line("cleanup", &text), Some(begin));
    }

    #[test]
    fn clients_and_logins_are_read() {
        let id = "3F2504E0";
        let begin =
            |client, auth| Some(What::Begin(Begin { id, client: Some(client), auth, uid: None }));
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
            let expected = What::FailedLogin { client: "192.0.2.7", user };
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
