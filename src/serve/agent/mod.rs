//! The agent: it decides what the libraries on this machine ask, in a store that several
//! servers share.
//!
//! [`decide`] is what it decides and how much at the same time, [`link`] holds the connection
//! to the store, [`announce`] publishes the state of this server there, [`accept`] and
//! [`connection`] hold the connections to the processes that ask. Everything runs in one
//! thread, but what [`announce`] writes to a file.

mod accept;
mod announce;
mod connection;
mod decide;
mod link;
mod redis;
#[cfg(test)]
mod tests;

pub use decide::Agent;
pub use link::{Backend, Failed};

/// The user as which the packaged agent runs.
pub(crate) const USER: &str = "exirate-agent";
