//! Exim's ACLs by `${readsocket`: for an Exim that loads no library. `exim/exirate.conf` writes
//! the requests, a connection each, to the socket of Postfix's policy delegation.
//!
//! [`request`] reads them, [`sessions`] remembers the SMTP connections, and [`service`] decides. The
//! replies are those of [`crate::policy::reply`].

pub mod request;
mod service;
mod sessions;

pub use service::EximService;
