//! One argument, and the ways in which it can be read.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

use super::super::text;
use super::MODES;
use crate::spec::StoredKey;

/// A way to read an argument; the first that fits any record is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reading {
    /// Byte for byte.
    Exact,
    /// With escapes as `exirate list` prints them.
    Escaped,
    /// An IP address, or an address in angle brackets.
    Address,
    /// A glob over keys.
    Glob,
    /// A glob over whole stored keys.
    StoredGlob,
    /// The letters in any case.
    AnyCase,
    /// A glob, the letters in any case.
    GlobAnyCase,
}

impl Reading {
    const ALL: [Self; 7] = [
        Self::Exact,
        Self::Escaped,
        Self::Address,
        Self::Glob,
        Self::StoredGlob,
        Self::AnyCase,
        Self::GlobAnyCase,
    ];

    pub(super) fn ignores_case(self) -> bool {
        matches!(self, Self::AnyCase | Self::GlobAnyCase)
    }

    /// Whether more may be meant than was written.
    pub(super) fn is_loose(self) -> bool {
        self >= Self::Glob
    }
}

/// An argument, prepared for each reading.
#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) argument: Vec<u8>,
    unescaped: Option<Vec<u8>>,
    ip: Option<IpAddr>,
    /// What `<…>` holds.
    bracketed: Option<Vec<u8>>,
    lower: String,
    glob: Option<GlobMatcher>,
    stored_glob: Option<GlobMatcher>,
    glob_any_case: Option<GlobMatcher>,
    wrong_glob: Option<String>,
}

impl Pattern {
    pub(super) fn new(argument: &[u8]) -> Self {
        let ip = ip(argument);
        // An address in brackets is not meant as a set of letters.
        let letters = if ip.is_some() { &[] } else { argument };
        let (glob, wrong_glob) = match glob(letters, false) {
            Ok(glob) => (glob, None),
            Err(why) => (None, Some(why)),
        };
        let stored_glob = glob.clone().filter(|_| names_a_mode(argument));
        Self {
            argument: argument.to_vec(),
            unescaped: text::unescape(argument).filter(|plain| plain != argument),
            ip,
            bracketed: enclosed(argument, b"<", b">").map(<[u8]>::to_vec),
            lower: String::from_utf8_lossy(argument).to_lowercase(),
            glob,
            stored_glob,
            glob_any_case: glob_of_any_case(letters),
            wrong_glob,
        }
    }

    /// Why the argument is no glob though it has the signs of one.
    pub(super) fn wrong_glob(&self) -> Option<&str> {
        self.wrong_glob.as_deref()
    }

    /// The first reading in which the argument means `stored`, among those no
    /// worse than `best`.
    pub(super) fn reading(&self, stored: &[u8], best: Option<Reading>) -> Option<Reading> {
        let mut readings = Reading::ALL.into_iter();
        readings
            .by_ref()
            .take_while(|&reading| best.is_none_or(|best| reading <= best))
            .find(|&reading| self.fits(reading, stored))
    }

    /// Whether the argument, read so, means `stored`.
    pub(super) fn fits(&self, reading: Reading, stored: &[u8]) -> bool {
        let key = StoredKey::parse(stored).map_or(stored, |filed| filed.key);
        let is = |text: &[u8]| text == key || text == stored;
        let matches = |glob: &Option<GlobMatcher>, text: &[u8]| {
            glob.as_ref().is_some_and(|glob| glob.is_match(Path::new(OsStr::from_bytes(text))))
        };
        match reading {
            Reading::Exact => is(&self.argument),
            Reading::Escaped => self.unescaped.as_deref().is_some_and(is),
            Reading::Address => {
                self.bracketed.as_deref().is_some_and(is)
                    || self.ip.is_some_and(|wanted| ip(key) == Some(wanted))
            }
            Reading::Glob => matches(&self.glob, key),
            Reading::StoredGlob => matches(&self.stored_glob, stored),
            Reading::AnyCase => {
                let same = |text| String::from_utf8_lossy(text).to_lowercase() == self.lower;
                same(key) || same(stored)
            }
            Reading::GlobAnyCase => matches(&self.glob_any_case, key),
        }
    }
}

/// `text` as an IP address; also in brackets, as in Exim's log. An IPv4 address
/// in IPv6's clothes is the same as without.
fn ip(text: &[u8]) -> Option<IpAddr> {
    let text = enclosed(text, b"[", b"]").unwrap_or(text);
    // An address ends in a digit; most keys do not even begin like one.
    if !text.first().is_some_and(|&b| b.is_ascii_hexdigit() || b == b':') {
        return None;
    }
    let address: IpAddr = std::str::from_utf8(text).ok()?.parse().ok()?;
    Some(address.to_canonical())
}

/// What is between `open` and `close`.
fn enclosed<'a>(text: &'a [u8], open: &[u8], close: &[u8]) -> Option<&'a [u8]> {
    text.strip_prefix(open)?.strip_suffix(close)
}

