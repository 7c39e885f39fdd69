//! exirate: rate limiting for the Exim mail server.
//!
//! The map. Its one rule: dependencies point down this list, so a module uses
//! only modules below it.
//!
//! - `cli`: the program, one file a command
//! - [`exim`]: the front end for Exim (dlfunc and lookup entry points, ABI, variables)
//! - [`spec`]: what the administrator wrote → a validated check
//! - [`stage`]: where in the SMTP dialogue a check stands, and how long its
//!   decision holds
//! - [`spool`]: the file-locked spool database, a [`store::Store`]
//! - [`store`]: what front ends call; the memory store
//! - [`engine`]: checks + remembered state + now → decisions and changes
//! - [`rate`]: the arithmetic: moving average, Bloom filter, waits
//! - [`trace`]: message → digests → segments → query
//! - [`sys`]: locks, mappings, secure files, clock, fork detection
//!
//! `unsafe` is allowed in [`exim`] and [`sys`] only.

#[cfg(feature = "cli")]
pub mod cli;
pub mod engine;
#[cfg(any(feature = "rates", feature = "trace"))]
pub mod exim;
pub mod rate;
pub mod spec;
pub mod spool;
pub mod stage;
pub mod store;
pub mod sys;
#[cfg(feature = "trace")]
pub mod trace;
