//! Looking up the words of a segment, by number and by value.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

use super::Segment;
use super::bits::BitReader;
use super::blocks::Table;
use super::codes::{Decoders, Reader, WORDS, What};
use super::words::{EACH, SENDER, SHORTCUTS, TEXT, join, local_part, split};

/// The sections, in order.
const DOMAINS: usize = 0;
const ADDRESSES: usize = 1;
const NAMES: usize = 2;
const FOURS: usize = 3;
const SIXES: usize = 4;
/// The number of these sections.
const COUNT: usize = 5;

/// Blocks that were read.
#[derive(Debug)]
struct Cache<T>(RefCell<BTreeMap<usize, Option<Rc<T>>>>);

impl<T> Cache<T> {
    fn new() -> Self {
        Self(RefCell::default())
    }

    /// A block, read by `read` the first time; `None` if it is damaged.
    fn get(&self, number: usize, read: impl FnOnce() -> Option<T>) -> Option<Rc<T>> {
        if let Some(cached) = self.0.borrow().get(&number) {
            return cached.clone();
        }
        let found = read().map(Rc::new);
        self.0.borrow_mut().insert(number, found.clone());
        found
    }
}

/// A list of texts.
#[derive(Debug, Default)]
struct Texts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Texts {
    fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }

    fn get(&self, number: usize) -> Option<&[u8]> {
        let before = number.checked_sub(1).and_then(|before| self.ends.get(before));
        self.bytes.get(before.copied().unwrap_or(0)..*self.ends.get(number)?)
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.ends.len()).filter_map(|number| self.get(number))
    }
}

/// Addresses: the numbers of their domains, and their local parts.
#[derive(Debug, Default)]
struct Addresses {
    domains: Vec<u32>,
    locals: Texts,
}

/// The words of a segment.
#[derive(Debug)]
pub(in super::super) struct Words<'a> {
    segment: &'a Segment,
    decoders: Decoders,
    tables: [Table; COUNT],
    domains: Cache<Texts>,
    addresses: Cache<Addresses>,
    names: Cache<Texts>,
    fours: Cache<Vec<u32>>,
    sixes: Cache<Vec<u128>>,
    /// Whether a block that was read is damaged.
    damaged: Cell<bool>,
}

impl<'a> Words<'a> {
    /// The words of a segment; `None` if both copies of their table are
    /// damaged.
    pub(in super::super) fn of(segment: &'a Segment) -> Option<Self> {
        let bytes = segment.table(0)?;
        let mut bits = BitReader::new(&bytes);
        let head = &segment.head;
        let counts = [head.domains, head.addresses, head.names, head.fours, head.sixes];
        let mut tables = [const { None }; COUNT];
        for (table, count) in tables.iter_mut().zip(counts) {
            *table = Some(Table::read(count, EACH, &mut bits)?);
        }
        let [Some(domains), Some(addresses), Some(names), Some(fours), Some(sixes)] = tables else {
            return None;
        };
        let decoders = Decoders::read(&WORDS, &head.sizes(), &mut bits)?;
        Some(Self {
            segment,
            decoders,
            tables: [domains, addresses, names, fours, sixes],
            domains: Cache::new(),
            addresses: Cache::new(),
            names: Cache::new(),
            fours: Cache::new(),
            sixes: Cache::new(),
            damaged: Cell::new(false),
        })
    }

    /// Whether a block that was read is damaged.
    pub(in super::super) fn is_damaged(&self) -> bool {
        self.damaged.get()
    }

    /// Reads all words; returns whether all are sound.
    pub(in super::super) fn check(&self) -> bool {
        let blocks = |section: usize| 0..self.tables.get(section).map_or(0, Table::len);
        let sound = blocks(DOMAINS).all(|n| self.domains(n).is_some())
            && (0..self.segment.head.addresses).all(|n| self.address(n).is_some())
            && blocks(NAMES).all(|n| self.names(n).is_some())
            && blocks(FOURS).all(|n| self.fours(n).is_some())
            && blocks(SIXES).all(|n| self.sixes(n).is_some());
        sound && !self.is_damaged()
    }

    /// The bytes of a block, and the number of words it should contain.
    fn block(&self, section: usize, number: usize) -> Option<(Vec<u8>, usize)> {
        let found = self.sound_block(section, number);
        if found.is_none() {
            self.damaged.set(true);
        }
        found
    }

