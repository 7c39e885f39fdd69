//! Globs over keys, compiled to a few steps: the matcher is small, allocates
//! nothing, and runs in the libraries that Exim loads. It has the results of the
//! program's globs, which a test compares it with.

use crate::identity::Field;
use crate::identity::fold::TOTALS;

/// What each step begins with: one byte follows [`LITERAL`], 32 follow
/// [`CLASS`].
const LITERAL: u8 = 0;
const ANY_BYTE: u8 = 1;
const ANY_STRING: u8 = 2;
const CLASS: u8 = 3;
/// The bytes of a class: one bit for each byte that it contains.
const CLASS_BYTES: usize = 32;

/// The most alternatives that the braces of one glob may stand for.
pub const ALTERNATIVES_MAX: usize = 64;
/// The size limit of a compiled alternative, in bytes.
const COMPILED_MAX: usize = 2048;

/// One step of a compiled glob.
enum Step<'a> {
    Literal(u8),
    AnyByte,
    AnyString,
    Class(&'a [u8]),
}

/// The first step of `steps`, and the rest.
#[inline]
fn split(steps: &[u8]) -> Option<(Step<'_>, &[u8])> {
    let (&kind, rest) = steps.split_first()?;
    Some(match kind {
        ANY_BYTE => (Step::AnyByte, rest),
        ANY_STRING => (Step::AnyString, rest),
        CLASS => {
            let (class, rest) = rest.split_at_checked(CLASS_BYTES)?;
            (Step::Class(class), rest)
        }
        _ => {
            let (&byte, rest) = rest.split_first()?;
            (Step::Literal(byte), rest)
        }
    })
}

/// Whether `steps` are what [`compile`] may return.
pub(super) fn is_valid(mut steps: &[u8]) -> bool {
    if steps.len() > COMPILED_MAX {
        return false;
    }
    while let Some(kind) = steps.first() {
        match split(steps) {
            Some((_, rest)) if *kind <= CLASS => steps = rest,
            _ => return false,
        }
    }
    true
}

/// Whether the compiled glob `steps` matches all of `text`.
pub(super) fn matches(steps: &[u8], text: &[u8]) -> bool {
    let (mut steps, mut text) = (steps, text);
    // After the latest step for any string: the steps, and the text it has left.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        let matched = match split(steps) {
            None if text.is_empty() => return true,
            None => None,
            Some((Step::AnyString, rest)) => {
                retry = Some((rest, text));
                Some((rest, text))
            }
            Some((step, rest)) => text.split_first().and_then(|(&byte, after)| {
                let fits = match step {
                    Step::Literal(literal) => literal == byte,
                    Step::Class(class) => contains(class, byte),
                    Step::AnyByte | Step::AnyString => true,
                };
                fits.then_some((rest, after))
            }),
        };
        (steps, text) = match (matched, &mut retry) {
            (Some(next), _) => next,
            (None, Some((after, left))) => match left.split_first() {
                Some((_, shorter)) => {
                    *left = shorter;
                    (*after, shorter)
                }
                None => return false,
            },
            (None, None) => return false,
        };
    }
}

/// Whether the compiled glob `steps` names the fields that it matches: it begins with one,
/// `auth:`, or with any, `*:`, or is `*`, which matches everything.
pub(super) fn names_field(steps: &[u8]) -> bool {
    match steps {
        [ANY_STRING] | [ANY_STRING, LITERAL, b':', ..] => return true,
        _ => {}
    }
    let is_field = |name: &[u8]| {
        let mut rest = steps;
        name.iter().chain(b":").all(|wanted| match split(rest) {
            Some((Step::Literal(byte), after)) => {
                rest = after;
                byte == *wanted
            }
            _ => false,
        })
    };
    let fields = Field::ALL.iter().map(|field| field.word());
    fields.chain(TOTALS).any(|name| is_field(name.as_bytes()))
}

fn contains(class: &[u8], byte: u8) -> bool {
    class.get(usize::from(byte / 8)).is_some_and(|bits| bits & (1 << (byte % 8)) != 0)
}

