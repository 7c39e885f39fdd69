//! Computes decisions and changes from checks, remembered state and the current
//! time. Pure: no I/O, no clock. A local store calls it while it holds its
//! locks.
//!
//! The checks of one call are one event. All are computed first. Then, if any
//! leaky or read-only check refuses the event, no leaky check counts it; strict checks
//! always count it, read-only ones never. A check refuses the event from a part of its
//! limit on ([`Check::refuses`]). If one that is no total refuses it, the totals
//! ([`Check::total`]) are decided as read-only ones: what refuses one user uses up
//! nothing of what he shares with others.
//!
//! If several checks of one call have the same record, the event is counted in
//! it once, by the first of them that is not read-only. Each later one compares
//! the rate computed by the first with its own limit, and the event is counted
//! if any of them would count it.
//!
//! A check may use a moving average or a leaky bucket, and a call may have
//! both. The rules are the same, except that a leaky check of a bucket stores
//! what has leaked out also when the event is not counted.
//!
//! Where several servers share the limits, [`Authority`] says whether the checks are decided
//! here, or have been decided by the cluster's store, or cannot be decided there now.
//!
//! An override (`Check::overridden`) says whether a check is over, whatever its rate;
//! otherwise the check is one like any other. It is never a crossing.
//!
//! A crossing may set a block ([`BlockTime`]): until that ends, the checks of the record refuse, as
//! where an override denies.

mod authority;
mod check;
mod decide;
mod decision;
mod state;
mod unique;

pub(crate) use crate::rate::block::quiet_from;
pub use crate::rate::block::{Block, BlockTime};
pub use crate::rate::{Algorithm, AlgorithmKind};
pub use authority::Authority;
#[cfg(feature = "cli")]
pub(crate) use authority::refused_by_own;
pub use check::{Check, Kind, Overridden, RecordKey, Update};
pub(crate) use decide::over_since;
pub use decide::{Pending, decide, decide_one};
pub use decision::{Decision, Details};
pub use state::{Change, Filter, FilterChange, Remembered, State};
pub(crate) use unique::UniqueEvent;
