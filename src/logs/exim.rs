//! Lines of Exim's main log, after their time.
//!
//! Senders, HELO names, subjects and the like are chosen by clients, and may imitate the
//! fields around them. So a line is read from its start, in the order in which Exim writes
//! it, quoted texts as a whole, and of a field that occurs twice the first one counts.

/// What a line says, and of which message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
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
    },
    /// `Completed`: nothing more follows about the message.
    Completed,
    /// `rejected …`: an SMTP command or a message was refused.
    Refusal(Refusal<'a>),
    /// Anything else.
    Other,
}

/// How a delivery went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// `=>`, `->`, `>>`, `*>`
    Done,
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
    /// `H=`: the client's IP address.
    pub client: Option<&'a str>,
    /// `U=`: the login of a local user, or what the client's host says of itself.
    pub user: Option<&'a str>,
    /// `A=`: the authenticated user.
    pub auth: Option<&'a str>,
    /// `S=`: the size in bytes.
    pub size: Option<u64>,
    /// `for …`: the recipients, with spaces between them; logged with `log_selector =
    /// +received_recipients`.
    pub recipients: Option<&'a str>,
}

/// A command or a message that was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusal<'a> {
    /// `H=`: the client's IP address.
    pub client: Option<&'a str>,
    /// `F=`: the envelope sender, without brackets.
    pub sender: Option<&'a str>,
    /// `A=`: the authenticated user.
    pub auth: Option<&'a str>,
    /// Whether the client may try again.
    pub temporary: bool,
    /// What was refused, and why: `RCPT <bob@example.org>: too much`.
    pub what: &'a str,
}

/// Reads a line, after its time.
#[must_use]
pub fn line(rest: &str) -> Line<'_> {
    let (id, rest) = match without_pid(rest).split_once(' ') {
        Some((id, rest)) if is_id(id) => (Some(id), rest),
        _ => (None, without_pid(rest)),
    };
    Line { id, what: what(id.is_some(), rest).unwrap_or(What::Other) }
}

fn what(of_a_message: bool, rest: &str) -> Option<What<'_>> {
    if !of_a_message {
        return refusal(rest).map(What::Refusal);
    }
    if rest == "Completed" || rest.starts_with("Completed ") {
        return Some(What::Completed);
    }
    let (flag, after) = rest.split_once(' ')?;
    let result = match flag {
        "<=" | "(=" => return Some(What::Arrival(arrival(after))),
        "=>" | "->" | ">>" | "*>" => Delivery::Done,
        "==" => Delivery::Deferred,
        "**" => Delivery::Failed,
        _ => return refusal(rest).map(What::Refusal),
    };
    Some(What::Recipient { address: recipient(after, result), result })
}

/// What follows `[PID]`, which is logged with `log_selector = +pid`.
fn without_pid(rest: &str) -> &str {
    let after = rest.strip_prefix('[').and_then(|rest| rest.split_once("] "));
    match after {
        Some((pid, after)) if pid.bytes().all(|b| b.is_ascii_digit()) => after,
        _ => rest,
    }
}

/// Whether it is the id of a message: of 6, 6 and 2 letters and digits, or from 4.97 on of
/// 6, 11 and 4.
fn is_id(text: &str) -> bool {
    let bytes = text.as_bytes();
    let dashes = match bytes.len() {
        16 => [6, 13],
        23 => [6, 18],
        _ => return false,
    };
    let is_right = |(at, b): (usize, &u8)| match dashes.contains(&at) {
        true => *b == b'-',
        false => b.is_ascii_alphanumeric(),
    };
    bytes.iter().enumerate().all(is_right)
}

/// `SENDER [R=] H=… U=… P=… A=… S=… T="…" from <…> for …`
fn arrival(text: &str) -> Arrival<'_> {
    let (sender, mut rest) = token(text);
    let mut arrival = Arrival { sender, ..Arrival::default() };
    while !rest.is_empty() {
        let (field, after) = token(rest);
        if arrival.client.is_none()
            && let Some((client, after)) = host(rest)
        {
            arrival.client = Some(client);
            rest = after;
            continue;
        }
        if field == "for" {
            arrival.recipients = Some(after);
            break;
        }
        match field.split_once('=') {
            Some(("U", user)) => arrival.user = arrival.user.or(Some(user)),
            Some(("A", _)) if arrival.auth.is_none() => arrival.auth = authenticated(rest),
            Some(("S", size)) if arrival.size.is_none() => arrival.size = size.parse().ok(),
            _ => {}
        }
        rest = after;
    }
    arrival
}

