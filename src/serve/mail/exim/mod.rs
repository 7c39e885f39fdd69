//! Exim's ACLs by `${readsocket`: for an Exim that loads no library. `exim/exirate.conf` writes
//! the requests, a connection each, to the socket of Postfix's policy delegation.
//!
//! [`request`] reads them, [`sessions`] remembers the SMTP connections, [`reply`] writes the
//! replies, and [`service`] decides.

pub mod reply;
pub mod request;
mod service;
mod sessions;

pub use service::EximService;
