//! Postfix's policy delegation: `check_policy_service` asks, one request after the other.
//!
//! [`request`] reads requests, [`sessions`] remembers what was counted of a message,
//! [`reply`] writes the replies, and [`connection`] serves a peer.

pub mod connection;
pub mod reply;
pub mod request;
mod sessions;

pub use connection::PolicyService;
