//! Addresses, clients and authenticated ids, each stored once, in an order in
//! which consecutive words have long common prefixes and can be looked up.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::ops::Range;

use crate::trace::Envelope;

use super::blocks::BlockItems;
use super::codes::{Sink, SymbolKind};

/// The number of words in a block.
pub(super) const EACH: usize = 128;
/// The kinds of symbols of a text in these sections.
pub(super) const TEXT: [SymbolKind; 3] = [SymbolKind::Byte, SymbolKind::Shared, SymbolKind::Rest];

/// A domain or a local part: sorted by its lower-case letters, and then by its
/// bytes.
type Word = (Vec<u8>, Vec<u8>);

fn word(text: &[u8]) -> Word {
    (text.to_ascii_lowercase(), text.to_vec())
}

/// Splits an address into the local part and the reversed domain with its `@`.
pub(super) fn split(address: &str) -> (Vec<u8>, Vec<u8>) {
    let (local, domain) = address.split_at(address.rfind('@').unwrap_or(address.len()));
    (local.as_bytes().to_vec(), domain.bytes().rev().collect())
}

/// Joins the two parts of an address.
pub(super) fn join(local: &[u8], domain: &[u8]) -> Option<String> {
    String::from_utf8(local.iter().chain(domain.iter().rev()).copied().collect()).ok()
}

/// Sorted domains.
#[derive(Debug, Default)]
pub(super) struct Domains(Vec<Word>);

/// Sorted addresses: the number of the domain, and the local part.
#[derive(Debug, Default)]
pub(super) struct Addresses(Vec<(u32, Word)>);

/// Sorted authenticated ids.
#[derive(Debug, Default)]
pub(super) struct Names(Vec<Vec<u8>>);

/// Sorted IPv4 clients.
#[derive(Debug, Default)]
pub(super) struct Fours(Vec<u32>);

/// Sorted IPv6 clients.
#[derive(Debug, Default)]
pub(super) struct Sixes(Vec<u128>);

/// All words of some envelopes.
#[derive(Debug, Default)]
pub(super) struct Words {
    pub(super) domains: Domains,
    pub(super) addresses: Addresses,
    pub(super) names: Names,
    pub(super) fours: Fours,
    pub(super) sixes: Sixes,
    /// The number of each address.
    numbers: HashMap<String, u32>,
}

impl Words {
    pub(super) fn of(envelopes: &[Envelope]) -> Self {
        let texts: HashSet<&str> = envelopes
            .iter()
            .flat_map(|envelope| envelope.recipients.iter().chain([&envelope.sender]))
            .map(String::as_str)
            .collect();
        let parts: Vec<_> = texts.iter().map(|text| (*text, split(text))).collect();
        let domains: HashSet<&[u8]> =
            parts.iter().map(|(_, (_, domain))| domain.as_slice()).collect();
        let mut domains: Vec<Word> = domains.into_iter().map(word).collect();
        domains.sort_unstable();
        let numbers: HashMap<&[u8], u32> =
            domains.iter().zip(0..).map(|((_, domain), n)| (domain.as_slice(), n)).collect();
        let number = |domain: &[u8]| numbers.get(domain).copied().unwrap_or_default();
        let mut addresses: Vec<_> = parts
            .iter()
            .map(|(text, (local, domain))| (number(domain), word(local), *text))
            .collect();
        addresses.sort_unstable();
        let numbers = addresses.iter().zip(0..).map(|((_, _, text), n)| ((*text).to_owned(), n));
        let numbers = numbers.collect();
        let names: BTreeSet<&[u8]> = envelopes
            .iter()
            .filter(|envelope| shortcut(envelope).is_none())
            .map(|envelope| envelope.authenticated.as_bytes())
            .collect();
        let (mut fours, mut sixes) = (BTreeSet::new(), BTreeSet::new());
        for envelope in envelopes {
            match envelope.client {
                None => {}
                Some(IpAddr::V4(address)) => drop(fours.insert(address.to_bits())),
                Some(IpAddr::V6(address)) => drop(sixes.insert(address.to_bits())),
            }
        }
        Self {
            domains: Domains(domains),
            addresses: Addresses(addresses.into_iter().map(|(n, word, _)| (n, word)).collect()),
            names: Names(names.into_iter().map(<[u8]>::to_vec).collect()),
            fours: Fours(fours.into_iter().collect()),
            sixes: Sixes(sixes.into_iter().collect()),
            numbers,
        }
    }

