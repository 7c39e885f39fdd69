//! Slash lists of options for functions other than `ratelimit`: `name=value /
//! name=value`.

use super::error::Printable;
use super::list::Items;
use super::{MAX_LEN, interval, number};
use crate::text::byte_size;
use std::borrow::Cow;
use std::fmt;

/// One item of such a list, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedOption<'a> {
    text: Cow<'a, [u8]>,
}

/// The options in `text`, in order; `None` if it is longer than a spec may be.
/// The syntax of the list is that of a spec.
#[must_use]
pub fn options(text: &[u8]) -> Option<impl Iterator<Item = NamedOption<'_>>> {
    (text.len() <= MAX_LEN).then(|| Items::new(text).map(|text| NamedOption { text }))
}

impl NamedOption<'_> {
    /// Whether its name is `name`, in any case.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        self.name().eq_ignore_ascii_case(name.as_bytes())
    }

    /// The text before the first equals sign, or all of it.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.text.split(|&b| b == b'=').next().unwrap_or_default().trim_ascii_end()
    }

    /// The text after the first equals sign, if there is one.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        let at = self.text.iter().position(|&b| b == b'=')?;
        Some(self.text.get(at + 1..)?.trim_ascii_start())
    }

    /// Whether its value is this word, in any case.
    #[must_use]
    pub fn is_word(&self, word: &str) -> bool {
        self.value().is_some_and(|value| value.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Its value as an interval such as `90d`, in seconds; never 0.
    #[must_use]
    pub fn seconds(&self) -> Option<u64> {
        interval::seconds(self.value()?).ok().map(|seconds| seconds as u64)
    }

    /// Its value as a size in bytes, such as `512M`.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        byte_size(self.value()?)
    }

    /// Its value as a number that is not negative.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        let value = self.value()?;
        number::count(value).filter(|_| value.iter().any(u8::is_ascii_digit))
    }
}

impl fmt::Display for NamedOption<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printable(&self.text).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> NamedOption<'_> {
        let mut all: Vec<_> = options(text.as_bytes()).unwrap().collect();
        assert_eq!(all.len(), 1, "{text}");
        all.remove(0)
    }

    #[test]
    fn names_and_values() {
        let all: Vec<_> = options(b" keep=90d / Max_Size = 10G /flag/a//b=c=d").unwrap().collect();
        let parts: Vec<_> = all.iter().map(|o| (o.name(), o.value())).collect();
        assert_eq!(
            parts,
            [
                (&b"keep"[..], Some(&b"90d"[..])),
                (b"Max_Size", Some(b"10G")),
                (b"flag", None),
                (b"a/b", Some(b"c=d")),
            ]
        );
        assert!(all[1].is("max_size") && !all[1].is("max") && !all[2].is("flag="));
        assert_eq!(options(b" ").unwrap().count(), 0);
        assert!(options(&[b'x'; MAX_LEN + 1]).is_none());
    }

    #[test]
    fn values_have_the_syntax_of_a_spec() {
        assert_eq!(one("keep=1w2d").seconds(), Some(777_600));
        assert_eq!(one("keep=90").seconds(), Some(90));
        for text in ["keep", "keep=", "keep=0", "keep=90x", "keep=1.5d"] {
            assert_eq!(one(text).seconds(), None, "{text}");
        }
        assert_eq!(one("max=1.5k").bytes(), Some(1536));
        assert_eq!(one("max=10G").bytes(), Some(10 << 30));
        for text in ["max", "max=", "max=k", "max=inf", "max=-1", "max=5", "max=1e30"] {
            assert_eq!(one(text).bytes(), None, "{text}");
        }
        assert_eq!(one("bits=1.2").number(), Some(1.2));
        assert_eq!(one("bits=").number(), None);
        assert!(one("keep=Forever").is_word("forever") && !one("keep").is_word("forever"));
        assert_eq!(one("a=\n\u{e9}").to_string(), "a=\\n\\303\\251");
    }
}
