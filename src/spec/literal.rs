//! `key=`, which ends a spec whose key cannot be a separate argument.

use super::list::{Items, skip_blanks};

/// Introduces a literal key.
const KEY: &[u8] = b"key=";

/// Splits `m / p / options / key=KEY` into the spec and KEY. KEY is everything
/// after the first `key=` (in any case) that begins an item, and is taken
/// literally. `None` if there is no such item.
///
/// This is for front ends that receive one text, such as Exim's lookups. Exim's
/// own `ratelimit` condition has no such item.
#[must_use]
pub fn split_key(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut items = Items::new(text);
    loop {
        let start = text.len() - items.rest().len();
        let rest = skip_blanks(items.rest());
        items.next()?;
        let named = rest.get(..KEY.len()).is_some_and(|name| name.eq_ignore_ascii_case(KEY));
        if named {
            return Some((text.get(..start)?, rest.get(KEY.len()..)?));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Spec;
    use super::split_key;

    #[test]
    fn the_key_is_all_that_follows() {
        for (text, spec, key) in [
            ("1 / 1h / key=a", "1 / 1h /", "a"),
            ("1 / 1h /key=", "1 / 1h /", ""),
            (
                "1 / 1h / strict / KEY= a / noupdate / key=b ",
                "1 / 1h / strict /",
                " a / noupdate / key=b ",
            ),
            ("1/1h/key=//a//", "1/1h/", "//a//"),
            ("key=1 / 1h", "", "1 / 1h"),
        ] {
            let split = split_key(text.as_bytes());
            assert_eq!(split, Some((spec.as_bytes(), key.as_bytes())), "{text}");
        }
        for text in ["1 / 1h / a", "1 / 1h / a key=b", "1 / 1h / a//key=b", "1/1h/key", ""] {
            assert_eq!(split_key(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn the_text_before_the_key_has_no_key() {
        let (spec, key) = split_key(b"1 / 1h / per_rcpt / key=/a/").unwrap();
        let literal = Spec::parse(spec).unwrap().with_literal(key, None).unwrap();
        let parsed = Spec::parse(b"1 / 1h / per_rcpt / //a//").unwrap();
        let outside = super::super::Context::outside();
        assert_eq!(literal.request(&outside).unwrap().key, parsed.request(&outside).unwrap().key);
    }
}
