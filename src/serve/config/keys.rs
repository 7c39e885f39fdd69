//! The keys of sections, each with what reads it.

use toml::de::DeTable;

use crate::toml_file::reader::{Reader, Value};

/// At the top.
const TOP: [&str; 6] = ["listen", "redis", "agent", "mail", "follow", "web"];

/// A key of a section, and what reads its value into a `C`.
pub(super) type Key<C> = (&'static str, fn(&mut Reader<'_>, Value<'_>, &mut C));

/// Whether it is `[]`, which is what some lists are unless they are set.
pub(super) fn is_empty(value: Value<'_>) -> bool {
    value.get_ref().as_array().is_some_and(|array| array.is_empty())
}

/// Calls `read` with the name and the value of each section of the file: those of the other daemons
/// as well.
pub(super) fn sections<'t>(
    reader: &mut Reader<'_>,
    table: &'t DeTable<'t>,
    mut read: impl FnMut(&mut Reader<'_>, &str, Value<'t>),
) {
    for (key, value) in table {
        match key.get_ref().as_ref() {
            name if TOP.contains(&name) => read(reader, name, value),
            _ => reader.unknown_key(key, "at the top of the file", &TOP),
        }
    }
}

/// Reads a section, such as `[mail]`; returns its table, if it is one.
pub(super) fn read<'t, C>(
    reader: &mut Reader<'_>,
    value: Value<'t>,
    section: &str,
    keys: &[Key<C>],
    into: &mut C,
) -> Option<&'t DeTable<'t>> {
    let table = reader.table(value, section)?;
    for (key, value) in table {
        match keys.iter().find(|(name, _)| *name == key.get_ref().as_ref()) {
            Some((_, read)) => read(reader, value, into),
            None => {
                let names: Vec<&str> = keys.iter().map(|(name, _)| *name).collect();
                reader.unknown_key(key, &format!("in {section}"), &names);
            }
        }
    }
    Some(table)
}
