//! A stored key taken apart again: `p/mode/[unique/]key`.

/// The parts of a stored key, as far as it has them.
///
/// `per_addr` is filed as `per_rcpt/unique`, `per_byte` as `per_mail`, so the
/// mode is what a key is filed under and not always what a line said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filed<'a> {
    /// The period as the administrator wrote it: `1h`.
    pub(super) period: &'a [u8],
    /// `per_mail`, `per_rcpt`, ...; `per_addr` where recipients are unique.
    pub(super) mode: &'a [u8],
    /// Whether unique events are counted.
    pub(super) unique: bool,
    /// What the administrator calls the key.
    pub(super) key: &'a [u8],
}

impl<'a> Filed<'a> {
    /// Takes `stored` apart; `None` where it has no such parts.
    pub(super) fn parse(stored: &'a [u8]) -> Option<Self> {
        let (period, rest) = split_once(stored)?;
        let (mode, rest) = split_once(rest)?;
        // A key that itself begins with `unique/` looks the same: the text
        // does not tell, and the filter beside it does.
        let (unique, key) = match rest.strip_prefix(b"unique/") {
            Some(key) => (true, key),
            None => (false, rest),
        };
        let mode = if unique && mode == b"per_rcpt" { b"per_addr" } else { mode };
        Some(Self { period, mode, unique, key })
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
    fn a_stored_key_falls_apart_into_what_was_written() {
        let filed = Filed::parse(b"1h/per_rcpt/unique/alice").unwrap();
        assert_eq!(filed, Filed { period: b"1h", mode: b"per_addr", unique: true, key: b"alice" });
        let filed = Filed::parse(b"60/per_mail/a/b").unwrap();
        assert_eq!(filed, Filed { period: b"60", mode: b"per_mail", unique: false, key: b"a/b" });
        let filed = Filed::parse(b"1d/per_mail/unique/x").unwrap();
        assert_eq!((filed.mode, filed.unique), (&b"per_mail"[..], true));
        assert_eq!(Filed::parse(b"1d/per_conn/").unwrap().key, b"");
    }

    #[test]
    fn what_is_no_stored_key_is_none() {
        assert_eq!(Filed::parse(b""), None);
        assert_eq!(Filed::parse(b"1h"), None);
        assert_eq!(Filed::parse(b"1h/per_rcpt"), None);
    }
}
