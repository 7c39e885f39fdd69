//! A milter connection: a stream of bytes from a mail server that may send anything. It never
//! panics, decides recipients and messages only where there is a message, replies once to
//! each event, keeps no more than its room, and gives all of it back.
#![no_main]

use std::error::Error as _;

use arbitrary::Arbitrary;
use exirate::event::AclStage;
use exirate::policy::outcome::Outcome;
use exirate::policy::word::Verdict;
use exirate::serve::mail::event::{MailEvent, MailVerdict};
use exirate::serve::mail::milter::dialogue::{Dialogue, DialogueFault, Limits, Step};
use exirate::serve::mail::milter::negotiate::Wants;
use exirate::serve::mail::milter::packet::{self, Packets, Piece, write};
use exirate::serve::mail::milter::reply::Reply;
use exirate::serve::mail::milter::room::Room;
use libfuzzer_sys::fuzz_target;

/// The largest room, and the most of a message.
const ROOM: usize = 10_000;
const MESSAGE: usize = 5_000;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    wants: u8,
    /// How much smaller the room is, and what is kept of a message.
    less: [u16; 2],
    /// The verdicts on events, one after the other.
    verdicts: &'a [u8],
    /// The lengths in which bytes arrive.
    lengths: &'a [u8],
    /// Whether the stream begins with a negotiation, and of which version.
    version: Option<u8>,
    sent: Vec<Sent<'a>>,
}

/// What the mail server sends.
#[derive(Arbitrary, Debug)]
enum Sent<'a> {
    /// A packet of a command that there is.
    Command(u8, &'a [u8]),
    /// An ordinary one, so often.
    Usual(u8, u8),
    /// Anything.
    Bytes(&'a [u8]),
}

const COMMANDS: &[u8] = b"ABCDEHKLMNOQRTU";
const USUAL: &[(u8, &[u8])] = &[
    (packet::CONNECT, b"host\x004\x01\x02192.0.2.7\0"),
    (packet::CONNECT, b"localhost\0U"),
    (packet::CONNECT, b"localhost\x004\0\0127.0.0.1\0"),
    (packet::CONNECT, b"host\x006\x01\x02IPv6:2001:db8::7\0"),
    (packet::CONNECT, b"host\x006\x01\x02[2001:db8::25%eth0]\0"),
    (packet::CONNECT, b"host\x004\x01\x02\xff\0"),
    (packet::MACRO, b"C{if_addr}\x002001:db8::25\0"),
    (packet::MACRO, b"M{auth_authen}\0ann\0i\0id\0"),
    (packet::MACRO, b"R{rcpt_mailer}\0error\0{rcpt_host}\x005.1.1\0"),
    (packet::MACRO, b"R{rcpt_mailer}\0error\0{rcpt_host}\x004.2.1\0"),
    (packet::HELO, b"name\0"),
    (packet::MAIL, b"<a@x>\0"),
    (packet::RCPT, b"<b@x>\0"),
    (packet::DATA, b""),
    (packet::HEADER, b"Subject\0 hello\0"),
    (packet::END_OF_HEADERS, b""),
    (packet::BODY, b"text\r\n"),
    (packet::END, b""),
    (packet::ABORT, b""),
    (packet::NEXT, b""),
];

fuzz_target!(|input: Input<'_>| {
    let [room_max, max_message] = [(ROOM, input.less[0]), (MESSAGE, input.less[1])]
        .map(|(most, less)| most - usize::from(less) % most);
    let room = Room::new(room_max);
    let limits = Limits { max_message, room: room.clone() };
    let has = |bit: u8| input.wants >> bit & 1 == 1;
    let wants = Wants {
        record: has(0),
        bytes: has(1),
        rejected_recipients: has(2),
        connect: has(3),
        helo: has(4),
        mail: has(5),
        marks: has(6),
    };
    let mut talk = Talk {
        dialogue: Dialogue::new(wants, limits),
        max_message,
        verdicts: input.verdicts.iter().copied().cycle(),
        replies: Vec::new(),
    };
    let bytes = stream(&input);
    let mut packets = Packets::default();
    let mut lengths = input.lengths.iter().copied().cycle();
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let length = usize::from(lengths.next().unwrap_or(u8::MAX)).clamp(1, rest.len());
        let (mut now, after) = rest.split_at(length);
        rest = after;
        loop {
            match packets.next(&mut now) {
                Err(fault) => {
                    let fault = DialogueFault::Packet(fault);
                    assert!(!fault.to_string().is_empty() && fault.source().is_some());
                    return talk.end(&room);
                }
                Ok(None) => break,
                Ok(Some(piece)) => {
                    let had_agreed = talk.dialogue.has_agreed();
                    let is_last =
                        matches!(piece, Piece::Whole(..) | Piece::Part { last: true, .. });
                    if !talk.take(piece) {
                        return talk.end(&room);
                    }
                    assert!(had_agreed || talk.dialogue.has_agreed());
                    assert_eq!(packets.is_within(), !is_last);
                }
            }
        }
        assert!(now.is_empty());
        assert!(room.used() <= room_max);
        assert!(packets.held() <= 2 * packet::DATA_MAX);
    }
    talk.end(&room);
});

