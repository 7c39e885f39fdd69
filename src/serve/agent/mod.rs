//! The agent: it decides what the libraries on this machine ask, in a store that several
//! servers share.
//!
//! [`decide`] is what it decides and how much at the same time, [`link`] holds the connection
//! to the store, [`accept`] and [`connection`] those to the processes that ask. Everything
//! runs in one thread.

mod accept;
mod connection;
mod count;
mod decide;
mod link;
mod redis;
#[cfg(test)]
mod tests;

pub use decide::Agent;
pub use link::{Backend, Failed};
