//! Lists of overrides and globs: damaged lists are refused or decide as a naive
//! evaluator does, and a compiled glob matches what an independent matcher does.
#![no_main]

use arbitrary::Arbitrary;
use exirate::engine::{Kind, Overridden, RecordKey};
use exirate::identity::fold::Folding;
use exirate::store::{FOREVER, Override, Overrides, Target, compile_glob, deciding};
use libfuzzer_sys::fuzz_target;

/// The sizes of the header of a list and of the smallest entry, and the offsets of its
/// size and checksum.
const HEADER: usize = 24;
const ENTRY: usize = 28;
const SIZE: usize = 16;
const CRC: usize = 20;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    /// Bytes as a list.
    bytes: &'a [u8],
    list: Vec<One<'a>>,
    /// Changes of the encoded list.
    changes: Vec<(u16, u8)>,
    identities: [&'a [u8]; 2],
    second: i64,
    policy: bool,
}

#[derive(Arbitrary, Debug)]
struct One<'a> {
    deny: bool,
    folded: bool,
    case: bool,
    plus: bool,
    dots: Vec<&'a str>,
    qualify: Option<&'a str>,
    until: Option<i64>,
    glob: bool,
    key: &'a str,
}

fuzz_target!(|input: Input<'_>| {
    decode(input.bytes.to_vec(), &input);
    decode(sealed(input.bytes), &input);
    let list: Vec<Override> =
        input.list.iter().filter_map(|one| to_override(one, &input)).collect();
    let Ok(encoded) = Overrides::encode(&list) else { return };
    assert_eq!(decode(encoded.clone(), &input), Some(list));
    if input.changes.is_empty() {
        return;
    }
    let mut changed = encoded.clone();
    for &(at, byte) in &input.changes {
        let at = usize::from(at) % changed.len();
        changed[at] = byte;
    }
    if changed != encoded {
        assert_eq!(decode(changed.clone(), &input), None, "the checksum does not match");
    }
    decode(sealed(&changed), &input);
});

/// The list in these bytes, if it is accepted. It decides as the naive evaluator does,
/// and is the same when it is encoded again.
fn decode(bytes: Vec<u8>, input: &Input<'_>) -> Option<Vec<Override>> {
    let size = bytes.len();
    let found = Overrides::decode(bytes).ok()?;
    let list = found.list();
    assert_eq!(found.is_empty(), list.is_empty());
    assert!(list.len() * ENTRY + HEADER <= size, "{} overrides are in {size} bytes", list.len());
    for identity in input.identities {
        let key = key_of(identity, input.policy);
        let naive = deciding(&list, &key, input.second).map(|one| one.overridden);
        let candidates = found.find(&key, &mut String::new());
        assert_eq!(candidates.at(input.second), naive, "{identity:?} {list:?}");
    }
    if let Ok(again) = Overrides::encode(&list) {
        assert_eq!(Overrides::decode(again).map(|again| again.list()).ok(), Some(list.clone()));
    }
    Some(list)
}

/// The key of a record of this identity.
fn key_of(identity: &[u8], policy: bool) -> RecordKey<'_> {
    let kind = if policy { Kind::Policy } else { Kind::Spec };
    RecordKey { kind, ..identity.into() }
}

/// The override that `one` describes, if its key is one. A glob is compared with the
/// independent matcher.
fn to_override(one: &One<'_>, input: &Input<'_>) -> Option<Override> {
    let text =
        |text: &str| text.get(..text.floor_char_boundary(100)).unwrap_or_default().to_owned();
    let folding = Folding {
        case: one.case,
        plus: one.plus,
        dots: one.dots.iter().take(100).map(|domain| text(domain)).collect(),
        qualify: one.qualify.map(text).filter(|domain| !domain.is_empty()),
        ..Folding::default()
    };
    let folding = folding.without_masks();
    let target = if one.glob {
        let alternatives = compile_glob(one.key, one.case).ok()?;
        let target = Target::Glob { alternatives, folding: folding.clone() };
        let node = glob::parse(one.key.as_bytes());
        for identity in input.identities {
            let folded = folding.folded_bytes(identity, &mut String::new()).to_vec();
            let expected = glob::matches(&node, &folded, one.case);
            assert_eq!(
                target.applies_to(&key_of(identity, false)),
                expected,
                "{:?} {identity:?}",
                one.key
            );
        }
        target
    } else {
        Target::Exact {
            key: one.key.into(),
            counted_as: one.plus.then(|| b"2001:db8::/64".to_vec()),
            folding: one.folded.then_some(folding),
        }
    };
    Some(Override {
        overridden: if one.deny { Overridden::Deny } else { Overridden::Allow },
        target,
        argument: one.key.to_owned(),
        until: one.until.unwrap_or(FOREVER),
        since: 5,
        reason: "reason".to_owned(),
        who: "uid=0".to_owned(),
    })
}

