//! Which envelopes are meant: `--from`, `--to`, `--id`, `--client`, `--auth`, `--since`,
//! `--until`, `--partial`.

use std::net::IpAddr;
use std::str::FromStr;

use clap::Args;
use globset::{GlobBuilder, GlobMatcher};

use super::id;
use crate::cli::shared::times;
use crate::trace::{Accepts, Address, Envelope, Query, QueryResult};

/// The options that select messages by their envelopes. A message must match all options of
/// different names, and one of those of one name.
#[derive(Debug, Args)]
pub(super) struct Filters {
    /// Only messages of this sender: an address, a glob such as
    /// '*@example.org', or <> for bounces
    #[arg(long, value_name = "ADDRESS")]
    pub(super) from: Vec<Name>,

    /// Only messages to this recipient, an address or a glob
    #[arg(long, value_name = "ADDRESS")]
    pub(super) to: Vec<Name>,

    /// Only the message with this id: Exim's, short or long, or the Message-ID
    /// of one that was recorded from a file; may be repeated
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub(super) id: Vec<String>,

    /// Only messages from this IP address or network, such as 192.0.2.0/24
    #[arg(long, value_name = "IP")]
    client: Vec<Network>,

    /// Only messages of clients authenticated as this, a name or a glob
    #[arg(long, value_name = "NAME")]
    auth: Vec<Name>,

    /// Only messages since this time
    #[arg(long, value_name = "TIME", value_parser = times::since)]
    since: Option<i64>,

    /// Only messages until this time
    #[arg(long, value_name = "TIME", value_parser = times::until)]
    until: Option<i64>,

    /// Only messages that were not recorded whole
    #[arg(long)]
    partial: bool,
}

impl Filters {
    /// Whether one is given.
    pub(super) fn any(&self) -> bool {
        let Self { from, to, id, client, auth, since, until, partial } = self;
        let names = [from, to, auth];
        names.iter().any(|names| !names.is_empty())
            || !client.is_empty()
            || !id.is_empty()
            || since.is_some()
            || until.is_some()
            || *partial
    }

    /// Whether no message can be between the times.
    pub(super) fn contradict(&self) -> bool {
        self.since.zip(self.until).is_some_and(|(since, until)| since > until)
    }

    /// Whether some must be tested by [`Self::accept`], as the store does not know them.
    pub(super) fn need_tests(&self) -> bool {
        !self.client.is_empty() || self.partial
    }

    /// Whether an envelope matches the options that the store does not know.
    pub(super) fn accept(&self, envelope: &Envelope) -> bool {
        let from = |ip| self.client.iter().any(|network| network.contains(ip));
        (self.client.is_empty() || envelope.client.is_some_and(from))
            && (!self.partial || envelope.partial)
    }

    /// A query for the messages that they select.
    pub(super) fn query(&self) -> Query<'_> {
        let accepts = |result: &QueryResult| self.accept(&result.envelope);
        Query {
            since: self.since,
            until: self.until,
            from: addresses(&self.from),
            to: addresses(&self.to),
            auth: addresses(&self.auth),
            ids: self.id.iter().map(|text| id::read(text).to_owned()).collect(),
            accepts: self.need_tests().then(|| Accepts(Box::new(accepts))),
            ..Query::default()
        }
    }
}

/// The addresses, for a query of the store.
fn addresses(names: &[Name]) -> Option<Address<'_>> {
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
pub(super) enum Name {
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
    pub(super) fn is(&self, address: &str) -> bool {
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
pub(super) struct Network {
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
    pub(super) fn contains(self, client: IpAddr) -> bool {
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
