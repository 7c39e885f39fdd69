//! The mail front ends as a process: started, asked as mail servers ask, reloaded, stopped
//! and killed; and peers that mean harm.

#![cfg(feature = "cli")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fail2ban;
mod hostile;
mod milter;
mod network;
mod policy;
mod policy_file;