/// The address of a line of delivery, before it was redirected: `bob <bob@example.org> R=…`,
/// `bob@example.org R=…`; where it failed, also `bob@example.org: text`.
fn recipient(text: &str, result: Delivery) -> &str {
    let ends = |token: &str| result == Delivery::Failed && token.ends_with(':');
    let without = |token: &str| if ends(token) { token.len() - 1 } else { token.len() };
    let (first, mut rest) = token(text);
    let mut address = first.get(..without(first)).unwrap_or(first);
    let mut ended = ends(first);
    while !ended && !rest.is_empty() {
        let (one, after) = token(rest);
        ended = ends(one) || ["R=", "T=", "F=", "P="].iter().any(|field| one.starts_with(field));
        let one = one.get(..without(one)).unwrap_or(one);
        if let Some(original) = one.strip_prefix('<').and_then(|one| one.strip_suffix('>')) {
            address = original;
        }
        rest = after;
    }
    address
}

/// `H=… F=<…> A=… [temporarily ]rejected …`
fn refusal(text: &str) -> Option<Refusal<'_>> {
    let mut refusal = Refusal::default();
    let mut rest = text;
    let is_start =
        |text: &str| ["H=", "U=", "DS ", "rejected "].iter().any(|s| text.starts_with(s));
    if !is_start(text) {
        return None;
    }
    loop {
        if refusal.client.is_none()
            && let Some((client, after)) = host(rest)
        {
            refusal.client = Some(client);
            rest = after;
            continue;
        }
        let (field, after) = token(rest);
        match field.split_once('=') {
            Some(("F", sender)) if refusal.sender.is_none() => {
                refusal.sender = sender.strip_prefix('<').and_then(|s| s.strip_suffix('>'));
            }
            Some(("A", _)) if refusal.auth.is_none() => refusal.auth = user(field),
            _ if field == "temporarily" => refusal.temporary = true,
            _ if field == "rejected" => {
                refusal.what = after;
                return Some(refusal);
            }
            // Not a field, so it is another line.
            None if !matches!(field, "DS" | "K" | "PRDR") => return None,
            _ => {}
        }
        if after.is_empty() {
            return None;
        }
        rest = after;
    }
}

/// `H=name (helo) [address]:port`: the address, which the client did not choose, and what
/// follows. A HELO name with `) [` in it needs `helo_accept_junk_hosts`.
fn host(rest: &str) -> Option<(&str, &str)> {
    let rest = rest.strip_prefix("H=")?;
    let at = match rest.starts_with('[') {
        true => 0,
        false => {
            // Past the name in parentheses, which may be an address in brackets itself.
            let name =
                rest.find('(').filter(|open| !rest.get(..*open).is_some_and(|n| n.contains('[')));
            let from = match name {
                Some(_) => rest.find(") [")?,
                None => 0,
            };
            from + rest.get(from..)?.find(" [")? + 1
        }
    };
    let (client, after) = rest.get(at + 1..)?.split_once(']')?;
    let (_port, after) = after.split_once(' ').unwrap_or((after, ""));
    Some((client, after))
}

