//! Decides attempts of the past by policies, with the code that Exim runs, on rates in
//! memory that start empty.
//!
//! [`Simulation::decide`] takes one [`Attempt`] after the other, in the order of time, and
//! calls a visitor with each decision; so the caller keeps what it needs of them:
//!
//! ```text
//! let mut simulation = Simulation::new(&image, "*", Settings::default())?;
//! simulation.decide(&attempt, &mut |decided: &Decided<'_>| { … })?;
//! simulation.finish(&mut |decided: &Decided<'_>| { … })?;
//! ```
//!
//! A [`Decided`] has the attempt, whether it is of the past or a modelled retry, and the
//! [`Decisions`](crate::policy::replay::Decisions): the verdict, its reason (policy, rule,
//! unit, window and key) and each limit that was decided, with its rate and whether it is
//! over. [`Refusals`] is a visitor that adds them up by limit and key.
//!
//! [`Converter`] makes attempts of what a log shows ([`Item`](crate::logs::item::Item)).
//!
//! Sessions go as in Exim: a failed login and a refused recipient are counted by the next
//! evaluation in the same session, each once; a recipient that a policy refuses with 5xx is
//! one of the refused, one that it defers is not.
//!
//! # Assumptions
//!
//! - A recipient or message that was accepted then and is deferred now is tried again by
//!   the [`Schedule`] if it is from another mail server: the client is known, is not this
//!   machine and has not authenticated. Users and local programs do not try again, and
//!   nobody does after a refusal for good. A retry is a session of its own, and counts.
//! - What was refused then is not tried again: its retries are among the attempts.
//! - The policy is asked before the server's own reasons to refuse.
//! - Of a message that was refused in full then, but of which a recipient is accepted now,
//!   the size is not known; it counts no bytes.
//! - No two attempts are decided at the same time: those that the log puts in one second or
//!   millisecond follow each other a microsecond apart.
//! - By policies at delivery, each recipient waits that Exim would keep: the log does not say which are
//!   in local domains. The queue is run once a minute, the oldest message first; within a run, those that
//!   wait by a policy and key of which one still waits are not tried.
//! - A session goes on as it did, although its AUTH command is refused now.

mod attempt;
mod attempt_line;
mod compare;
mod convert;
mod decided;
mod engine;
mod input;
mod later;
mod named;
pub mod notes;
mod refusals;
mod retry;
mod summary;
#[cfg(test)]
mod tests;

pub use attempt::{Attempt, AttemptPart, InLog};
pub use attempt_line::{AttemptLine, attempt_in_words};
pub use compare::{Comparison, ComparisonReport, KeyComparison, RefusalCounts};
pub use convert::{Converter, Unshown};
pub use decided::{Decided, SimulateError, Totals, Verdicts};
pub use engine::{Simulation, SimulationSettings};
pub use input::Input;
pub use later::{LaterKey, SentLater, Waits};
pub use named::{NamedAccount, NamedAccounts};
pub use refusals::{LimitKey, Refusals, Refused};
pub use retry::{AssumedRetries, Retries, Schedule, Stages};
pub use summary::Summary;
