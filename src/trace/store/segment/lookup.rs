//! Reading the words of a segment: by their numbers, and the numbers of words.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

use super::super::codec::checksum;
use super::Segment;
use super::bits::BitReader;
use super::blocks::Table;
use super::codes::{Decoders, Reader, WORDS, What};
use super::words::{EACH, SHORTCUTS, TEXT, join, local_part, split};

/// The sections, in order.
const DOMAINS: usize = 0;
const ADDRESSES: usize = 1;
const NAMES: usize = 2;
const FOURS: usize = 3;
const SIXES: usize = 4;
/// How many they are.
const COUNT: usize = 5;

/// Blocks that were read.
#[derive(Debug)]
struct Cache<T>(RefCell<BTreeMap<usize, Option<Rc<Vec<T>>>>>);

impl<T> Cache<T> {
    fn new() -> Self {
        Self(RefCell::default())
    }

    /// A block, read by `read` where it was not yet; `None` where it is
    /// damaged.
    fn get(&self, number: usize, read: impl FnOnce() -> Option<Vec<T>>) -> Option<Rc<Vec<T>>> {
        if let Some(known) = self.0.borrow().get(&number) {
            return known.clone();
        }
        let found = read().map(Rc::new);
        self.0.borrow_mut().insert(number, found.clone());
        found
    }
}

/// The words of a segment.
#[derive(Debug)]
pub(in super::super) struct Words<'a> {
    segment: &'a Segment,
    decoders: Decoders,
    tables: [Table; COUNT],
    domains: Cache<Vec<u8>>,
    addresses: Cache<Option<String>>,
    names: Cache<Vec<u8>>,
    fours: Cache<u32>,
    sixes: Cache<u128>,
    /// A block that was to be read is damaged.
    damaged: Cell<bool>,
}

impl<'a> Words<'a> {
    /// Those of a segment; `None` where both copies of their table are damaged.
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

    /// Whether something that was to be read is damaged.
    pub(in super::super) fn is_damaged(&self) -> bool {
        self.damaged.get()
    }

    /// Reads all that there is; whether all is sound.
    pub(in super::super) fn check(&self) -> bool {
        let blocks = |section: usize| 0..self.tables.get(section).map_or(0, Table::len);
        let sound = blocks(DOMAINS).all(|n| self.domains(n).is_some())
            && blocks(ADDRESSES)
                .all(|n| self.addresses(n).is_some_and(|all| all.iter().all(Option::is_some)))
            && blocks(NAMES).all(|n| self.names(n).is_some())
            && blocks(FOURS).all(|n| self.fours(n).is_some())
            && blocks(SIXES).all(|n| self.sixes(n).is_some());
        sound && !self.is_damaged()
    }

