//! Tests against a naive evaluator, and of lists that are damaged.

use quickcheck::{Arbitrary, Gen};

use super::*;
use crate::engine::{Kind, Overridden, RecordKey};
use crate::identity::fold::Folding;
use crate::versions::as_the_next;

const KEYS: [&[u8]; 8] =
    [b"", b"a", b"A", b"ab", b"aB@x.test", b"ab@x.test", b"\xff\0", b"b@y.test"];
const GLOBS: [&str; 6] = ["*", "a*", "*@x.test", "{a,b}?*", "[!a]*", "A*"];

fn one(overridden: Overridden, target: Target, until: i64) -> Override {
    Override {
        overridden,
        target,
        argument: "k".to_owned(),
        until,
        since: 5,
        reason: "r\u{e9}ason".to_owned(),
        who: "uid=0".to_owned(),
    }
}

/// A folding with a case, or without.
fn folding(case: bool) -> Folding {
    let dots = vec!["x.test".to_owned(), "\u{e9}".to_owned()];
    let qualify = case.then(|| "y.test".to_owned());
    Folding { case, dots, qualify, ..Folding::default() }.without_masks()
}

fn folded(folding: &Folding, key: &[u8]) -> Vec<u8> {
    folding.folded_bytes(key, &mut String::new()).to_vec()
}

fn exact(key: &[u8], is_folded: bool) -> Target {
    let folding = folding(true);
    match is_folded {
        true => {
            Target::Exact { key: folded(&folding, key), counted_as: None, folding: Some(folding) }
        }
        false => Target::literal(key),
    }
}

fn glob(glob: &str, case: bool) -> Target {
    Target::Glob { alternatives: compile_glob(glob, case).unwrap(), folding: folding(case) }
}

fn find(list: &Overrides, key: &RecordKey<'_>) -> Candidates {
    list.find(key, &mut String::new())
}

fn overrides(list: &[Override]) -> Overrides {
    Overrides::decode(Overrides::encode(list).unwrap()).unwrap()
}

#[derive(Clone, Debug)]
struct Random(Vec<Override>);

impl Arbitrary for Random {
    fn arbitrary(g: &mut Gen) -> Self {
        let list = Vec::<(u8, u8, bool, bool, u8)>::arbitrary(g);
        let one = |(kind, pick, deny, ignore_case, until): (u8, u8, bool, bool, u8)| {
            let pick = usize::from(pick);
            let target = match kind % 2 {
                0 => exact(KEYS[pick % KEYS.len()], ignore_case),
                _ => glob(GLOBS[pick % GLOBS.len()], ignore_case),
            };
            let overridden = match (deny, pick % 2) {
                (true, 0) => Overridden::Reject,
                (true, _) => Overridden::Deny,
                (false, _) => Overridden::Allow,
            };
            one(overridden, target, if until == 0 { FOREVER } else { i64::from(until % 8) })
        };
        Self(list.into_iter().take(30).map(one).collect())
    }
}

#[test]
fn a_list_decides_as_a_naive_evaluator() {
    fn holds(Random(list): Random, second: u8) -> bool {
        // Also a clock before 1970.
        let second = i64::from(second % 11) - 2;
        let found = overrides(&list);
        KEYS.iter().all(|key| {
            let applies = |one: &&Override| {
                let fits = match &one.target {
                    Target::Exact { key: wanted, folding: Some(folding), .. } => {
                        *wanted == folded(folding, key)
                    }
                    Target::Exact { key: wanted, .. } => wanted == key,
                    Target::Glob { .. } => one.applies_to(&key.into()),
                };
                fits && second < one.until
            };
            let any = |is_exact: bool, overridden: Overridden| {
                list.iter().filter(applies).any(|one| {
                    matches!(one.target, Target::Exact { .. }) == is_exact
                        && one.overridden == overridden
                })
            };
            let expected = [true, false].into_iter().find_map(|is_exact| {
                [Overridden::Reject, Overridden::Deny, Overridden::Allow]
                    .into_iter()
                    .find(|&overridden| any(is_exact, overridden))
            });
            find(&found, &key.into()).at(second) == expected
                && deciding(&list, &key.into(), second).map(|one| one.overridden) == expected
        })
    }
    kit::quick_check().tests(3000).quickcheck(holds as fn(Random, u8) -> bool);
}

#[test]
fn a_list_survives_encoding() {
    fn holds(Random(list): Random) -> bool {
        overrides(&list).list() == list && overrides(&list).is_empty() == list.is_empty()
    }
    kit::quick_check().tests(500).quickcheck(holds as fn(Random) -> bool);
}

