//! The daemon, `exirate serve`: it runs in the foreground, its network side in one thread,
//! and logs to standard error.
//!
//! - [`config`]: its configuration file
//! - [`agent`]: decides for the libraries, in a store that several servers share
//! - [`mail`]: the mail front ends: decides for mail servers that load no library
//! - [`follow`]: the follower of the mail log
//! - [`web`]: the web service and its broker
//! - [`alerts`]: sends crossings of limits to the receivers of alerts
//! - [`listen`]: sockets, and how many may be connected
//! - [`socket`]: a unix socket that one instance listens on
//! - [`log`] and [`notify`]: lines for the journal, messages to systemd
//! - [`rates`]: the rates of this server, or those that it shares
//! - [`servers`]: those that share the limits
//! - [`daemon`]: start, reload and stop of the agent

pub mod agent;
pub mod alerts;
pub mod config;
mod count;
pub mod daemon;
pub mod follow;
pub mod listen;
pub mod log;
pub mod mail;
pub mod notify;
mod rates;
pub(crate) mod servers;
pub mod socket;
mod supervise;
pub mod web;
