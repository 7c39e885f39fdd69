//! Who is counted, and how the spellings of one identity become one.
//!
//! Policies, overrides, commands and the function `identity` of the library fold here, so
//! that a login is the same wherever it is named. Keys of specs are literal: what compares
//! them with a login folds both.

mod field;
pub mod fold;
pub mod mailbox;
pub mod network;
mod punycode;
mod written;

pub use field::Field;
pub(crate) use field::first_field;
pub use written::written;
