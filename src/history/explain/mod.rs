//! Why a sender went over a limit.
//!
//! Everything here is data, for commands and pages to show:
//!
//! - [`crossing`]: the messages in the window of a crossing: how many, from where, for which recipients,
//!   and how alike
//! - [`past`]: what a logged event did to each limit, and when it would have passed
//! - [`rule`]: the rule of a policy that a record is counted by

pub mod crossing;
pub mod past;
pub mod rule;
