//! Policies: the administrator's limits as tables.
//!
//! `policy.toml` → [`source`] → [`model`] → [`image`]. [`mod@source`] reads the text
//! and reports every error with its file, line and column; what it returns is
//! sound. [`lint`] finds what is sound but probably not meant. [`settings`] has each setting,
//! with its name, type, default and help, once; [`word`] the words, units among them.
//!
//! [`evaluator`] is what every front end calls: a step of an SMTP session goes in, a verdict
//! with its reason comes out.
//!
//! [`image`] is the compiled form that the libraries map. What finds the limits of an identity
//! in it agrees with `resolve`, which searches the tables as they are written: for tests alone.
//!
//! Which table has the limits that apply is stated by [`limit::Tables`], [`limit::customer`] and
//! [`limit::package`] alone. Units are resolved one by one; one that no table names is not
//! limited. An entry of `exempt` lifts every limit of its policy; the events are
//! measured all the same.

#[cfg(feature = "cli")]
pub mod changes;
pub mod check_info;
mod compare;
pub mod counters;
pub mod decide;
#[cfg(feature = "cli")]
pub mod decided;
pub mod destination;
pub mod evaluator;
pub mod explain;
pub mod habits;
pub mod image;
pub mod info;
pub mod key;
pub mod limit;
#[cfg(feature = "cli")]
pub mod lint;
pub mod model;
#[cfg(feature = "cli")]
pub mod needs;
pub mod outcome;
pub mod probe;
#[cfg(feature = "cli")]
pub mod replay;
pub mod reply;
#[cfg(all(feature = "cli", any(test, feature = "fuzzing")))]
pub mod resolve;
mod settings;
#[cfg(feature = "cli")]
pub(crate) mod shown;
#[cfg(feature = "cli")]
pub mod source;
mod usage;
pub mod value;
pub mod word;

#[cfg(test)]
#[cfg(feature = "cli")]
mod reference_tests;

pub use crate::identity::{fold, network};
