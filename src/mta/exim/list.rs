//! What is in a list of Exim's for certain: whether hosts, domains or addresses that it names are
//! all that there are.

use std::net::IpAddr;

use super::source::Source;

/// Named lists that name one another: Exim's own limit is near.
const DEPTH_MAX: usize = 16;

/// Which named lists a condition may refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListKind {
    Hosts,
    Domains,
    LocalParts,
    Addresses,
}

impl ListKind {
    /// Of the condition `name`.
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "hosts" => Some(Self::Hosts),
            "domains" | "sender_domains" => Some(Self::Domains),
            "local_parts" => Some(Self::LocalParts),
            "recipients" | "senders" => Some(Self::Addresses),
            _ => None,
        }
    }

    /// What defines one of this kind.
    fn definition(self) -> &'static str {
        match self {
            Self::Hosts => "hostlist",
            Self::Domains => "domainlist",
            Self::LocalParts => "localpartlist",
            Self::Addresses => "addresslist",
        }
    }
}

/// What a list surely has in it, of all that it could have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Covered {
    /// Each address, domain or host, also the empty one: the sender of a bounce, or no client.
    pub(super) all: bool,
    /// Each that is not empty.
    pub(super) named: bool,
    /// Each client with an IPv4 address.
    pub(super) v4: bool,
    /// Each client with an IPv6 address.
    pub(super) v6: bool,
}

/// What `list` covers.
pub(super) fn covered(source: &Source, kind: ListKind, list: &str) -> Covered {
    let mut found = Items::default();
    found.add(source, kind, list, 0);
    let of = |width: u32, nets: &[(u128, u32)]| found.star || is_full(nets, 0, 0, width);
    let (v4, v6) = (of(32, &found.v4), of(128, &found.v6));
    let named = found.star || v4 && v6;
    // A pattern of an address list needs an address, one of other lists does not.
    let all = match kind {
        ListKind::Addresses => named && found.empty,
        ListKind::Hosts | ListKind::Domains | ListKind::LocalParts => found.star,
    };
    Covered { all, named, v4, v6 }
}

/// The items of a list up to the first that may except something.
#[derive(Default)]
struct Items {
    star: bool,
    empty: bool,
    v4: Vec<(u128, u32)>,
    v6: Vec<(u128, u32)>,
}

impl Items {
    /// Whether the next items count as well.
    fn add(&mut self, source: &Source, kind: ListKind, list: &str, depth: usize) -> bool {
        if list.contains('$') || depth > DEPTH_MAX {
            return false;
        }
        for item in items(list) {
            let goes_on = match &*item {
                "*" => {
                    self.star = true;
                    true
                }
                "" => {
                    self.empty = true;
                    true
                }
                _ if item.starts_with('!') => false,
                _ => match item.strip_prefix('+') {
                    Some(name) => named(source, kind, name)
                        .is_some_and(|list| self.add(source, kind, list, depth + 1)),
                    None if kind == ListKind::Hosts => self.host(&item),
                    // It may be a lookup, which may fail.
                    None => !item.contains([';', '$', '@']) || kind == ListKind::Addresses,
                },
            };
            if !goes_on {
                return false;
            }
        }
        true
    }

    /// An address or network. The name of a host needs a lookup, which may end the search.
    fn host(&mut self, item: &str) -> bool {
        let (address, bits) = match item.split_once('/') {
            Some((address, bits)) => (address, bits.parse::<u32>().ok()),
            None => (item, Some(128)),
        };
        match (address.parse(), bits) {
            (Ok(IpAddr::V4(address)), Some(bits)) => {
                self.v4.push((u128::from(u32::from(address)) << 96, bits.min(32)));
            }
            (Ok(IpAddr::V6(address)), Some(bits)) => {
                self.v6.push((u128::from(address), bits.min(128)));
            }
            _ => return item.starts_with('@'),
        }
        true
    }
}

/// Whether the network of the first `bits` of `base` is in `nets`, whole or in halves.
fn is_full(nets: &[(u128, u32)], base: u128, bits: u32, width: u32) -> bool {
    let same = |one: u128, other: u128, bits: u32| bits == 0 || (one ^ other) >> (128 - bits) == 0;
    let within: Vec<(u128, u32)> =
        nets.iter().copied().filter(|(net, size)| same(*net, base, bits.min(*size))).collect();
    if within.iter().any(|(_, size)| *size <= bits) {
        return true;
    }
    let upper = || base | 1_u128 << (127 - bits);
    bits < width
        && within.len() > 1
        && is_full(&within, base, bits + 1, width)
        && is_full(&within, upper(), bits + 1, width)
}

/// The value of a named list.
fn named<'a>(source: &'a Source, kind: ListKind, wanted: &str) -> Option<&'a str> {
    source.lines.iter().filter(|line| line.section.is_empty()).find_map(|line| {
        let rest = line.text.strip_prefix("hide").map_or(&*line.text, str::trim_start);
        let rest = rest.strip_prefix(kind.definition())?;
        // A list whose result is not to be kept is the same list.
        let rest = rest.strip_prefix("_cache").unwrap_or(rest);
        let (name, list) = rest.strip_prefix(char::is_whitespace)?.split_once('=')?;
        (name.trim() == wanted).then(|| list.trim())
    })
}

/// The items of a list, as Exim takes it apart: a colon between them, or the character behind a
/// `<` at the start; doubled, it is one of the item.
pub(crate) fn items(list: &str) -> Vec<String> {
    let list = list.trim_start();
    let mut rest = list.chars();
    let separator = match (rest.next(), rest.next()) {
        (Some('<'), Some(c)) if c.is_ascii_punctuation() => c,
        _ => {
            rest = list.chars();
            ':'
        }
    };
    let (mut items, mut item, mut rest) = (Vec::new(), String::new(), rest.peekable());
    while let Some(c) = rest.next() {
        if c != separator || rest.next_if_eq(&separator).is_some() {
            item.push(c);
        } else {
            items.push(std::mem::take(&mut item).trim().to_owned());
        }
    }
    if !item.trim().is_empty() {
        items.push(item.trim().to_owned());
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_taken_apart_as_exim_does() {
        for (list, expected) in [
            ("* : :", &["*", ""][..]),
            (":", &[""]),
            (" : a", &["", "a"]),
            ("0.0.0.0/0 : ::/0", &["0.0.0.0/0", ":/0"]),
            ("0.0.0.0/0 : ::::/0", &["0.0.0.0/0", "::/0"]),
            (":::/0", &[":", "/0"]),
            ("a : ::b : c", &["a", ":b", "c"]),
            ("<; a ; b:c;;d", &["a", "b:c;d"]),
            ("<;a", &["a"]),
            ("a: ", &["a"]),
        ] {
            assert_eq!(items(list), expected, "{list}");
        }
    }
}
