//! One `KEY` argument: what it matches depends on how it is written, never on
//! which keys are stored, or a client could hide others by sending under a
//! name such as `*@example.org`.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

use crate::engine::{Kind, RecordKey};
use crate::identity::Field;
use crate::identity::fold::{Folding, TOTALS, with_ascii_domain};
use crate::standing::key_text::{self, WILDCARDS, local_user, looks_stored, unescape_one};
use crate::store::{Target, compile_glob, names};
use crate::text;

/// How arguments are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Syntax {
    /// The argument is the key, byte for byte.
    pub(crate) exact: bool,
    /// How identities are folded, as the policies in use do.
    pub(crate) folding: Folding,
}

/// A parsed argument.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// The argument as it was written.
    pub(crate) argument: Vec<u8>,
    /// It is matched against whole stored keys instead of keys.
    stored: bool,
    /// How keys of specs are folded before they are compared; `None` if they are not.
    folding: Option<Folding>,
    /// The key that is meant, as written.
    meant: Vec<u8>,
    /// The names of what it is about: itself, and as a policy counts it: its network, or a local
    /// account of that name; all folded.
    names: Vec<Vec<u8>>,
    matcher: Matcher,
}

#[derive(Debug)]
enum Matcher {
    Literal(Vec<u8>),
    Glob(GlobMatcher),
}

