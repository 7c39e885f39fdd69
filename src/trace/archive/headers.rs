//! The envelope of an archived message, from its headers.

use std::collections::HashSet;
use std::net::IpAddr;

use mail_parser::{DateTime, HeaderName, HeaderValue, Host, Message, MessageParser, Received};

use super::Hint;
use crate::text::is_exim_id;
use crate::trace::Envelope;

/// How much of a message is searched for headers.
const HEADERS_MAX: usize = 1 << 20;
/// How many recipients are taken from headers: more than any server accepts.
const RECIPIENTS_MAX: usize = 10_000;

/// Headers in which a server records the recipients.
const DELIVERED: [&str; 3] = ["Envelope-To", "Delivered-To", "X-Original-To"];
/// Headers in which the author names the recipients.
const ADDRESSED: [HeaderName<'_>; 3] = [HeaderName::To, HeaderName::Cc, HeaderName::Bcc];

/// Reads headers.
pub(crate) struct Headers {
    parser: MessageParser,
}

impl Headers {
    pub(crate) fn new() -> Self {
        let mut parser = MessageParser::new()
            .default_header_ignore()
            .header_raw(HeaderName::ReturnPath)
            .header_address(HeaderName::From)
            .header_address(HeaderName::Sender)
            .header_date(HeaderName::Date)
            .header_id(HeaderName::MessageId)
            .header_received(HeaderName::Received);
        for name in ADDRESSED {
            parser = parser.header_address(name);
        }
        for name in DELIVERED {
            parser = parser.header_address(name);
        }
        Self { parser }
    }

    /// The envelope according to `message` and `hint`, and its time if it is known.
    pub(crate) fn envelope(&self, message: &[u8], hint: &Hint) -> (Envelope, Option<i64>) {
        let none = || (Envelope::default(), hint.time);
        let Some(headers) = self.parser.parse_headers(block(message)) else {
            let (envelope, time) = none();
            return (
                Envelope { sender: hint.sender.clone().unwrap_or_default(), ..envelope },
                time,
            );
        };
        let guess = Hint::default();
        let hint = if is_guessed(&headers, hint) { &guess } else { hint };
        let received = received(&headers);
        let received_at = received.and_then(|received| received.date());
        let time = received_at
            .filter(DateTime::is_valid)
            .map(|date| date.to_timestamp())
            .or(hint.time)
            .or_else(|| {
                let date = headers.date().filter(|date| date.is_valid());
                date.map(DateTime::to_timestamp)
            });
        let envelope = Envelope {
            time: time.unwrap_or_default(),
            id: message_id(&headers),
            sender: sender(&headers, hint),
            recipients: recipients(&headers),
            client: received.and_then(client),
            authenticated: String::new(),
            partial: false,
        };
        (envelope, time)
    }
}

/// The headers of a message, or as much as may be headers.
fn block(message: &[u8]) -> &[u8] {
    let most = message.get(..HEADERS_MAX).unwrap_or(message);
    let mut end = 0;
    for line in most.split_inclusive(|&b| b == b'\n') {
        end += line.len();
        if matches!(line, b"\n" | b"\r\n") {
            break;
        }
    }
    most.get(..end).unwrap_or(most)
}

/// The first header of this name: each server puts its own before the others.
fn first<'a>(headers: &'a Message<'a>, name: HeaderName<'a>) -> Option<&'a HeaderValue<'a>> {
    headers.header_values(name).next()
}

/// The line of the last server.
fn received<'a>(headers: &'a Message<'a>) -> Option<&'a Received<'a>> {
    first(headers, HeaderName::Received).and_then(HeaderValue::as_received)
}

/// Exim's id from the first Received, or else its Message-ID.
fn message_id(headers: &Message<'_>) -> String {
    let received = received(headers).and_then(|received| received.id());
    match received.filter(|text| is_exim_id(text)) {
        Some(id) => id.to_owned(),
        None => headers.message_id().unwrap_or_default().to_owned(),
    }
}