/// Compiles a glob: `*`, `?`, `[a-z]`, `[!a-z]`, `{one,two}`, and a backslash
/// before what is not special. Returns its alternatives, which together match
/// what the glob does. With `fold`, it is compiled in lower case, for texts in lower case.
///
/// # Errors
/// What is wrong with it.
pub fn compile(glob: &str, fold: bool) -> Result<Vec<Vec<u8>>, String> {
    let mut parser = Parser { rest: glob.as_bytes(), fold };
    let alternatives = parser.sequence(0)?;
    if alternatives.iter().any(|steps| steps.len() > COMPILED_MAX) {
        return Err(TOO_LONG.to_owned());
    }
    Ok(alternatives)
}

const TOO_LONG: &str = "the glob is too long for an override";

/// The deepest nesting of braces.
const DEPTH_MAX: usize = 16;

struct Parser<'a> {
    rest: &'a [u8],
    fold: bool,
}

impl Parser<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    /// The alternatives of what comes before the end, or within braces before the
    /// next `,` or `}`, which is left.
    fn sequence(&mut self, depth: usize) -> Result<Vec<Vec<u8>>, String> {
        let mut all = vec![Vec::new()];
        while let Some(&byte) = self.rest.first() {
            if depth > 0 && matches!(byte, b',' | b'}') {
                break;
            }
            self.next();
            let steps = match byte {
                b'*' if self.rest.first() == Some(&b'*') => {
                    return Err("`**` is not possible in an override: write `*`, which matches \
                                slashes as well"
                        .to_owned());
                }
                b'*' => vec![ANY_STRING],
                b'?' => vec![ANY_BYTE],
                b'[' => self.class()?,
                b'{' => {
                    all = product(&all, &self.braces(depth + 1)?)?;
                    continue;
                }
                b'}' => return Err("`}` without `{`".to_owned()),
                b'\\' => {
                    let escaped = self.next().ok_or("a backslash at its end")?;
                    vec![LITERAL, self.folded(escaped)]
                }
                byte => vec![LITERAL, self.folded(byte)],
            };
            all.iter_mut().for_each(|one| one.extend_from_slice(&steps));
            if all.iter().any(|one| one.len() > COMPILED_MAX) {
                return Err(TOO_LONG.to_owned());
            }
        }
        Ok(all)
    }

    /// The alternatives of braces, after the `{`. Empty ones count for nothing.
    fn braces(&mut self, depth: usize) -> Result<Vec<Vec<u8>>, String> {
        if depth > DEPTH_MAX {
            return Err(format!("braces are nested more than {DEPTH_MAX} deep"));
        }
        let mut all: Vec<Vec<u8>> = Vec::new();
        loop {
            let branch = self.sequence(depth)?;
            if branch.iter().any(|one| !one.is_empty()) {
                all.extend(branch);
            }
            if all.len() > ALTERNATIVES_MAX {
                return Err(too_many());
            }
            match self.next() {
                Some(b',') => {}
                Some(b'}') => break,
                _ => return Err("`{` without `}`".to_owned()),
            }
        }
        if all.is_empty() {
            all.push(Vec::new());
        }
        Ok(all)
    }

    /// A class, after the `[`.
    fn class(&mut self) -> Result<Vec<u8>, String> {
        const OPEN: &str = "`[` without `]`";
        let mut bits = [0_u8; CLASS_BYTES];
        let mut add = |first: u8, last: u8| {
            for byte in first..=last {
                if let Some(bits) = bits.get_mut(usize::from(byte / 8)) {
                    *bits |= 1 << (byte % 8);
                }
            }
        };
        let negated = matches!(self.rest.first(), Some(b'!' | b'^'));
        if negated {
            self.next();
        }
        let mut ranges: Vec<(u8, u8)> = Vec::new();
        let (mut first, mut in_range) = (true, false);
        loop {
            let byte = self.next().ok_or(OPEN)?;
            if !byte.is_ascii() {
                return Err("a set in `[]` may hold ASCII characters only; write `{ü,ö}`, or `*`"
                    .to_owned());
            }
            match (byte, ranges.last_mut()) {
                (b']', _) if !first => break,
                (b'-', _) if !first && !in_range => in_range = true,
                (byte, Some(range)) if in_range => {
                    if byte < range.0 {
                        return Err(format!(
                            "{}-{} is no range",
                            char::from(range.0),
                            char::from(byte)
                        ));
                    }
                    range.1 = byte;
                    in_range = false;
                }
                (byte, _) => ranges.push((byte, byte)),
            }
            first = false;
        }
        if in_range {
            ranges.push((b'-', b'-'));
        }
        for (first, last) in ranges {
            add(first, last);
        }
        if self.fold {
            for lower in b'a'..=b'z' {
                let upper = lower.to_ascii_uppercase();
                if contains(&bits, lower) || contains(&bits, upper) {
                    for byte in [lower, upper] {
                        if let Some(bits) = bits.get_mut(usize::from(byte / 8)) {
                            *bits |= 1 << (byte % 8);
                        }
                    }
                }
            }
        }
        if negated {
            bits.iter_mut().for_each(|bits| *bits = !*bits);
        }
        let mut steps = vec![CLASS];
        steps.extend_from_slice(&bits);
        Ok(steps)
    }

    fn folded(&self, byte: u8) -> u8 {
        if self.fold { byte.to_ascii_lowercase() } else { byte }
    }
}

