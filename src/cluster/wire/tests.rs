//! Requests and replies survive the way, and nothing that is damaged is read.

use kit::quickcheck;
use quickcheck::{Arbitrary, Gen};

use super::*;
use crate::engine::{
    Algorithm, AlgorithmKind, Block, BlockTime, Check, Decision, Details, Kind, Overridden,
    RecordKey, Update,
};
use crate::rate::share::Counted;
use crate::rate::{Average, CalendarWindow, Share, Timestamp};
use crate::spool::CHECKS_MAX;
use crate::versions::as_the_next;
use kit::fields::documented;
use kit::formats::{RELEASES, kept};

/// A check that owns its texts, and a decision of it.
#[derive(Clone, Debug)]
struct Item {
    name: Vec<u8>,
    unique: Option<Vec<u8>>,
    identity_start: usize,
    choice: u8,
    numbers: [f64; 3],
    window: (u32, u32),
    decided: (bool, Option<bool>, bool, u32, Option<(f64, Timestamp)>),
}

fn time(g: &mut Gen) -> Timestamp {
    Timestamp { seconds: i64::from(i32::arbitrary(g)), micros: u32::arbitrary(g) % 1_000_000 }
}

impl Arbitrary for Item {
    fn arbitrary(g: &mut Gen) -> Self {
        let name = Vec::<u8>::arbitrary(g);
        let positive = |g: &mut Gen| f64::from(u32::arbitrary(g)) / 16.0 + 0.001;
        Self {
            identity_start: usize::arbitrary(g) % (name.len() + 1),
            name,
            unique: Option::arbitrary(g),
            choice: u8::arbitrary(g),
            numbers: [positive(g), positive(g), positive(g)],
            window: (u32::arbitrary(g), u32::arbitrary(g).max(1)),
            decided: (
                bool::arbitrary(g),
                Option::arbitrary(g),
                bool::arbitrary(g),
                u32::arbitrary(g),
                bool::arbitrary(g).then(|| (positive(g), time(g))),
            ),
        }
    }
}

impl Item {
    fn check(&self) -> Check<'_> {
        let [limit, period, count] = self.numbers;
        let (start, length) = (self.window.0.into(), i64::from(self.window.1));
        let algorithm = match (self.choice & 1, self.identity_start % 3) {
            (_, 2) => {
                let window = CalendarWindow { start, end: start + length };
                Algorithm::Calendar { limit, window }
            }
            (0, 1) => {
                let share = Share { limit: limit as f32 as f64, least: self.window.1, period };
                Algorithm::Share { share, accepted: Some(start).filter(|start| *start > 0) }
            }
            (0, _) => Algorithm::MovingAverage { limit, period },
            _ => Algorithm::Bucket { burst: limit, rate: period },
        };
        let update = [Update::Leaky, Update::Strict, Update::ReadOnly, Update::Leaky]
            [usize::from(self.choice >> 1 & 3)];
        let kind = if self.choice & 8 == 0 { Kind::Spec } else { Kind::Policy };
        Check {
            key: RecordKey {
                name: &self.name,
                identity_start: self.identity_start,
                kind,
                algorithm: algorithm.kind(),
            },
            algorithm,
            count: if update == Update::ReadOnly { 0.0 } else { count },
            event: self.unique.as_deref(),
            update,
            refuses: [None, Some(0.01), Some(1.0), Some(f64::INFINITY)]
                [usize::from(self.choice >> 4 & 3)],
            total: self.choice & 64 != 0,
            overridden: [None, Some(Overridden::Allow), Some(Overridden::Deny), None]
                [usize::from(self.choice >> 5 & 3)],
            blocks: BlockTime::of_code(self.decided.3),
        }
    }

    fn decision(&self, at: Timestamp) -> Decision {
        let (over, seen, written, crossings, kept) = self.decided;
        let check = self.check();
        let is_share = check.algorithm.share().is_some();
        let share = Counted { sent: self.window.1.into(), failed: crossings.into() };
        let share = if is_share { share } else { Counted::default() };
        Decision {
            rate: self.numbers[2],
            over,
            overridden: check.overridden,
            blocked: Block::held(crossings),
            algorithm: check.algorithm.kind(),
            limit: check.algorithm.limit(),
            period: check.algorithm.period(),
            start: match check.algorithm {
                Algorithm::Share { share, .. } => share.least.into(),
                other => other.window().map_or(0, |window| window.start),
            },
            restarts: (check.algorithm.window())
                .map_or(0, |window| window.at(at.seconds, None).restarts(window)),
            share,
            leak: check.algorithm.leak(),
            count: match seen {
                _ if is_share => share.failed as f64,
                Some(true) => 0.0,
                _ => check.count,
            },
            next_count: if check.update == Update::ReadOnly { 1.0 } else { check.count },
            at,
            kept: kept.map(|(rate, at)| Average { at, rate }),
            crossed: over && self.choice & 128 != 0,
            crossings,
            details: Details { found: written, filter_expired: over, seen, written },
        }
    }
}