fn sender(headers: &Message<'_>, hint: &Hint) -> String {
    // Without an address, such as `<>`, it is a bounce.
    let return_path = first(headers, HeaderName::ReturnPath).and_then(HeaderValue::as_text);
    if let Some(path) = return_path {
        let path = path.trim();
        let inner = path.strip_prefix('<').and_then(|rest| rest.strip_suffix('>'));
        return inner.unwrap_or(path).trim().to_owned();
    }
    let written = || {
        let first_address = |name| addresses(headers, name).into_iter().next();
        first_address(HeaderName::Sender)
            .or_else(|| first_address(HeaderName::From))
            .unwrap_or_default()
    };
    hint.sender.clone().unwrap_or_else(written)
}

/// Whether a mailbox wrongly marks a message as a bounce: programs that do not know
/// the sender write `From MAILER-DAEMON` and the present time.
fn is_guessed(headers: &Message<'_>, hint: &Hint) -> bool {
    let by_person = || {
        let author = addresses(headers, HeaderName::From).into_iter().next();
        author.is_some_and(|author| {
            let name = author.split('@').next().unwrap_or_default();
            !["mailer-daemon", "postmaster"].contains(&&*name.to_lowercase())
        })
    };
    hint.sender.as_deref() == Some("")
        && first(headers, HeaderName::ReturnPath).is_none()
        && by_person()
}

fn recipients(headers: &Message<'_>) -> Vec<String> {
    let (mut all, mut seen) = (Vec::new(), HashSet::new());
    let delivered = DELIVERED.map(|name| HeaderName::Other(name.into()));
    for names in [delivered, ADDRESSED] {
        for address in names.into_iter().flat_map(|name| addresses(headers, name)) {
            if all.len() < RECIPIENTS_MAX && seen.insert(address.clone()) {
                all.push(address);
            }
        }
        if !all.is_empty() {
            break;
        }
    }
    all
}

/// The addresses in all headers of this name.
fn addresses(headers: &Message<'_>, name: HeaderName<'_>) -> Vec<String> {
    let lists = headers.header_values(name).filter_map(HeaderValue::as_address);
    let addresses = lists.flat_map(|list| list.iter()).filter_map(|addr| addr.address());
    addresses.map(str::to_owned).collect()
}

