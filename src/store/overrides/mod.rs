//! The administrator's overrides: keys that are allowed or denied for a time,
//! whatever their rates. A store keeps the list, and sets `Check::overridden` from it
//! before it decides.
//!
//! An override is about an identity: it applies to all records and policies of a
//! key. A policy's `auth:alice` is also `alice`; what a stranger chooses must be named with
//! its field, `sender:bob@example.org`. Names are folded as the policies fold them. An exact
//! key is stronger than a glob, and of these, a denial is stronger than a permission.

mod encoding;
mod glob;
mod list;
mod target;
#[cfg(test)]
mod tests;

pub use encoding::HEADER_BYTES as LIST_HEADER_BYTES;
pub use encoding::{LIST_BYTES_MAX, ListFault};
pub use glob::{ALTERNATIVES_MAX, compile as compile_glob};
pub use list::{Candidates, Overrides};
pub use target::{FOREVER, OVERRIDES_MAX, Override, Sort, TEXT_MAX, Target, deciding, names};
