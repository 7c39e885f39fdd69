//! Values that several tables have.

use super::super::model::Template;
use super::super::network::Cidr;
use super::amount;
use super::reader::{Reader, Value};

/// Networks, one or several.
pub(super) fn networks(reader: &mut Reader<'_>, value: Value<'_>) -> Vec<Cidr> {
    let mut networks = Vec::new();
    for (text, at) in reader.strings(value, "[\"192.0.2.0/24\"]").unwrap_or_default() {
        match amount::network(text) {
            Ok(network) => networks.push(network),
            Err(message) => reader.error(at, message),
        }
    }
    networks
}

/// A text with placeholders, at `value`.
pub(super) fn template(reader: &mut Reader<'_>, value: Value<'_>, text: &str) -> Option<Template> {
    amount::template(text).map_err(|message| reader.error(value, message)).ok()
}
