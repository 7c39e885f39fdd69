//! Keys as text: shown so that they can be pasted as arguments, and read back.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use crate::engine::{AlgorithmKind, Kind, RecordKey};
use crate::identity::fold::split_field;
use crate::spec::{self, StoredKey};
use crate::sys::users;
use crate::text;

/// The modes in stored keys.
pub(crate) const MODES: [&str; 5] = ["per_mail", "per_rcpt", "per_addr", "per_conn", "per_cmd"];
/// The characters that make an argument a glob.
pub(crate) const WILDCARDS: &str = "*?[{";
/// What the key of mail from a local user begins with; the user's number
/// follows. The shipped ACL for local mail uses it.
const LOCAL_USER: &[u8] = b"local:";

/// A key as text that, pasted as an argument, means this key and no other: as
/// [`text::printable`], and with a backslash before what would make it a glob, a
/// whole stored key, an address in brackets or the name of a local user.
pub(crate) fn key(bytes: &[u8]) -> String {
    let mut text = stored(bytes);
    let special = match () {
        () if text.starts_with('<') => Some(0),
        () if looks_stored(bytes) => text.find('/'),
        () if local_user(bytes).is_some() => text.find(':'),
        () => None,
    };
    if let Some(at) = special {
        text.insert(at, '\\');
    }
    text
}

/// A key for a table: as [`key`], and with the name of a local user.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let name = user_of(bytes).map(|name| format!(" ({name})")).unwrap_or_default();
    key(bytes) + &name
}

/// A key for a sentence: as [`shown`], and never empty.
pub(crate) fn title(bytes: &[u8]) -> String {
    if bytes.is_empty() { "(the empty key)".to_owned() } else { shown(bytes) }
}

/// The name of the user whose number the key holds.
pub(crate) fn user_of(key: &[u8]) -> Option<String> {
    let uid = std::str::from_utf8(key.strip_prefix(LOCAL_USER)?).ok()?.parse().ok()?;
    Some(text::printable(users::name_of(uid)?.as_bytes()))
}

/// The key `local:33` for the text `local:www-data`.
pub(crate) fn local_user(text: &[u8]) -> Option<Vec<u8>> {
    let uid = users::id_of(OsStr::from_bytes(text.strip_prefix(LOCAL_USER)?))?;
    Some([LOCAL_USER, uid.to_string().as_bytes()].concat())
}

/// A whole stored key, as text that can be pasted as an argument.
pub(crate) fn stored(bytes: &[u8]) -> String {
    text::escape(bytes, WILDCARDS)
}

/// The parts of the name of a spec's record, if it has them.
pub(crate) fn parts<'a>(key: &RecordKey<'a>) -> Option<StoredKey<'a>> {
    match key.kind {
        Kind::Spec => StoredKey::parse(key.name),
        Kind::Policy | Kind::Habits | Kind::Usage => None,
    }
}

/// The parts of the name of a policy's record: `POLICY/UNIT/WINDOW/identity`.
pub(crate) struct PolicyKey<'a> {
    /// `POLICY/UNIT`: what is counted.
    pub(crate) counted: &'a [u8],
    /// The period of a moving average, or the rate of a bucket.
    pub(crate) window: &'a [u8],
}

/// The parts of the name of a policy's record, if it has them.
pub(crate) fn policy<'a>(key: &RecordKey<'a>) -> Option<PolicyKey<'a>> {
    if key.kind != Kind::Policy {
        return None;
    }
    let prefix = key.name.get(..key.identity_start)?.strip_suffix(b"/")?;
    let mut slashes = prefix.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let (second, _) = slashes.nth(1)?;
    Some(PolicyKey { counted: prefix.get(..second)?, window: prefix.get(second + 1..)? })
}

/// The period that the name of a record has, as it was written; of a policy's bucket, its rate.
pub(crate) fn period<'a>(key: &RecordKey<'a>) -> Option<&'a [u8]> {
    let of_policy = || policy(key).map(|policy| policy.window);
    parts(key).map(|parts| parts.period).or_else(of_policy)
}

/// The period in seconds that the name of a record has.
pub(crate) fn period_seconds(key: &RecordKey<'_>) -> Option<f64> {
    match policy(key) {
        Some(policy) => spec::period(policy.window).ok(),
        None => parts(key)?.period_seconds(),
    }
}

/// What the administrator calls the key of a record.
pub(crate) fn key_of<'a>(key: &RecordKey<'a>) -> &'a [u8] {
    match key.kind {
        Kind::Spec => parts(key).map_or(key.name, |parts| parts.key),
        Kind::Policy | Kind::Habits | Kind::Usage => key.identity(),
    }
}

