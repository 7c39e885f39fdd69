//! A line of `audit.log`, read back.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use super::key_text::{self, unescaped};
use super::one_key::{NotOne, OneKey};
use super::pattern::{Pattern, Syntax};
use super::scope::Sight;
use crate::identity::fold::Folding;
use crate::rate::Timestamp;
use crate::store::Target;
use crate::sys::users;
use crate::text;

/// What the name begins with of whoever has changed something by the web service.
pub(crate) const BY_WEB: &str = "web=";

/// A line of `audit.log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuditLine {
    /// When, as it is written.
    pub(crate) at: String,
    /// Who: `token:desk`, or the name of a user.
    pub(crate) who: String,
    /// Whether it was changed by the web service.
    pub(crate) is_by_web: bool,
    /// What was done: `unblock`, `deny`, `stolen`.
    pub(crate) what: String,
    /// What it says besides.
    pub(crate) text: String,
    /// What follows `key=`: the key as it can be pasted; the end may be a reason.
    key: Option<String>,
}

impl AuditLine {
    /// Reads a line; `None` if it is none.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let line = String::from_utf8_lossy(line);
        let (at, rest) = line.split_once(' ')?;
        let is_of_who = |word: &str| {
            ["uid=", "login=", "sudo=", BY_WEB].iter().any(|name| word.starts_with(name))
        };
        let mut end = 0;
        for word in rest.split(' ').take_while(|word| is_of_who(word)) {
            end += word.len() + 1;
        }
        let (who, what) = rest.split_at_checked(end.checked_sub(1)?)?;
        let what = what.strip_prefix(' ')?;
        let key = what.split_once(" key=").map(|(_, key)| key.to_owned());
        let (first, mut text) = what.split_once(' ').unwrap_or((what, ""));
        let mut first = first;
        if let ("habits", Some((answer, rest))) = (first, text.split_once(' ')) {
            (first, text) = (answer, rest);
        }
        Some(Self {
            at: text::printable(at.as_bytes()),
            who: name(who),
            is_by_web: who.starts_with(BY_WEB),
            what: text::printable(first.as_bytes()),
            text: text.to_owned(),
            key,
        })
    }

    /// When.
    pub(crate) fn time(&self) -> Option<Timestamp> {
        let at: jiff::Timestamp = self.at.parse().ok()?;
        Some(Timestamp { seconds: at.as_second(), micros: 0 })
    }

    /// Whether data of somebody was erased.
    pub(crate) fn is_of_erasure(&self) -> bool {
        self.what == "erase"
    }

    /// The key that it is about, as it can be pasted: that of a record without what it counts.
    pub(crate) fn key(&self) -> Option<String> {
        let bytes = unescaped(self.key_text()?);
        Some(key_text::key(key_text::key_of(&key_text::record_of(&bytes))))
    }

    /// The key as it is written: what follows it in a line of an override is left out.
    fn key_text(&self) -> Option<&str> {
        let key = self.key.as_deref()?;
        match &*self.what {
            "allow" | "deny" => Some(key.split_once(" reason=").map_or(key, |(key, _)| key)),
            _ => Some(key),
        }
    }

    /// Whether it is about the key that `pattern`, which means `target`, means.
    pub(crate) fn is_of(&self, pattern: &Pattern, target: &Target, folding: &Folding) -> bool {
        let Some(text) = self.key_text() else { return false };
        let bytes = unescaped(text);
        if pattern.matches(&key_text::record_of(&bytes)) {
            return true;
        }
        let (text, exact) = match text.strip_suffix(" --exact") {
            Some(text) => (text, true),
            None => (text, false),
        };
        let syntax = Syntax { exact, folding: folding.clone() };
        let read = Pattern::parse(text.as_bytes(), syntax).and_then(|one| one.override_target());
        read.is_ok_and(|(one, _)| one == *target)
    }

    /// Whether somebody may see it: all, or what is about a key that he sees.
    pub(crate) fn is_seen(&self, sight: &Sight<'_>, folding: &Folding) -> bool {
        if sight.is_of_all() {
            return true;
        }
        let Some(text) = self.key_text() else { return false };
        let bytes = unescaped(text);
        let record = key_text::record_of(&bytes);
        match OneKey::parse(text.strip_suffix(" --exact").unwrap_or(text), folding) {
            Err(NotOne::Glob) => false,
            Ok(key) if record.identity_start == 0 => sight.has_target(&key.target),
            // A whole stored key.
            _ => sight.has(&record),
        }
    }
}

