//! The settings in `main.cf`.

use std::collections::BTreeMap;

use super::text::lines;

/// The name at the start of what follows a `$`, and what comes after it.
pub(super) fn reference(text: &str) -> (&str, &str) {
    for (open, close) in [('{', '}'), ('(', ')')] {
        let mut depth = 0_usize;
        for (at, c) in text.char_indices() {
            match c {
                c if c == open => depth += 1,
                c if c == close => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                // Not the braces of another reference.
                if at == 0 {
                    break;
                }
                let (inside, rest) = text.split_at(at);
                return (inside.get(1..).unwrap_or_default(), rest.get(1..).unwrap_or_default());
            }
        }
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split_at(text.find(|c| !is_name(c)).unwrap_or(text.len()))
}

/// The settings in `main.cf`, or in what `postconf` prints.
pub(super) fn parse(text: &str) -> BTreeMap<String, String> {
    let setting = |line: &String| {
        let (name, value) = line.split_once('=')?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    };
    lines(text).iter().filter_map(setting).collect()
}
