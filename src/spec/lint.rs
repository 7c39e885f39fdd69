//! Likely mistakes that Exim accepts without complaint.

use super::error::Printable;
use super::list::Items;
use super::number;
use super::word::{COUNT, UNIQUE, Word};
use std::fmt;

/// A part of a spec that Exim accepts but that was probably not intended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lint {
    /// A piece of the key looks like an option.
    LikeOption {
        /// The piece.
        piece: Vec<u8>,
        /// The option it looks like.
        option: &'static str,
    },
    /// A piece of the key begins with `key=`, which then is part of the key.
    KeyEquals {
        /// The piece.
        piece: Vec<u8>,
    },
    /// A piece of the key is empty.
    EmptyPiece,
    /// The spec ends with a slash and nothing after it, so that the key is the
    /// default key.
    NothingAfterSlash,
    /// The limit contains no digit and so is 0, which blocks everything.
    EmptyLimit {
        /// The text in its place.
        text: Vec<u8>,
    },
    /// The limit is written as 0, which blocks everything.
    ZeroLimit,
    /// `count=` without a number: nothing is counted.
    EmptyCount,
}

impl fmt::Display for Lint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LikeOption { piece, option } => write!(
                f,
                "\"{}\" looks like the option {option}, but it is part of the key",
                Printable(piece)
            ),
            Self::KeyEquals { piece } => {
                write!(f, "\"{}\" is part of the key, including \"key=\"", Printable(piece))
            }
            Self::EmptyPiece => write!(
                f,
                "there is an empty item between slashes, and it is part of the key; an expansion \
                 may have come out empty (a slash in the key is written //)"
            ),
            Self::NothingAfterSlash => write!(
                f,
                "there is nothing after the last slash, so the key is the client's address; an \
                 expansion may have come out empty"
            ),
            Self::EmptyLimit { text } => write!(
                f,
                "the limit \"{}\" has no digits, so it is 0 and blocks everything",
                Printable(text)
            ),
            Self::ZeroLimit => write!(
                f,
                "the limit is 0, which blocks everything and does not mean unlimited; where nothing \
                 is to be limited, ask for no check"
            ),
            Self::EmptyCount => write!(f, "there is no number after count=, so nothing is counted"),
        }
    }
}

/// The options without a value.
const WORDS: [&str; 10] = [
    "leaky", "strict", "noupdate", "readonly", "per_mail", "per_rcpt", "per_addr", "per_conn",
    "per_cmd", "per_byte",
];

/// The lints of a spec that parses, in the order of its text.
pub(super) fn lints(text: &[u8]) -> Vec<Lint> {
    let mut lints = Vec::new();
    let mut items = Items::new(text);
    if let Some(limit) = items.next()
        && number::limit(&limit) == Some(0.0)
    {
        lints.push(match limit.iter().any(u8::is_ascii_digit) {
            true => Lint::ZeroLimit,
            false => Lint::EmptyLimit { text: limit.into_owned() },
        });
    }
    // A period that parses cannot be a mistake of this kind.
    let mut has_key = false;
    for item in items.skip(1) {
        match Word::of(&item) {
            Word::Key => {
                has_key = true;
                lints.extend(in_key(&item));
            }
            Word::Count if item.len() == COUNT.len() => lints.push(Lint::EmptyCount),
            _ => {}
        }
    }
    if !has_key && ends_in_slash(text) {
        lints.push(Lint::NothingAfterSlash);
    }
    lints
}

/// Whether `text` ends with a slash that separates items: then one more byte
/// makes one more item.
fn ends_in_slash(text: &[u8]) -> bool {
    let longer = [text, b"x"].concat();
    Items::new(&longer).count() > Items::new(text).count()
}

/// The lint of one piece of a key.
fn in_key(piece: &[u8]) -> Option<Lint> {
    if piece.is_empty() {
        return Some(Lint::EmptyPiece);
    }
    let start: Vec<u8> = piece
        .iter()
        .take(24)
        .map(|b| if matches!(b, b'-' | b' ') { b'_' } else { b.to_ascii_lowercase() })
        .collect();
    if start.starts_with(b"key=") {
        return Some(Lint::KeyEquals { piece: piece.to_vec() });
    }
    let name = start.split(|b| matches!(b, b'=' | b':' | b'_')).next().unwrap_or_default();
    let option = if distance(name, b"count") <= usize::from(name.len() < start.len()) {
        Some(COUNT)
    } else if distance(name, b"unique") <= usize::from(name.len() < start.len()) {
        Some(UNIQUE)
    } else {
        WORDS
            .into_iter()
            .map(|word| (distance(&start, word.as_bytes()), word))
            .min()
            .filter(|&(distance, word)| {
                distance <= if word.len() < 6 { 1 } else { 2 } || start.starts_with(b"per_")
            })
            .map(|(_, word)| word)
    };
    option.map(|option| Lint::LikeOption { piece: piece.to_vec(), option })
}

