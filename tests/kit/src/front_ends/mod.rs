//! The mail front ends: their daemon, and the mail servers that ask it.

mod daemon;
mod milter;
mod postfix;

pub use daemon::{Machine, exirate, serve_callers, succeeds};
pub use milter::{Mta, OFFER, packet};
pub use postfix::{Client, Message};
