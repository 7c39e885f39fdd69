//! Values that several tables have.

use super::super::model::Template;
use super::super::network::Cidr;
use super::amount;
use crate::toml_file::reader::{Reader, Value};

/// Networks, one or several.
pub(super) fn networks(reader: &mut Reader<'_>, value: Value<'_>) -> Vec<Cidr> {
    reader.each(value, "[\"192.0.2.0/24\"]", amount::network).unwrap_or_default()
}

/// A text with placeholders, at `value`.
pub(super) fn template(reader: &mut Reader<'_>, value: Value<'_>, text: &str) -> Option<Template> {
    amount::template(text).map_err(|message| reader.error(value, message)).ok()
}
