//! The daemon, `exirate serve`: it runs in the foreground, in one thread, and logs to
//! standard error.
//!
//! - [`config`]: its configuration file
//! - [`agent`]: decides for the libraries, in a store that several servers share
//! - [`socket`]: a unix socket that one instance listens on
//! - [`log`] and [`notify`]: lines for the journal, messages to systemd
//! - [`daemon`]: start, reload and stop

pub mod agent;
pub mod config;
pub mod daemon;
pub mod log;
pub mod notify;
pub mod socket;