/// At most as many as fit into a request.
#[derive(Clone, Debug)]
struct Items(Vec<Item>);

impl Arbitrary for Items {
    fn arbitrary(g: &mut Gen) -> Self {
        let mut items = Vec::arbitrary(g);
        items.truncate(CHECKS_MAX);
        Self(items)
    }
}

/// The same message with other bytes, and the checksum of these.
fn with_checksum(mut message: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    message.truncate(message.len() - CRC_BYTES);
    change(&mut message);
    let bytes = (message.len() + CRC_BYTES) as u32;
    message[4..8].copy_from_slice(&bytes.to_le_bytes());
    let crc = crc32fast::hash(&message);
    message.extend_from_slice(&crc.to_le_bytes());
    message
}

/// Makes the items of a message larger: a later version has appended fields.
fn with_larger_items(message: &[u8], sizes: &[usize], fixed: usize) -> Vec<u8> {
    with_checksum(message.to_vec(), |message| {
        let mut all = message[..HEADER_BYTES].to_vec();
        all[34..36].copy_from_slice(&(fixed as u16 + 8).to_le_bytes());
        let mut rest = &message[HEADER_BYTES..];
        for size in sizes {
            all.extend_from_slice(&rest[..fixed]);
            all.extend_from_slice(&[0xAB; 8]);
            all.extend_from_slice(&rest[fixed..*size]);
            rest = &rest[*size..];
        }
        *message = all;
    })
}

quickcheck! {
    fn a_request_is_read_as_it_was_written(items: Items, event: u128, deadline: u32) -> bool {
        let checks: Vec<_> = items.0.iter().map(Item::check).collect();
        let mut message = b"earlier".to_vec();
        write_request(&mut message, event, deadline, &checks).unwrap();
        let message = &message[7..];
        message_bytes(message) == Ok(Some(message.len()))
            && event_of(message) == event
            && read_request(message) == Ok(Request { event, deadline, checks })
    }

    fn a_reply_is_read_as_it_was_written(items: Items, event: u128, at: (i32, u32)) -> bool {
        let at = Timestamp { seconds: at.0.into(), micros: at.1 % 1_000_000 };
        let checks: Vec<_> = items.0.iter().map(Item::check).collect();
        let decisions: Vec<_> = items.0.iter().map(|item| item.decision(at)).collect();
        let mut message = Vec::new();
        write_decisions(&mut message, event, &decisions);
        message_bytes(&message) == Ok(Some(message.len()))
            && read_reply(&message, event, &checks) == Ok(Reply::Decided(decisions))
            && read_reply(&message, event ^ 1, &checks) == Err(WireFault::OtherEvent)
    }

    fn fields_of_a_later_release_are_skipped(items: Items, event: u128) -> bool {
        let checks: Vec<_> = items.0.iter().map(Item::check).collect();
        let mut message = Vec::new();
        write_request(&mut message, event, 7, &checks).unwrap();
        let size = |check: &Check<'_>| {
            CHECK_BYTES + check.key.name.len() + check.event.map_or(0, <[u8]>::len)
        };
        let sizes: Vec<_> = checks.iter().map(size).collect();
        let later = with_larger_items(&message, &sizes, CHECK_BYTES);
        let decisions: Vec<_> =
            items.0.iter().map(|item| item.decision(Timestamp::default())).collect();
        let mut reply = Vec::new();
        write_decisions(&mut reply, event, &decisions);
        let sizes = vec![DECISION_BYTES; checks.len()];
        let later_reply = with_larger_items(&reply, &sizes, DECISION_BYTES);
        read_reply(&later_reply, event, &checks) == Ok(Reply::Decided(decisions))
            && read_request(&later) == Ok(Request { event, deadline: 7, checks })
    }

    fn damage_is_found(items: Items, position: usize, bit: u8, cut: usize) -> bool {
        let checks: Vec<_> = items.0.iter().map(Item::check).collect();
        let mut message = Vec::new();
        write_request(&mut message, 1, 2, &checks).unwrap();
        let position = position % message.len();
        let mut damaged = message.clone();
        damaged[position] ^= 1 << (bit % 8);
        let cut = &message[..cut % message.len()];
        read_request(&damaged).is_err() && read_request(cut).is_err()
    }

    /// Also with a checksum that fits, as a hostile peer sends it.
    fn hostile_fields_never_panic(
        items: Items,
        changes: Vec<(usize, u8)>,
        reply: bool
    ) -> bool {
        let checks: Vec<_> = items.0.iter().map(Item::check).collect();
        let mut message = Vec::new();
        match reply {
            true => {
                let at = Timestamp::default();
                let decisions: Vec<_> = items.0.iter().map(|item| item.decision(at)).collect();
                write_decisions(&mut message, 1, &decisions);
            }
            false => write_request(&mut message, 1, 2, &checks).unwrap(),
        }
        let message = with_checksum(message, |message| {
            for (position, value) in changes {
                let length = message.len();
                message[position % length] = value;
            }
        });
        let _ = read_request(&message);
        let _ = read_reply(&message, 1, &checks);
        true
    }
}