#[test]
fn an_exact_key_is_stronger_than_a_glob_and_a_denial_than_a_permission() {
    let second = 100;
    let list = [
        one(Overridden::Deny, glob("*@x.test", false), 200),
        one(Overridden::Allow, exact(b"ab@x.test", false), 150),
        one(Overridden::Allow, glob("a*", false), FOREVER),
    ];
    let found = overrides(&list);
    assert_eq!(find(&found, &b"ab@x.test".into()).at(second), Some(Overridden::Allow));
    assert_eq!(
        find(&found, &b"ab@x.test".into()).at(150),
        Some(Overridden::Deny),
        "the exact one has ended"
    );
    assert_eq!(find(&found, &b"ab@x.test".into()).at(200), Some(Overridden::Allow));
    assert_eq!(find(&found, &b"b@x.test".into()).at(200), None);
}

fn policy(identity: &str) -> RecordKey<'_> {
    RecordKey { kind: Kind::Policy, ..identity.into() }
}

#[test]
fn a_value_is_the_key_of_specs_and_of_every_field_of_a_policy() {
    for (list, spec, of_policy) in [
        (
            exact(b"alice", false),
            &["alice"][..],
            &["auth:alice", "local_account:alice", "script:alice", "client:::1,auth:alice"][..],
        ),
        (exact(b"auth:alice", false), &["auth:alice"], &["auth:alice", "auth:alice,client:::1"]),
        (exact(b"Alice@Z.test", true), &["alice@z.TEST.", "ALICE@z.test"], &["auth:alice@z.test"]),
        (exact(b"Alice", true), &["alice", "alice@Y.test"], &["auth:alice@y.test"]),
        (exact(b"auth:Alice@Z.test", true), &["auth:ALICE@Z.test"], &["auth:alice@z.test"]),
        (exact(b"sender:b@z.test", true), &["sender:B@z.test"], &["sender:b@z.test,helo:h"]),
        (
            exact(b"192.0.2.7", false),
            &["192.0.2.7"],
            &["client:192.0.2.7", "auth:a,client:192.0.2.7"],
        ),
        (exact(b"2001:db8::7", false), &["2001:db8::7"], &["client:2001:db8::7"]),
        (exact(b"a,b:c", false), &["a,b:c"], &["auth:a,,b:c", "client:x,auth:a,,b:c"]),
        (exact(b"auth:a,", false), &[], &["auth:a,,,client:x", "auth:a,,"]),
        (exact(b"", false), &[""], &[]),
        (glob("al*e", false), &["alice"], &["auth:alice", "client:x,auth:alice"]),
        (glob("auth:*", false), &["auth:x"], &["auth:alice", "client:x,auth:alice"]),
        (glob("*:alice", false), &["x:alice"], &["auth:alice", "sender:alice,client:x"]),
        (glob("{helo,sender}:a*", false), &[], &["sender:alice", "client:x,helo:a"]),
        (glob("*", false), &["x"], &["sender:alice", "helo:x", "domain:x.test"]),
        (glob("domain:*", false), &[], &["domain:x.test"]),
        (glob("*@Z.test", true), &["A@z.TEST"], &["auth:a@z.test"]),
    ] {
        let list = overrides(&[one(Overridden::Deny, list, FOREVER)]);
        let denied = |key: RecordKey<'_>| find(&list, &key).at(0) == Some(Overridden::Deny);
        for key in spec {
            assert!(denied(key.into()), "{key} {:?}", list.list());
        }
        for key in of_policy {
            assert!(denied(policy(key)), "{key} {:?}", list.list());
            assert!(list.list()[0].applies_to(&policy(key)));
        }
    }
    for (list, key) in [
        (exact(b"auth:alice", false), "alice".into()),
        (exact(b"alice", false), "auth:alice".into()),
        // What a stranger chooses.
        (exact(b"alice", false), policy("sender:alice")),
        (exact(b"alice", true), policy("client:::1,recipient:alice@y.test")),
        (exact(b"x.test", false), policy("sender_domain:x.test")),
        (exact(b"x.test", false), policy("recipient_domain:x.test")),
        (exact(b"x.test", false), policy("helo:x.test")),
        (exact(b"x.test", false), policy("domain:x.test")),
        (glob("*x.test", false), policy("sender:a@x.test")),
        (glob("*x.test", false), policy("sender_domain:x.test,helo:x.test")),
        (glob("[s]ender:*", false), policy("sender:a@x.test")),
        (exact(b"Alice", false), "alice".into()),
        (exact(b"auth:alice", false), policy("sender:alice")),
        (exact(b"auth:alice", false), policy("auth:alice2")),
        (exact(b"b", false), policy("auth:a,,b")),
        (exact(b"a", false), policy("auth:a,,b")),
        (glob("al*", false), "auth:alice".into()),
        (glob("al*", false), policy("auth:bob,client:x")),
    ] {
        let list = overrides(&[one(Overridden::Deny, list, FOREVER)]);
        assert_eq!(find(&list, &key).at(0), None, "{key:?} {:?}", list.list());
    }
}

