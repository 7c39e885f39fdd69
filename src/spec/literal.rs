//! `key=`, which ends a spec where the key cannot be an argument of its own.

use super::list::{Items, skip_blanks};

/// Begins the key that is taken as it is.
const KEY: &[u8] = b"key=";

/// Splits `m / p / options / key=KEY` into the spec and KEY: every byte after
/// the first item that begins with `key=` (in any case of letters), which is
/// taken as it is. `None` where there is no such item.
///
/// For front ends that get one text, such as Exim's lookups. Exim's own
/// `ratelimit` condition has no such item.
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
    fn what_precedes_it_names_no_key() {
        let (spec, key) = split_key(b"1 / 1h / per_rcpt / key=/a/").unwrap();
        let literal = Spec::parse(spec).unwrap().with_literal(key, None).unwrap();
        let parsed = Spec::parse(b"1 / 1h / per_rcpt / //a//").unwrap();
        let outside = super::super::Context::outside();
        assert_eq!(literal.request(&outside).unwrap().key, parsed.request(&outside).unwrap().key);
    }
}
