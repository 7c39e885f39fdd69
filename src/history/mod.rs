//! What is computed from logs and databases for administrators to read.
//!
//! - [`explain`]: what drove a sender over a limit, and by which rule it was counted
//! - [`habits`]: the mail of accounts, with which their habits are learned
//! - [`measure`]: the rates that keys would have had, and the limits they suggest
//! - [`page`]: a page of HTML with the rates of a log and of a database
//! - [`simulate`]: what policies would have refused, decided again from attempts of the past

pub mod explain;
pub mod habits;
pub mod measure;
pub mod page;
pub mod simulate;
