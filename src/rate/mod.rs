//! The arithmetic of rates: pure functions of the remembered state and of
//! `now`.
//!
//! Nothing here reads a clock, a file or a random number. The formulas of the
//! moving average are those of Tony Finch's `ratelimit` in Exim (`src/acl.c`,
//! `acl_ratelimit`), with the same order of operations, so that every `f64` is
//! the same; those of the leaky bucket are rspamd's.

mod algorithm;
mod average;
pub(crate) mod block;
pub mod bloom;
mod bucket;
pub mod calendar;
mod forget;
pub mod habits;
mod outlook;
pub mod share;
pub mod usage;

pub use algorithm::{Algorithm, AlgorithmKind};
pub use average::{Average, Timestamp};
pub use bucket::{Bucket, score};
pub use calendar::CalendarWindow;
pub use outlook::Wait;
pub use share::Share;