/// The key of the record of this name, or of the identity of this name.
pub(crate) fn record_of(name: &[u8]) -> RecordKey<'_> {
    let algorithm = AlgorithmKind::default();
    let of_policy =
        |identity_start| RecordKey { name, identity_start, kind: Kind::Policy, algorithm };
    if split_field(name).is_some() {
        return of_policy(0);
    }
    if looks_stored(name) {
        return StoredKey::record_key(name);
    }
    // `POLICY/UNIT/WINDOW/FIELD:VALUE`, in which the window may have a slash.
    let slashes = name.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at + 1);
    let mut starts = slashes.skip(2).take(2);
    match starts.find(|&at| name.get(at..).is_some_and(|rest| split_field(rest).is_some())) {
        Some(start) => of_policy(start),
        None => RecordKey { name, identity_start: 0, kind: Kind::Spec, algorithm },
    }
}

/// Whether `text` begins as a stored key does, with a period and a mode, of
/// which one may be `*`.
pub(crate) fn looks_stored(text: &[u8]) -> bool {
    StoredKey::parse(text).is_some_and(|parts| {
        let is_mode = MODES.iter().any(|mode| mode.as_bytes() == parts.mode);
        let is_period = parts.period_seconds().is_some();
        is_mode && (is_period || parts.period == b"*") || is_period && parts.mode == b"*"
    })
}

/// The bytes that an escaped text stands for.
pub(crate) fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match unescape_one(after).filter(|_| byte == b'\\') {
            Some((Ok(c), after)) => {
                bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                rest = after;
            }
            Some((Err(byte), after)) => {
                bytes.push(byte);
                rest = after;
            }
            None => bytes.push(byte),
        }
    }
    bytes
}

/// Reads what follows a backslash in escaped text: a character, or a byte of
/// what is not UTF-8, and the rest of the text. `None` where this is not an
/// escape. A backslash before punctuation stands for that character.
pub(crate) fn unescape_one(text: &[u8]) -> Option<(Result<char, u8>, &[u8])> {
    let (&escape, rest) = text.split_first()?;
    let c = match escape {
        // As Exim writes what is not ASCII; a 0 alone is NUL, as `exirate list` writes it.
        b'1'..=b'3' => {
            let (digits, rest) = text.split_at_checked(3)?;
            let is_octal = digits.iter().all(|digit| matches!(digit, b'0'..=b'7'));
            let number = u32::from_str_radix(str::from_utf8(digits).ok()?, 8).ok();
            let byte = number.filter(|_| is_octal).and_then(|number| u8::try_from(number).ok())?;
            return Some((Err(byte), rest));
        }
        b'0' => '\0',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'x' => {
            let (digits, rest) = rest.split_at_checked(2)?;
            return Some((Err(u8::try_from(from_hex(digits)?).ok()?), rest));
        }
        b'u' => {
            let digits = rest.strip_prefix(b"{")?;
            let end = digits.iter().position(|&b| b == b'}')?;
            let (digits, rest) = digits.split_at_checked(end)?;
            return Some((Ok(char::from_u32(from_hex(digits)?)?), rest.get(1..)?));
        }
        _ if escape.is_ascii_punctuation() => char::from(escape),
        _ => return None,
    };
    Some((Ok(c), rest))
}

/// The number that hexadecimal `digits` stand for.
fn from_hex(digits: &[u8]) -> Option<u32> {
    let all_digits = digits.iter().all(u8::is_ascii_hexdigit);
    u32::from_str_radix(std::str::from_utf8(digits).ok().filter(|_| all_digits)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_an_escape_is_refused() {
        for text in ["", "q", "x1", "x+1", "u{}", "u{d800}", "u{1", "u1"] {
            assert_eq!(unescape_one(text.as_bytes()), None, "{text}");
        }
        assert_eq!(unescape_one(b"*x"), Some((Ok('*'), &b"x"[..])));
        assert_eq!(unescape_one(b"u{202e}"), Some((Ok('\u{202e}'), &b""[..])));
        assert_eq!(unescape_one(b"xffz"), Some((Err(0xff), &b"z"[..])));
    }

    #[test]
    fn a_local_user_is_shown_with_a_name() {
        assert_eq!(title(b"local:0"), "local:0 (root)");
        assert_eq!(title(b"local:3999999999"), "local:3999999999");
        assert_eq!(key(b"local:root"), r"local\:root");
        assert_eq!(local_user(b"local:root").as_deref(), Some(&b"local:0"[..]));
    }
}
