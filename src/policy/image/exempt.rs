//! Which entry of `exempt` lifts the limits. What entries match is found in hashed
//! tables, so that thousands of entries cost no more than one.

use std::net::IpAddr;

use super::container::{Container, fault_at};
use super::error::Fault;
use super::fields::{Fields, Stored, What};
use super::layout::{ITEM_BYTES, ITEM_ENDS, Table};
use crate::policy::fold::domain;
use crate::policy::limit::{Exemption, Subject};
use crate::policy::network::Cidr;

/// The entries of a policy.
#[derive(Debug)]
pub(super) struct Exempts {
    /// What `match` lists.
    who: Keys,
    /// What `recipients` lists.
    to: Keys,
    /// The entries without either.
    everybody: Box<[u8]>,
    /// The position of the row with the positions of all entries.
    #[cfg_attr(not(feature = "cli"), expect(dead_code, reason = "only the program lists them"))]
    pub(super) entries: u32,
}

/// What entries match. Each table has, for each key, the entries that list it.
#[derive(Debug)]
struct Keys {
    identities: Table,
    domains: Table,
    /// Domains above that of an identity, and the length of the longest.
    below: Table,
    longest_below: usize,
    /// Networks: their bits, then their addresses. The bits that there are.
    networks: Table,
    bits_v4: Vec<u8>,
    bits_v6: Vec<u8>,
}

fn keys(row: &mut Fields<'_>) -> Result<Keys, What> {
    Ok(Keys {
        identities: Stored::read(row)?,
        domains: Stored::read(row)?,
        below: Stored::read(row)?,
        longest_below: row.u32()? as usize,
        networks: Stored::read(row)?,
        bits_v4: Stored::read(row)?,
        bits_v6: Stored::read(row)?,
    })
}

/// The entries of a policy.
pub(super) fn exempts(row: &mut Fields<'_>) -> Result<Exempts, What> {
    let (who, to) = (keys(row)?, keys(row)?);
    let length = row.u32()?;
    Ok(Exempts { who, to, everybody: row.bytes(length)?.into(), entries: row.u32()? })
}

/// The key of a network.
pub(super) fn network_key(network: Cidr) -> ([u8; 17], usize) {
    let mut key = [0; 17];
    let (bits, address) = (network.bits(), network.address());
    let used = match address {
        IpAddr::V4(v4) => fill(&mut key, bits, &v4.octets()),
        IpAddr::V6(v6) => fill(&mut key, bits, &v6.octets()),
    };
    (key, used)
}

fn fill(key: &mut [u8; 17], bits: u8, octets: &[u8]) -> usize {
    let bytes = std::iter::once(&bits).chain(octets);
    key.iter_mut().zip(bytes).map(|(to, from)| *to = *from).count()
}

/// An entry in a list.
#[derive(Clone, Copy, Debug)]
struct Item {
    until: Option<i64>,
    number: u32,
    /// The position of its row.
    row: u32,
}

impl Item {
    fn is_active(&self, now: i64) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// Entries, in the order in which they are written.
#[derive(Clone, Copy, Debug)]
struct Items<'a>(&'a [[u8; ITEM_BYTES]]);

impl<'a> Items<'a> {
    fn of(bytes: &'a [u8]) -> Result<Self, What> {
        match bytes.as_chunks() {
            (items, []) => Ok(Self(items)),
            _ => Err("a list of exemptions is cut off"),
        }
    }

    fn iter(self) -> impl Iterator<Item = Item> {
        self.0.iter().filter_map(|item| read(item).ok())
    }

    fn has(self, number: u32) -> bool {
        let number_of = |item: &[u8; ITEM_BYTES]| read(item).map_or(0, |item| item.number);
        self.0.binary_search_by_key(&number, number_of).is_ok()
    }
}

fn read(item: &[u8; ITEM_BYTES]) -> Result<Item, What> {
    let mut fields = Fields(item);
    let (until, number) = (fields.i64()?, fields.u32()?);
    let (row, flags) = (fields.u32()?, fields.u32()?);
    Ok(Item { until: (flags & ITEM_ENDS != 0).then_some(until), number, row })
}

/// The entries that list a key.
#[derive(Clone, Copy, Debug)]
struct Lists<'a> {
    /// Those for which this is enough.
    alone: Items<'a>,
    /// Those that must match on both sides.
    both: Items<'a>,
}

