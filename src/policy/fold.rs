//! Folding: what different spellings of one identity become.
//!
//! The tables, the entries of `exempt` and the identities of events are folded
//! alike, so that `Alice+shop@Example.org` is counted as, and finds the limits of,
//! `alice@example.org`.

use std::net::IpAddr;

use super::network::Cidr;

/// How identities are folded: `fold` and `mask` of `[identity]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folding {
    /// Upper case is lower case in local parts and logins. In domains it always is.
    pub case: bool,
    /// What follows the first `+` of a local part is left out.
    pub plus: bool,
    /// Dots in the local part are left out in these domains.
    pub dots: Vec<String>,
    /// The domain of an identity without one.
    pub qualify: Option<String>,
    /// Leading bits of IPv4 addresses that count.
    pub v4: u8,
    /// Leading bits of IPv6 addresses that count.
    pub v6: u8,
}

impl Default for Folding {
    fn default() -> Self {
        Self { case: true, plus: false, dots: Vec::new(), qualify: None, v4: 32, v6: 64 }
    }
}

impl Folding {
    /// A client's address, masked.
    #[must_use]
    pub fn client(&self, address: IpAddr) -> Cidr {
        let bits = if address.to_canonical().is_ipv4() { self.v4 } else { self.v6 };
        Cidr::around(address, bits)
    }

    /// An identity as text: a login, an account or an address is folded, an IP
    /// address or network is masked. `None` where nothing is left of it: an empty
    /// identity is none.
    #[must_use]
    pub fn identity(&self, text: &str) -> Option<String> {
        let text = text.trim();
        if let Some(address) = text.split('/').next().and_then(|a| a.parse::<IpAddr>().ok()) {
            let bits = text.split_once('/').and_then(|(_, bits)| bits.parse().ok());
            let masked = self.client(address);
            let wider = Cidr::around(address, bits.unwrap_or(u8::MAX));
            return Some(if wider.covers(masked) { wider } else { masked }.to_string());
        }
        let (local, domain) = match (text.rsplit_once('@'), &self.qualify) {
            (Some((local, domain)), _) => (local, Some(lower(domain))),
            (None, Some(domain)) => (text, Some(domain.clone())),
            (None, None) => (text, None),
        };
        let dots = domain.as_ref().is_some_and(|domain| self.dots.contains(domain));
        // Nothing would be left of `+shop@example.org`.
        let local = match local.split_once('+') {
            Some((before, _)) if self.plus && !before.is_empty() => before,
            _ => local,
        };
        let local = if self.case { lower(local) } else { local.to_owned() };
        let local = if dots { local.replace('.', "") } else { local };
        let local = local.trim();
        match domain {
            _ if local.is_empty() => None,
            Some(domain) if !domain.is_empty() => Some(format!("{local}@{domain}")),
            _ => Some(local.to_owned()),
        }
    }
}

/// A domain as it is compared: in lower case, without dots at its end.
#[must_use]
pub fn lower(text: &str) -> String {
    text.trim().trim_end_matches('.').trim_end().to_lowercase()
}

/// The domain of a folded identity.
#[must_use]
pub fn domain(identity: &str) -> Option<&str> {
    identity.rsplit_once('@').map(|(_, domain)| domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_identity_are_one() {
        let all = Folding { plus: true, dots: vec!["gmail.com".into()], ..Folding::default() };
        for (text, folded) in [
            ("Alice+shop@Example.ORG", "alice@example.org"),
            ("a.l.i.c.e+x+y@GMail.com", "alice@gmail.com"),
            ("a.l@example.org", "a.l@example.org"),
            ("+shop@example.org", "+shop@example.org"),
            ("ALICE", "alice"),
            ("alice@", "alice"),
            (" alice ", "alice"),
            ("\"a@b\"@example.org.", "\"a@b\"@example.org"),
            ("192.0.2.7", "192.0.2.7"),
            ("2001:DB8:0:0:1::7", "2001:db8::/64"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
        ] {
            assert_eq!(all.identity(text).as_deref(), Some(folded), "{text}");
            assert_eq!(all.identity(folded).as_deref(), Some(folded), "{folded} again");
        }
        for text in ["", " ", "@", "@example.org", "...@gmail.com"] {
            assert_eq!(all.identity(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_switched_off_is_kept() {
        let none = Folding { case: false, ..Folding::default() };
        assert_eq!(none.identity("Al.Ice+x@GMail.com").as_deref(), Some("Al.Ice+x@gmail.com"));
        let qualify = Some("example.org".to_owned());
        let qualified = Folding { qualify, v4: 24, ..Folding::default() };
        assert_eq!(qualified.identity("Alice").as_deref(), Some("alice@example.org"));
        assert_eq!(qualified.identity("bob@x.test").as_deref(), Some("bob@x.test"));
        assert_eq!(qualified.identity("192.0.2.7").as_deref(), Some("192.0.2.0/24"));
    }

    quickcheck::quickcheck! {
        fn folding_twice_changes_nothing(text: String, plus: bool, dots: bool) -> bool {
            let dots = if dots { vec!["x".into()] } else { Vec::new() };
            let folding = Folding { plus, dots, ..Folding::default() };
            [text.clone(), text.clone() + "@x", format!("{text}+{text}@x")].iter().all(|text| {
                let once = folding.identity(text);
                once.as_deref().is_none_or(|once| folding.identity(once).as_deref() == Some(once))
            })
        }
    }
}
