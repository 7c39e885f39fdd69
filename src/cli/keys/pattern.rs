//! One `KEY` argument: what it matches depends on how it is written, never on
//! which keys are stored, or a client could hide others by sending under a
//! name such as `*@example.org`.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

use super::super::key_text::{self, WILDCARDS, local_user, looks_stored, unescape_one};
use super::super::text;
use crate::engine::{Kind, RecordKey};
use crate::store::{Target, compile_glob, names};

/// How arguments are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Syntax {
    /// The argument is the key, byte for byte.
    pub(super) exact: bool,
    /// Upper and lower case are the same.
    pub(super) ignore_case: bool,
}

/// A parsed argument.
#[derive(Debug)]
pub(super) struct Pattern {
    /// The argument as it was written.
    pub(super) argument: Vec<u8>,
    matcher: Matcher,
    /// It is matched against whole stored keys instead of keys.
    stored: bool,
    ignore_case: bool,
}

#[derive(Debug)]
enum Matcher {
    Literal { text: Vec<u8>, ip: Option<IpAddr>, bracketed: Option<Vec<u8>> },
    Glob(GlobMatcher),
}

impl Pattern {
    /// Parses `argument`; an error says what is wrong with it.
    pub(super) fn parse(argument: &[u8], syntax: Syntax) -> Result<Self, String> {
        let Syntax { exact, ignore_case } = syntax;
        let stored = !exact && looks_stored(argument);
        let plain = |text: Vec<u8>| Matcher::Literal { text, ip: None, bracketed: None };
        let matcher = if exact {
            plain(argument.to_vec())
        } else {
            let tokens = Token::parse(argument)?;
            let is_escaped = tokens.iter().any(|token| token.escaped);
            if !is_escaped && !stored && ip(argument).is_some() {
                // `[192.0.2.7]` is an address and not a set of letters.
                Matcher::Literal { text: argument.to_vec(), ip: ip(argument), bracketed: None }
            } else if tokens.iter().any(Token::is_wildcard) {
                Matcher::Glob(glob(&tokens, ignore_case)?)
            } else if is_escaped || stored {
                plain(tokens.iter().flat_map(|token| token.bytes()).collect())
            } else {
                let bracketed = enclosed(argument, b"<", b">").map(<[u8]>::to_vec);
                let bracketed = bracketed.or_else(|| local_user(argument));
                Matcher::Literal { text: argument.to_vec(), ip: None, bracketed }
            }
        };
        Ok(Self { argument: argument.to_vec(), matcher, stored, ignore_case })
    }

    /// What it means for an override, and how that is shown: a key of a spec, or a glob
    /// over such keys. Addresses are taken as Exim writes them.
    ///
    /// # Errors
    /// It is about whole stored keys, or a glob that an override cannot have.
    pub(super) fn override_target(&self) -> Result<(Target, String), String> {
        let shown = text::printable(&self.argument);
        if self.stored {
            return Err(format!(
                "{shown}: an override applies to all limits of a key: write the key without its \
                 period and mode; --exact takes it literally"
            ));
        }
        let ignore_case = self.ignore_case;
        match &self.matcher {
            Matcher::Glob(glob) => {
                let wrong = |why: String| format!("{shown}: {why}");
                let alternatives = compile_glob(glob.glob().glob(), ignore_case).map_err(wrong)?;
                let argument = String::from_utf8_lossy(&self.argument);
                if argument.contains(char::is_control) {
                    return Err(wrong("write a control character as `exirate list` does".into()));
                }
                Ok((Target::Glob { alternatives, ignore_case }, argument.into_owned()))
            }
            Matcher::Literal { text, ip, bracketed } => {
                let address = ip.map(|ip| ip.to_string().into_bytes());
                let key = address.or_else(|| bracketed.clone()).unwrap_or_else(|| text.clone());
                let shown = key_text::key(&key);
                Ok((Target::Exact { key, ignore_case }, shown))
            }
        }
    }

    /// Whether it may match more than one key.
    pub(super) fn is_loose(&self) -> bool {
        self.ignore_case || matches!(self.matcher, Matcher::Glob(_))
    }

