//! Building and reading segments.

use std::ffi::CStr;
use std::net::IpAddr;

use quickcheck::{Arbitrary, Gen};

use super::blocks::BlockItems;
use super::codes::{Sink, Sizes, SymbolKind};
use super::*;
use crate::sys::files;
use crate::trace::store::query::{Accepts, Address, Query, QueryResult};
use crate::trace::store::query_file::{DAMAGED_ADDRESSES, envelopes};
use crate::trace::store::sample::in_segment;
use crate::trace::store::{VERSIONS, key};
use crate::trace::{Envelope, Scheme};
use crate::versions::as_the_next;

const NAME: &CStr = c"00000001.segment";

/// Random envelopes, mostly with few different addresses.
#[derive(Clone, Debug)]
struct Any(Envelope);

fn pick<T: Clone>(any: &mut Gen, from: &[T]) -> T {
    any.choose(from).unwrap().clone()
}

fn address(any: &mut Gen) -> String {
    let small = ["", "a", "A", "postmaster", "b@c"];
    let local = if bool::arbitrary(any) { pick(any, &small).to_owned() } else { text(any) };
    let domains = ["", "@", "@example.org", "@EXAMPLE.org", "@mail.example.org", "@x.example.net"];
    let domain = if u8::arbitrary(any) < 250 { pick(any, &domains).to_owned() } else { text(any) };
    local + &domain
}

/// At most as long as in a log.
fn text(any: &mut Gen) -> String {
    String::arbitrary(any).chars().take(200).collect()
}

impl Arbitrary for Any {
    fn arbitrary(any: &mut Gen) -> Self {
        let time = match u8::arbitrary(any) {
            0 => i64::arbitrary(any),
            n => 1_700_000_000 + i64::from(n) * 100 + i64::from(u8::arbitrary(any)),
        };
        let sender = address(any);
        let id = match u8::arbitrary(any) % 5 {
            0 => String::new(),
            1 => text(any),
            2 => "1rABCD-0001x2-3Y".to_owned(),
            3 => format!("1rABCE-0001{:02}-3Y", u8::arbitrary(any) % 100),
            _ => format!("1rABCD-00000001x{:02}-3Y{:02}", 7, u8::arbitrary(any) % 100),
        };
        let client = match u8::arbitrary(any) % 4 {
            0 => None,
            1 => Some(IpAddr::from([192, 0, 2, u8::arbitrary(any)])),
            2 => Some(IpAddr::from(u32::arbitrary(any).to_be_bytes())),
            _ => Some(IpAddr::from(u128::arbitrary(any).to_be_bytes())),
        };
        let authenticated = match u8::arbitrary(any) % 4 {
            0 => String::new(),
            1 => sender.clone(),
            2 => dictionary::local_part(&sender).to_owned(),
            _ => text(any),
        };
        let recipients = (0..u8::arbitrary(any) % 4).map(|_| address(any)).collect();
        let partial = bool::arbitrary(any);
        Self(Envelope { time, id, sender, recipients, client, authenticated, partial })
    }
}

/// A directory with a key, for segments.
struct World {
    _folder: tempfile::TempDir,
    dir: SecureDir,
    key: DerivedKeys,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = SecureDir::open(folder.path(), &[c"exirate", c"trace"], true).unwrap();
        let key = key::DerivedKeys::open(&dir, true).unwrap();
        Self { _folder: folder, dir, key }
    }

    fn scheme(&self) -> Box<dyn Scheme> {
        Settings::default().scheme(&self.key.digest)
    }

    /// The file of a segment with these envelopes, with messages of many sizes.
    fn build(&self, envelopes: &[Envelope]) -> Vec<u8> {
        let scheme = self.scheme();
        let digests: Vec<_> = (envelopes.iter().zip(0_usize..))
            .map(|(_, n)| {
                let mut digester = scheme.digester();
                let words = (0..1 + n * 7 % 40).map(|word| format!("{n} has {word}, "));
                let text = words.collect::<String>();
                digester.add(crate::trace::Fragment::Text(&text));
                digester.finish()
            })
            .collect();
        let digests = digests.iter().map(Vec::as_slice);
        let messages = envelopes.iter().cloned().zip(digests).collect();
        let settings = Settings::default().encode();
        let origin = Origin { number: 1, first: 1, log: 7, settings, decode: 1, lost: 3 };
        build(messages, origin, scheme.as_ref(), &self.key).unwrap().unwrap()
    }

    fn open(&self, bytes: &[u8]) -> Result<Segment, LogFault> {
        let file = self.dir.create_file(NAME, 0o640).unwrap();
        files::write_start(&file, bytes).unwrap();
        Segment::open(&self.dir, &self.key, NAME).unwrap().unwrap()
    }
}