#[test]
fn impossible_values_are_refused_by_name() {
    let key = RecordKey { name: b"1h/per_mail/a", identity_start: 0, ..b"".into() };
    let algorithm = Algorithm::MovingAverage { limit: 1.0, period: 2.0 };
    let (update, event) = (Update::Leaky, Some(&b"u"[..]));
    let check = Check { event, update, ..Check::new(key, algorithm) };
    let mut message = Vec::new();
    write_request(&mut message, 1, 2, &[check]).unwrap();
    assert!(read_request(&message).is_ok());
    let at = |offset: usize, bytes: &[u8]| {
        let message = with_checksum(message.clone(), |message| {
            let offset = HEADER_BYTES + offset;
            message[offset..offset + bytes.len()].copy_from_slice(bytes);
        });
        read_request(&message).unwrap_err()
    };
    let nan = f64::NAN.to_le_bytes();
    let minus = (-1.0_f64).to_le_bytes();
    for (offset, bytes, field) in [
        (0, &[3][..], "record_kind"),
        (1, &[0], "algorithm"),
        (2, &[4], "update"),
        (2, &[3], "count"),
        (3, &[12], "flags"),
        (3, &[0], "unique_bytes"),
        (4, &[255, 255], "name_bytes"),
        (6, &[14, 0], "identity_start"),
        (8, &[2, 0], "unique_bytes"),
        (8, &[0, 0], "bytes"),
        (16, &nan, "limit"),
        (16, &minus, "limit"),
        (24, &nan, "period"),
        (24, &[0; 8], "period"),
        (32, &nan, "count"),
        (32, &minus, "count"),
        (40, &nan, "refuses"),
        (40, &minus, "refuses"),
    ] {
        assert_eq!(at(offset, bytes), WireFault::Field(field), "{offset} {bytes:?}");
    }
}

#[test]
fn what_each_release_has_written_is_read() {
    let item = |choice, identity_start| Item {
        name: b"1h/per_rcpt/alice".to_vec(),
        unique: Some(b"bob@example.net".to_vec()),
        identity_start,
        choice,
        numbers: [100.0, 3600.0, 2.5],
        window: (1_795_132_800, 86_400),
        decided: (true, Some(false), true, 3, Some((2.5, Timestamp { seconds: 9, micros: 8 }))),
    };
    let items = [item(0, 12), item(67, 13), item(26, 14), item(37, 15)];
    let at = Timestamp { seconds: 1_795_175_430, micros: 250_000 };
    let decisions: Vec<_> = items.iter().map(|item| item.decision(at)).collect();
    for release in RELEASES {
        let mut checks: Vec<_> = items.iter().map(Item::check).collect();
        if release == "0.1.0" {
            // It knows no blocks.
            checks.iter_mut().for_each(|check| check.blocks = BlockTime::Ignored);
        }
        let request = kept(release, "agent.request", || {
            let mut bytes = Vec::new();
            write_request(&mut bytes, 77, 100_000, &checks).unwrap();
            bytes
        });
        let read = read_request(&request).unwrap();
        assert_eq!((read.event, read.deadline), (77, 100_000));
        assert_eq!(read.checks, checks);
        let reply = kept(release, "agent.reply", || {
            let mut bytes = Vec::new();
            write_decisions(&mut bytes, 77, &decisions);
            bytes
        });
        let Reply::Decided(found) = read_reply(&reply, 77, &checks).unwrap() else { panic!() };
        assert_eq!(found, decisions);
        let refusal = kept(release, "agent.refusal", || {
            let mut bytes = Vec::new();
            write_refusal(&mut bytes, 77, ReplyStatus::OtherVersion, "why");
            bytes
        });
        let refused = Reply::Refused(ReplyStatus::OtherVersion, b"why");
        assert_eq!(read_reply(&refusal, 77, &checks), Ok(refused));
    }
}