    fn sound_block(&self, section: usize, number: usize) -> Option<(Vec<u8>, usize)> {
        let head = &self.segment.head;
        let counts = [head.domains, head.addresses, head.names, head.fours, head.sixes];
        let bytes = self.segment.block(section, self.tables.get(section)?.block(number)?)?;
        let before = number.checked_mul(EACH)?;
        let count = (*counts.get(section)? as usize).checked_sub(before)?.min(EACH);
        Some((bytes, count))
    }

    /// Whether the tags of all blocks are right.
    pub(super) fn is_authentic(&self) -> bool {
        let mut sections = (0..).zip(&self.tables);
        sections.all(|(section, table)| table.is_authentic(self.segment, section))
    }

    /// The texts of a block of domains or names, up to `limit`.
    fn texts(&self, section: usize, number: usize, limit: usize) -> Option<Texts> {
        let (bytes, count) = self.block(section, number)?;
        let mut reader = Reader::new(&self.decoders, &bytes);
        let (mut text, mut texts) = (Vec::new(), Texts::default());
        for _ in 0..count.min(limit) {
            reader.text(TEXT, &mut text)?;
            texts.push(&text);
        }
        Some(texts)
    }

    fn domains(&self, number: usize) -> Option<Rc<Texts>> {
        self.domains.get(number, || self.texts(DOMAINS, number, EACH))
    }

    fn names(&self, number: usize) -> Option<Rc<Texts>> {
        self.names.get(number, || self.texts(NAMES, number, EACH))
    }

    /// A block of addresses, up to `limit`.
    fn some_addresses(&self, number: usize, limit: usize) -> Option<Addresses> {
        let (bytes, count) = self.block(ADDRESSES, number)?;
        let mut reader = Reader::new(&self.decoders, &bytes);
        let (mut text, mut domain) = (Vec::new(), 0_u64);
        let mut addresses = Addresses::default();
        for _ in 0..count.min(limit) {
            domain = domain.checked_add(reader.number(What::Domain)?)?;
            reader.text(TEXT, &mut text)?;
            addresses.domains.push(u32::try_from(domain).ok()?);
            addresses.locals.push(&text);
        }
        Some(addresses)
    }

    fn addresses(&self, number: usize) -> Option<Rc<Addresses>> {
        self.addresses.get(number, || self.some_addresses(number, EACH))
    }

    fn fours(&self, number: usize) -> Option<Rc<Vec<u32>>> {
        self.fours.get(number, || {
            let (bytes, count) = self.block(FOURS, number)?;
            let mut reader = Reader::new(&self.decoders, &bytes);
            let mut address = 0_u32;
            (0..count)
                .map(|_| {
                    let step = u32::try_from(reader.number(What::Four)?).ok()?;
                    address = address.checked_add(step)?;
                    Some(address)
                })
                .collect()
        })
    }

    fn sixes(&self, number: usize) -> Option<Rc<Vec<u128>>> {
        self.sixes.get(number, || {
            let (bytes, count) = self.block(SIXES, number)?;
            let mut reader = Reader::new(&self.decoders, &bytes);
            let mut high = 0_u64;
            (0..count)
                .map(|_| {
                    high = high.checked_add(reader.number(What::Six)?)?;
                    Some(u128::from(high) << 64 | u128::from(reader.number(What::Low)?))
                })
                .collect()
        })
    }

    /// The address with this number; `None` if it is damaged.
    pub(super) fn address(&self, number: u32) -> Option<String> {
        let number = number as usize;
        let addresses = self.addresses(number / EACH)?;
        let domain = *addresses.domains.get(number % EACH)? as usize;
        let domains = self.domains(domain / EACH)?;
        join(addresses.locals.get(number % EACH)?, domains.get(domain % EACH)?)
    }

    /// Whether the address with this number has this local part, ignoring case; `None` if it is
    /// damaged.
    pub(super) fn has_local_part(&self, number: u32, wanted: &str) -> Option<bool> {
        let number = number as usize;
        let addresses = self.addresses(number / EACH)?;
        let local = addresses.locals.get(number % EACH)?;
        Some(local.eq_ignore_ascii_case(wanted.as_bytes()))
    }