fn sorted(envelopes: &[Any]) -> Vec<Envelope> {
    let mut envelopes: Vec<_> = envelopes.iter().map(|one| one.0.clone()).collect();
    envelopes.sort_by_key(|envelope| envelope.time);
    envelopes
}

fn read(segment: &Segment, wanted: &Wanted<'_>) -> Vec<Envelope> {
    let (words, messages) = (Words::of(segment).unwrap(), Messages::of(segment).unwrap());
    let mut rows = Vec::new();
    let unread = messages.read(&words, wanted, &mut |row| {
        assert!(!row.damaged);
        rows.push(row.envelope);
    });
    assert_eq!((unread.damaged, unread.others), (vec![], 0));
    assert!(words.check() && messages.check_positions());
    rows
}

#[test]
fn envelopes_round_trip() {
    fn holds(envelopes: Vec<Any>) -> bool {
        let world = World::new();
        let mut all = sorted(&envelopes);
        let bytes = world.build(&all);
        let segment = world.open(&bytes).unwrap();
        assert!(segment.is_sound() && segment.tables_are_whole());
        let head = segment.head;
        assert_eq!((head.messages as usize, head.lost, head.log), (all.len(), 3, 7));
        segment.check_body(world.scheme().as_ref()).unwrap();
        // Messages with the same time keep their order.
        assert_eq!(read(&segment, &Wanted::default()), all);
        all.reverse();
        all.sort_by_key(|envelope| envelope.time);
        let again = world.open(&world.build(&all)).unwrap();
        read(&again, &Wanted::default()) == all
    }
    kit::quick_check().tests(100).quickcheck(holds as fn(Vec<Any>) -> bool);
}

#[test]
fn many_envelopes_round_trip_and_are_looked_up() {
    let mut any = kit::generator(10);
    let envelopes: Vec<_> = (0..1000).map(|_| Any::arbitrary(&mut any)).collect();
    let all = sorted(&envelopes);
    let world = World::new();
    let segment = world.open(&world.build(&all)).unwrap();
    assert_eq!(read(&segment, &Wanted::default()), all);
    let words = Words::of(&segment).unwrap();
    let addresses: std::collections::BTreeSet<&str> =
        all.iter().map(|envelope| envelope.sender.as_str()).collect();
    for address in addresses {
        let found = words.find(&address.to_ascii_uppercase()).unwrap();
        let same = |text: &str| text.eq_ignore_ascii_case(address);
        assert_eq!(Some(&found), words.matching(&same).as_ref(), "{address:?}");
        let wanted = Wanted { from: Some(&found), ..Wanted::default() };
        let expected: Vec<_> = all.iter().filter(|one| same(&one.sender)).cloned().collect();
        assert!(read(&segment, &wanted) == expected, "{address:?}");
    }
    for absent in ["absent@example.org", "a@absent.example", "a@", "", "\u{10FFFF}@\u{10FFFF}"] {
        let same = |text: &str| text.eq_ignore_ascii_case(absent);
        assert_eq!(words.find(absent), words.matching(&same), "{absent:?}");
    }
}

