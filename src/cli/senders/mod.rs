//! What is counted of senders, why they are refused, and what lets them send again.

pub(super) mod allow;
pub(super) mod erase;
pub(super) mod events;
pub(super) mod explain;
pub(super) mod habits;
pub(super) mod held;
pub(super) mod list;
pub(super) mod overrides;
pub(super) mod set;
pub(super) mod show;
pub(super) mod top;
pub(super) mod unblock;
mod undecided;
pub(super) mod usage;
mod waiting;