    /// Whether it matches the record of this key. That of a policy is matched by its
    /// identity, `auth:alice`, by the value, `alice`, and by its whole name.
    pub(super) fn matches(&self, key: &RecordKey<'_>) -> bool {
        match (key.kind, self.stored) {
            (_, true) => self.matches_text(key.name),
            (Kind::Spec, false) => self.matches_text(key_text::key_of(key)),
            (Kind::Policy, false) => {
                names(key).any(|name| self.matches_text(&name)) || self.matches_text(key.name)
            }
        }
    }

    fn matches_text(&self, subject: &[u8]) -> bool {
        match &self.matcher {
            Matcher::Glob(glob) => glob.is_match(Path::new(OsStr::from_bytes(subject))),
            Matcher::Literal { text, ip: wanted, bracketed } => {
                let same = |text: &[u8]| match self.ignore_case {
                    true => lower(text) == lower(subject),
                    false => text == subject,
                };
                same(text)
                    || bracketed.as_deref().is_some_and(same)
                    || wanted.is_some_and(|wanted| ip(subject) == Some(wanted))
            }
        }
    }
}

/// A part of an argument.
#[derive(Debug, PartialEq, Eq)]
struct Token {
    /// What it stands for.
    value: Value,
    /// It was written with a backslash.
    escaped: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Value {
    Byte(u8),
    Char(char),
}

impl Token {
    /// Splits an argument into its characters and escapes.
    fn parse(argument: &[u8]) -> Result<Vec<Self>, String> {
        let mut tokens = Vec::with_capacity(argument.len());
        let mut rest = argument;
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            let (value, escaped) = match byte {
                b'\\' => {
                    let (value, after) = unescape_one(rest).ok_or_else(|| {
                        let text = text::printable(argument);
                        let shown = String::from_utf8_lossy(rest.get(..1).unwrap_or_default());
                        let shown = text::printable(shown.as_bytes());
                        format!(
                            "{text}: `\\{shown}` is not an escape that `exirate list` prints; \
                             write a backslash as `\\\\`, or use --exact"
                        )
                    })?;
                    rest = after;
                    (value.map_or_else(Value::Byte, Value::Char), true)
                }
                _ => (Value::Byte(byte), false),
            };
            tokens.push(Self { value, escaped });
        }
        Ok(tokens)
    }

    fn is_wildcard(&self) -> bool {
        matches!(self.value, Value::Byte(byte) if !self.escaped && WILDCARDS.as_bytes().contains(&byte))
    }

    fn bytes(&self) -> Vec<u8> {
        match self.value {
            Value::Byte(byte) => vec![byte],
            Value::Char(c) => c.encode_utf8(&mut [0; 4]).as_bytes().to_vec(),
        }
    }
}

/// The glob that `tokens` are. A slash is a letter like any other.
fn glob(tokens: &[Token], ignore_case: bool) -> Result<GlobMatcher, String> {
    let mut bytes = Vec::new();
    let mut in_class = false;
    for token in tokens {
        let value = token.bytes();
        match (&*value, token.escaped) {
            (b"[", false) => in_class = true,
            (b"]", false) => in_class = false,
            // A class has no escapes, and needs none for these.
            (_, true) if !in_class && value.iter().all(u8::is_ascii_punctuation) => {
                bytes.push(b'\\');
            }
            _ => {}
        }
        bytes.extend(value);
    }
    let wrong = |why: String| format!("{}: {why}", text::printable(&bytes));
    let text = std::str::from_utf8(&bytes).map_err(|_| wrong("a glob must be UTF-8".into()))?;
    GlobBuilder::new(text)
        .case_insensitive(ignore_case)
        .literal_separator(false)
        .backslash_escape(true)
        .build()
        .map(|glob| glob.compile_matcher())
        .map_err(|error| {
            wrong(format!("not a valid glob ({}); --exact takes it literally", error.kind()))
        })
}

