//! The keys of sections, each stated once: its default, what it means, and what reads it.

use toml::de::DeTable;

use crate::toml_file::reader::{Reader, Value};

/// At the top.
const TOP: [&str; 6] = ["listen", "redis", "agent", "mail", "follow", "web"];

/// A key of a section, whose value is read into a `C`.
pub(super) struct Key<C> {
    pub(super) name: &'static str,
    /// The default, as the file would say it or in words, and the meaning, for the reference.
    #[cfg(test)]
    pub(super) about: [&'static str; 2],
    pub(super) read: fn(&mut Reader<'_>, Value<'_>, &mut C),
}

/// Declares the keys of a section: for each its meaning, its name, the field, the default (what
/// depends on the machine in parentheses) and what reads it. Without a field, it is checked only.
macro_rules! keys {
    ($($(#[doc = $help:literal])+ $name:ident $(=> $($field:ident).+)? = $default:tt, $kind:expr;)+) => {
        &[$($crate::serve::config::keys::Key {
            name: stringify!($name),
            #[cfg(test)]
            about: [stringify!($default), concat!($($help),+)],
            read: $crate::serve::config::keys::keys!(@read $kind, $($($field).+)?),
        }),+]
    };
    (@read $kind:expr,) => {
        |reader, value, _| _ = ($kind)(reader, value)
    };
    (@read $kind:expr, $($field:ident).+) => {
        |reader, value, section| {
            if let Some(read) = ($kind)(reader, value) {
                section.$($field).+ = read;
            }
        }
    };
}
pub(super) use keys;

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
        match keys.iter().find(|one| one.name == key.get_ref().as_ref()) {
            Some(one) => (one.read)(reader, value, into),
            None => {
                let names: Vec<&str> = keys.iter().map(|one| one.name).collect();
                reader.unknown_key(key, &format!("in {section}"), &names);
            }
        }
    }
    Some(table)
}
