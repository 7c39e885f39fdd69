//! The front end for Exim.
//!
//! Exim loads this library with `${dlfunc{…/exirate.so}{ratelimit}{SPEC}}` and
//! calls the C functions in [`dlfunc`], or as a lookup module with
//! `${lookup ratelimit {SPEC}…}`, by [`lookup`]. Everything that knows of Exim's memory
//! is below here, from the outside in:
//!
//! - [`dlfunc`]: the entry points; [`lookup`]: another one
//! - `boundary`: the one boundary, behind all of them, that catches panics
//! - `session`: what this process remembers between calls
//! - `context`, `marks`: where in Exim a call stands, what was
//!   answered before, and whether that is still the same command or message
//! - `variables`, `rate_variables`, `table`, `program`: reading and setting
//!   Exim's own variables
//! - `info`, `debug`: what is told of a decision
//! - `record`, `record_options`, `record_scheme`, `recorded`: keeping the message
//!   that passes in the trace store, and asking that store
//! - `message`, `data_file`, `directory`: reading the message
//! - `host`: the functions Exim exports, `abi`: its constants and types
//! - [`version`]: which exirate this is, readable in the library's file
//!
//! In the host there are no threads, no signals, no environment and no waiting
//! without a deadline.

#![allow(unsafe_code)]

mod abi;
mod boundary;
mod context;
mod data_file;
mod debug;
mod directory;
pub mod dlfunc;
mod host;
mod info;
pub mod lookup;
mod marks;
mod message;
mod program;
mod rate_variables;
mod record;
mod record_options;
mod record_scheme;
mod recorded;
mod session;
mod table;
mod text;
mod variables;
pub mod version;

// The unwinder is linked in: loading libgcc_s.so.1 beside this library would
// cost each SMTP connection a quarter of what its first check costs.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[link(name = "gcc_eh", kind = "static", modifiers = "-bundle,+whole-archive")]
unsafe extern "C" {}