/// `text` as an IP address; also in brackets, as in Exim's log. An IPv4-mapped
/// IPv6 address is that IPv4 address.
fn ip(text: &[u8]) -> Option<IpAddr> {
    let text = enclosed(text, b"[", b"]").unwrap_or(text);
    // Cheap, and enough for most keys.
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

fn lower(text: &[u8]) -> String {
    String::from_utf8_lossy(text).to_lowercase()
}

#[cfg(test)]
mod tests {
    use quickcheck::quickcheck;

    use super::*;

    fn matches(argument: &[u8], stored: &[u8]) -> bool {
        Pattern::parse(argument, Syntax::default()).unwrap().matches(&stored.into())
    }

    #[test]
    fn a_key_is_found_as_administrators_write_it() {
        for (argument, stored, expected) in [
            (&b"alice"[..], &b"1h/per_rcpt/alice"[..], true),
            (b"alice", b"1h/per_rcpt/unique/alice", true),
            (b"1h/per_rcpt/alice", b"1h/per_rcpt/alice", true),
            (b"1h/per_rcpt/alice", b"1d/per_mail/1h/per_rcpt/alice", false),
            (br"1h\/per_rcpt/alice", b"1d/per_mail/1h/per_rcpt/alice", true),
            (b"", b"1h/per_rcpt/", true),
            (b"no parts", b"no parts", true),
            (b"ali", b"1h/per_rcpt/alice", false),
            (br"\u{1b}\xff", b"1h/per_mail/\x1b\xff", true),
            (br"a\\b", br"1h/per_mail/a\b", true),
            (br"a\\b", br"1h/per_mail/a\\b", false),
            (b"<a@x.test>", b"1h/per_mail/a@x.test", true),
            (b"<a@x.test>", b"1h/per_mail/<a@x.test>", true),
            (br"\<a@x.test>", b"1h/per_mail/a@x.test", false),
            (b"ALICE@example.org", b"1h/per_mail/alice@Example.org", false),
            (b"local:root", b"1h/per_mail/local:0", true),
            (b"local:0", b"1h/per_mail/local:0", true),
        ] {
            assert_eq!(matches(argument, stored), expected, "{argument:?}");
        }
        for argument in [&br"a\b"[..], b"a\\", br"\x1", b"[a-"] {
            assert!(Pattern::parse(argument, Syntax::default()).is_err(), "{argument:?}");
        }
    }

    #[test]
    fn an_ip_address_is_the_same_in_every_notation() {
        let stored = b"1h/per_conn/2001:db8::1";
        for argument in [
            "2001:db8::1",
            "2001:DB8:0:0::1",
            "2001:0db8:0000:0000:0000:0000:0000:0001",
            "[2001:db8::1]",
        ] {
            assert!(matches(argument.as_bytes(), stored), "{argument}");
            assert!(!matches(argument.as_bytes(), b"1h/per_conn/2001:db8::2"));
        }
        let stored = b"1h/per_conn/192.0.2.7";
        assert!(matches(b"[192.0.2.7]", stored) && matches(b"::ffff:192.0.2.7", stored));
        assert!(!matches(b"192.0.2.70", stored));
        assert!(!matches(b"[192.0.2.7]", b"1h/per_mail/7"), "this is not a set of letters");
    }

    #[test]
    fn globs_are_over_keys_unless_they_begin_as_a_stored_key() {
        let stored = b"1h/per_rcpt/alice@example.org";
        for argument in [
            "*",
            "*@example.org",
            "al?ce@*",
            "{alice,bob}@*",
            "[a-c]*",
            "1h/per_rcpt/*",
            "*/per_rcpt/al*",
        ] {
            assert!(matches(argument.as_bytes(), stored), "{argument}");
        }
        for argument in ["1*", "*@EXAMPLE.org", "1h/per_mail/*", r"\*", r"al\?ce@*"] {
            assert!(!matches(argument.as_bytes(), stored), "{argument}");
        }
        assert!(matches(b"10.0.0.*", b"1h/per_conn/10.0.0.0/24"));
        assert!(matches(b"a*", b"1h/per_mail/a\xff"));
        assert!(matches(br"\**", b"1h/per_mail/*x") && !matches(br"\**", b"1h/per_mail/x"));
    }

    #[test]
    fn a_key_with_wildcards_hides_no_other() {
        let glob = Pattern::parse(b"*@example.org", Syntax::default()).unwrap();
        assert!(glob.matches(&b"1h/per_rcpt/*@example.org".into()));
        assert!(glob.matches(&b"1h/per_rcpt/alice@example.org".into()));
        let exact = Syntax { exact: true, ..Syntax::default() };
        let exact = Pattern::parse(b"*@example.org", exact).unwrap();
        assert!(exact.matches(&b"1h/per_rcpt/*@example.org".into()));
        assert!(!exact.matches(&b"1h/per_rcpt/alice@example.org".into()));
        assert!(glob.is_loose() && !exact.is_loose());
    }

    #[test]
    fn case_is_ignored_where_requested() {
        let syntax = Syntax { ignore_case: true, ..Syntax::default() };
        for (argument, key) in [("JÜRGEN", "jürgen"), ("*@EXAMPLE.org", "a@example.org")] {
            let pattern = Pattern::parse(argument.as_bytes(), syntax).unwrap();
            assert!(pattern.matches(&(&format!("1h/per_mail/{key}")).into()), "{argument}");
            assert!(pattern.is_loose());
        }
    }

    quickcheck! {
        /// Keys of the characters that mean something, and of random bytes.
        fn a_key_as_it_is_shown_means_that_key(picks: Vec<(u8, u8)>, other: Vec<u8>) -> bool {
            const PARTS: [&[u8]; 14] = [
                b"*", b"?", b"[", b"]", b"{", b"}", b"\\", b"/", b"<", b">", b"1h/per_mail/", b"\n",
                "\u{301}".as_bytes(), b",",
            ];
            let key: Vec<u8> = picks
                .iter()
                .flat_map(|&(pick, byte)| match PARTS.get(usize::from(pick) % 20) {
                    Some(part) => part.to_vec(),
                    None => vec![byte],
                })
                .collect();
            let shown = key_text::key(&key);
            let stored = |key: &[u8]| [b"1h/per_rcpt/", key].concat();
            let whole = key_text::stored(&stored(&key));
            if key.is_empty() || ip(&key).is_some() {
                return true;
            }
            matches(shown.as_bytes(), &stored(&key))
                && matches(whole.as_bytes(), &stored(&key))
                && (other == key || !matches(shown.as_bytes(), &stored(&other)))
                && !matches(whole.as_bytes(), &[b"1d/per_mail/", &*stored(&key)].concat())
        }
    }

    #[test]
    fn an_override_takes_keys_as_other_commands_do() {
        let target = |argument: &[u8]| {
            let pattern = Pattern::parse(argument, Syntax::default()).unwrap();
            pattern.override_target()
        };
        for (argument, key, shown) in [
            (&b"alice@example.org"[..], &b"alice@example.org"[..], "alice@example.org"),
            (b"<alice@example.org>", b"alice@example.org", "alice@example.org"),
            (b"[2001:DB8:0::1]", b"2001:db8::1", "2001:db8::1"),
            (b"::ffff:192.0.2.7", b"192.0.2.7", "192.0.2.7"),
            (b"local:root", b"local:0", "local:0"),
            (br"\*x", b"*x", r"\*x"),
            (b"", b"", ""),
        ] {
            let wanted = Target::Exact { key: key.to_vec(), ignore_case: false };
            assert_eq!(target(argument), Ok((wanted, shown.to_owned())), "{argument:?}");
        }
        assert!(target(b"1h/per_rcpt/alice").unwrap_err().contains("without its period and mode"));
        assert!(target(b"*/per_rcpt/alice").unwrap_err().contains("without its period and mode"));
        assert!(target(b"**").unwrap_err().contains("write `*`"));
        assert!(target(b"a\n*").is_err() && target(b"a\n").is_ok());
    }

    quickcheck! {
        /// The matcher of the libraries and that of the program have the same results.
        fn overrides_match_as_globs_do(
            glob: Vec<u8>, subjects: Vec<Vec<u8>>, ignore_case: bool
        ) -> bool {
            const PARTS: [&str; 20] = [
                "*", "?", "[", "]", "{", "}", ",", "!", "-", "a", "b", "A", "/", "@", ".", "[a-c]",
                "[!b]", "{a,b*}", "\\*", "\u{fc}",
            ];
            let part = |byte: &u8| PARTS[usize::from(*byte) % PARTS.len()];
            let glob: String = glob.iter().take(10).map(part).collect();
            let syntax = Syntax { exact: false, ignore_case };
            let Ok(pattern) = Pattern::parse(glob.as_bytes(), syntax) else { return true };
            let Ok((target @ Target::Glob { .. }, _)) = pattern.override_target() else {
                return true;
            };
            subjects.iter().all(|subject| {
                let mut key: Vec<u8> = Vec::new();
                for byte in subject.iter().take(8) {
                    match byte {
                        ..200 => key.extend(part(byte).as_bytes()),
                        _ => key.push(*byte),
                    }
                }
                let stored = [&b"1h/per_mail/"[..], &*key].concat();
                pattern.matches(&(&stored).into()) == target.applies_to(&(&key).into())
            })
        }
    }
}
