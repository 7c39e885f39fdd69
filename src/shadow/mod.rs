//! Compares our answers with those of Exim's own `ratelimit`, for the same events.
//!
//! Exim asks both in the same ACL statement (`exim/shadow.conf`), and acts on its own
//! answer. Each pair of answers is counted in the file `shadow.counters`
//! ([`crate::spool::counter_file`]), by the limit, and each difference is logged.

mod compare;
mod counters;

pub use compare::{Answer, Difference, compare};
pub use counters::{LimitName, Seen, ShadowCounters, forget, read};
