//! Looking up the words of a segment, by number and by value.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

use super::Segment;
use super::bits::BitReader;
use super::blocks::{BlockTable, Cache};
use super::codes::{Decoders, SymbolKind, SymbolReader, WORDS};
use super::dictionary::{EACH, SENDER, SHORTCUTS, TEXT, join, local_part, split};

/// The sections, in order.
const DOMAINS: usize = 0;
const ADDRESSES: usize = 1;
const NAMES: usize = 2;
const FOURS: usize = 3;
const SIXES: usize = 4;
/// The number of these sections.
const COUNT: usize = 5;

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
}

/// A block of texts or of addresses, which is read as far as it is needed.
#[derive(Debug)]
struct WordBlock {
    bytes: Vec<u8>,
    /// The number of words that it should contain.
    count: usize,
    /// The bit after the last word that was read.
    at: u64,
    /// The last word that was read, without its domain.
    last: Vec<u8>,
    /// Of addresses, the numbers of their domains.
    domains: Vec<u32>,
    texts: Texts,
}

impl WordBlock {
    /// Reads up to so many words, of addresses if `are_addresses`; `None` if it is damaged.
    fn read_up_to(&mut self, decoders: &Decoders, end: usize, are_addresses: bool) -> Option<()> {
        let end = end.min(self.count);
        if self.texts.ends.len() >= end {
            return Some(());
        }
        let mut reader = SymbolReader::new(decoders, &self.bytes);
        reader.bits.skip(self.at)?;
        while self.texts.ends.len() < end {
            if are_addresses {
                let before = self.domains.last().map_or(0, |&before| u64::from(before));
                let domain = before.checked_add(reader.number(SymbolKind::Domain)?)?;
                self.domains.push(u32::try_from(domain).ok()?);
            }
            reader.text(TEXT, &mut self.last)?;
            self.texts.push(&self.last);
        }
        self.at = reader.bits.at();
        Some(())
    }
}

/// The blocks of a section that were read; `None` for one that is damaged.
type Blocks = RefCell<BTreeMap<usize, Option<WordBlock>>>;

