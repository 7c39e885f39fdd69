//! The daemon as a process: started, asked, reloaded, stopped and killed, with a real
//! Redis.

#![cfg(feature = "cli")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod agent;
mod client;
mod faults;
mod process;