/// The user of `A=driver:user`, which may contain spaces, before ` S=`.
fn authenticated(rest: &str) -> Option<&str> {
    let end = rest.find(" S=").unwrap_or(rest.len());
    let mut field = rest.get(..end)?;
    field = field.strip_suffix(" K").unwrap_or(field);
    field = field.split_once(" PRX=").map_or(field, |(before, _)| before);
    field = field.strip_suffix(" PRDR").unwrap_or(field);
    user(field)
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
    let (mut quoted, mut escaped) = (false, false);
    let is_end = |b: u8| {
        let is_end = b == b' ' && !quoted;
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
    let end = if quoted { text.find(' ') } else { end };
    match end {
        Some(end) => (text.get(..end).unwrap_or(text), text.get(end + 1..).unwrap_or_default()),
        None => (text, ""),
    }
}

/// The recipients of an arrival, one by one.
pub fn recipients(mut list: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (one, rest) = token(list.trim_start());
        list = rest;
        Some(one).filter(|one| !one.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "1tDabc-000000001Ab-AbCd";

    fn arrived(line: &str) -> Arrival<'_> {
        match super::line(line) {
            Line { id: Some(_), what: What::Arrival(arrival) } => arrival,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn all_fields_of_an_arrival_are_read() {
        let line = "[4711] 1tDabc-000000001Ab-AbCd <= alice@example.org H=pc.example.org (laptop) \
             [192.0.2.7]:4711 I=[10.0.0.1]:587 U=al P=esmtpsa L X=TLS1.3:TLS_AES_256:256 CV=no \
             DN=\"CN=a b A=x:y\" SNI=\"mx\" A=plain:alice PRDR K S=1234 M8S=8 RT=0.1s id=x@y \
             T=\"hello \\\" S=99 for x\" from <alice@example.org> for bob@x.test \"c d\"@x.test";
        let all = Arrival {
            sender: "alice@example.org",
            client: Some("192.0.2.7"),
            user: Some("al"),
            auth: Some("alice"),
            size: Some(1234),
            recipients: Some("bob@x.test \"c d\"@x.test"),
        };
        assert_eq!(arrived(line), all);
        let list = recipients(all.recipients.unwrap()).collect::<Vec<_>>();
        assert_eq!(list, ["bob@x.test", "\"c d\"@x.test"]);
        let local = arrived("16RdAL-0006pc-00 <= <> R=16RdAL-0006pc-01 U=Debian-exim P=local S=9");
        assert_eq!((local.sender, local.user, local.size), ("<>", Some("Debian-exim"), Some(9)));
        assert_eq!((local.client, local.auth, local.recipients), (None, None, None));
    }

    #[test]
    fn clients_cannot_imitate_fields() {
        for (sender, host, client) in [
            ("\"a H=[198.51.100.1] A=plain:ceo S=1\"@x.org", "H=[192.0.2.7]", "192.0.2.7"),
            ("\"a \\\" A=plain:ceo\"@x.org", "H=([198.51.100.1]) [192.0.2.7]:25", "192.0.2.7"),
            ("a@x.org", "H=(198.51.100.1) [192.0.2.7]", "192.0.2.7"),
            ("a@x.org", "H=(A=plain:ceo) [2001:db8::1]:99", "2001:db8::1"),
            ("a@x.org", "H=h.example.org [192.0.2.7]:25", "192.0.2.7"),
            ("a@x.org", "H=h.example.org ([IPv6:2001:db8::2]) [192.0.2.7]:25", "192.0.2.7"),
        ] {
            for subject in ["x", "A=plain:ceo H=[198.51.100.1] S=1", "\\\" from <x> for y z"] {
                let line = format!(
                    "{ID} <= {sender} {host} P=esmtpa A=login:bob S=77 id=\"a A=x:y\"@x \
                     T=\"{subject}\" for r@x.test"
                );
                let found = arrived(&line);
                assert_eq!((found.client, found.sender), (Some(client), sender), "{line}");
                assert_eq!((found.auth, found.size), (Some("bob"), Some(77)), "{line}");
                assert_eq!(found.recipients, Some("r@x.test"), "{line}");
            }
        }
        // Of a quote that is not closed, nothing is lost but its field.
        let line = format!("{ID} <= a@x H=[::1] SNI=\"x A=plain:bob S=7 for r@x");
        let found = arrived(&line);
        assert_eq!((found.auth, found.size, found.recipients), (Some("bob"), Some(7), Some("r@x")));
    }

    #[test]
    fn the_user_may_contain_spaces_and_a_sender_may_follow() {
        for (field, user) in [
            ("A=plain:al ice", Some("al ice")),
            ("A=plain:al ice K", Some("al ice")),
            ("A=plain:alice PRDR PRX=192.0.2.1 K", Some("alice")),
            ("A=plain:alice:alice@example.org", Some("alice")),
            ("A=plain:alice@example.org", Some("alice@example.org")),
            ("A=plain:", None),
            ("A=plain", None),
        ] {
            let line = format!("{ID} <= a@x H=[::1] P=esmtpa {field} S=7");
            assert_eq!(arrived(&line).auth, user, "{line}");
        }
    }

    #[test]
    fn deliveries_name_the_address_before_redirection() {
        for (text, address, result) in [
            (
                "=> bob@x.test R=dnslookup T=smtp H=mx [192.0.2.1] C=\"250 <no@x>\"",
                "bob@x.test",
                Delivery::Done,
            ),
            ("-> bob <bob@x.test> F=<a@x> P=<a@x> R=local T=maildir", "bob@x.test", Delivery::Done),
            (">> c@y.test (b@y.test) <bob@x.test> R=r T=t", "bob@x.test", Delivery::Done),
            ("*> bob@x.test", "bob@x.test", Delivery::Done),
            ("=> /var/mail/bob (x) <bob@x.test> R=r T=t", "bob@x.test", Delivery::Done),
            ("=> |/bin/filter -a <no@x.test> <bob@x.test> R=r T=t", "bob@x.test", Delivery::Done),
            ("=> :blackhole: <bob@x.test> R=r", "bob@x.test", Delivery::Done),
            (
                "== bob@x.test R=r T=t defer (111): Connection refused <no@x>",
                "bob@x.test",
                Delivery::Deferred,
            ),
            ("** bob@x.test: unknown user <no@x>", "bob@x.test", Delivery::Failed),
            ("** bob@x.test <bob@x.test>: unknown mail domain", "bob@x.test", Delivery::Failed),
            ("** \"b R=o b\"@x.test R=r T=t: 550 <no@x>", "\"b R=o b\"@x.test", Delivery::Failed),
        ] {
            let line = format!("{ID} {text}");
            let what = What::Recipient { address, result };
            assert_eq!(super::line(&line), Line { id: Some(ID), what }, "{line}");
        }
    }

    #[test]
    fn refusals_name_client_sender_and_command() {
        let all = Refusal {
            client: Some("192.0.2.7"),
            sender: Some("a@x.org"),
            auth: Some("bob"),
            temporary: false,
            what: "RCPT <r@x.test>: too much",
        };
        for (text, refusal) in [
            (
                "H=(h) [192.0.2.7]:25 X=TLS F=<a@x.org> A=plain:bob rejected RCPT <r@x.test>: too much",
                all,
            ),
            (
                "1tDabc-000000001Ab-AbCd H=(h) [192.0.2.7] F=<a@x.org> A=plain:bob temporarily rejected after DATA",
                Refusal { temporary: true, what: "after DATA", ..all },
            ),
            (
                "H=(h) [192.0.2.7] F=<\"a rejected RCPT <x>\"@x.org> A=plain:bob rejected RCPT <r@x.test>: too much",
                Refusal { sender: Some("\"a rejected RCPT <x>\"@x.org"), ..all },
            ),
            (
                "H=[192.0.2.7] U=me rejected connection in \"connect\" ACL",
                Refusal {
                    client: Some("192.0.2.7"),
                    what: "connection in \"connect\" ACL",
                    ..Refusal::default()
                },
            ),
        ] {
            assert_eq!(super::line(text).what, What::Refusal(refusal), "{text}");
        }
        assert_eq!(super::line("H=(h) [192.0.2.7]: SMTP timeout").what, What::Other);
    }

    #[test]
    fn other_lines_are_no_arrivals() {
        assert_eq!(super::line("16RdAL-0006pc-00 Completed").what, What::Completed);
        assert_eq!(super::line(&format!("{ID} Completed QT=3s")).what, What::Completed);
        for text in [
            "",
            "Start queue run: pid=12",
            "no id <= a@b",
            "16RdAL-0006pc-0 <= a@b",
            "16RdAL-0006pc-00",
            "16RdAL-0006pc-00 no immediate delivery: <= a@b",
            "[12] [13] 16RdAL-0006pc-00 <= a@b",
            "SMTP connection from x <= a@b",
        ] {
            assert_eq!(super::line(text).what, What::Other, "{text}");
        }
    }
}