impl Pattern {
    /// Parses `argument`; an error says what is wrong with it.
    pub(crate) fn parse(argument: &[u8], syntax: Syntax) -> Result<Self, String> {
        let Syntax { exact, folding } = syntax;
        let stored = !exact && looks_stored(argument);
        let (literal, meant) = if exact {
            (argument.to_vec(), None)
        } else {
            let tokens = Token::parse(argument)?;
            let is_escaped = tokens.iter().any(|token| token.escaped);
            if !is_escaped && !stored && ip(argument).is_some() {
                // `[192.0.2.7]` is an address and not a set of letters.
                (argument.to_vec(), ip(argument).map(|ip| ip.to_string().into_bytes()))
            } else if tokens.iter().any(Token::is_wildcard) {
                let glob = glob(&tokens, if stored { None } else { Some(&folding) })?;
                let folding = (!stored).then(|| folding.without_masks());
                let (argument, meant, names) = (argument.to_vec(), Vec::new(), Vec::new());
                let matcher = Matcher::Glob(glob);
                return Ok(Self { argument, stored, folding, meant, names, matcher });
            } else if is_escaped || stored {
                (tokens.iter().flat_map(|token| token.bytes()).collect(), None)
            } else {
                let bracketed = enclosed(argument, b"<", b">").map(<[u8]>::to_vec);
                (argument.to_vec(), bracketed.or_else(|| local_user(argument)))
            }
        };
        let meant = meant.unwrap_or_else(|| literal.clone());
        let spelling = (!exact && !stored).then(|| folding.without_masks());
        let names = match &spelling {
            None => vec![meant.clone()],
            Some(spelling) => {
                let fold = |by: &Folding| by.folded_bytes(&meant, &mut String::new()).to_vec();
                let mut names = vec![fold(spelling)];
                // As a network, and as a local account, which is no address.
                for name in [fold(&folding), fold(&spelling.without_qualify())] {
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
                names
            }
        };
        let (argument, matcher) = (argument.to_vec(), Matcher::Literal(literal));
        Ok(Self { argument, stored, folding: spelling, meant, names, matcher })
    }

    /// What it means for an override, and how that is shown: an identity, or a glob over
    /// such. Addresses are taken as Exim writes them.
    ///
    /// # Errors
    /// It is about whole stored keys, or a glob that an override cannot have.
    pub(crate) fn override_target(&self) -> Result<(Target, String), String> {
        let shown = text::printable(&self.argument);
        if self.stored {
            return Err(format!(
                "{shown}: an override applies to all limits of a key: write the key without its \
                 period and mode; --exact takes it literally"
            ));
        }
        match &self.matcher {
            Matcher::Glob(glob) => {
                let wrong = |why: String| format!("{shown}: {why}");
                let folding = self.folding.clone().unwrap_or_default();
                let alternatives = compile_glob(glob.glob().glob(), folding.case).map_err(wrong)?;
                let argument = String::from_utf8_lossy(&self.argument);
                if argument.contains(char::is_control) {
                    return Err(wrong("write a control character as `exirate list` does".into()));
                }
                Ok((Target::Glob { alternatives, folding }, argument.into_owned()))
            }
            Matcher::Literal(_) => {
                let mut names = self.names.iter().cloned();
                let key = names.next().unwrap_or_default();
                let shown = key_text::key(&self.meant);
                let folding = self.folding.clone();
                Ok((Target::Exact { key, counted_as: names.next(), folding }, shown))
            }
        }
    }

    /// The names that it means, folded; none of a glob.
    pub(crate) fn names(&self) -> &[Vec<u8>] {
        &self.names
    }

    /// The identities of records that it may match, as long as those of specs are written as they
    /// are folded, and those of policies have one field; none of a glob.
    pub(crate) fn identities(&self) -> HashSet<Vec<u8>> {
        let Matcher::Literal(literal) = &self.matcher else { return HashSet::new() };
        let mut all = HashSet::from([literal.clone()]);
        for name in self.names.iter().chain([literal]) {
            all.insert(key_text::record_of(name).identity().to_vec());
            all.insert(name.clone());
        }
        for name in &self.names {
            let fields = Field::ALL.iter().map(|field| field.word()).chain(TOTALS);
            all.extend(fields.map(|field| [field.as_bytes(), b":", name].concat()));
        }
        all
    }

    /// Whether it may match more than one key.
    pub(crate) fn is_loose(&self) -> bool {
        matches!(self.matcher, Matcher::Glob(_))
    }

    /// Whether it matches the record of this key. That of a policy is matched by its
    /// identity, `auth:alice`, by the value, `alice`, and by its whole name.
    pub(crate) fn matches(&self, key: &RecordKey<'_>) -> bool {
        match (key.kind, self.stored) {
            (_, true) => self.matches_text(key.name),
            (Kind::Spec, false) => {
                let subject = key_text::key_of(key);
                let mut scratch = String::new();
                let folding = self.folding.as_ref();
                let folded = folding.map_or(subject, |f| f.folded_bytes(subject, &mut scratch));
                // A glob is compared as an override's is.
                self.matches_text(folded) || (!self.is_loose() && self.is_literally(subject))
            }
            (Kind::Policy | Kind::Habits | Kind::Usage, false) => {
                names(key).any(|(name, _)| self.matches_text(&name)) || self.is_literally(key.name)
            }
        }
    }

    fn matches_text(&self, subject: &[u8]) -> bool {
        match &self.matcher {
            Matcher::Glob(glob) => glob.is_match(Path::new(OsStr::from_bytes(subject))),
            Matcher::Literal(_) => self.names.iter().any(|name| name == subject),
        }
    }

    /// Whether this is the argument itself, or what its glob matches.
    fn is_literally(&self, subject: &[u8]) -> bool {
        match &self.matcher {
            Matcher::Glob(_) => self.matches_text(subject),
            Matcher::Literal(text) => text == subject,
        }
    }
}

/// What `argument` means as the KEY of an override, and how it is shown.
///
/// # Errors
/// It cannot be the KEY of an override: in words.
pub(crate) fn override_target(
    argument: &[u8],
    exact: bool,
    folding: &Folding,
) -> Result<(Target, String), String> {
    let syntax = Syntax { exact, folding: folding.clone() };
    Pattern::parse(argument, syntax)?.override_target()
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

/// The glob that `tokens` are, for texts that are folded. A slash is a letter like any other.
fn glob(tokens: &[Token], folding: Option<&Folding>) -> Result<GlobMatcher, String> {
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
    let case = folding.is_some_and(|folding| folding.case);
    // A domain is in lower case even where a local part is not.
    let domain =
        if case { 0 } else { text.rfind('@').filter(|_| folding.is_some()).unwrap_or(text.len()) };
    let (local, domain) = text.split_at(domain);
    let text =
        if case { lower_but_ascii(domain) } else { local.to_owned() + &domain.to_lowercase() };
    let text = if folding.is_some() { with_ascii_domain(&text) } else { text.into() };
    GlobBuilder::new(&text)
        .case_insensitive(case)
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

/// In lower case, but for the letters of sets such as `[A-Z]`, which are ASCII.
fn lower_but_ascii(text: &str) -> String {
    let lower = |c: char| (!c.is_ascii()).then(|| c.to_lowercase());
    text.chars().flat_map(|c| lower(c).map_or_else(|| vec![c], Iterator::collect)).collect()
}

#[cfg(test)]
mod tests {
    use kit::quickcheck;

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
            (b"ALICE@example.org", b"1h/per_mail/alice@Example.org", true),
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
        for argument in ["1*", "*@example.net", "1h/per_mail/*", r"\*", r"al\?ce@*"] {
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
    fn keys_are_folded_as_the_policies_do() {
        let plus = Folding { plus: true, qualify: Some("x.org".into()), ..Folding::default() };
        let case = Folding { case: false, ..Folding::default() };
        for (folding, argument, key, expected) in [
            (Folding::default(), "Paula@Example.org", "paula@example.org", true),
            (Folding::default(), "paula@example.org", "PAULA@Example.ORG.", true),
            (Folding::default(), r"\303\204lice", "älice", true),
            (Folding::default(), "älice", r"\303\204LICE\n", true),
            (Folding::default(), "*@EXAMPLE.org", "A@example.org", true),
            (Folding::default(), "Ä*", "älice", true),
            (Folding::default(), "2001:db8::7", "2001:db8::/64", true),
            (Folding::default(), "2001:db8::7", "2001:db8::8", false),
            (plus.clone(), "Alice+x", "alice@x.org", true),
            (plus, "alice@x.org", "alice+y", true),
            (case.clone(), "Alice@X.org", "alice@x.org", false),
            (case.clone(), "Alice@X.org", "Alice@x.ORG", true),
            (case.clone(), "A*@X.org", "Alice@x.ORG", true),
            (case, "a*@X.org", "Alice@x.ORG", false),
        ] {
            let syntax = Syntax { folding, ..Syntax::default() };
            let pattern = Pattern::parse(argument.as_bytes(), syntax).unwrap();
            let stored = format!("1h/per_mail/{key}");
            assert_eq!(pattern.matches(&(&stored).into()), expected, "{argument} {key}");
            let (target, _) = pattern.override_target().unwrap();
            assert_eq!(target.applies_to(&key.into()), expected, "{argument} {key}");
        }
        let exact = Syntax { exact: true, ..Syntax::default() };
        let exact = Pattern::parse(b"Alice", exact).unwrap();
        assert!(exact.matches(&b"1h/per_mail/Alice".into()));
        assert!(!exact.matches(&b"1h/per_mail/alice".into()));
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
            let is_same = |one: &[u8], other: &[u8]| {
                let folding = Folding::default();
                let fold = |name: &[u8]| folding.folded_bytes(name, &mut String::new()).to_vec();
                fold(one) == fold(other)
            };
            let stored = |key: &[u8]| [b"1h/per_rcpt/", key].concat();
            let whole = key_text::stored(&stored(&key));
            if key.is_empty() || ip(&key).is_some() {
                return true;
            }
            matches(shown.as_bytes(), &stored(&key))
                && matches(whole.as_bytes(), &stored(&key))
                && (is_same(&key, &other) || !matches(shown.as_bytes(), &stored(&other)))
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
            let (found, found_shown) = target(argument).unwrap();
            assert!(matches!(&found, Target::Exact { key: of, .. } if of == key), "{found:?}");
            assert_eq!(found_shown, shown, "{argument:?}");
        }
        assert!(target(b"1h/per_rcpt/alice").unwrap_err().contains("without its period and mode"));
        assert!(target(b"*/per_rcpt/alice").unwrap_err().contains("without its period and mode"));
        assert!(target(b"**").unwrap_err().contains("write `*`"));
        assert!(target(b"a\n*").is_err() && target(b"a\n").is_ok());
    }

    #[test]
    fn a_domain_is_added_to_logins_alone() {
        let folding = Folding { qualify: Some("x.org".into()), ..Folding::default() };
        for (argument, names) in [
            ("alice", &["auth:alice@x.org", "local_account:alice", "script:alice"][..]),
            ("alice@x.org", &["auth:alice@x.org"]),
            ("alice@virtual.test", &["auth:alice@virtual.test"]),
            ("auth:alice", &["auth:alice@x.org"]),
            ("local_account:alice", &["local_account:alice"]),
            ("192.0.2.7", &["client:192.0.2.7"]),
        ] {
            let syntax = Syntax { exact: false, folding: folding.clone() };
            let pattern = Pattern::parse(argument.as_bytes(), syntax).unwrap();
            let (target, _) = pattern.override_target().unwrap();
            for name in [
                "auth:alice@x.org",
                "auth:alice@virtual.test",
                "local_account:alice",
                "script:alice",
                "client:192.0.2.7",
            ] {
                let key = super::super::override_state::record_of(name.as_bytes());
                let is_meant = names.contains(&name);
                assert_eq!(target.applies_to(&key), is_meant, "{argument} {name}");
                assert_eq!(pattern.matches(&key), is_meant, "{argument} {name}");
            }
        }
        for field in [Field::Sender, Field::Recipient, Field::LocalAccount] {
            let mut out = String::new();
            assert!(folding.field_into(field, "alice", &mut out) && out == "alice", "{field:?}");
        }
    }

    #[test]
    fn what_is_not_utf8_is_matched_as_by_an_override() {
        for case in [false, true] {
            let folding = Folding { case, ..Folding::default() };
            for (argument, expected) in
                [("[!b]", false), ("?", false), ("*", true), ("\u{fffd}*", true)]
            {
                let syntax = Syntax { exact: false, folding: folding.clone() };
                let pattern = Pattern::parse(argument.as_bytes(), syntax).unwrap();
                let (target, _) = pattern.override_target().unwrap();
                let found = pattern.matches(&(b"1h/per_mail/\xc8").into());
                assert_eq!(found, expected, "{argument} {case}");
                assert_eq!(target.applies_to(&(b"\xc8").into()), expected, "{argument} {case}");
            }
        }
    }

    quickcheck! {
        /// The matcher of the libraries and that of the program have the same results.
        fn overrides_match_as_globs_do(
            glob: Vec<u8>, subjects: Vec<Vec<u8>>, case: bool
        ) -> bool {
            const PARTS: [&str; 20] = [
                "*", "?", "[", "]", "{", "}", ",", "!", "-", "a", "b", "A", "/", "@", ".", "[a-c]",
                "[!b]", "{a,b*}", "\\*", "\u{fc}",
            ];
            let part = |byte: &u8| PARTS[usize::from(*byte) % PARTS.len()];
            let glob: String = glob.iter().take(10).map(part).collect();
            let folding = Folding { case, ..Folding::default() };
            let syntax = Syntax { exact: false, folding };
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