/// `bytes` with a size and a checksum that fit, if they are long enough.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.len() < HEADER {
        return bytes;
    }
    let magic_and_version: [u8; 12] = *b"EXIRATEO\x01\0\0\0";
    bytes[..12].copy_from_slice(&magic_and_version);
    let size = bytes.len() as u32;
    bytes[SIZE..CRC].copy_from_slice(&size.to_le_bytes());
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..CRC]);
    hasher.update(&bytes[HEADER..]);
    bytes[CRC..HEADER].copy_from_slice(&hasher.finalize().to_le_bytes());
    bytes
}

/// A matcher of globs that are known to be right: it follows all ways through the glob at
/// once, where the compiled ones take one alternative after the other and go back.
mod glob {
    /// A part of a glob.
    pub enum Node {
        Byte(u8),
        AnyByte,
        AnyString,
        Class { negated: bool, ranges: Vec<(u8, u8)> },
        Either(Vec<Vec<Node>>),
    }

    pub fn parse(glob: &[u8]) -> Vec<Node> {
        let mut at = 0;
        sequence(glob, &mut at, false)
    }

    fn sequence(glob: &[u8], at: &mut usize, in_braces: bool) -> Vec<Node> {
        let mut nodes = Vec::new();
        while let Some(&byte) = glob.get(*at) {
            if in_braces && (byte == b',' || byte == b'}') {
                break;
            }
            *at += 1;
            nodes.push(match byte {
                b'*' => Node::AnyString,
                b'?' => Node::AnyByte,
                b'[' => class(glob, at),
                b'{' => {
                    let mut all = Vec::new();
                    loop {
                        all.push(sequence(glob, at, true));
                        *at += 1;
                        if glob[*at - 1] == b'}' {
                            break;
                        }
                    }
                    Node::Either(all)
                }
                b'\\' => {
                    *at += 1;
                    Node::Byte(glob[*at - 1])
                }
                byte => Node::Byte(byte),
            });
        }
        nodes
    }

    fn class(glob: &[u8], at: &mut usize) -> Node {
        let negated = matches!(glob[*at], b'!' | b'^');
        *at += usize::from(negated);
        let end = *at + 1 + glob[*at + 1..].iter().position(|&byte| byte == b']').expect("a `]`");
        let mut inside = &glob[*at..end];
        *at = end + 1;
        let mut ranges: Vec<(u8, u8)> = Vec::new();
        while let [first, rest @ ..] = inside {
            inside = match (ranges.last_mut(), first, rest) {
                (Some(range), b'-', [last, rest @ ..]) => {
                    range.1 = *last;
                    rest
                }
                _ => {
                    ranges.push((*first, *first));
                    rest
                }
            };
        }
        Node::Class { negated, ranges }
    }

    pub fn matches(nodes: &[Node], text: &[u8], fold: bool) -> bool {
        let mut starts = vec![false; text.len() + 1];
        starts[0] = true;
        follow(nodes, text, fold, starts)[text.len()]
    }

    /// Where matches of all `nodes` may end that begin at `starts`.
    fn follow(nodes: &[Node], text: &[u8], fold: bool, starts: Vec<bool>) -> Vec<bool> {
        nodes.iter().fold(starts, |starts, node| {
            let step = |fits: &dyn Fn(u8) -> bool| {
                let mut ends = vec![false; starts.len()];
                for (at, &byte) in text.iter().enumerate() {
                    ends[at + 1] = starts[at] && fits(byte);
                }
                ends
            };
            match node {
                Node::Byte(wanted) => step(&|byte| same(*wanted, byte, fold)),
                Node::AnyByte => step(&|_| true),
                Node::Class { negated, ranges } => {
                    step(&|byte| within(ranges, byte, fold) != *negated)
                }
                Node::AnyString => {
                    let first = starts.iter().position(|&is| is).unwrap_or(starts.len());
                    (0..starts.len()).map(|at| at >= first).collect()
                }
                Node::Either(all) => {
                    // An empty alternative counts for nothing, unless all are empty.
                    let some = all.iter().any(|nodes| can_be_long(nodes));
                    let mut ends = vec![false; starts.len()];
                    for nodes in all.iter().filter(|nodes| !some || can_be_long(nodes)) {
                        let found = follow(nodes, text, fold, starts.clone());
                        ends.iter_mut().zip(found).for_each(|(end, found)| *end |= found);
                    }
                    ends
                }
            }
        })
    }

    /// Whether there is anything in `nodes` besides empty braces.
    fn can_be_long(nodes: &[Node]) -> bool {
        nodes.iter().any(|node| match node {
            Node::Either(all) => all.iter().any(|nodes| can_be_long(nodes)),
            _ => true,
        })
    }

    fn same(a: u8, b: u8, fold: bool) -> bool {
        if fold { a.eq_ignore_ascii_case(&b) } else { a == b }
    }

    fn within(ranges: &[(u8, u8)], byte: u8, fold: bool) -> bool {
        let is_in = |byte: u8| ranges.iter().any(|&(first, last)| (first..=last).contains(&byte));
        is_in(byte)
            || fold && (is_in(byte.to_ascii_lowercase()) || is_in(byte.to_ascii_uppercase()))
    }
}
