//! The library in hostile programs, in hostile environments and with hostile
//! arguments: it is loaded by small programs in C, or by an Exim that any user
//! may start.

#![allow(missing_docs, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod callers;
mod hostile;
mod lookup_hosts;
mod panic;
mod random_calls;
mod starts;
mod table;
