//! What the integration tests share: a private Exim, an SMTP client, and the
//! library as Exim loads it.
//!
//! Everything a [`PrivateExim`] reads or writes lies in one temporary folder
//! of its own, so tests neither see the machine's mail system nor each other.

// Each test binary uses its own part of this.
#![allow(dead_code, unreachable_pub, unused_imports, missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod clock;
pub mod door;
pub mod exim;
pub mod library;
pub mod setup;
pub mod smtp;

pub use clock::FakeClock;
pub use door::Door;
pub use exim::PrivateExim;
pub use setup::Setup;
pub use smtp::{Client, Reply};