/// The client's IP address; none if the message came from the same machine.
fn client(received: &Received<'_>) -> Option<IpAddr> {
    // Exim writes it in place of a name that it does not know.
    let named = match received.from() {
        Some(Host::IpAddr(ip)) => Some(*ip),
        _ => None,
    };
    received.from_ip().or(named).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(message: &str, hint: Hint) -> (Envelope, Option<i64>) {
        Headers::new().envelope(message.as_bytes(), &hint)
    }

    const RECEIVED: &str = "\
Return-path: <alice@example.org>
Envelope-to: bob@example.net,
 carol@example.net
Delivery-date: Fri, 20 Nov 2026 11:50:38 +0000
Received: from laptop.example.org ([192.0.2.7]:4711 helo=laptop)
\tby mx.example.net with esmtpsa  (TLS1.3) tls TLS_AES_256_GCM_SHA384
\t(Exim 4.96)
\t(envelope-from <alice@example.org>)
\tid 1vM1aC-000000001Ac-1aBc
\tfor bob@example.net;
\tFri, 20 Nov 2026 12:50:37 +0100
Received: from elsewhere ([198.51.100.1]) by x with esmtp id 1vM1aC-0001Ac-1a; Fri, 20 Nov 2026 09:00:00 +0000
From: \"Alice, of Example\" <alice.liddell@example.org>
To: Bob <bob@example.net>, team: dora@example.net, emil@example.net;
Cc: BOB@example.net
Date: Thu, 19 Nov 2026 11:50:37 +0000
Message-ID: <1@example.org>

Return-path: <nobody@example.org>
";

    #[test]
    fn what_the_last_server_wrote_down_comes_first() {
        let (found, time) = envelope(RECEIVED, Hint::default());
        assert_eq!(time, Some(1_795_175_437));
        let expected = Envelope {
            time: 1_795_175_437,
            id: "1vM1aC-000000001Ac-1aBc".to_owned(),
            sender: "alice@example.org".to_owned(),
            recipients: vec!["bob@example.net".to_owned(), "carol@example.net".to_owned()],
            client: Some("192.0.2.7".parse().unwrap()),
            authenticated: String::new(),
            partial: false,
        };
        assert_eq!(found, expected);
        let short = RECEIVED.replace("1vM1aC-000000001Ac-1aBc", "1vM1aC-0001Ac-1a");
        assert_eq!(envelope(&short, Hint::default()).0.id, "1vM1aC-0001Ac-1a");
        for (from, ip) in [
            ("[192.0.2.9] (helo=[10.0.0.5])", Some("192.0.2.9")),
            ("[IPv6:2001:db8::9] (helo=x)", Some("2001:db8::9")),
            ("x (unknown [192.0.2.9])", Some("192.0.2.9")),
            ("localhost ([127.0.0.1])", None),
            ("alice", None),
        ] {
            let text = RECEIVED
                .replace("laptop.example.org ([192.0.2.7]:4711 helo=laptop)", from)
                .replace("IPv6:", "");
            let client = envelope(&text, Hint::default()).0.client;
            assert_eq!(client, ip.map(|ip| ip.parse().unwrap()), "{from}");
        }
        let other = RECEIVED.replace("1vM1aC-000000001Ac-1aBc", "ABC123");
        assert_eq!(envelope(&other, Hint::default()).0.id, "1@example.org");
    }

    #[test]
    fn what_the_author_wrote_comes_last() {
        let written: String = RECEIVED
            .lines()
            .skip_while(|line| !line.starts_with("From:"))
            .fold(String::new(), |text, line| text + line + "\r\n");
        let (found, time) = envelope(&written, Hint::default());
        assert_eq!(
            (found.sender.as_str(), found.id.as_str()),
            ("alice.liddell@example.org", "1@example.org")
        );
        assert_eq!(
            found.recipients,
            ["bob@example.net", "dora@example.net", "emil@example.net", "BOB@example.net"]
        );
        assert_eq!((found.client, time), (None, Some(1_795_089_037)));
        let known = Hint { sender: Some("a@b.test".to_owned()), time: Some(5) };
        let (found, time) = envelope(&written, known);
        assert_eq!(
            (found.sender.as_str(), time),
            ("a@b.test", Some(5)),
            "the mailbox's word is the server's"
        );
    }

    #[test]
    fn a_mailbox_is_believed_that_something_is_a_bounce_if_it_may_be_one() {
        let hint = || Hint { sender: Some(String::new()), time: Some(5) };
        let date = "Date: Thu, 19 Nov 2026 11:50:37 +0000\n\n";
        for (from, sender, time) in [
            ("From: alice@example.org\n", "alice@example.org", 1_795_089_037),
            ("From: Mail <Mailer-Daemon@example.org>\n", "", 5),
            ("Return-path: <>\nFrom: alice@example.org\n", "", 5),
            ("", "", 5),
        ] {
            let (found, at) = envelope(&format!("{from}{date}"), hint());
            assert_eq!((found.sender.as_str(), at), (sender, Some(time)), "{from}");
        }
    }

    #[test]
    fn a_bounce_has_no_sender_and_others_may_have_no_headers() {
        let (found, _) = envelope("Return-Path: <>\nFrom: a@b.test\n\nx", Hint::default());
        assert_eq!(found.sender, "");
        for odd in ["", "\n", "no headers", "\n\nFrom: a@b.test\n", "From:\nTo:\nDate: soon\n\n"] {
            let (found, time) = envelope(odd, Hint::default());
            assert_eq!(
                (found.sender.as_str(), found.recipients.len(), time),
                ("", 0, None),
                "{odd}"
            );
        }
        let hint = Hint { sender: Some("a@b.test".to_owned()), time: Some(5) };
        assert_eq!(envelope("", hint).0.sender, "a@b.test");
    }
}