    /// The client with this number, 0 for none; `None` if it is damaged.
    pub(super) fn client(&self, number: u32) -> Option<Option<IpAddr>> {
        let Some(number) = (number as usize).checked_sub(1) else { return Some(None) };
        let client = match number.checked_sub(self.segment.head.fours as usize) {
            None => self.fours(number / EACH)?.get(number % EACH)?.to_be_bytes().into(),
            Some(number) => self.sixes(number / EACH)?.get(number % EACH)?.to_be_bytes().into(),
        };
        Some(Some(client))
    }

    /// The authenticated id with this number, for this sender; `None` if it is
    /// damaged.
    pub(super) fn name(&self, number: u32, sender: &str) -> Option<String> {
        let Some(number) = number.checked_sub(SHORTCUTS) else {
            let name = match number {
                0 => "",
                SENDER => sender,
                _ => local_part(sender),
            };
            return Some(name.to_owned());
        };
        let number = number as usize;
        String::from_utf8(self.names(number / EACH)?.get(number % EACH)?.to_vec()).ok()
    }

    /// The numbers of an address, ignoring case, in order; `None` if damage
    /// prevents the lookup.
    pub(in super::super) fn find(&self, address: &str) -> Option<Vec<u32>> {
        let (local, domain) = split(address);
        let (local, domain) = (local.to_ascii_lowercase(), domain.to_ascii_lowercase());
        let mut found = Vec::new();
        let first = |block| Some(self.texts(DOMAINS, block, 1)?.get(0)?.to_ascii_lowercase());
        let before = |block| Some(first(block)? < domain);
        let blocks = self.tables.get(DOMAINS).map_or(0, Table::len);
        let mut domains = Vec::new();
        'domains: for block in first_block(blocks, before)?..blocks {
            for (text, n) in self.domains(block)?.iter().zip(0..) {
                match text.to_ascii_lowercase().cmp(&domain) {
                    Ordering::Less => {}
                    Ordering::Equal => domains.push((block * EACH + n) as u32),
                    Ordering::Greater => break 'domains,
                }
            }
        }
        for domain in domains {
            self.find_local(domain, &local, &mut found)?;
        }
        Some(found)
    }

    /// Adds the numbers of matching addresses in a domain.
    fn find_local(&self, domain: u32, local: &[u8], found: &mut Vec<u32>) -> Option<()> {
        let order = |number: u32, text: &[u8]| {
            number.cmp(&domain).then_with(|| text.to_ascii_lowercase().as_slice().cmp(local))
        };
        let before = |block| {
            let first = self.some_addresses(block, 1)?;
            Some(order(*first.domains.first()?, first.locals.get(0)?) == Ordering::Less)
        };
        let blocks = self.tables.get(ADDRESSES).map_or(0, Table::len);
        for block in first_block(blocks, before)?..blocks {
            let addresses = self.some_addresses(block, EACH)?;
            let all = addresses.domains.iter().zip(addresses.locals.iter());
            for ((&number, text), n) in all.zip(0..) {
                match order(number, text) {
                    Ordering::Less => {}
                    Ordering::Equal => found.push((block * EACH + n) as u32),
                    Ordering::Greater => return Some(()),
                }
            }
        }
        Some(())
    }

    /// The number of addresses.
    pub(super) fn addresses_count(&self) -> usize {
        self.segment.head.addresses as usize
    }

    /// The numbers of the authenticated ids for which `test` is true, or of none, in order;
    /// `None` if some are damaged. Those that are the sender or its local part are not stored.
    pub(super) fn matching_names(&self, test: &dyn Fn(&str) -> bool) -> Option<Vec<u32>> {
        let mut found = Vec::new();
        found.extend(test("").then_some(0));
        for number in 0..self.segment.head.names {
            let number = number.checked_add(SHORTCUTS)?;
            if test(&self.name(number, "")?) {
                found.push(number);
            }
        }
        Some(found)
    }

    /// The numbers of all addresses for which `test` is true, in order; `None`
    /// if some are damaged.
    pub(in super::super) fn matching(&self, test: &dyn Fn(&str) -> bool) -> Option<Vec<u32>> {
        let mut found = Vec::new();
        for number in 0..self.segment.head.addresses {
            if test(&self.address(number)?) {
                found.push(number);
            }
        }
        Some(found)
    }
}

/// The last block that begins before the value, or the first block.
fn first_block(blocks: usize, mut before: impl FnMut(usize) -> Option<bool>) -> Option<usize> {
    let (mut low, mut high) = (0, blocks);
    while low < high {
        let middle = low.midpoint(high);
        if before(middle)? {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Some(low.saturating_sub(1))
}