    /// The bytes of a block, and how many words it should have.
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
        let (range, crc) = self.tables.get(section)?.block(number)?;
        let bytes = self.segment.section(section, range)?;
        let before = number.checked_mul(EACH)?;
        let count = (*counts.get(section)? as usize).checked_sub(before)?.min(EACH);
        (checksum(0, &bytes) == crc).then_some((bytes, count))
    }

    /// The texts of a block of domains or names, up to `most`.
    fn texts(&self, section: usize, number: usize, most: usize) -> Option<Vec<Vec<u8>>> {
        let (bytes, count) = self.block(section, number)?;
        let mut reader = Reader::new(&self.decoders, &bytes);
        let mut text = Vec::new();
        (0..count.min(most))
            .map(|_| {
                reader.text(TEXT, &mut text)?;
                Some(text.clone())
            })
            .collect()
    }

    fn domains(&self, number: usize) -> Option<Rc<Vec<Vec<u8>>>> {
        self.domains.get(number, || self.texts(DOMAINS, number, EACH))
    }

    fn names(&self, number: usize) -> Option<Rc<Vec<Vec<u8>>>> {
        self.names.get(number, || self.texts(NAMES, number, EACH))
    }

    /// The numbers of domains, and the local parts, of a block of addresses, up
    /// to `most`.
    fn locals(&self, number: usize, most: usize) -> Option<Vec<(u32, Vec<u8>)>> {
        let (bytes, count) = self.block(ADDRESSES, number)?;
        let mut reader = Reader::new(&self.decoders, &bytes);
        let (mut text, mut domain) = (Vec::new(), 0_u64);
        (0..count.min(most))
            .map(|_| {
                domain = domain.checked_add(reader.number(What::Domain)?)?;
                reader.text(TEXT, &mut text)?;
                Some((u32::try_from(domain).ok()?, text.clone()))
            })
            .collect()
    }

    /// The addresses of a block; `None` for one whose domain is damaged.
    fn addresses(&self, number: usize) -> Option<Rc<Vec<Option<String>>>> {
        self.addresses.get(number, || {
            let locals = self.locals(number, EACH)?;
            Some(
                locals
                    .into_iter()
                    .map(|(domain, local)| join(&local, &self.domain(domain)?))
                    .collect(),
            )
        })
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

    fn domain(&self, number: u32) -> Option<Vec<u8>> {
        let number = number as usize;
        self.domains(number / EACH)?.get(number % EACH).cloned()
    }

    /// The address of this number; `None` where it is damaged.
    pub(super) fn address(&self, number: u32) -> Option<String> {
        let number = number as usize;
        self.addresses(number / EACH)?.get(number % EACH)?.clone()
    }

    /// The client of this number, 0 for none; `None` where it is damaged.
    pub(super) fn client(&self, number: u32) -> Option<Option<IpAddr>> {
        let Some(number) = (number as usize).checked_sub(1) else { return Some(None) };
        let client = match number.checked_sub(self.segment.head.fours as usize) {
            None => self.fours(number / EACH)?.get(number % EACH)?.to_be_bytes().into(),
            Some(number) => self.sixes(number / EACH)?.get(number % EACH)?.to_be_bytes().into(),
        };
        Some(Some(client))
    }

    /// The authenticated name of this number, with this sender; `None` where it
    /// is damaged.
    pub(super) fn name(&self, number: u32, sender: &str) -> Option<String> {
        let Some(number) = number.checked_sub(SHORTCUTS) else {
            let name = match number {
                0 => "",
                1 => sender,
                _ => local_part(sender),
            };
            return Some(name.to_owned());
        };
        let number = number as usize;
        String::from_utf8(self.names(number / EACH)?.get(number % EACH)?.clone()).ok()
    }

    /// The numbers of an address in upper or lower case, in order; `None` where
    /// what would tell is damaged.
    pub(in super::super) fn find(&self, address: &str) -> Option<Vec<u32>> {
        let (local, domain) = split(address);
        let (local, domain) = (local.to_ascii_lowercase(), domain.to_ascii_lowercase());
        let mut found = Vec::new();
        let read = |block| self.texts(DOMAINS, block, 1)?.pop();
        let before = |block| Some(read(block)?.to_ascii_lowercase() < domain);
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

    /// Adds the numbers of addresses in a domain.
    fn find_local(&self, domain: u32, local: &[u8], found: &mut Vec<u32>) -> Option<()> {
        let order = |(number, text): &(u32, Vec<u8>)| {
            number.cmp(&domain).then_with(|| text.to_ascii_lowercase().as_slice().cmp(local))
        };
        let before = |block| Some(order(&self.locals(block, 1)?.pop()?) == Ordering::Less);
        let blocks = self.tables.get(ADDRESSES).map_or(0, Table::len);
        for block in first_block(blocks, before)?..blocks {
            for (address, n) in self.locals(block, EACH)?.iter().zip(0..) {
                match order(address) {
                    Ordering::Less => {}
                    Ordering::Equal => found.push((block * EACH + n) as u32),
                    Ordering::Greater => return Some(()),
                }
            }
        }
        Some(())
    }

    /// The numbers of all addresses for which `test` is true, in order; `None`
    /// where some are damaged.
    pub(in super::super) fn matching(&self, test: &dyn Fn(&str) -> bool) -> Option<Vec<u32>> {
        let mut found = Vec::new();
        for block in 0..self.tables.get(ADDRESSES).map_or(0, Table::len) {
            for (address, n) in self.addresses(block)?.iter().zip(0..) {
                if test(address.as_deref()?) {
                    found.push((block * EACH + n) as u32);
                }
            }
        }
        Some(found)
    }
}

/// The last block that begins before what is looked for, or the first of all.
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
