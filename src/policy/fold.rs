//! Folding: what different spellings of one identity become.
//!
//! The tables, the entries of `exempt` and the identities of events are folded
//! alike, so that `Alice+shop@Example.org` is counted as, and finds the limits of,
//! `alice@example.org`.

use std::fmt::Write as _;
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
        let mut folded = String::new();
        self.fold_into(text, &mut folded).then_some(folded)
    }

    /// As [`Folding::identity`], into `out`, which is cleared before. Returns false, and
    /// leaves `out` empty, where nothing is left. Allocates only where `out` is too short,
    /// or `text` is not ASCII.
    #[must_use]
    pub fn fold_into(&self, text: &str, out: &mut String) -> bool {
        out.clear();
        let (mut local, mut domain) = (text.trim(), None);
        // `alice@` has no domain.
        while domain.is_none()
            && let Some((before, after)) = local.rsplit_once('@')
        {
            domain = Some(trimmed(after)).filter(|domain| !domain.is_empty());
            local = if domain.is_some() { before } else { before.trim() };
        }
        if domain.is_none() && self.network_into(local, out) {
            return true;
        }
        let qualify = self.qualify.as_deref().filter(|domain| !domain.is_empty());
        let is_dotless = |domain: &str| {
            let lower = |known: &String| {
                if domain.is_ascii() {
                    known.eq_ignore_ascii_case(domain)
                } else {
                    *known == domain.to_lowercase()
                }
            };
            self.dots.iter().any(lower)
        };
        let dots = domain.or(qualify).is_some_and(is_dotless);
        // Nothing would be left of `+shop@example.org`.
        let local = match local.split_once('+') {
            Some((before, _)) if self.plus && !before.is_empty() => before,
            _ => local,
        };
        let local = local.trim_matches(|c: char| c.is_whitespace() || dots && c == '.');
        if local.is_empty() {
            return false;
        }
        if dots {
            local.split('.').for_each(|part| push(out, part, self.case));
        } else {
            push(out, local, self.case);
        }
        if let Some(domain) = domain.or(qualify) {
            out.push('@');
            push(out, domain, true);
        } else if local.len() < text.len() {
            // `192.0.2.7+x`
            let rest = std::mem::take(out);
            if !self.network_into(&rest, out) {
                *out = rest;
            }
        }
        true
    }

    /// Writes an IP address or network, masked; false if `text` is neither.
    fn network_into(&self, text: &str, out: &mut String) -> bool {
        // What no address begins with: spares most logins the attempts to parse them.
        if !text.starts_with(|c: char| c.is_ascii_hexdigit() || c == ':') {
            return false;
        }
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, bits.parse().ok()),
            None => (text, None),
        };
        let Ok(address) = address.parse::<IpAddr>() else { return false };
        let masked = self.client(address);
        let wider = Cidr::around(address, bits.unwrap_or(u8::MAX));
        // Writing to a String cannot fail.
        let _ = write!(out, "{}", if wider.covers(masked) { wider } else { masked });
        true
    }
}

/// A domain without what is around it: blanks, and the dots at its end.
fn trimmed(domain: &str) -> &str {
    domain.trim_start().trim_end_matches(|c: char| c == '.' || c.is_whitespace())
}

/// Appends `text`, in lower case if `lower`.
fn push(out: &mut String, text: &str, lower: bool) {
    let start = out.len();
    if lower && !text.is_ascii() {
        out.push_str(&text.to_lowercase());
        return;
    }
    out.push_str(text);
    if lower && let Some(added) = out.get_mut(start..) {
        added.make_ascii_lowercase();
    }
}

/// A domain as it is compared: in lower case, without dots at its end.
#[must_use]
pub fn lower(text: &str) -> String {
    trimmed(text).to_lowercase()
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
            ("alice@ . ", "alice"),
            ("a@b@@", "a@b"),
            ("192.0.2.7@", "192.0.2.7"),
            ("192.0.2.7+x", "192.0.2.7"),
            ("192.0.2.7/8@example.org", "192.0.2.7/8@example.org"),
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
        for text in ["", " ", "@", "@@", "@ . ", "@example.org", "...@gmail.com"] {
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
        assert_eq!(qualified.identity("Alice@").as_deref(), Some("alice@example.org"));
        assert_eq!(qualified.identity("bob@x.test").as_deref(), Some("bob@x.test"));
        for address in ["192.0.2.7", "::ffff:192.0.2.7"] {
            assert_eq!(qualified.identity(address).as_deref(), Some("192.0.2.0/24"));
        }
    }

    #[test]
    fn a_buffer_is_used_again() {
        let folding = Folding { plus: true, ..Folding::default() };
        let mut out = String::with_capacity(100);
        let place = out.as_ptr();
        out.push_str("what was there");
        for (text, folded) in
            [("Bob+x@EXAMPLE.org", "bob@example.org"), ("", ""), ("192.0.2.7", "192.0.2.7")]
        {
            assert_eq!(folding.fold_into(text, &mut out), !folded.is_empty());
            assert_eq!(out, folded);
            assert_eq!(out.as_ptr(), place, "{text}");
        }
    }

    /// Texts of what is special.
    #[derive(Clone, Debug)]
    struct Special(String);

    impl quickcheck::Arbitrary for Special {
        fn arbitrary(g: &mut quickcheck::Gen) -> Self {
            const PIECES: [&str; 20] = [
                "a",
                "B",
                "@",
                "+",
                ".",
                " ",
                "/",
                "8",
                "192.0.2.7",
                "2001:DB8::1",
                ":",
                "x.org",
                "X.ORG",
                "É",
                "ΑΣ",
                "\u{a0}",
                "İ",
                "\"",
                "::ffff:",
                "\u{212a}",
            ];
            let pieces = Vec::<u8>::arbitrary(g);
            let piece = |at: u8| PIECES[usize::from(at) % PIECES.len()];
            Self(pieces.into_iter().take(8).map(piece).collect())
        }
    }

    #[test]
    fn folding_twice_changes_nothing() {
        fn holds(special: Special, any: String, flags: u8) -> bool {
            let flag = |bit: u8| flags & 1 << bit != 0;
            let folding = Folding {
                case: flag(0),
                plus: flag(1),
                dots: if flag(2) { vec!["x.org".into(), "é".into()] } else { Vec::new() },
                qualify: flag(3).then(|| "x.org".to_owned()),
                v4: if flag(4) { 24 } else { 32 },
                v6: if flag(5) { 0 } else { 64 },
            };
            let mut out = String::from("x");
            [&special.0, &any, &format!("{any}@x"), &format!("{any}+{any}@x")].iter().all(|text| {
                let once = folding.identity(text);
                assert_eq!(folding.fold_into(text, &mut out), once.is_some());
                assert_eq!(out, once.clone().unwrap_or_default());
                once.as_deref().is_none_or(|once| folding.identity(once).as_deref() == Some(once))
            })
        }
        let check: fn(Special, String, u8) -> bool = holds;
        quickcheck::QuickCheck::new().tests(5000).quickcheck(check);
    }
}