#[test]
fn selected_messages_are_read() {
    let mut any = kit::generator(10);
    let envelopes: Vec<_> = (0..700).map(|_| Any::arbitrary(&mut any)).collect();
    let all = sorted(&envelopes);
    let world = World::new();
    let segment = world.open(&world.build(&all)).unwrap();
    let words = Words::of(&segment).unwrap();
    let test = |text: &str| text.ends_with("@example.org");
    let to = words.matching(&test).unwrap();
    let id = "1rABCD-0001x2-3Y";
    let times = (1_700_001_000, 1_700_009_000);
    let few = [3, 127, 128, 500, 699];
    // Names that are stored, and senders and local parts, which are not.
    let is_name = |name: &str| name.len() < 2 || name.ends_with("@example.org");
    let wanted_name = Address::Test(Box::new(is_name));
    let auth = Authenticated::of(&words, &wanted_name).unwrap();
    // A sender, a sender's local part, and names that are several of these.
    let sent_as = |is: &dyn Fn(&Envelope) -> bool| {
        all.iter().find(|one| one.authenticated.len() > 3 && is(one)).unwrap().authenticated.clone()
    };
    let exact = [
        sent_as(&|one| one.authenticated == one.sender),
        sent_as(&|one| one.authenticated == dictionary::local_part(&one.sender)),
        "A".to_owned(),
        "PostMaster@example.org".to_owned(),
    ];
    let one_id = [id.to_owned()];
    let mut seen = 0;
    for bits in 0..32 {
        let has = |bit: u32| bits >> bit & 1 == 1;
        let wanted = Wanted {
            times: has(0).then_some(times),
            from: None,
            to: has(1).then_some(&to),
            auth: has(4).then_some(&auth),
            ids: if has(2) { &one_id } else { &[] },
            messages: has(3).then_some(&few),
            first: None,
        };
        let expected: Vec<_> = (0..)
            .zip(&all)
            .filter(|(n, one)| {
                (!has(0) || (times.0..=times.1).contains(&one.time))
                    && (!has(1) || one.recipients.iter().any(|address| test(address)))
                    && (!has(2) || one.id == id)
                    && (!has(3) || few.contains(n))
                    && (!has(4) || is_name(&one.authenticated))
            })
            .map(|(_, one)| one.clone())
            .collect();
        seen += expected.len();
        assert_eq!(read(&segment, &wanted), expected, "{bits:b}");
    }
    assert!(seen > 1000, "{seen}");
    for name in exact {
        let expected: Vec<_> = all
            .iter()
            .filter(|one| one.authenticated.eq_ignore_ascii_case(&name))
            .cloned()
            .collect();
        assert!(!expected.is_empty(), "{name}");
        let auth = Address::Is(name.clone());
        let auth = Authenticated::of(&words, &auth).unwrap();
        let wanted = Wanted { auth: Some(&auth), ..Wanted::default() };
        assert_eq!(read(&segment, &wanted), expected, "{name}");
    }
    assert!(segment.head.may_have_id(id) && !segment.head.may_have_id("1rABZZ-0001x2-3Y"));
}

#[test]
fn positions_are_those_of_the_body() {
    let all: Vec<_> =
        (0..2500).map(|n| Envelope { time: n, id: n.to_string(), ..Envelope::default() }).collect();
    let world = World::new();
    let segment = world.open(&world.build(&all)).unwrap();
    assert!(segment.head.runs > 3, "{}", segment.head.runs);
    let messages = Messages::of(&segment).unwrap();
    let positions: Vec<_> = (0..2500).collect();
    let mut found: Vec<_> =
        messages.at_positions(&positions).into_iter().collect::<Option<Vec<_>>>().unwrap();
    assert_ne!(found, positions);
    assert_eq!(messages.at_positions(&[7, 2499]), [Some(found[7]), Some(found[2499])]);
    found.sort_unstable();
    assert_eq!(found, positions);
    assert_eq!(messages.at_positions(&[2500]), [None]);
}

#[test]
fn a_few_positions_are_those_of_all() {
    let all: Vec<_> = (0..20_000)
        .map(|n| Envelope { time: n, id: n.to_string(), ..Envelope::default() })
        .collect();
    let world = World::new();
    let segment = world.open(&world.build(&all)).unwrap();
    let messages = Messages::of(&segment).unwrap();
    let positions: Vec<_> = (0..20_000).collect();
    let found = messages.at_positions(&positions);
    for start in 0..100 {
        let few: Vec<u32> = (0..4).map(|n| start + n * 6_600).collect();
        let expected: Vec<_> = few.iter().map(|&one| found[one as usize]).collect();
        assert_eq!(messages.at_positions(&few), expected);
    }
    assert!(found.iter().all(Option::is_some));
    assert_eq!(messages.at_positions(&[20_000]), [None]);
}

