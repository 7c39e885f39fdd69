//! Addresses and clients, as people write them.

use std::net::IpAddr;
use std::str::FromStr;

use globset::{GlobBuilder, GlobMatcher};

use crate::trace::Address;

/// The addresses, for a query of the store.
pub(crate) fn addresses(names: &[Name]) -> Option<Address<'_>> {
    match names {
        [] => None,
        // The store has a list of these.
        [Name::Exact(name)] if name.is_ascii() => Some(Address::Is(name.clone())),
        _ => Some(Address::Test(Box::new(|address| names.iter().any(|name| name.is(address))))),
    }
}

/// Addresses as people write them: one, or a glob, in any case of letters.
/// `<>` is the sender of bounces.
#[derive(Clone, Debug)]
pub(crate) enum Name {
    /// In lower case.
    Exact(String),
    Glob(GlobMatcher),
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let inner = text.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')).unwrap_or(text);
        if text.is_empty() {
            return Err("it is empty: the sender of a bounce is <>".to_owned());
        }
        if !inner.contains(['*', '?', '[', '{']) {
            return Ok(Self::Exact(inner.to_lowercase()));
        }
        let glob = GlobBuilder::new(inner).case_insensitive(true).build();
        let glob = glob.map_err(|error| format!("it is not a glob: {}", error.kind()))?;
        Ok(Self::Glob(glob.compile_matcher()))
    }
}

impl Name {
    /// Whether `address` is meant.
    pub(crate) fn is(&self, address: &str) -> bool {
        match self {
            Self::Exact(name) => same(name, address),
            Self::Glob(glob) => glob.is_match(address),
        }
    }
}

/// Whether `address` in lower case is `lower`.
fn same(lower: &str, address: &str) -> bool {
    if address.is_ascii() {
        return lower.len() == address.len() && lower.eq_ignore_ascii_case(address);
    }
    address.to_lowercase() == lower
}

/// Clients as people write them: an IP address, or a network such as
/// `192.0.2.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    address: IpAddr,
    bits: u32,
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "use an IP address, such as 192.0.2.7, or a network, such as 192.0.2.0/24".to_owned()
        };
        let text = text.trim();
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let inner = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let address: IpAddr = inner.unwrap_or(address).parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) => bits.parse().map_err(|_| wrong())?,
        };
        if bits > most {
            return Err(format!("a network of that kind has at most {most} bits, not {bits}"));
        }
        // IPv4 in IPv6's clothes is the same as without.
        match address.to_canonical() {
            plain if plain != address && bits >= 96 => Ok(Self { address: plain, bits: bits - 96 }),
            _ => Ok(Self { address, bits }),
        }
    }
}

impl Network {
    /// Whether `client` is in it.
    pub(crate) fn contains(self, client: IpAddr) -> bool {
        let differ = match (self.address, client.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                u128::from(u32::from(a) ^ u32::from(b)).checked_shr(32 - self.bits)
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                (u128::from(a) ^ u128::from(b)).checked_shr(128 - self.bits)
            }
            _ => return false,
        };
        // All is shifted out where no bit counts.
        differ.unwrap_or(0) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_meant_in_any_case_and_by_globs() {
        let is = |name: &str, address: &str| name.parse::<Name>().unwrap().is(address);
        for (name, address) in [
            ("alice@example.org", "alice@example.org"),
            ("Alice@Example.org", "aLICE@example.ORG"),
            ("<alice@example.org>", "alice@example.org"),
            ("JÜRGEN@example.org", "jürgen@EXAMPLE.org"),
            ("<>", ""),
            ("*@example.org", "bob@Example.Org"),
            ("*@{a,b}.test", "x@b.test"),
            ("a?ice@*", "alice@x"),
            ("*", ""),
        ] {
            assert!(is(name, address), "{name} {address}");
        }
        for (name, address) in [
            ("alice@example.org", "alice@example.or"),
            ("*@example.org", "bob@sub.example.org"),
            ("example.org", "bob@example.org"),
            ("<>", "a"),
        ] {
            assert!(!is(name, address), "{name} {address}");
        }
        for (name, why) in
            [("", "the sender of a bounce is <>"), ("[x", "not a glob"), ("{a", "not a glob")]
        {
            assert!(name.parse::<Name>().unwrap_err().contains(why), "{name}");
        }
    }

    #[test]
    fn clients_are_meant_by_their_networks() {
        let contains = |network: &str, client: &str| {
            network.parse::<Network>().unwrap().contains(client.parse().unwrap())
        };
        for (network, client) in [
            ("192.0.2.7", "192.0.2.7"),
            ("[192.0.2.7]", "192.0.2.7"),
            ("192.0.2.7", "::ffff:192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("192.0.2.9/24", "192.0.2.7"),
            ("0.0.0.0/0", "192.0.2.7"),
            ("2001:db8::/32", "2001:db8:7::1"),
            ("::/0", "2001:db8:7::1"),
        ] {
            assert!(contains(network, client), "{network} {client}");
        }
        for (network, client) in [
            ("192.0.2.7", "192.0.2.6"),
            ("192.0.2.0/25", "192.0.2.128"),
            ("2001:db8::/33", "2001:db8:8000::1"),
            ("::/0", "192.0.2.7"),
            ("0.0.0.0/0", "2001:db8::1"),
        ] {
            assert!(!contains(network, client), "{network} {client}");
        }
        for (text, why) in [
            ("laptop", "use an IP address"),
            ("192.0.2.0/33", "at most 32 bits"),
            ("192.0.2.0/x", "use an IP address"),
            ("::/129", "at most 128 bits"),
        ] {
            assert!(text.parse::<Network>().unwrap_err().contains(why), "{text}");
        }
    }
}
