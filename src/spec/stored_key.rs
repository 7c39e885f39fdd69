//! Parses a stored key: `p/mode/[unique/]key`.

use super::interval;
use crate::engine::RecordKey;

/// The parts of a stored key, which [`super::Request::key`] is made of.
///
/// `per_addr` is stored as `per_rcpt/unique` and `per_byte` as `per_mail`, so
/// the mode may differ from the one in the spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredKey<'a> {
    /// The period as the administrator wrote it: `1h`.
    pub period: &'a [u8],
    /// `per_mail`, `per_rcpt`, ...; `per_addr` for unique recipients.
    pub mode: &'a [u8],
    /// Whether unique events are counted.
    pub unique: bool,
    /// The administrator's key.
    pub key: &'a [u8],
}

impl<'a> StoredKey<'a> {
    /// Parses `stored`; `None` if it does not have these parts.
    #[must_use]
    pub fn parse(stored: &'a [u8]) -> Option<Self> {
        let (period, rest) = split_once(stored)?;
        let (mode, rest) = split_once(rest)?;
        // A key that itself begins with `unique/` looks the same: the text
        // alone is ambiguous, and only a filter distinguishes
        // them.
        let (unique, key) = match rest.strip_prefix(b"unique/") {
            Some(key) => (true, key),
            None => (false, rest),
        };
        let mode = if unique && mode == b"per_rcpt" { b"per_addr" } else { mode };
        Some(Self { period, mode, unique, key })
    }

    /// The record key of a stored name, as [`super::Request::check`] forms it. In a
    /// text that is not such a name, everything is identity.
    #[must_use]
    pub fn record_key(stored: &'a [u8]) -> RecordKey<'a> {
        let identity_start = Self::prefix_of(stored).len();
        RecordKey { identity_start, ..stored.into() }
    }

    /// The period in seconds; `None` if it is not an interval.
    #[must_use]
    pub fn period_seconds(&self) -> Option<f64> {
        interval::seconds(self.period).ok()
    }

    /// Everything before the key: `1h/per_rcpt/unique/`; empty if it does not
    /// parse. Two keys with the same prefix were most likely made by the same
    /// ACL line.
    #[must_use]
    pub fn prefix_of(stored: &'a [u8]) -> &'a [u8] {
        let key = Self::parse(stored).map_or(stored.len(), |filed| filed.key.len());
        stored.get(..stored.len() - key).unwrap_or_default()
    }
}

/// Splits at the first slash.
fn split_once(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|&b| b == b'/')?;
    let (before, rest) = bytes.split_at_checked(at)?;
    Some((before, rest.get(1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_key_is_parsed_into_its_parts() {
        let filed = StoredKey::parse(b"1h/per_rcpt/unique/alice").unwrap();
        assert_eq!(
            filed,
            StoredKey { period: b"1h", mode: b"per_addr", unique: true, key: b"alice" }
        );
        let filed = StoredKey::parse(b"60/per_mail/a/b").unwrap();
        assert_eq!(
            filed,
            StoredKey { period: b"60", mode: b"per_mail", unique: false, key: b"a/b" }
        );
        let filed = StoredKey::parse(b"1d/per_mail/unique/x").unwrap();
        assert_eq!((filed.mode, filed.unique), (&b"per_mail"[..], true));
        assert_eq!(StoredKey::parse(b"1d/per_conn/").unwrap().key, b"");
    }

    #[test]
    fn a_stored_key_has_a_period_and_a_prefix() {
        let period = |stored| StoredKey::parse(stored).unwrap().period_seconds();
        assert_eq!(period(b"1h/per_rcpt/alice"), Some(3600.0));
        assert_eq!(period(b"90/per_mail/x"), Some(90.0));
        for no_period in [&b"h/per_mail/x"[..], b"0/per_mail/x", b"1y/per_mail/x", b"//"] {
            assert_eq!(period(no_period), None, "{no_period:?}");
        }
        assert_eq!(StoredKey::prefix_of(b"1h/per_rcpt/unique/a/b"), b"1h/per_rcpt/unique/");
        assert_eq!(StoredKey::prefix_of(b"1h/per_rcpt/a/b"), b"1h/per_rcpt/");
        assert_eq!(StoredKey::prefix_of(b"nothing of ours"), b"");
    }

    #[test]
    fn other_text_is_not_a_stored_key() {
        assert_eq!(StoredKey::parse(b""), None);
        assert_eq!(StoredKey::parse(b"1h"), None);
        assert_eq!(StoredKey::parse(b"1h/per_rcpt"), None);
    }
}