fn lists(value: &[u8]) -> Result<Lists<'_>, What> {
    let mut fields = Fields(value);
    let length = fields.u32()?;
    let alone = Items::of(fields.bytes(length)?)?;
    Ok(Lists { alone, both: Items::of(fields.0)? })
}

/// The first entry that was found.
#[derive(Debug, Default)]
struct First(Option<Item>);

impl First {
    fn is_before(&self, item: &Item) -> bool {
        self.0.is_some_and(|first| first.number <= item.number)
    }

    /// Takes the first of `items` that `applies`, if it is before what was found.
    fn take(&mut self, items: Items<'_>, applies: impl Fn(&Item) -> bool) {
        for item in items.iter() {
            if self.is_before(&item) {
                return;
            }
            if applies(&item) {
                self.0 = Some(item);
                return;
            }
        }
    }
}

impl Exempts {
    /// Whether there is no entry.
    pub(super) fn is_empty(&self) -> bool {
        self.everybody.is_empty() && self.who.is_empty() && self.to.is_empty()
    }

    /// Whether an entry lists recipients.
    pub(super) fn lists_recipients(&self) -> bool {
        !self.to.is_empty()
    }

    /// The number and the position of the row of the first entry that exempts `subject` at `now`.
    pub(super) fn find(
        &self,
        container: &Container,
        subject: &Subject<'_>,
        now: i64,
    ) -> Result<Option<(u32, u32)>, Fault> {
        let mut first = First::default();
        if !self.everybody.is_empty() {
            let items = Items::of(&self.everybody).map_err(|what| fault_at(0, what))?;
            first.take(items, |item| item.is_active(now));
        }
        let (identity, recipient) = subject.plain();
        self.who.each(container, identity, subject.client, |who| {
            first.take(who.alone, |item| item.is_active(now));
            let Some(recipient) = recipient.filter(|_| !who.both.0.is_empty()) else {
                return Ok(());
            };
            self.to.each(container, recipient, None, |to| {
                let (short, long) = if who.both.0.len() <= to.both.0.len() {
                    (who.both, to.both)
                } else {
                    (to.both, who.both)
                };
                first.take(short, |item| item.is_active(now) && long.has(item.number));
                Ok(())
            })
        })?;
        if let Some(recipient) = recipient {
            self.to.each(container, recipient, None, |to| {
                first.take(to.alone, |item| item.is_active(now));
                Ok(())
            })?;
        }
        Ok(first.0.map(|item| (item.number, item.row)))
    }
}

impl Keys {
    fn is_empty(&self) -> bool {
        [self.identities, self.domains, self.below, self.networks].iter().all(|t| t.slots == 0)
    }

    /// Calls `visit` with the entries that list what `identity` or `client` match.
    fn each<'c>(
        &self,
        container: &'c Container,
        identity: &str,
        client: Option<IpAddr>,
        mut visit: impl FnMut(Lists<'c>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut look = |table: Table, key: &[u8]| -> Result<(), Fault> {
            match container.find(table, key)? {
                None => Ok(()),
                Some(found) => visit(lists(found.value).map_err(|what| fault_at(found.row, what))?),
            }
        };
        look(self.identities, identity.as_bytes())?;
        if let Some(domain) = domain(identity) {
            look(self.domains, domain.as_bytes())?;
            if self.below.slots > 0 {
                // Only what may be in the table.
                let start = domain.len().saturating_sub(self.longest_below + 1);
                for (at, _) in domain.match_indices('.').filter(|&(at, _)| at > 0 && at >= start) {
                    look(self.below, domain.get(at + 1..).unwrap_or_default().as_bytes())?;
                }
            }
        }
        if self.networks.slots > 0 {
            let own = identity.parse().ok();
            let addresses = [client, own.filter(|_| own != client)];
            for address in addresses.into_iter().flatten() {
                let address = address.to_canonical();
                let bits = if address.is_ipv4() { &self.bits_v4 } else { &self.bits_v6 };
                for &bits in bits {
                    let (key, used) = network_key(Cidr::around(address, bits));
                    look(self.networks, key.get(..used).unwrap_or_default())?;
                }
            }
        }
        Ok(())
    }
}

/// An entry in its row, and the positions of the rows of what it lists.
pub(super) fn entry<'a>(
    row: &mut Fields<'a>,
    number: u32,
) -> Result<(Exemption<'a>, [u32; 2]), What> {
    let (until, reason) = (Stored::read(row)?, row.option(Fields::text)?);
    Ok((Exemption { number, until, reason }, [row.u32()?, row.u32()?]))
}
