//! The front end for Exim.
//!
//! There are two libraries, so that a process that only limits does not load the
//! parts that read mail: exirate.so (feature `rates`) and exirate-trace.so (feature
//! `trace`). Exim loads them with `${dlfunc{…/exirate.so}{ratelimit}{SPEC}}` and
//! `${dlfunc{…/exirate-trace.so}{record}}` and calls the C functions in [`rates::dlfunc`]
//! and `trace::dlfunc`; or the first as a lookup module with
//! `${lookup ratelimit {SPEC}…}`, by [`rates::lookup`]. All code that depends on Exim's memory
//! layout is below here, from the outside in:
//!
//! - [`rates`]: specs. `dlfunc`, `dlfunc_shadow` and `lookup` are entry points, `session` is what
//!   exirate.so keeps between calls, `marks` finds out whether the command and the message are
//!   still those of the call before; `dlfunc_elsewhere`: the trace store's functions, called in
//!   exirate.so by mistake
//! - [`policies`]: `dlfunc` and `dlfunc_identity` are entry points, `call` evaluates a policy with
//!   the `facts` of the event
//! - `trace`: recording a message in the trace store and searching it; `dlfunc` is the entry point
//! - `host`: `boundary`, behind all entry points, catches panics; `context` is the ACL stage of a
//!   call; `variables` and `table` read and set Exim's own variables; `exports` are the functions
//!   that Exim exports, `abi` its constants and types
//! - [`version`]: the version of exirate, readable in the library's file
//!
//! In the host there are no threads, no signals, no environment and no waiting
//! without a deadline.

#![allow(unsafe_code)]
// Of the modules that both libraries share, each uses a part; the build with both
// features, in which nothing may be unused, checks the whole.
#[cfg_attr(not(all(feature = "rates", feature = "trace")), allow(dead_code))]
mod host;
#[cfg(feature = "rates")]
pub mod policies;
#[cfg(feature = "rates")]
pub mod rates;
#[cfg(feature = "trace")]
pub mod trace;
pub mod version;

// The unwinder is linked in: loading libgcc_s.so.1 beside this library would add a
// quarter to the cost of the first check of each SMTP connection.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[link(name = "gcc_eh", kind = "static", modifiers = "-bundle,+whole-archive")]
unsafe extern "C" {}