fn stream(input: &Input<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(version) = input.version {
        // All actions, or none.
        let mut offer = vec![0, 0, 0, version % 8, 0, 0];
        offer.extend_from_slice(if version & 8 == 0 { &[1, 255] } else { &[0, 0] });
        offer.extend_from_slice(&if version < 128 { [0, 31, 255, 255] } else { [0, 0, 4, 127] });
        write(&mut bytes, packet::NEGOTIATE, &offer);
    }
    for sent in &input.sent {
        match sent {
            Sent::Command(command, data) => {
                let command = COMMANDS[usize::from(*command) % COMMANDS.len()];
                write(&mut bytes, command, data);
            }
            Sent::Usual(which, times) => {
                let (command, data) = USUAL[usize::from(*which) % USUAL.len()];
                (0..=*times).for_each(|_| write(&mut bytes, command, data));
            }
            Sent::Bytes(more) => bytes.extend_from_slice(more),
        }
    }
    bytes
}

struct Talk<V> {
    dialogue: Dialogue,
    max_message: usize,
    verdicts: V,
    replies: Vec<u8>,
}

impl<V: Iterator<Item = u8>> Talk<V> {
    /// Whether the connection goes on.
    fn take(&mut self, piece: Piece<'_>) -> bool {
        match self.dialogue.take(piece) {
            Err(fault) => {
                assert!(!fault.to_string().is_empty());
                let cause = fault.source().map(ToString::to_string);
                assert!(cause.is_none_or(|cause| cause == fault.to_string()));
                return false;
            }
            Ok(Step::Quit) => return false,
            Ok(Step::Nothing) => {}
            Ok(Step::Reply(reply)) => self.reply(&reply),
            Ok(Step::Decide(event)) => self.decide(&event),
        }
        true
    }

    fn decide(&mut self, event: &MailEvent) {
        // A recipient that the mail server has refused is counted as if at QUIT, and gets no
        // other reply.
        use AclStage as S;
        let of_message = matches!(event.stage, S::Mail | S::Rcpt | S::Data | S::NotSmtp | S::Quit);
        assert_eq!(of_message, self.dialogue.has_message());
        assert_eq!(event.event.recipient.is_some(), event.stage == S::Rcpt);
        assert_eq!(event.event.sender.is_some(), of_message);
        let complete = matches!(event.stage, S::Data | S::NotSmtp);
        assert!(!complete || event.facts.recipients > 0);
        assert!(event.recipients.len() <= event.facts.recipients as usize);
        let _ = self.dialogue.begun();
        assert_eq!(self.dialogue.begun(), Default::default());
        use Verdict as V;
        let all = [V::Accept, V::Log, V::Delay, V::Hold, V::Defer, V::Reject];
        let verdict = all[usize::from(self.verdicts.next().unwrap_or(0)) % all.len()];
        let text = "100% \r\n\u{e9}".to_owned();
        if verdict == V::Delay {
            self.reply(&Reply::Progress);
        }
        let outcome = Outcome { verdict, text, ..Outcome::default() };
        let verdict = MailVerdict { outcome, ..MailVerdict::default() };
        let (reply, accepted) = self.dialogue.decided(&verdict);
        let refused = verdict.outcome.verdict >= V::Defer && event.stage != S::Quit;
        assert_eq!(matches!(reply, Reply::Defer(_) | Reply::Reject(_)), refused || held(&reply));
        if let Some(accepted) = accepted {
            assert!(complete && !refused);
            let (bytes, _share) = accepted.content.parts();
            assert!(bytes.len() <= self.max_message);
            assert!(!accepted.envelope.recipients.is_empty() || accepted.envelope.partial);
        }
        assert!(!complete || !self.dialogue.has_message());
        self.reply(&reply);
    }

    fn reply(&mut self, reply: &Reply) {
        self.replies.clear();
        reply.write(&mut self.replies);
        let mut rest = self.replies.as_slice();
        let mut packets = Packets::default();
        let mut number = 0;
        while let Some(Piece::Whole(code, data)) = packets.next(&mut rest).unwrap() {
            assert!(b"cOpqsy".contains(&code));
            if code == b'y' {
                let text = data.strip_suffix(b"\0").unwrap();
                assert!(text.iter().all(|byte| (b' '..=b'~').contains(byte)));
                assert!(text.starts_with(b"451 4.7.1 ") || text.starts_with(b"550 5.7.1 "));
            }
            number += 1;
        }
        assert!(number == 1 || matches!(reply, Reply::Hold(_)) && number == 2);
    }

    fn end(self, room: &Room) {
        drop(self.dialogue);
        assert_eq!(room.used(), 0);
    }
}

/// Whether a message is deferred that cannot be held.
fn held(reply: &Reply) -> bool {
    matches!(reply, Reply::Defer(_))
}