/// `text` as a glob, if it has the signs of one. A slash is a letter as any.
fn glob(text: &[u8], any_case: bool) -> Result<Option<GlobMatcher>, String> {
    if !text.iter().any(|b| b"*?[{".contains(b)) {
        return Ok(None);
    }
    let text = std::str::from_utf8(text).map_err(|_| "it must be UTF-8".to_owned())?;
    GlobBuilder::new(text)
        .case_insensitive(any_case)
        .literal_separator(false)
        .backslash_escape(true)
        .build()
        .map(|glob| Some(glob.compile_matcher()))
        .map_err(|error| error.kind().to_string())
}

/// As [`glob`], where it is one at all.
fn glob_of_any_case(text: &[u8]) -> Option<GlobMatcher> {
    glob(text, true).ok().flatten()
}

/// Whether `text` begins as a stored key does: with a period or a glob for
/// one, and then a mode or a glob for one.
fn names_a_mode(text: &[u8]) -> bool {
    StoredKey::parse(text).is_some_and(|filed| {
        let any = |part: &[u8]| part.contains(&b'*');
        (any(filed.period) || filed.period_seconds().is_some())
            && (any(filed.mode) || MODES.iter().any(|mode| mode.as_bytes() == filed.mode))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(argument: &[u8], stored: &[u8]) -> Option<Reading> {
        Pattern::new(argument).reading(stored, None)
    }

    #[test]
    fn a_key_is_what_the_administrator_calls_it() {
        for (argument, stored, expected) in [
            (&b"alice"[..], &b"1h/per_rcpt/alice"[..], Some(Reading::Exact)),
            (b"alice", b"1h/per_rcpt/unique/alice", Some(Reading::Exact)),
            (b"1h/per_rcpt/alice", b"1h/per_rcpt/alice", Some(Reading::Exact)),
            (b"", b"1h/per_rcpt/", Some(Reading::Exact)),
            (b"no parts", b"no parts", Some(Reading::Exact)),
            (b"ali", b"1h/per_rcpt/alice", None),
            (br"\u{1b}\xff", b"1h/per_mail/\x1b\xff", Some(Reading::Escaped)),
            (br"a\\b", br"1h/per_mail/a\b", Some(Reading::Escaped)),
            (br"a\b", br"1h/per_mail/a\b", Some(Reading::Exact)),
            (b"<a@x.test>", b"1h/per_mail/a@x.test", Some(Reading::Address)),
            (b"ALICE@example.org", b"1h/per_mail/alice@Example.org", Some(Reading::AnyCase)),
            ("JÜRGEN".as_bytes(), "1h/per_mail/jürgen".as_bytes(), Some(Reading::AnyCase)),
        ] {
            assert_eq!(reading(argument, stored), expected, "{argument:?}");
        }
    }

    #[test]
    fn an_ip_address_is_the_same_in_every_notation() {
        for argument in [
            "2001:db8::1",
            "2001:DB8:0:0::1",
            "2001:0db8:0000:0000:0000:0000:0000:0001",
            "[2001:db8::1]",
        ] {
            let found = reading(argument.as_bytes(), b"1h/per_conn/2001:db8::1");
            assert!(found.is_some_and(|reading| reading <= Reading::Address), "{argument}");
            assert_eq!(reading(argument.as_bytes(), b"1h/per_conn/2001:db8::2"), None);
        }
        let stored = b"1h/per_conn/192.0.2.7";
        assert_eq!(reading(b"[192.0.2.7]", stored), Some(Reading::Address));
        assert_eq!(reading(b"::ffff:192.0.2.7", stored), Some(Reading::Address));
        assert_eq!(reading(b"192.0.2.70", stored), None);
        assert_eq!(reading(b"[192.0.2.7]", b"1h/per_mail/7"), None, "this is no glob");
    }

    #[test]
    fn globs_are_over_keys_unless_they_name_a_mode() {
        let stored = b"1h/per_rcpt/alice@example.org";
        for argument in ["*", "*@example.org", "al?ce@*", "{alice,bob}@*", "[a-c]*"] {
            assert_eq!(reading(argument.as_bytes(), stored), Some(Reading::Glob), "{argument}");
        }
        assert_eq!(reading(b"1h/per_rcpt/*@example.org", stored), Some(Reading::StoredGlob));
        assert_eq!(reading(b"*/per_rcpt/al*", stored), Some(Reading::StoredGlob));
        assert_eq!(reading(b"*@EXAMPLE.org", stored), Some(Reading::GlobAnyCase));
        for argument in ["1*", "*@example.com", "1h/per_mail/*", "[alice"] {
            assert_eq!(reading(argument.as_bytes(), stored), None, "{argument}");
        }
        assert_eq!(reading(b"10.0.0.*", b"1h/per_conn/10.0.0.0/24"), Some(Reading::Glob));
        assert_eq!(reading(b"a*", b"1h/per_mail/a\xff"), Some(Reading::Glob));
        // A key that looks like a glob is that key first.
        assert_eq!(reading(b"*", b"1h/per_rcpt/*"), Some(Reading::Exact));
        assert!(Pattern::new(b"[alice").wrong_glob().is_some());
    }

    #[test]
    fn nothing_worse_than_the_best_is_looked_for() {
        let pattern = Pattern::new(b"*");
        assert_eq!(pattern.reading(b"1h/per_rcpt/alice", Some(Reading::Exact)), None);
        assert_eq!(pattern.reading(b"1h/per_rcpt/*", Some(Reading::Glob)), Some(Reading::Exact));
    }
}