/// Each of `before` with each of `after`.
fn product(before: &[Vec<u8>], after: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
    if before.len().saturating_mul(after.len()) > ALTERNATIVES_MAX {
        return Err(too_many());
    }
    let with =
        |one: &Vec<u8>| after.iter().map(move |end| [&**one, end].concat()).collect::<Vec<_>>();
    Ok(before.iter().flat_map(with).collect())
}

fn too_many() -> String {
    format!("its braces stand for more than {ALTERNATIVES_MAX} alternatives")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(glob: &str, text: &str, fold: bool) -> bool {
        compile(glob, fold).unwrap().iter().any(|steps| {
            assert!(is_valid(steps));
            let text = if fold { crate::identity::fold::lower_case(text) } else { text.to_owned() };
            matches(steps, text.as_bytes())
        })
    }

    #[test]
    fn globs_match_whole_texts() {
        for (glob, text, expected) in [
            ("*@example.org", "alice@example.org", true),
            ("*@example.org", "@example.org", true),
            ("*@example.org", "alice@example.org.test", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("?", "", false),
            ("a?c*e", "abcde", true),
            ("*a*b*c", "xaxbxbxcxc", true),
            ("*a*b*c", "xaxbxbxcxd", false),
            ("{alice,b*}@x", "bob@x", true),
            ("{alice,b*}@x", "carol@x", false),
            ("{a,{b,c}d}", "cd", true),
            ("{a,}", "", false),
            ("{}", "", true),
            ("[a-c]", "b", true),
            ("[!a-c]", "b", false),
            ("[^a-c]", "d", true),
            ("[]a]", "]", true),
            ("[a-]", "-", true),
            (r"\*", "*", true),
            (r"\*", "x", false),
            ("a,b", "a,b", true),
            ("10.0.0.*", "10.0.0.0/24", true),
        ] {
            assert_eq!(fits(glob, text, false), expected, "{glob} {text}");
        }
        assert!(fits("*@EXAMPLE.org", "Alice@example.ORG", true));
        assert!(fits("[A-C]x", "bX", true) && !fits("[!a-c]x", "Bx", true));
        assert!(!fits("*@EXAMPLE.org", "alice@example.org", false));
    }

    #[test]
    fn wrong_globs_are_refused() {
        for glob in ["[", "[a", "[]", "{a", "a}", "a\\", "**", "a/**/b", "[b-a]", "[ü]"] {
            assert!(compile(glob, false).is_err(), "{glob}");
        }
        assert!(compile(&"{a,b}".repeat(6), false).is_ok_and(|all| all.len() == 64));
        assert!(compile(&"{a,b}".repeat(7), false).unwrap_err().contains("more than 64"));
        assert!(compile(&"{a,".repeat(40), false).is_err());
        assert!(compile(&"x".repeat(COMPILED_MAX), false).unwrap_err().contains("too long"));
    }

    #[test]
    fn what_is_no_compiled_glob_is_invalid_and_matches_without_a_panic() {
        fn holds(steps: Vec<u8>, text: Vec<u8>) -> bool {
            let steps: Vec<u8> = steps.iter().map(|byte| byte % 6).collect();
            let _ = (matches(&steps, &text), names_field(&steps));
            is_valid(&steps) || !steps.is_empty()
        }
        kit::quick_check().quickcheck(holds as fn(Vec<u8>, Vec<u8>) -> bool);
        assert!(!is_valid(&[CLASS, 1]) && !is_valid(&[LITERAL]) && !is_valid(&[4, 4]));
    }
}
