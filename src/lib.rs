//! exirate: rate limiting for the Exim mail server.
//!
//! The map of the house. Its one rule: arrows point down this list, a module
//! knows only modules below it.
//!
//! - [`exim`]: the only door to Exim (dlfunc entry points, ABI, variables)
//! - `cli`: the program, one file a command
//! - [`engine`]: request + remembered state + now → decision
//! - [`spool`]: the file-locked spool database, a [`store::Store`]
//! - [`store`]: one atomic read-decide-write of one record
//! - [`spec`]: what the administrator wrote → a validated request
//! - [`rate`]: the arithmetic: moving average, Bloom filter, waits
//! - [`trace`]: message → digests → segments → query
//! - [`sys`]: locks, mappings, secure files, clock, fork detection
//!
//! `unsafe` is allowed in [`exim`] and [`sys`] only.

#[cfg(feature = "cli")]
pub mod cli;
pub mod engine;
pub mod exim;
pub mod rate;
pub mod spec;
pub mod spool;
pub mod store;
pub mod sys;
pub mod trace;
