//! The daemon, `exirate serve`: it runs in the foreground, its network side in one thread,
//! and logs to standard error.
//!
//! - [`config`]: its configuration file
//! - [`agent`]: decides for the libraries, in a store that several servers share
//! - [`mail`]: the mail front ends: decides for mail servers that load no library
//! - [`follow`]: the follower of the mail log
//! - [`socket`]: a unix socket that one instance listens on
//! - [`log`] and [`notify`]: lines for the journal, messages to systemd
//! - [`daemon`]: start, reload and stop of the agent

pub mod agent;
pub mod config;
mod count;
pub mod daemon;
pub mod follow;
pub mod log;
pub mod mail;
pub mod notify;
pub mod socket;
mod supervise;
