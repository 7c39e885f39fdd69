//! The settings in `main.cf`.

use std::collections::BTreeMap;

use super::text::lines;

/// The name at the start of what follows a `$`, and what comes after it.
pub(super) fn reference(text: &str) -> (&str, &str) {
    for (open, close) in [('{', '}'), ('(', ')')] {
        if let Some((name, rest)) = text.strip_prefix(open).and_then(|text| text.split_once(close))
        {
            return (name, rest);
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
