use super::*;
use crate::policy::word::Verdict as V;
use crate::serve::mail::milter::packet::{Packets, texts, write};
use kit::quickcheck;

/// All that a mail server offers, and what is asked for in most tests.
const OFFER: [u32; 3] = [6, 0x1ff, 0x1f_ffff];
const WANTS: Wants = Wants {
    record: true,
    bytes: false,
    marks: false,
    rejected_recipients: true,
    connect: false,
    helo: false,
    mail: false,
};

/// A mail server, and what decides: recipients by their first letter, everything else by
/// `verdict`.
struct Talk {
    dialogue: Dialogue,
    room: Room,
    verdict: V,
    events: Vec<MailEvent>,
    begun: Vec<Begun>,
    accepted: Vec<Accepted>,
}

fn words(words: [u32; 3]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

impl Talk {
    fn new(wants: Wants) -> Self {
        let room = Room::new(100_000);
        let limits = Limits { max_message: 50_000, room: room.clone() };
        Self {
            dialogue: Dialogue::new(wants, limits),
            room,
            verdict: V::Accept,
            events: Vec::new(),
            begun: Vec::new(),
            accepted: Vec::new(),
        }
    }

    /// After the negotiation, and CONNECT of a client on the network.
    fn begun(wants: Wants) -> Self {
        let mut talk = Self::new(wants);
        talk.say(packet::NEGOTIATE, &words(OFFER));
        talk.say(packet::MACRO, b"Cj\0mx\0{daemon_name}\0smtpd\0");
        assert_eq!(talk.say(packet::CONNECT, b"host\x004\x01\x02192.0.2.7\0"), "");
        assert_eq!(talk.say(packet::HELO, b"client.example\0"), "");
        talk
    }

    /// Sends a command; the codes of the replies, and their texts.
    fn say(&mut self, command: u8, data: &[u8]) -> String {
        self.try_say(command, data).unwrap()
    }

    fn try_say(&mut self, command: u8, data: &[u8]) -> Result<String, DialogueFault> {
        let mut bytes = Vec::new();
        write(&mut bytes, command, data);
        let mut packets = Packets::default();
        let mut rest = bytes.as_slice();
        let mut replies = Vec::new();
        while let Some(piece) = packets.next(&mut rest).unwrap() {
            match self.dialogue.take(piece)? {
                Step::Nothing => {}
                Step::Reply(reply) => reply.write(&mut replies),
                Step::Quit => return Ok("quit".to_owned()),
                Step::Decide(event) => {
                    self.begun.push(self.dialogue.begun());
                    let by_name =
                        event.event.recipient.as_ref().map(|to| match to.chars().next() {
                            Some('r') => V::Reject,
                            Some('d') => V::Defer,
                            Some('h') => V::Hold,
                            _ => V::Accept,
                        });
                    let verdict = by_name.unwrap_or(self.verdict);
                    self.events.push(*event);
                    let text = "100%".to_owned();
                    let verdict = MailVerdict::of(verdict, 0.0, &text);
                    let (reply, accepted) = self.dialogue.decided(&verdict);
                    reply.write(&mut replies);
                    self.accepted.extend(accepted);
                }
            }
        }
        Ok(shown(&replies))
    }

    fn message_end(&mut self) -> String {
        self.say(packet::HEADER, b"Subject\0 hello\0");
        self.say(packet::BODY, b"a line\r\n");
        self.say(packet::END, b"")
    }

    fn stages(&self) -> Vec<AclStage> {
        self.events.iter().map(|event| event.stage).collect()
    }

    /// A message to these recipients; the replies to them, and to the end.
    fn message(&mut self, recipients: &[&str]) -> (Vec<String>, String) {
        self.say(packet::MACRO, b"M{auth_authen}\0ann\0");
        assert_eq!(self.say(packet::MAIL, b"<ann@example.org>\0SIZE=5\0"), "");
        let mut replies = Vec::new();
        for recipient in recipients {
            self.say(packet::MACRO, b"R{rcpt_mailer}\0smtp\0");
            replies.push(self.say(packet::RCPT, format!("<{recipient}>\0").as_bytes()));
        }
        self.say(packet::MACRO, b"Ti\x004QID\0");
        assert_eq!(self.say(packet::HEADER, b"Subject\0 hello\0"), "");
        assert_eq!(self.say(packet::BODY, b"a line\r\n"), "");
        (replies, self.say(packet::END, b""))
    }
}

/// Replies as text: `c`, `y 451 …`.
fn shown(mut bytes: &[u8]) -> String {
    let mut all = Vec::new();
    let mut packets = Packets::default();
    while let Some(Piece::Whole(code, data)) = packets.next(&mut bytes).unwrap() {
        let text = match code {
            packet::NEGOTIATE => String::new(),
            _ => texts(data).map(String::from_utf8_lossy).collect::<Vec<_>>().join("|"),
        };
        all.push(format!("{} {text}", char::from(code)).trim_end().to_owned());
    }
    all.join(", ")
}

#[test]
fn recipients_are_decided_one_by_one_and_the_message_at_its_end() {
    let mut talk = Talk::begun(WANTS);
    let (replies, end) = talk.message(&["a@x", "d@x", "r@x", "b@x"]);
    assert_eq!(replies, ["c", "y 451 4.7.1 100%%", "y 550 5.7.1 100%%", "c"]);
    assert_eq!(end, "c");
    use AclStage as S;
    assert_eq!(talk.stages(), [S::Rcpt, S::Rcpt, S::Rcpt, S::Rcpt, S::Data]);
    let first = &talk.events[0];
    let text = |text: &str| Some(text.to_owned());
    let known = Event {
        auth: text("ann"),
        client: Origin::Client([192, 0, 2, 7].into()),
        helo: text("client.example"),
        sender: text("ann@example.org"),
        recipient: text("a@x"),
        message_id: first.event.message_id.clone(),
        ..Event::default()
    };
    assert_eq!((&first.event, first.recipients.len()), (&known, 0));
    let last = &talk.events[4];
    assert_eq!((&last.event.auth, &last.event.message_id), (&text("ann"), &text("4QID")));
    assert_eq!(last.recipients, ["a@x", "b@x"]);
    assert_eq!(last.facts.recipients, 2);
    assert_eq!(last.facts.message_size, "Subject: hello\r\n\r\na line\r\n".len() as u64);
    // One connection and one message have begun.
    let [connection, rest @ ..] = talk.begun.as_slice() else { panic!() };
    assert_eq!(*connection, Begun { connection: true, message: true });
    assert!(rest.iter().all(|begun| *begun == Begun::default()));
}

#[test]
fn an_accepted_message_is_handed_over_to_be_recorded() {
    let mut talk = Talk::begun(WANTS);
    talk.message(&["a@x", "d@x", "b@x"]);
    let accepted = talk.accepted.pop().unwrap();
    assert_eq!(
        accepted.envelope,
        Envelope {
            time: 0,
            id: "4QID".to_owned(),
            sender: "ann@example.org".to_owned(),
            recipients: vec!["a@x".to_owned(), "b@x".to_owned()],
            client: Some("192.0.2.7".parse().unwrap()),
            authenticated: "ann".to_owned(),
            partial: false,
        }
    );
    assert_eq!(accepted.content.bytes, b"Subject: hello\r\n\r\na line\r\n");
    assert!(talk.room.used() > 0);
    drop(accepted);
    assert_eq!(talk.room.used(), 0);
    // Not the refused ones, nor any when they are not wanted.
    talk.verdict = V::Reject;
    assert_eq!(talk.message(&["a@x"]).1, "y 550 5.7.1 100%%");
    talk.verdict = V::Defer;
    assert_eq!(talk.message(&["a@x"]).1, "y 451 4.7.1 100%%");
    assert!(talk.accepted.is_empty());
    let mut talk = Talk::begun(Wants { record: false, ..WANTS });
    assert_eq!(talk.message(&["a@x"]).1, "c");
    assert!(talk.accepted.is_empty());
}

#[test]
fn a_long_message_is_recorded_in_part() {
    let mut talk = Talk::begun(WANTS);
    talk.say(packet::MAIL, b"<>\0");
    talk.say(packet::RCPT, b"<a@x>\0");
    (0..100).for_each(|_| assert_eq!(talk.say(packet::BODY, &[b'x'; 60_000]), ""));
    assert!(talk.room.used() <= 50_000);
    assert_eq!(talk.say(packet::END, b""), "c");
    let accepted = talk.accepted.pop().unwrap();
    assert!(accepted.envelope.partial && accepted.envelope.sender.is_empty());
    assert_eq!(accepted.content.bytes.len(), 50_000);
    assert_eq!(talk.events.pop().unwrap().facts.message_size, 6_000_002);
}

#[test]
fn a_message_is_held_if_anything_says_so() {
    let mut talk = Talk::begun(WANTS);
    assert_eq!(talk.message(&["a@x", "held@x", "b@x"]).1, "q exirate: policy : 100%, c");
    assert_eq!(talk.message(&["a@x"]).1, "c");
    talk.verdict = V::Hold;
    assert_eq!(talk.message(&["a@x"]).1, "q exirate: policy : 100%, c");
    assert_eq!(talk.accepted.len(), 3);
    // A refusal is stricter.
    talk.verdict = V::Reject;
    assert_eq!(talk.message(&["held@x"]).1, "y 550 5.7.1 100%%");
    // Where it cannot be held, it is not let through.
    let mut talk = Talk::new(WANTS);
    talk.say(packet::NEGOTIATE, &words([6, 0x1f, OFFER[2]]));
    talk.say(packet::CONNECT, b"host\x004\x01\x02192.0.2.7\0");
    assert_eq!(talk.message(&["held@x"]).1, "y 451 4.7.1 100%%");
    assert!(talk.accepted.is_empty());
}

#[test]
fn a_message_is_marked_by_its_own_headers() {
    let mut talk = Talk::begun(Wants { marks: true, ..WANTS });
    for (header, marked) in [(&b"List-Id\0 <x>\0"[..], true), (b"Subject\0List-Id\0", false)] {
        talk.say(packet::MAIL, b"<ann@example.org>\0");
        talk.say(packet::RCPT, b"<a@x>\0");
        talk.say(packet::HEADER, header);
        assert_eq!(talk.message_end(), "c");
        assert_eq!(talk.events.last().unwrap().marked, marked);
        assert_eq!(talk.events.last().unwrap().recipients, ["a@x"]);
    }
}

#[test]
fn other_stages_are_decided_if_they_are_wanted() {
    let wants = Wants { connect: true, helo: true, mail: true, ..WANTS };
    let mut talk = Talk::new(wants);
    assert_eq!(talk.say(packet::NEGOTIATE, &words(OFFER)), "O");
    talk.verdict = V::Hold;
    assert_eq!(talk.say(packet::CONNECT, b"host\x006\x01\x02IPv6:2001:db8::1\0"), "c");
    talk.verdict = V::Accept;
    assert_eq!(talk.say(packet::HELO, b"\0"), "c");
    assert_eq!(talk.say(packet::MAIL, b"<ann@example.org>\0"), "c");
    assert_eq!(talk.say(packet::RCPT, b"<a@x>\0"), "c");
    // All messages of the connection are held.
    assert_eq!(talk.say(packet::END, b""), "q exirate: policy : 100%, c");
    use AclStage as S;
    assert_eq!(talk.stages(), [S::Connect, S::Helo, S::Mail, S::Rcpt, S::Data]);
    assert_eq!(talk.events[1].event.helo, None);
    // Until the end, its size is what the client declares.
    assert_eq!(talk.events[2].facts.message_size, 0);
    for declared in ["SIZE=5", "BODY=8BITMIME\0size=5\0RET=HDRS", "SIZE=x\0SIZE=5"] {
        talk.say(packet::ABORT, b"");
        talk.say(packet::MAIL, format!("<ann@example.org>\0{declared}\0").as_bytes());
        assert_eq!(talk.events.pop().unwrap().facts.message_size, 5, "{declared}");
    }
    talk.say(packet::ABORT, b"");
    // A message that is refused at MAIL has no recipients.
    talk.verdict = V::Reject;
    assert_eq!(talk.say(packet::MAIL, b"<ann@example.org>\0"), "y 550 5.7.1 100%%");
    assert_eq!(talk.say(packet::RCPT, b"<a@x>\0"), "c");
    assert_eq!(talk.events.len(), 6);
    talk.verdict = V::Defer;
    assert_eq!(talk.say(packet::HELO, b"name"), "y 451 4.7.1 100%%");
}

#[test]
fn each_message_and_each_connection_begins_from_nothing() {
    let mut talk = Talk::begun(WANTS);
    talk.message(&["a@x"]);
    talk.accepted.clear();
    // Without a login.
    talk.say(packet::MAIL, b"<>\0");
    talk.say(packet::RCPT, b"<a@x>\0");
    let event = talk.events.pop().unwrap();
    let known = &event.event;
    assert_eq!((&known.auth, &known.message_id, event.facts.recipients), (&None, &None, 0));
    assert_eq!(known.sender.as_deref(), Some(""));
    assert_eq!(talk.begun.pop(), Some(Begun { connection: false, message: true }));
    // RSET.
    assert_eq!(talk.say(packet::ABORT, b""), "");
    assert_eq!(talk.room.used(), 0);
    assert_eq!(talk.say(packet::END, b""), "c");
    assert_eq!(talk.events.len(), 2);
    // Another client by the same connection.
    assert_eq!(talk.say(packet::NEXT, b""), "");
    assert_eq!(talk.say(packet::CONNECT, b"host\x004\x01\x02198.51.100.9\0"), "");
    talk.message(&["a@x"]);
    assert_eq!(talk.begun.last(), Some(&Begun::default()));
    assert_eq!(talk.begun[talk.begun.len() - 2], Begun { connection: true, message: true });
    let event = &talk.events.last().unwrap().event;
    assert_eq!(event.client, Origin::Client([198, 51, 100, 9].into()));
    assert_eq!(event.helo, None);
    assert_eq!(talk.say(packet::QUIT, b""), "quit");
}

#[test]
fn odd_orders_count_nothing_that_did_not_happen() {
    let mut talk = Talk::begun(WANTS);
    // Each as it would be elsewhere, without MAIL.
    for (command, data, reply) in [
        (packet::RCPT, &b"<a@x>\0"[..], "c"),
        (packet::HEADER, b"a\0b\0", ""),
        (packet::END_OF_HEADERS, b"", ""),
        (packet::BODY, b"text", ""),
        (packet::DATA, b"", ""),
        (packet::UNKNOWN, b"XYZZY\0", ""),
        (packet::END, b"text", "c"),
        (packet::ABORT, b"", ""),
        (packet::MACRO, b"", ""),
        (packet::MACRO, b"?i\0x\0", ""),
        (packet::NEXT, b"", ""),
        (packet::RCPT, b"<a@x>\0", "c"),
    ] {
        assert_eq!(talk.say(command, data), reply, "{}", char::from(command));
    }
    assert!(talk.events.is_empty());
    // No accepted recipient, no message.
    assert_eq!(talk.message(&["d@x", "r@x"]).1, "c");
    assert_eq!(talk.message(&[]).1, "c");
    assert_eq!(talk.stages(), [AclStage::Rcpt; 2]);
    assert!(talk.accepted.is_empty());
    // HELO ends a message, as in SMTP.
    talk.say(packet::MAIL, b"<one@x>\0");
    talk.say(packet::HELO, b"again\0");
    assert_eq!((talk.say(packet::RCPT, b"<a@x>\0"), talk.events.len()), ("c".to_owned(), 2));
    // MAIL again is another message.
    talk.say(packet::MAIL, b"<one@x>\0");
    talk.say(packet::RCPT, b"<a@x>\0");
    talk.message(&["b@x"]);
    assert_eq!(talk.events.last().unwrap().recipients, ["b@x"]);
    // The negotiation again is another connection.
    talk.say(packet::MAIL, b"<one@x>\0");
    assert_eq!(talk.say(packet::NEGOTIATE, &words(OFFER)), "O");
    assert!(!talk.dialogue.has_message() && talk.dialogue.begun().connection);
}

#[test]
fn what_cannot_be_understood_closes_the_connection() {
    let mut talk = Talk::new(WANTS);
    assert_eq!(talk.try_say(packet::MAIL, b"<a@x>\0"), Err(DialogueFault::Early(b'M')));
    assert_eq!(talk.try_say(packet::BODY, b"x"), Err(DialogueFault::Early(b'B')));
    let short = Err(DialogueFault::NoAgreement(NoAgreement::Short));
    assert_eq!(talk.try_say(packet::NEGOTIATE, b"\0\0\0\x06"), short);
    let old = Err(DialogueFault::NoAgreement(NoAgreement::Version(1)));
    assert_eq!(talk.try_say(packet::NEGOTIATE, &words([1, 0, 0])), old);
    let mut talk = Talk::begun(WANTS);
    assert_eq!(talk.try_say(b'z', b""), Err(DialogueFault::Unknown(b'z')));
    for data in [&b""[..], b"host", b"host\0"] {
        assert_eq!(talk.try_say(packet::CONNECT, data), Err(DialogueFault::Malformed(b'C')));
    }
    for command in [packet::MAIL, packet::RCPT] {
        assert_eq!(talk.try_say(command, b""), Err(DialogueFault::Malformed(command)));
    }
    // It may be quit at any time.
    assert_eq!(Talk::new(WANTS).say(packet::QUIT, b""), "quit");
}

#[test]
fn local_submission_is_decided_at_its_end() {
    // Sendmail's and Postfix's.
    for (connect, client) in [
        (&b"localhost\0U"[..], None),
        (b"localhost\0U\0\0\0", None),
        (b"localhost\x004\0\x00127.0.0.1\0", Some("127.0.0.1")),
        (b"localhost\x006\0\0IPv6:::1\0", Some("::1")),
    ] {
        let wants = Wants { connect: true, helo: true, mail: true, ..WANTS };
        let mut talk = Talk::new(wants);
        talk.say(packet::NEGOTIATE, &words(OFFER));
        assert_eq!(talk.say(packet::CONNECT, connect), "c");
        assert_eq!(talk.say(packet::HELO, b"localhost\0"), "c");
        assert_eq!(talk.say(packet::MAIL, b"<root@x>\0"), "c");
        assert_eq!(talk.say(packet::RCPT, b"<rejected@x>\0"), "c");
        assert_eq!(talk.say(packet::RCPT, b"<a@x>\0"), "c");
        assert_eq!(talk.say(packet::END, b""), "c");
        assert_eq!(talk.stages(), [AclStage::NotSmtp]);
        let event = talk.events.pop().unwrap();
        assert!(event.event.local.is());
        let address = client.map(|client| client.parse().unwrap());
        assert_eq!(event.event.client.address(), address);
        assert_eq!(event.recipients, ["rejected@x", "a@x"]);
        assert_eq!(talk.accepted.pop().unwrap().envelope.client, None);
    }
    // By SMTP, from this machine and from one whose address is not known.
    for (connect, local) in [
        (&b"localhost\x004\x12\x34127.0.0.1\0"[..], true),
        (b"me\x004\x12\x34192.0.2.1\0", true),
        (b"far\x004\0\x00192.0.2.7\0", false),
        (b"odd\x004\0\0nonsense\0", false),
        (b"socket\0L\0\0/run/x\0", false),
    ] {
        let mut talk = Talk::new(WANTS);
        talk.say(packet::NEGOTIATE, &words(OFFER));
        talk.say(packet::MACRO, b"C{daemon_addr}\x00192.0.2.1\0");
        talk.say(packet::CONNECT, connect);
        // Whoever has logged in is not local.
        talk.message(&["a@x"]);
        assert_eq!(talk.stages(), [AclStage::Rcpt, AclStage::Data], "{connect:?}");
        assert!(
            !talk.events[0].event.local.is() && !talk.events[1].event.local.is(),
            "{connect:?}"
        );
        talk.say(packet::MAIL, b"<s@x>\0");
        talk.say(packet::RCPT, b"<a@x>\0");
        assert_eq!(talk.events[2].event.local.is(), local, "{connect:?}");
    }
}

#[test]
fn recipients_that_the_mail_server_refused_are_counted_and_not_decided() {
    let mut talk = Talk::begun(WANTS);
    talk.say(packet::MAIL, b"<>\0");
    // A refusal for now does not count.
    for (macros, refused, counts) in [
        (&b"R{rcpt_mailer}\0error\0{rcpt_host}\x005.1.1\0"[..], 1, true),
        (b"R{rcpt_mailer}\0error\0", 2, true),
        (b"R{rcpt_mailer}\0error\0{rcpt_host}\x004.2.1\0", 2, false),
    ] {
        talk.say(packet::MACRO, macros);
        let before = talk.events.len();
        assert_eq!(talk.say(packet::RCPT, b"<nobody@x>\0"), "c");
        // It counts at once, whatever follows.
        assert_eq!(talk.events.len() - before, usize::from(counts));
        if counts {
            let event = talk.events.last().unwrap();
            assert_eq!((event.stage, event.facts.rejected_recipients), (AclStage::Quit, refused));
        }
        talk.say(packet::RCPT, b"<a@x>\0");
        let event = talk.events.last().unwrap();
        assert_eq!((event.stage, event.facts.rejected_recipients), (AclStage::Rcpt, refused));
    }
    assert_eq!(talk.say(packet::END, b""), "c");
    assert_eq!(talk.events.last().unwrap().recipients, ["a@x", "a@x", "a@x"]);
    // Of a mail server that was not asked for them, that mailer is one of its own.
    let mut talk = Talk::begun(Wants { rejected_recipients: false, ..WANTS });
    talk.say(packet::MAIL, b"<>\0");
    talk.say(packet::MACRO, b"R{rcpt_mailer}\0error\0");
    assert_eq!(talk.say(packet::RCPT, b"<r@x>\0"), "y 550 5.7.1 100%%");
}

#[test]
fn old_versions_get_a_reply_to_every_command() {
    for steps in [0, 0x7f] {
        let mut talk = Talk::new(Wants { bytes: true, ..WANTS });
        talk.say(packet::NEGOTIATE, &words([2, 0x3f, steps]));
        assert_eq!(talk.say(packet::CONNECT, b"host\x004\x01\x02192.0.2.7\0"), "c");
        assert_eq!(talk.say(packet::HELO, b"name\0"), "c");
        assert_eq!(talk.say(packet::UNKNOWN, b"XYZZY\0"), "c");
        assert_eq!(talk.say(packet::MAIL, b"<a@x>\0"), "c");
        assert_eq!(talk.say(packet::RCPT, b"<a@x>\0"), "c");
        assert_eq!(talk.say(packet::DATA, b""), "c");
        // The blank after the colon has been taken away.
        assert_eq!(talk.say(packet::HEADER, b"Subject\0hello\0"), "c");
        assert_eq!(talk.say(packet::END_OF_HEADERS, b""), "c");
        assert_eq!(talk.say(packet::BODY, b"text"), "c");
        assert_eq!(talk.say(packet::END, b" and its end"), "c");
        let accepted = talk.accepted.pop().unwrap();
        assert_eq!(accepted.content.bytes, b"Subject: hello\r\n\r\ntext and its end");
    }
}

#[test]
fn the_rest_of_a_body_is_skipped_when_it_is_not_needed() {
    for (bytes, reply) in [(false, "s"), (true, "c")] {
        let mut talk = Talk::new(Wants { bytes, ..WANTS });
        // Each part of a body gets a reply.
        talk.say(packet::NEGOTIATE, &words([6, 0x1ff, step::SKIP | step::HDR_LEADSPC]));
        talk.say(packet::CONNECT, b"host\x004\x01\x02192.0.2.7\0");
        talk.say(packet::MAIL, b"<a@x>\0");
        talk.say(packet::RCPT, b"<a@x>\0");
        assert_eq!(talk.say(packet::BODY, &[b'x'; 40_000]), "c");
        assert_eq!(talk.say(packet::BODY, &[b'x'; 40_000]), reply);
        assert_eq!(talk.say(packet::END, b""), "c");
        assert!(talk.accepted.pop().unwrap().envelope.partial);
    }
}

#[test]
fn paths_are_read_without_brackets_and_routes() {
    for (written, address) in [
        (&b"<a@x>\0SIZE=1\0"[..], "a@x"),
        (b"a@x", "a@x"),
        (b" <a@x> \0", "a@x"),
        (b"<>\0", ""),
        (b"\0", ""),
        (b"<@relay,@other:a@x>\0", "a@x"),
        (b"<@x>\0", "@x"),
        (b"<\"a b\"@x>\0", "\"a b\"@x"),
        (b"<\xff@x>\0", "\\377@x"),
    ] {
        assert_eq!(argument(written).as_deref(), Some(address), "{written:?}");
    }
}

#[test]
fn recipients_beyond_the_room_are_counted_and_not_kept() {
    let mut talk = Talk::begun(WANTS);
    talk.say(packet::MAIL, b"<>\0");
    for n in 0..5_000 {
        assert_eq!(talk.say(packet::RCPT, format!("<{n:0>40}@x>\0").as_bytes()), "c");
    }
    assert!(talk.room.used() <= 100_000);
    talk.say(packet::END, b"");
    let event = talk.events.pop().unwrap();
    assert_eq!(event.facts.recipients, 5_000);
    assert!((500..2_000).contains(&event.recipients.len()), "{}", event.recipients.len());
    assert!(talk.accepted.pop().unwrap().envelope.partial);
}

quickcheck! {
    /// Whatever is sent: recipients and messages are decided within messages only, each
    /// command that needs a reply has one, and all memory is given back.
    fn any_order_is_survived(commands: Vec<(u8, u8)>, wants: u8) -> bool {
        const ALL: &[(u8, &[u8])] = &[
            (packet::NEGOTIATE, &[0, 0, 0, 6, 0, 0, 1, 255, 0, 31, 255, 255]),
            (packet::NEGOTIATE, &[0, 0, 0, 2, 0, 0, 0, 63, 0, 0, 0, 127]),
            (packet::MACRO, b"M{auth_authen}\0ann\0i\0id\0"),
            (packet::MACRO, b"R{rcpt_mailer}\0error\0"),
            (packet::CONNECT, b"host\x004\x01\x02192.0.2.7\0"),
            (packet::CONNECT, b"localhost\0U"),
            (packet::HELO, b"name\0"),
            (packet::MAIL, b"<a@x>\0"),
            (packet::RCPT, b"<a@x>\0"),
            (packet::RCPT, b"<r@x>\0"),
            (packet::RCPT, b"<h@x>\0"),
            (packet::DATA, b""),
            (packet::HEADER, b"a\0b\0"),
            (packet::END_OF_HEADERS, b""),
            (packet::BODY, b"text"),
            (packet::END, b"text"),
            (packet::ABORT, b""),
            (packet::NEXT, b""),
            (packet::UNKNOWN, b"x\0"),
        ];
        let has = |bit: u8| wants >> bit & 1 == 1;
        let mut talk = Talk::new(Wants {
            record: has(0),
            bytes: has(1),
            rejected_recipients: has(2),
            connect: has(3),
            helo: has(4),
            mail: has(5),
            marks: has(6),
        });
        talk.say(packet::NEGOTIATE, ALL[0].1);
        let mut within = false;
        for (command, verdict) in commands {
            let (command, data) = ALL[usize::from(command) % ALL.len()];
            talk.verdict = [V::Accept, V::Log, V::Hold, V::Defer, V::Reject][usize::from(verdict) % 5];
            let events = talk.events.len();
            within |= command == packet::MAIL;
            let replies = talk.say(command, data);
            for event in &talk.events[events..] {
                let of_message = event.event.sender.is_some();
                assert_eq!(event.event.recipient.is_some(), event.stage == AclStage::Rcpt);
                assert!(within || !of_message, "{event:?}");
                assert!(!replies.is_empty());
            }
            match command {
                packet::RCPT | packet::END | packet::NEGOTIATE => assert!(!replies.is_empty()),
                packet::MACRO | packet::ABORT | packet::NEXT => assert!(replies.is_empty()),
                _ => {}
            }
            within &= talk.dialogue.has_message();
        }
        drop((talk.dialogue, talk.accepted));
        talk.room.used() == 0
    }
}
