//! Settings, as the tables of [`settings`](crate::policy::settings) have them.

use toml::de::DeTable;

use super::contact::CONTACT;
use super::kind::Context;
use crate::policy::settings::{Group, Setting};
use crate::policy::value::list;
use crate::toml_file::reader::{Reader, Value};

/// Reads the settings in `table`, which is at `place`, into `group`. Keys that are in `others`
/// are left alone, and named where a key is unknown, without that of a user.
pub(super) fn read<G: Group>(
    reader: &mut Reader<'_>,
    table: &DeTable<'_>,
    group: &mut G,
    place: &str,
    others: &[&str],
    context: Context,
) {
    for (key, value) in table {
        let name = key.get_ref().as_ref();
        let within =
            |setting: &&Setting<G>| setting.name.split_once('.').is_some_and(|(t, _)| t == name);
        if let Some(setting) = G::SETTINGS.iter().find(|setting| setting.name == name) {
            (setting.parse)(group, reader, value, context);
        } else if G::SETTINGS.iter().any(|setting| within(&setting)) {
            let settings: Vec<_> = G::SETTINGS.iter().filter(within).collect();
            nested(reader, name, value, &settings, group, context);
        } else if !others.contains(&name) {
            let tables = G::SETTINGS.iter().map(|setting| setting.name);
            let mut allowed: Vec<&str> =
                tables.map(|name| name.split_once('.').map_or(name, |(table, _)| table)).collect();
            allowed.dedup();
            allowed.extend(others.iter().filter(|name| **name != CONTACT));
            reader.unknown_key(key, place, &allowed);
        }
    }
}

/// Reads `settings`, which are those of the table `name`.
fn nested<G: Group>(
    reader: &mut Reader<'_>,
    name: &str,
    value: Value<'_>,
    settings: &[&Setting<G>],
    group: &mut G,
    context: Context,
) {
    let own = |setting: &Setting<G>| setting.name.split_once('.').map_or("", |(_, own)| own);
    let examples = settings.iter().flat_map(|setting| {
        let shown = (setting.show)(&G::default()).into_iter();
        shown.map(|(_, value)| format!("{} = {value}", own(setting)))
    });
    let example = format!("{{ {} }}", list(examples));
    let Some(table) = reader.table(value, &example) else { return };
    for (key, value) in table {
        match settings.iter().find(|setting| own(setting) == key.get_ref().as_ref()) {
            Some(setting) => (setting.parse)(group, reader, value, context),
            None => {
                let allowed: Vec<&str> = settings.iter().map(|setting| own(setting)).collect();
                reader.unknown_key(key, &format!("in {name}"), &allowed);
            }
        }
    }
}