    /// The number of an address.
    pub(super) fn address(&self, text: &str) -> u32 {
        self.numbers.get(text).copied().unwrap_or_default()
    }

    /// The number of a client: 0 for none; IPv4 clients come before IPv6
    /// clients.
    pub(super) fn client(&self, client: Option<IpAddr>) -> u32 {
        let index = match client {
            None => return 0,
            Some(IpAddr::V4(address)) => self.fours.0.binary_search(&address.to_bits()),
            Some(IpAddr::V6(address)) => (self.sixes.0.binary_search(&address.to_bits()))
                .map(|index| index + self.fours.0.len()),
        };
        index.map_or(0, |index| index as u32 + 1)
    }

    /// The number of an envelope's authenticated id.
    pub(super) fn name(&self, envelope: &Envelope) -> u32 {
        shortcut(envelope).unwrap_or_else(|| {
            let index =
                self.names.0.binary_search_by_key(&envelope.authenticated.as_bytes(), |n| n);
            index.map_or(0, |index| index as u32 + SHORTCUTS)
        })
    }
}

/// The number of authenticated ids that need not be stored: none, the sender,
/// the sender's local part.
pub(super) const SHORTCUTS: u32 = 3;
/// The number of the sender among them.
pub(super) const SENDER: u32 = 1;
/// The number of the sender's local part.
pub(super) const LOCAL_PART: u32 = 2;

/// The number of an authenticated id that need not be stored.
fn shortcut(envelope: &Envelope) -> Option<u32> {
    let (name, sender) = (envelope.authenticated.as_str(), envelope.sender.as_str());
    if name.is_empty() {
        Some(0)
    } else if name == sender {
        Some(SENDER)
    } else {
        (name == local_part(sender)).then_some(LOCAL_PART)
    }
}

/// The part before the last `@`.
pub(super) fn local_part(address: &str) -> &str {
    address.rsplit_once('@').map_or(address, |(local, _)| local)
}

/// Puts texts, each with the prefix shared with the previous one.
fn put_texts<'a>(texts: impl Iterator<Item = &'a Vec<u8>>, sink: &mut dyn Sink) {
    let mut before: &[u8] = &[];
    for text in texts {
        sink.text(TEXT, before, text);
        before = text;
    }
}

impl BlockItems for Domains {
    const EACH: usize = EACH;

    fn count(&self) -> usize {
        self.0.len()
    }

    fn put(&self, range: Range<usize>, sink: &mut dyn Sink) {
        put_texts(self.0.get(range).unwrap_or(&[]).iter().map(|(_, domain)| domain), sink);
    }
}

impl BlockItems for Addresses {
    const EACH: usize = EACH;

    fn count(&self) -> usize {
        self.0.len()
    }

    fn put(&self, range: Range<usize>, sink: &mut dyn Sink) {
        let (mut before, mut domain): (&[u8], u32) = (&[], 0);
        for (number, (_, local)) in self.0.get(range).unwrap_or(&[]) {
            sink.number(SymbolKind::Domain, u64::from(number - domain));
            sink.text(TEXT, before, local);
            (before, domain) = (local, *number);
        }
    }
}

impl BlockItems for Names {
    const EACH: usize = EACH;

    fn count(&self) -> usize {
        self.0.len()
    }

    fn put(&self, range: Range<usize>, sink: &mut dyn Sink) {
        put_texts(self.0.get(range).unwrap_or(&[]).iter(), sink);
    }
}

impl BlockItems for Fours {
    const EACH: usize = EACH;

    fn count(&self) -> usize {
        self.0.len()
    }

    fn put(&self, range: Range<usize>, sink: &mut dyn Sink) {
        let mut before = 0;
        for &address in self.0.get(range).unwrap_or(&[]) {
            sink.number(SymbolKind::Four, u64::from(address - before));
            before = address;
        }
    }
}

impl BlockItems for Sixes {
    const EACH: usize = EACH;

    fn count(&self) -> usize {
        self.0.len()
    }

    fn put(&self, range: Range<usize>, sink: &mut dyn Sink) {
        let mut before = 0;
        for &address in self.0.get(range).unwrap_or(&[]) {
            let (high, low) = ((address >> 64) as u64, address as u64);
            sink.number(SymbolKind::Six, high - before);
            sink.number(SymbolKind::Low, low);
            before = high;
        }
    }
}