/// The edit distance: how many bytes must be added, removed, changed or swapped
/// with an adjacent one to turn `a` into `b` (optimal string alignment).
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, &x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &y) in b.iter().enumerate() {
            let mut cost = (row[j] + 1).min(above[j + 1] + 1).min(above[j] + usize::from(x != y));
            if i > 0 && j > 0 && x == b[j - 1] && a[i - 1] == y {
                cost = cost.min(before[j - 1] + 1);
            }
            row.push(cost);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::super::Spec;
    use super::{Lint, distance};

    fn lints(text: &str) -> Vec<String> {
        Spec::parse(text.as_bytes()).unwrap().lints().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn misspelt_options() {
        for (piece, option) in [
            ("per_rcp", "per_rcpt"),
            ("per-rcpt", "per_rcpt"),
            ("per rcpt", "per_rcpt"),
            ("PerRcpt", "per_rcpt"),
            ("per_recipient", "per_rcpt"),
            ("per_message", "per_mail"),
            ("strickt", "strict"),
            ("stritc", "strict"),
            ("leeky", "leaky"),
            ("read-only", "readonly"),
            ("no_update", "noupdate"),
            ("cuont=3", "count="),
            ("count 3", "count="),
            ("count:3", "count="),
            ("count", "count="),
            ("uniqe=a", "unique="),
        ] {
            let expected =
                format!("\"{piece}\" looks like the option {option}, but it is part of the key");
            assert_eq!(lints(&format!("1 / 1h / {piece}")), [expected], "{piece}");
        }
    }

    #[test]
    fn a_limit_of_zero_blocks_everything() {
        for limit in ["0", "0.0", "0k", " 0 "] {
            assert_eq!(
                lints(&format!("{limit}/ 1h / x")),
                [Lint::ZeroLimit.to_string()],
                "{limit}"
            );
        }
        assert!(lints("0.5 / 1h / x").is_empty());
    }

    #[test]
    fn ordinary_keys_have_no_lints() {
        for key in [
            "10.1.2.3",
            "2001:db8::1",
            "user@example.org",
            "strict@example.org",
            "lucky",
            "account=7",
            "court",
            "person",
            "permail.example",
            "\u{e9}t\u{e9}",
            "a//b",
            "x",
        ] {
            let all = lints(&format!("1 / 1h / strict / {key}"));
            assert!(all.is_empty(), "{key}: {all:?}");
        }
    }

    #[test]
    fn other_lints() {
        let of = |text: &str| Spec::parse(text.as_bytes()).unwrap().lints();
        assert_eq!(of("100 / 1h"), []);
        assert_eq!(of("100 / 1h / strict /"), [Lint::NothingAfterSlash]);
        assert_eq!(of("100 / 1h / strict / "), [Lint::NothingAfterSlash]);
        assert_eq!(of("100 / 1h / strict / key /"), []);
        assert_eq!(of("100 / 1h / / key"), [Lint::EmptyPiece]);
        assert_eq!(of("100 / 1h / count= "), [Lint::EmptyCount]);
        assert_eq!(of("k / 1h"), [Lint::EmptyLimit { text: b"k".to_vec() }]);
        assert_eq!(of("/ 1h"), [Lint::EmptyLimit { text: Vec::new() }]);
        assert_eq!(of("0 / 1h"), [Lint::ZeroLimit]);
        assert_eq!(of("inf / 1h"), []);
        assert_eq!(of("1 / 1h / key=a"), [Lint::KeyEquals { piece: b"key=a".to_vec() }]);
    }

    #[test]
    fn distances() {
        for (a, b, expected) in
            [("", "", 0), ("a", "", 1), ("", "ab", 2), ("ab", "ba", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(a.as_bytes(), b.as_bytes()), expected, "{a} {b}");
        }
    }
}