#[test]
fn an_address_is_also_what_a_policy_counts_it_as() {
    let target = Target::Exact {
        key: b"2001:db8::7".to_vec(),
        counted_as: Some(b"2001:db8::/64".to_vec()),
        folding: Some(folding(true)),
    };
    let list = overrides(&[one(Overridden::Deny, target, FOREVER)]);
    let denied = |key: RecordKey<'_>| find(&list, &key).at(0) == Some(Overridden::Deny);
    assert!(denied("2001:DB8:0::7".into()) && denied("2001:db8::/64".into()));
    assert!(denied(policy("client:2001:db8::/64")) && !denied("2001:db8::8".into()));
    assert!(!denied(policy("sender:2001:db8::7")));
}

#[test]
fn keys_are_folded_without_allocating_again() {
    let list = overrides(&[one(Overridden::Deny, exact(b"alice@z.test", true), FOREVER)]);
    let mut scratch = String::with_capacity(300);
    let place = scratch.as_ptr();
    for key in ["ALICE@z.test", "alice@z.test", "2001:DB8::7", " Alice@Z.test. "] {
        let denied = list.find(&key.into(), &mut scratch).at(0) == Some(Overridden::Deny);
        assert_eq!((denied, scratch.as_ptr()), (!key.contains(':'), place), "{key}");
    }
}

#[test]
fn damaged_lists_are_refused_whatever_the_damage() {
    let list = [
        one(Overridden::Deny, glob("{a,b}*@x.test", false), 200),
        one(Overridden::Allow, exact(b"ab@x.test", true), FOREVER),
    ];
    let bytes = Overrides::encode(&list).unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Overrides::decode(flipped).unwrap_err(), ListFault::Damaged, "bit {bit}");
    }
    for length in 0..bytes.len() {
        assert_eq!(Overrides::decode(bytes[..length].to_vec()).unwrap_err(), ListFault::Damaged);
    }
    let newer = sealed({
        let mut bytes = bytes.clone();
        bytes[8] = 3;
        bytes
    });
    let fault = Overrides::decode(newer.clone()).unwrap_err();
    assert!(matches!(fault, ListFault::Version(version) if version.is_later()));
    assert!(fault.to_string().contains("is of format version 3, and this exirate knows no"));
    assert_eq!(as_the_next(|| Overrides::decode(newer).unwrap().list()), list);
    // An older exirate reads a list as long as no denial rejects.
    assert_eq!(bytes[8], 1);
    let rejects = [one(Overridden::Reject, exact(b"ab@x.test", true), FOREVER)];
    let bytes = Overrides::encode(&rejects).unwrap();
    assert_eq!((bytes[8], Overrides::decode(bytes).unwrap().list()), (2, rejects.to_vec()));
}

/// `bytes` with a checksum and a size that fit.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let size = (bytes.len() as u32).to_le_bytes();
    bytes[16..20].copy_from_slice(&size);
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..20]);
    hasher.update(&bytes[24..]);
    let crc = hasher.finalize().to_le_bytes();
    bytes[20..24].copy_from_slice(&crc);
    bytes
}

#[test]
fn hostile_lists_with_sound_checksums_never_panic() {
    fn holds(Random(list): Random, changes: Vec<(u16, u8)>, cut: u8) -> bool {
        let mut bytes = Overrides::encode(&list).unwrap();
        let length = bytes.len();
        for (at, byte) in changes.into_iter().take(4) {
            let at = 12 + usize::from(at) % (length - 12);
            bytes[at] = byte;
        }
        bytes.truncate(length.saturating_sub(usize::from(cut % 4)).max(24));
        if let Ok(found) = Overrides::decode(sealed(bytes)) {
            KEYS.iter().for_each(|key| {
                let _ = find(&found, &key.into()).at(3);
            });
            return found.list().len() <= OVERRIDES_MAX;
        }
        true
    }
    kit::quick_check().tests(20_000).quickcheck(holds as fn(Random, Vec<(u16, u8)>, u8) -> bool);
}

#[test]
fn what_does_not_fit_is_refused() {
    let long = Override {
        reason: "x".repeat(TEXT_MAX + 1),
        ..one(Overridden::Deny, exact(b"a", false), 9)
    };
    assert_eq!(Overrides::encode(&[long]).unwrap_err(), "the reason is longer than 1024 bytes");
    let key = one(Overridden::Deny, exact(&[b'x'; TEXT_MAX + 1], false), 9);
    assert_eq!(Overrides::encode(&[key]).unwrap_err(), "KEY is longer than 1024 bytes");
    let many = vec![one(Overridden::Deny, exact(b"a", false), 9); OVERRIDES_MAX + 1];
    assert!(Overrides::encode(&many).unwrap_err().contains("at most 4096 overrides"));
    assert!(Overrides::decode(Overrides::encode(&many[1..]).unwrap()).is_ok());
}