#[test]
fn other_versions_kinds_and_sizes_are_refused() {
    let mut message = Vec::new();
    write_request(&mut message, 5, 2, &[]).unwrap();
    let with = |offset: usize, value: u16| {
        with_checksum(message.clone(), |message| {
            message[offset..offset + 2].copy_from_slice(&value.to_le_bytes());
        })
    };
    let other = with(8, 2);
    let fault = read_request(&other).unwrap_err();
    assert!(matches!(fault, WireFault::Version(version) if version.is_later()));
    assert_eq!(
        fault.to_string(),
        "the message is of format version 2, and this exirate knows no version above 1: restart the \
         agent, and what asks it"
    );
    assert!(
        as_the_next(|| read_request(&other)).is_ok()
            && as_the_next(|| read_request(&message)).is_ok()
    );
    for version in [0, u16::MAX] {
        assert!(matches!(read_request(&with(8, version)), Err(WireFault::Version(_))), "{version}");
    }
    assert_eq!(event_of(&other), 5, "so that the reply can name it");
    assert_eq!(read_request(&with(10, 9)), Err(WireFault::Kind(9)));
    assert_eq!(read_request(&with(32, 65)), Err(WireFault::Field("count")));
    assert_eq!(read_request(&with(32, 1)), Err(WireFault::Field("item_bytes")));
    assert_eq!(message_bytes(b""), Ok(None));
    assert_eq!(message_bytes(b"EXR"), Ok(None));
    assert_eq!(message_bytes(b"EXRQ\x28\0\0"), Ok(None));
    assert_eq!(message_bytes(b"EXRQ\x28\0\0\0"), Ok(Some(40)));
    assert_eq!(message_bytes(b"EXRQ\x27\0\0\0"), Err(WireFault::Size(39)));
    assert_eq!(message_bytes(b"EXRQ\xff\xff\xff\xff"), Err(WireFault::Size(u32::MAX)));
    assert_eq!(message_bytes(b"HELO"), Err(WireFault::Magic));
    assert_eq!(message_bytes(b"E?"), Err(WireFault::Magic));
}

#[test]
fn a_refusal_has_a_reason() {
    let mut message = Vec::new();
    for (status, reason) in [
        (ReplyStatus::Unavailable, "Redis is loading"),
        (ReplyStatus::Busy, ""),
        (ReplyStatus::NotAllowed, "x"),
    ] {
        message.clear();
        write_refusal(&mut message, 7, status, reason);
        let reply = read_reply(&message, 7, &[]).unwrap();
        assert_eq!(reply, Reply::Refused(status, reason.as_bytes()));
    }
    // One that refuses the process, whatever it asks; a decision is of one request.
    message.clear();
    write_refusal(&mut message, 0, ReplyStatus::NotAllowed, "x");
    let reply = read_reply(&message, 7, &[]).unwrap();
    assert_eq!(reply, Reply::Refused(ReplyStatus::NotAllowed, b"x"));
    message.clear();
    write_decisions(&mut message, 0, &[]);
    assert_eq!(read_reply(&message, 7, &[]), Err(WireFault::OtherEvent));
    message.clear();
    write_refusal(&mut message, 7, ReplyStatus::BadRequest, &"long ".repeat(1000));
    assert!(matches!(read_reply(&message, 7, &[]), Ok(Reply::Refused(_, r)) if r.len() == 1000));
}

#[test]
fn what_does_not_fit_is_not_written() {
    let name = vec![b'a'; usize::from(u16::MAX)];
    let key = RecordKey { algorithm: AlgorithmKind::MovingAverage, ..(&name).into() };
    let algorithm = Algorithm::MovingAverage { limit: 1.0, period: 2.0 };
    let (update, event) = (Update::Leaky, None);
    let check = Check { event, update, ..Check::new(key, algorithm) };
    let mut message = b"kept".to_vec();
    assert!(matches!(write_request(&mut message, 1, 2, &[check; 20]), Err(WireFault::Size(_))));
    assert!(matches!(
        write_request(&mut message, 1, 2, &[check; 65]),
        Err(WireFault::Field("count"))
    ));
    assert_eq!(message, b"kept");
}

#[test]
fn the_tables_name_every_field() {
    let source = include_str!("mod.rs");
    let document: String = source.lines().filter_map(|l| l.strip_prefix("//! ")).fold(
        String::new(),
        |mut all, line| {
            all.push_str(line);
            all.push('\n');
            all
        },
    );
    let fields = documented(&document);
    for (last, size) in
        [("item_bytes", HEADER_BYTES), ("blocks", CHECK_BYTES), ("blocked", DECISION_BYTES)]
    {
        let (offset, bytes) = fields[last];
        assert_eq!(offset + bytes, size, "{last}");
    }
    let total: usize = fields.values().map(|(_, bytes)| bytes).sum();
    assert_eq!(total, HEADER_BYTES + CHECK_BYTES + DECISION_BYTES, "no gaps");
}