/// The name of whoever `who` is: `uid=0 login=1000 sudo=bob`.
fn name(who: &str) -> String {
    let of = |key: &str| who.split(' ').find_map(|word| word.strip_prefix(key));
    let user = |uid: &str| {
        let name = uid.parse().ok().and_then(users::name_of);
        name.map_or_else(|| uid.to_owned(), |name| text::printable(name.as_bytes()))
    };
    match (of(BY_WEB), of("sudo="), of("login="), of("uid=")) {
        (Some(name), ..) | (None, Some(name), ..) => text::printable(name.as_bytes()),
        (None, None, Some(uid), _) | (None, None, None, Some(uid)) => user(uid),
        (None, None, None, None) => text::printable(OsStr::new(who).as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standing::pattern;

    fn is_of(line: &str, key: &str) -> bool {
        let folding = Folding::default();
        let syntax = Syntax { exact: false, folding: folding.clone() };
        let pattern = Pattern::parse(key.as_bytes(), syntax).unwrap();
        let (target, _) = pattern::override_target(key.as_bytes(), false, &folding).unwrap();
        let line = AuditLine::parse(line.as_bytes()).unwrap();
        line.is_of(&pattern, &target, &folding)
    }

    #[test]
    fn who_did_what_to_whom() {
        let line = |text: &str| {
            let line = AuditLine::parse(text.as_bytes()).unwrap();
            let key = line.key().unwrap_or_default();
            [line.who, line.is_by_web.to_string(), line.what, key, line.text]
        };
        let at = "2026-11-26T21:00:00Z";
        assert_eq!(
            line(&format!("{at} web=token:desk unblock rate=2 limit=2 key=1h/per_rcpt/alice@x")),
            ["token:desk", "true", "unblock", "alice@x", "rate=2 limit=2 key=1h/per_rcpt/alice@x"]
        );
        assert_eq!(
            line(&format!("{at} uid=0 sudo=bob deny until=forever key=a b reason=key=c key=d")),
            ["bob", "false", "deny", "a b", "until=forever key=a b reason=key=c key=d"]
        );
        assert_eq!(
            line(&format!("{at} uid=0 deny until=forever key=a\\x20reason=b reason=c")),
            ["root", "false", "deny", "a reason=b", "until=forever key=a\\x20reason=b reason=c"]
        );
        assert_eq!(
            line(&format!("{at} uid=0 habits accept alarm=2026 key=auth:alice")),
            ["root", "false", "accept", "auth:alice", "alarm=2026 key=auth:alice"]
        );
        assert_eq!(
            line(&format!("{at} uid=0 policy apply /etc/p.toml")),
            ["root", "false", "policy", "", "apply /etc/p.toml"]
        );
        for line in ["", "x", "2026 unblock", "\0"] {
            assert_eq!(AuditLine::parse(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn the_lines_of_a_key_are_found_however_it_is_written() {
        for (what, key, expected) in [
            ("unblock rate=2 limit=2 key=1h/per_rcpt/Alice@Example.org", "alice@example.org", true),
            ("unblock rate=2 limit=2 key=out/recipients/1h/auth:alice", "alice", true),
            ("unblock rate=2 limit=2 key=out/messages/1/1h/auth:alice", "auth:alice", true),
            ("deny until=forever key=Alice reason=x", "alice", true),
            ("deny until=forever key=auth:alice", "alice", true),
            ("deny until=forever key=sender:bob", "alice", false),
            ("deny until=forever key=bob reason=key=alice", "alice", false),
            ("deny until=forever key=bob reason= key=alice", "alice", false),
            ("allow until=forever key=*@x", "alice@x", false),
            ("allow until=forever key=alice --exact", "alice", false),
            ("unblock removed=deny key=alice", "alice", true),
            ("habits stolen key=alice", "alice", true),
            ("overrides removed=deny key=alice", "alice", true),
            ("unblock records=3 of=alice", "alice", false),
        ] {
            let line = format!("2026-11-26T21:00:00Z uid=0 {what}");
            assert_eq!(is_of(&line, key), expected, "{what}");
        }
    }

    #[test]
    fn what_was_escaped_is_read_back() {
        for key in [&b"a b"[..], b"\xff\\*?[{", "\u{202e}\n".as_bytes(), b"", b"\\"] {
            assert_eq!(unescaped(&key_text::stored(key)), key);
        }
    }
}
