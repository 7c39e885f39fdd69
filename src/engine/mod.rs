//! Checks + what is remembered + now → decisions and changes. Pure: no I/O, no
//! clock. A local store runs it while it holds its locks.
//!
//! The checks of one call are one event. All are computed first. Then, if any
//! enforced leaky check is over its limit, no leaky check counts the event;
//! strict ones always count it, read-only ones never.
//!
//! Checks of one call that have the same record count the event in it once, by
//! the first of them that is not read-only. Each later one holds the rate that
//! the first has computed against its own limit, and the event is counted if
//! any of them would count it.

mod check;
mod decide;
mod decision;
mod state;

pub use check::{Algorithm, Check, Kind, RecordKey, Update};
pub use decide::{Pending, decide, decide_one};
pub use decision::{Decision, Details};
pub use state::{Change, Filter, FilterChange, Remembered, State};