#[test]
fn another_key_and_a_later_version_are_reported() {
    let world = World::new();
    let bytes = world.build(&[Envelope::default()]);
    let other = World::new();
    assert_eq!(other.open(&bytes).unwrap_err(), LogFault::OtherKey);
    let mut later = bytes.clone();
    let second = later.len() - HEAD_BYTES - CRC_BYTES;
    later[8] = VERSIONS.newest as u8 + 1;
    // One copy may be damaged.
    assert!(!world.open(&later).unwrap().whole);
    later[second + 8] = VERSIONS.newest as u8 + 1;
    let fault = world.open(&later).unwrap_err();
    assert!(matches!(fault, LogFault::Version(version) if version.is_later()));
    // The tags cover the version.
    assert_eq!(as_the_next(|| world.open(&later)).unwrap_err(), LogFault::Damaged);
    assert!(as_the_next(|| world.open(&bytes)).unwrap().whole);
    for length in [0, 1, 47, 48, HEAD_BYTES - 1] {
        assert_eq!(world.open(&bytes[..length]).unwrap_err(), LogFault::Damaged);
    }
}

/// A block of lengths that is damaged hides which messages are selected, but only those with its
/// addresses are damaged.
#[test]
fn a_damaged_block_of_lengths_loses_only_its_own_addresses() {
    let count = 3 * many::EACH as i64;
    let all: Vec<_> = (0..count)
        .map(|n| {
            let sender = format!("a{n:05}@example.org");
            let authenticated = sender.clone();
            Envelope { time: n, sender, authenticated, ..Envelope::default() }
        })
        .collect();
    let world = World::new();
    let mut bytes = world.build(&all);
    let whole = world.open(&bytes).unwrap();
    // The codes of authenticated ids and of clients have one block each.
    let block = Messages::of(&whole).unwrap().lengths_block(2).unwrap();
    bytes[whole.parts.sections[many::LENGTHS].start + block.start] ^= 1;
    drop(whole);
    let segment = world.open(&bytes).unwrap();
    for n in [5, count as usize - 5] {
        let is_lost = n == 5;
        let address = || Some(Address::Is(all[n].sender.clone()));
        for query in [
            Query { from: address(), ..Query::default() },
            Query { auth: address(), ..Query::default() },
        ] {
            let mut damage = Vec::new();
            let found = envelopes(&segment, &query, None, Some(1), &mut damage);
            let these = || found.results.iter().filter(|one| one.envelope == all[n]);
            let damaged = found.results.iter().filter(|one| one.damaged).count();
            assert_eq!((found.unreadable, found.others), (0, 0));
            assert_eq!(these().count(), usize::from(!is_lost), "{n}");
            assert_eq!(found.results.len(), damaged + these().count(), "{n}");
            assert!(damaged <= many::EACH && (damaged > 0) == is_lost, "{n}: {damaged}");
            let said = if is_lost { vec![DAMAGED_ADDRESSES.to_owned()] } else { Vec::new() };
            assert_eq!(damage, said, "{n}");
        }
    }
    // What is left out of a sample is reported.
    let accepts = |result: &QueryResult| result.envelope.sender == all[5].sender;
    let query = Query { accepts: Some(Accepts(Box::new(accepts))), ..Query::default() };
    let mut damage = Vec::new();
    let found = in_segment(&segment, &query, &mut damage);
    assert_eq!((found.len(), damage), (count as usize, vec![DAMAGED_ADDRESSES.to_owned()]));
}

