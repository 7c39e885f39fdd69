//! The mail front ends: they decide for mail servers that load no library, by the policies
//! and in the database that Exim's processes would use.
//!
//! - [`event`]: what a mail server says of a step, and the verdict on it
//! - [`decider`]: a pool of threads that decide, each a `worker` with an open store, which also
//!   notes what is held, and what waits for room at delivery, as `later` says; `queue` has the jobs that wait; `recorder` records messages
//! - `recent`: the sessions that are remembered by a name; the sockets are in `serve::listen`
//! - [`milter`]: Sendmail's protocol for filters, which Postfix speaks too
//! - [`postfix`]: Postfix's policy delegation, on a socket that Exim's ACLs use too
//! - [`exim`]: what Exim's ACLs send
//! - [`daemon`]: start, reload and stop; [`policy_file`]: applies the policy file when it changes
//! - [`surroundings`]: what they need on a machine before they start

#[cfg(test)]
mod agreement_tests;
pub mod daemon;
pub mod decider;
pub mod event;
pub mod exim;
pub(crate) mod later;
pub mod milter;
pub mod policy_file;
pub mod postfix;
mod queue;
mod recent;
mod recorder;
pub mod surroundings;
#[cfg(test)]
mod tests;
mod worker;

pub(crate) use worker::Worker;
