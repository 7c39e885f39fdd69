//! Policies: the administrator's limits as tables.
//!
//! `policy.toml` → [`source`] → [`model`] → [`resolve`]. [`mod@source`] reads the text
//! and reports every error with its file, line and column; what it returns is
//! sound. [`lint`] finds what is sound but probably not meant. [`resolve`] is the
//! plain evaluator: the windows that apply to one identity, each with the rule
//! it comes from. `exirate policy show` prints them.
//!
//! [`evaluator`] is what every front end calls: a step of an SMTP session goes in, a verdict
//! with its reason comes out.
//!
//! [`image`] is the compiled form that the libraries map. It agrees with [`resolve`]
//! for every identity; [`fold`] and the words of [`model`] are for both. Only
//! [`mod@source`], [`lint`] and [`resolve`] are for the program alone.
//!
//! The rules of precedence, all of them:
//! - Units are resolved one by one: user > domain > package > default. A unit
//!   that no table names is not limited.
//! - The package of a user is that of the user's table, else the one that the
//!   front end hands over (`package=gold`), else that of the domain.
//! - `total` limits all users of a domain together: domain > package of the
//!   domain > default.
//! - An entry of `exempt` lifts every limit of its policy; the events are
//!   measured all the same.

#[cfg(feature = "cli")]
pub mod changes;
pub mod counters;
pub mod decide;
pub mod evaluator;
pub mod explain;
pub mod image;
pub mod key;
pub mod limit;
#[cfg(feature = "cli")]
pub mod lint;
pub mod model;
#[cfg(feature = "cli")]
pub mod needs;
pub mod outcome;
#[cfg(feature = "cli")]
pub mod replay;
#[cfg(feature = "cli")]
pub mod resolve;
#[cfg(feature = "cli")]
pub mod source;
pub mod word;

pub use crate::identity::{fold, network};