/// Prints the sizes of the envelopes of an ordinary site.
#[test]
fn envelopes_of_an_ordinary_site_are_small() {
    let mut site = crate::trace::store::sample_envelopes::Site::new(1);
    let all: Vec<_> = (0..16_384).map(|_| site.envelope()).collect();
    let world = World::new();
    let segment = world.open(&world.build(&all)).unwrap();
    assert!(read(&segment, &Wanted::default()) == all);
    let head = segment.head;
    let each = |bytes: u64| bytes as f64 / 16_384.0;
    let plain: usize = all.iter().map(|one| super::super::wire::encode(one).len()).sum();
    let names = [
        "domains",
        "addresses",
        "names",
        "IPv4",
        "IPv6",
        "lengths",
        "envelopes",
        "senders",
        "authenticated ids",
        "positions",
    ];
    for (name, bytes) in names.iter().zip(head.sections) {
        println!("{name}: {:.2}", each(bytes.into()));
    }
    println!(
        "tables, twice: {:.2} {:.2}",
        each(2 * u64::from(head.tables[0])),
        each(2 * u64::from(head.tables[1]))
    );
    println!(
        "counts: {} {} {} {} {} {}",
        head.domains, head.addresses, head.names, head.fours, head.sixes, head.runs
    );
    let total = each(segment.bytes() - head.body);
    println!("a message: {total:.2}, in the log: {:.2}", each(plain as u64));
    assert!(total < 20.0, "{total}");
}

/// Counts the bits of the best simple code: for a symbol, the bits of the
/// largest one; for a number, groups of the best width for its kind, with one
/// bit each that says whether another follows.
struct Simple {
    sizes: Sizes,
    bits: u64,
    /// For each kind of number, its size with groups of 1 to 8 bits.
    numbers: std::collections::BTreeMap<usize, [u64; 8]>,
}

impl Sink for Simple {
    fn symbol(&mut self, what: SymbolKind, _: u32) {
        let symbols = what.symbols(&self.sizes);
        self.bits += u64::from(usize::BITS - (symbols - 1).leading_zeros());
    }

    fn bits(&mut self, _: u64, bits: u32) {
        self.bits += u64::from(bits);
    }

    fn number(&mut self, what: SymbolKind, number: u64) {
        let bits = u64::BITS - number.leading_zeros();
        let all = self.numbers.entry(what as usize).or_default();
        for (sum, width) in all.iter_mut().zip(1..) {
            *sum += u64::from(bits.div_ceil(width).max(1) * (width + 1));
        }
    }
}

fn put_all(things: &impl BlockItems, sink: &mut Simple) {
    things.put(0..things.count(), sink);
}

/// The gain of Huffman codes over the best simple code, including their tables:
/// 4.3 bytes a message, a quarter of the envelope.
#[test]
fn codes_are_worth_their_tables() {
    let mut site = crate::trace::store::sample_envelopes::Site::new(1);
    let all: Vec<_> = (0..16_384).map(|_| site.envelope()).collect();
    let world = World::new();
    let segment = world.open(&world.build(&all)).unwrap();
    let words = super::dictionary::Words::of(&all);
    let oldest = all[0].time;
    let rows = super::messages::Messages { envelopes: &all, words: &words, oldest };
    let mut simple = Simple { sizes: segment.head.sizes(), bits: 0, numbers: Default::default() };
    put_all(&words.domains, &mut simple);
    put_all(&words.addresses, &mut simple);
    put_all(&words.names, &mut simple);
    put_all(&words.fours, &mut simple);
    put_all(&words.sixes, &mut simple);
    put_all(&rows, &mut simple);
    put_all(&super::messages::Senders(&rows), &mut simple);
    put_all(&super::messages::NameColumn(&rows), &mut simple);
    let numbers: u64 = simple.numbers.values().map(|all| all.iter().min().unwrap()).sum();
    let simple = (simple.bits + numbers) as f64 / 8.0 / 16_384.0;
    let head = segment.head;
    let sections: u32 = head.sections.iter().sum();
    let coded = (u64::from(sections) + 2 * head.table_bytes()) as f64 / 16_384.0;
    println!("a message: {coded:.2} bytes coded, {simple:.2} by a simple code");
    assert!(simple - coded > 3.0 && coded < 0.9 * simple, "{coded} {simple}");
}
