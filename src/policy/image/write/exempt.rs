//! Writes the entries of `exempt`: themselves, and the tables of what they match.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::super::exempt::network_key;
use super::super::fields::{Row, Stored as _};
use super::super::layout::ITEM_ENDS;
use super::out::Writer;
use crate::policy::model::{Exempt, Match};

/// The entries that list a key: those for which that is enough, and those that must
/// match on both sides; each as items.
type Lists = (Vec<u8>, Vec<u8>);

/// What entries match on one side.
#[derive(Debug, Default)]
struct Keys {
    identities: BTreeMap<Vec<u8>, Lists>,
    domains: BTreeMap<Vec<u8>, Lists>,
    below: BTreeMap<Vec<u8>, Lists>,
    networks: BTreeMap<Vec<u8>, Lists>,
    bits_v4: BTreeSet<u8>,
    bits_v6: BTreeSet<u8>,
}

impl Keys {
    fn add(&mut self, matches: &[Match], item: &[u8], both: bool) {
        for one in matches {
            let lists = match one {
                Match::Identity(name) => self.identities.entry(name.as_bytes().to_vec()),
                Match::Domain(pattern) if pattern.below => {
                    self.below.entry(pattern.domain.as_bytes().to_vec())
                }
                Match::Domain(pattern) => self.domains.entry(pattern.domain.as_bytes().to_vec()),
                Match::Client(network) => {
                    match network.address() {
                        IpAddr::V4(_) => self.bits_v4.insert(network.bits()),
                        IpAddr::V6(_) => self.bits_v6.insert(network.bits()),
                    };
                    let (key, used) = network_key(*network);
                    self.networks.entry(key.get(..used).unwrap_or_default().to_vec())
                }
            };
            let (alone, paired) = lists.or_default();
            let list = if both { paired } else { alone };
            // An entry may list a key twice.
            if !list.ends_with(item) {
                list.extend_from_slice(item);
            }
        }
    }

    fn write(&self, writer: &mut Writer, row: &mut Row) {
        let mut table = |keys: &BTreeMap<Vec<u8>, Lists>| {
            let entries = keys.iter().map(|(key, lists)| (key.as_slice(), lists));
            writer.table(entries, |(alone, both), value| {
                value.bytes(alone);
                value.0.extend_from_slice(both);
            })
        };
        table(&self.identities).write(row);
        table(&self.domains).write(row);
        table(&self.below).write(row);
        row.length(self.below.keys().map(Vec::len).max().unwrap_or(0));
        table(&self.networks).write(row);
        for bits in [&self.bits_v4, &self.bits_v6] {
            bits.iter().copied().collect::<Vec<u8>>().write(row);
        }
    }
}

/// Writes `entries`, and into `row` how they are found.
pub(super) fn write(writer: &mut Writer, row: &mut Row, entries: &[Exempt]) {
    let (mut who, mut to, mut everybody) = (Keys::default(), Keys::default(), Row::default());
    let mut positions = Vec::new();
    for (number, entry) in entries.iter().enumerate() {
        let lists = [&entry.matches, &entry.recipients].map(|matches| {
            let mut list = Row::default();
            matches.write(&mut list);
            writer.row(&list.0)
        });
        let mut own = Row::default();
        entry.until.write(&mut own);
        entry.reason.write(&mut own);
        lists.iter().for_each(|list| own.u32(*list));
        let position = writer.row(&own.0);
        positions.push(position);
        let mut item = Row::default();
        item.i64(entry.until.unwrap_or(0));
        item.length(number);
        item.u32(position);
        item.u32(if entry.until.is_some() { ITEM_ENDS } else { 0 });
        let both = !entry.matches.is_empty() && !entry.recipients.is_empty();
        who.add(&entry.matches, &item.0, both);
        to.add(&entry.recipients, &item.0, both);
        if entry.matches.is_empty() && entry.recipients.is_empty() {
            everybody.0.extend_from_slice(&item.0);
        }
    }
    who.write(writer, row);
    to.write(writer, row);
    row.bytes(&everybody.0);
    let mut list = Row::default();
    positions.write(&mut list);
    row.u32(writer.row(&list.0));
}
