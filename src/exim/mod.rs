//! The front end for Exim.
//!
//! There are two libraries, so that a process that only limits does not load the
//! parts that read mail: exirate.so (feature `rates`) and exirate-trace.so (feature
//! `trace`). Exim loads them with `${dlfunc{…/exirate.so}{ratelimit}{SPEC}}` and
//! `${dlfunc{…/exirate-trace.so}{record}}` and calls the C functions in [`dlfunc`]
//! and `dlfunc_trace`; or the first as a lookup module with
//! `${lookup ratelimit {SPEC}…}`, by [`lookup`]. All code that depends on Exim's memory
//! layout is below here, from the outside in:
//!
//! - [`dlfunc`], [`dlfunc_identity`], [`dlfunc_policy`], [`dlfunc_shadow`], `dlfunc_trace`:
//!   the entry points; [`lookup`]: another one
//! - `dlfunc_elsewhere`: the trace store's functions, called in exirate.so by mistake
//! - `boundary`: the one boundary, behind all of them, that catches panics
//! - `bypass`: looks for the emergency stop
//! - `session`: what exirate.so keeps between calls
//! - `context`, `marks`: at which ACL stage a call is made, and whether the command
//!   and the message are still those of the call before
//! - `variables`, `rate_variables`, `table`, `program`: reading and setting
//!   Exim's own variables
//! - `identities`: how `identity` folds
//! - `info`, `debug`: the fields and the debug output of a decision
//! - `shadow_state`: what the comparison with native keeps between calls
//! - `policy`, `policy_facts`, `policy_state`: evaluating a policy, the facts it needs
//!   of the event, and what is kept between calls
//! - `record`, `record_options`, `record_scheme`, `wrong_options`, `recorded`:
//!   recording a message in the trace store, and searching that store
//! - `message`, `data_file`, `directory`: reading the message
//! - `host`: the functions Exim exports, `abi`: its constants and types
//! - [`version`]: the version of exirate, readable in the library's file
//!
//! In the host there are no threads, no signals, no environment and no waiting
//! without a deadline.

#![allow(unsafe_code)]
// Of the modules that both libraries share, each uses a part; the build with both
// features, in which nothing may be unused, checks the whole.

#[cfg_attr(not(all(feature = "rates", feature = "trace")), allow(dead_code))]
mod abi;
#[cfg_attr(not(all(feature = "rates", feature = "trace")), allow(dead_code))]
mod boundary;
#[cfg_attr(not(all(feature = "rates", feature = "trace")), allow(dead_code))]
mod bypass;
#[cfg_attr(not(all(feature = "rates", feature = "trace")), allow(dead_code))]
mod context;
#[cfg(feature = "trace")]
mod data_file;
#[cfg(feature = "rates")]
mod debug;
mod directory;
#[cfg(feature = "rates")]
pub mod dlfunc;
#[cfg(all(feature = "rates", not(feature = "trace")))]
pub mod dlfunc_elsewhere;
#[cfg(feature = "rates")]
pub mod dlfunc_identity;
#[cfg(feature = "rates")]
pub mod dlfunc_policy;
#[cfg(feature = "rates")]
pub mod dlfunc_shadow;
#[cfg(feature = "trace")]
pub mod dlfunc_trace;
#[cfg_attr(not(all(feature = "rates", feature = "trace")), allow(dead_code))]
mod host;
#[cfg(feature = "rates")]
mod identities;
#[cfg(feature = "rates")]
mod info;
#[cfg(feature = "rates")]
pub mod lookup;
#[cfg(feature = "rates")]
mod marks;
#[cfg(feature = "trace")]
mod message;
#[cfg(feature = "rates")]
mod policy;
#[cfg(feature = "rates")]
#[cfg(feature = "rates")]
mod policy_facts;
#[cfg(feature = "rates")]
mod policy_state;
mod program;
#[cfg(feature = "rates")]
mod rate_variables;
mod recipients;
#[cfg(feature = "trace")]
mod record;
#[cfg(feature = "trace")]
mod record_options;
#[cfg(feature = "trace")]
mod record_scheme;
#[cfg(feature = "trace")]
mod recorded;
#[cfg(feature = "rates")]
mod session;
#[cfg(feature = "rates")]
mod shadow_state;
mod table;
#[cfg_attr(not(all(feature = "rates", feature = "trace")), allow(dead_code))]
mod text;
#[cfg_attr(not(all(feature = "rates", feature = "trace")), allow(dead_code))]
mod variables;
pub mod version;
#[cfg(feature = "trace")]
mod wrong_options;

// The unwinder is linked in: loading libgcc_s.so.1 beside this library would add a
// quarter to the cost of the first check of each SMTP connection.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[link(name = "gcc_eh", kind = "static", modifiers = "-bundle,+whole-archive")]
unsafe extern "C" {}
