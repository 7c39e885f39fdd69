//! Shared by the integration tests: a private Exim, an SMTP client, and the
//! library as Exim loads it.
//!
//! A [`PrivateExim`] reads and writes only in its own temporary folder, so
//! tests affect neither the machine's mail system nor each other.

// Each test binary uses a part of this.
#![allow(dead_code, unreachable_pub, unused_imports, missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod clock;
pub mod entry_point;
pub mod exim;
pub mod library;
pub mod program;
pub mod setup;
pub mod smtp;

pub use clock::FakeClock;
pub use entry_point::EntryPoint;
pub use exim::PrivateExim;
pub(crate) use program::{copy_program, write_script};
pub use setup::Setup;
pub use smtp::{Client, Reply};