/// The words of a segment.
#[derive(Debug)]
pub(in super::super) struct Words<'a> {
    segment: &'a Segment,
    decoders: Decoders,
    tables: [BlockTable; COUNT],
    /// Of domains, addresses, and names.
    texts: [Blocks; 3],
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
            *table = Some(BlockTable::read(count, EACH, &mut bits)?);
        }
        let [Some(domains), Some(addresses), Some(names), Some(fours), Some(sixes)] = tables else {
            return None;
        };
        let at = bits.at();
        let decoders = Decoders::new(&WORDS, head.sizes(), bytes, at);
        Some(Self {
            segment,
            decoders,
            tables: [domains, addresses, names, fours, sixes],
            texts: Default::default(),
            fours: Cache::default(),
            sixes: Cache::default(),
            damaged: Cell::new(false),
        })
    }

    /// Whether a block that was read is damaged.
    pub(in super::super) fn is_damaged(&self) -> bool {
        self.damaged.get()
    }

    /// Reads all words; returns whether all are sound.
    pub(in super::super) fn check(&self) -> bool {
        let blocks = |section: usize| 0..self.tables.get(section).map_or(0, BlockTable::len);
        let has_all = |section, count: u32| {
            (0..count as usize).all(|n| self.with_text(section, n, |_| Some(())).is_some())
        };
        let sound = has_all(DOMAINS, self.segment.head.domains)
            && (0..self.segment.head.addresses).all(|n| self.address(n).is_some())
            && has_all(NAMES, self.segment.head.names)
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

    /// Passes a block of domains, addresses, or names to `work`, read up to so many words; `None`
    /// if it is damaged.
    fn with<T>(
        &self,
        section: usize,
        number: usize,
        end: usize,
        work: impl FnOnce(&WordBlock) -> Option<T>,
    ) -> Option<T> {
        let mut blocks = self.texts.get(section)?.borrow_mut();
        let entry = blocks.entry(number).or_insert_with(|| {
            let (bytes, count) = self.block(section, number)?;
            let (last, domains, texts) = Default::default();
            Some(WordBlock { bytes, count, at: 0, last, domains, texts })
        });
        let read = entry.as_mut()?.read_up_to(&self.decoders, end, section == ADDRESSES);
        if read.is_none() {
            *entry = None;
        }
        work(entry.as_ref()?)
    }

    /// Passes the domain or name with this number to `work`; `None` if it is damaged.
    fn with_text<T>(
        &self,
        section: usize,
        number: usize,
        work: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Option<T> {
        let (block, at) = (number / EACH, number % EACH);
        self.with(section, block, at + 1, |block| work(block.texts.get(at)?))
    }

    /// Passes the local part of the address with this number, and the number of its domain, to
    /// `work`; `None` if it is damaged.
    fn with_address<T>(
        &self,
        number: usize,
        work: impl FnOnce(&[u8], u32) -> Option<T>,
    ) -> Option<T> {
        let (block, at) = (number / EACH, number % EACH);
        self.with(ADDRESSES, block, at + 1, |block| {
            work(block.texts.get(at)?, *block.domains.get(at)?)
        })
    }

    fn fours(&self, number: usize) -> Option<Rc<Vec<u32>>> {
        self.fours.get(number, || {
            let (bytes, count) = self.block(FOURS, number)?;
            let mut reader = SymbolReader::new(&self.decoders, &bytes);
            let mut address = 0_u32;
            (0..count)
                .map(|_| {
                    let step = u32::try_from(reader.number(SymbolKind::Four)?).ok()?;
                    address = address.checked_add(step)?;
                    Some(address)
                })
                .collect()
        })
    }

    fn sixes(&self, number: usize) -> Option<Rc<Vec<u128>>> {
        self.sixes.get(number, || {
            let (bytes, count) = self.block(SIXES, number)?;
            let mut reader = SymbolReader::new(&self.decoders, &bytes);
            let mut high = 0_u64;
            (0..count)
                .map(|_| {
                    high = high.checked_add(reader.number(SymbolKind::Six)?)?;
                    Some(u128::from(high) << 64 | u128::from(reader.number(SymbolKind::Low)?))
                })
                .collect()
        })
    }

    /// The address with this number; `None` if it is damaged.
    pub(super) fn address(&self, number: u32) -> Option<String> {
        self.with_address(number as usize, |local, domain| {
            self.with_text(DOMAINS, domain as usize, |domain| join(local, domain))
        })
    }

    /// Whether the address with this number has this local part, ignoring case; `None` if it is
    /// damaged.
    pub(super) fn has_local_part(&self, number: u32, wanted: &str) -> Option<bool> {
        let is = |local: &[u8], _| Some(local.eq_ignore_ascii_case(wanted.as_bytes()));
        self.with_address(number as usize, is)
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
        let text = |name: &[u8]| String::from_utf8(name.to_vec()).ok();
        self.with_text(NAMES, number as usize, text)
    }

    /// The numbers of an address, ignoring case, in order; `None` if damage
    /// prevents the lookup.
    pub(in super::super) fn find(&self, address: &str) -> Option<Vec<u32>> {
        let (local, domain) = split(address);
        let (local, domain) = (local.to_ascii_lowercase(), domain.to_ascii_lowercase());
        let mut found = Vec::new();
        let order =
            |number: usize| self.with_text(DOMAINS, number, |text| Some(compare(text, &domain)));
        let before = |block| Some(order(block * EACH)? == Ordering::Less);
        let blocks = self.tables.get(DOMAINS).map_or(0, BlockTable::len);
        let mut domains = Vec::new();
        for number in first_block(blocks, before)? * EACH..self.segment.head.domains as usize {
            match order(number)? {
                Ordering::Less => {}
                Ordering::Equal => domains.push(number as u32),
                Ordering::Greater => break,
            }
        }
        for domain in domains {
            self.find_local(domain, &local, &mut found)?;
        }
        Some(found)
    }

    /// Adds the numbers of matching addresses in a domain.
    fn find_local(&self, domain: u32, local: &[u8], found: &mut Vec<u32>) -> Option<()> {
        let order = |number: usize| {
            self.with_address(number, |text, one| {
                Some(one.cmp(&domain).then_with(|| compare(text, local)))
            })
        };
        let before = |block| Some(order(block * EACH)? == Ordering::Less);
        let blocks = self.tables.get(ADDRESSES).map_or(0, BlockTable::len);
        for number in first_block(blocks, before)? * EACH..self.addresses_count() {
            match order(number)? {
                Ordering::Less => {}
                Ordering::Equal => found.push(number as u32),
                Ordering::Greater => break,
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

/// Compares a text, ignoring case, with one in lower case.
fn compare(text: &[u8], lower: &[u8]) -> Ordering {
    text.iter().map(u8::to_ascii_lowercase).cmp(lower.iter().copied())
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
