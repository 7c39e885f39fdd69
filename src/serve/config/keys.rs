//! The keys of sections, each with what reads it.

use toml::de::DeTable;

use crate::toml_file::reader::{Reader, Value};

/// At the top.
pub(super) const TOP: [&str; 6] = ["listen", "redis", "agent", "mail", "follow", "web"];
/// In `[listen]`.
pub(super) const LISTEN: [&str; 3] = ["agent", "policy", "milter"];

/// A key of a section, and what reads its value into a `C`.
pub(super) type Key<C> = (&'static str, fn(&mut Reader<'_>, Value<'_>, &mut C));

/// Whether it is `[]`, which is what some lists are unless they are set.
pub(super) fn is_empty(value: Value<'_>) -> bool {
    value.get_ref().as_array().is_some_and(|array| array.is_empty())
}

/// Reads a section, such as `[mail]`.
pub(super) fn read<C>(
    reader: &mut Reader<'_>,
    table: &DeTable<'_>,
    section: &str,
    keys: &[Key<C>],
    into: &mut C,
) {
    for (key, value) in table {
        match keys.iter().find(|(name, _)| *name == key.get_ref().as_ref()) {
            Some((_, read)) => read(reader, value, into),
            None => {
                let names: Vec<&str> = keys.iter().map(|(name, _)| *name).collect();
                reader.unknown_key(key, &format!("in {section}"), &names);
            }
        }
    }
}
