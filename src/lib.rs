//! exirate: rate limiting for mail servers, first of all Exim.
//!
//! The map of the source; `docs/architecture.md` shows it as a drawing. A module uses only modules below it in this list:
//!
//! - `cli`: the program: commands in folders by what people want, and what they share
//! - `overview`: what all of this server comes to: status, counts and metrics
//! - `doctor`: whether the mail server, exirate and the database work together: checks → findings
//! - `setup`: configures the mail server of this machine to ask exirate, and undoes it
//! - `mta`: finds Exim, Postfix and Sendmail, and reads their configurations
//! - `serve`: the daemons: the agent between the libraries and Redis, the mail front ends, the
//!   follower of the mail log, the web service and its broker
//! - `alerts`: crossings of limits → the receivers of alerts
//! - `standing`: how keys stand: their rates, and what decides their next event
//! - `history`: what is computed from the past: measure, simulate, explain, the page
//! - [`exim`]: the front end for Exim (dlfunc and lookup entry points, ABI,
//!   variables)
//! - `policy`: the policy file: text → table of settings → image, and the one evaluator that every
//!   front end calls
//! - `shadow`: compares decisions with native ones
//! - [`place`]: where the database of this machine is, and whose
//! - `toml_file`: files in TOML that an administrator writes
//! - [`spec`]: parses the administrator's spec into a validated check
//! - [`logs`]: lines of mail servers → messages, refusals, sessions
//! - [`event`]: one mail event, the ACL stage it belongs to, and what an SMTP session remembers
//! - [`redis`]: the store of several servers, in Redis: one script, run by the agent
//! - [`cluster`]: the store of a library in a cluster: asks the agent, else decides
//!   on the spool store
//! - [`spool`]: the file-locked spool database, a [`store::Store`]
//! - [`store`]: the interface for front ends; the memory store
//! - [`engine`]: computes decisions and changes from checks, remembered state
//!   and time
//! - [`trace`]: message → digests → segments → query
//! - [`bypass`]: the file that lifts all limits for a while
//! - `text`: numbers, durations, sizes and times as people read and type them
//! - [`sys`]: locks, mappings, secure files, clock, fork detection
//! - `calendar`: hours, days, weeks and months of a time zone
//! - [`rate`]: the arithmetic: moving average, Bloom filter, calendar windows, waits, habits
//! - [`identity`]: who is counted: fields, folding, networks
//! - `hash`: fast hashes for maps
//! - `page_parts`: what the pages of the report and of the web service share
//! - `csv`: comma-separated values, read and written
//! - `json_schema`: the schemas of what is written as JSON
//! - [`versions`]: the versions of a format that a program knows
//!
//! `unsafe` is allowed in [`exim`] and [`sys`] only.

#[cfg(feature = "cli")]
mod alerts;
pub mod bypass;
#[cfg(feature = "rates")]
pub mod calendar;
#[cfg(feature = "cli")]
pub mod cli;
pub mod cluster;
#[cfg(feature = "cli")]
mod csv;
#[cfg(feature = "cli")]
mod doctor;
pub mod engine;
pub mod event;
#[cfg(any(feature = "rates", feature = "trace"))]
pub mod exim;
mod hash;
#[cfg(feature = "cli")]
pub mod history;
pub mod identity;
#[cfg(feature = "cli")]
mod json_schema;
#[cfg(feature = "cli")]
pub mod logs;
#[cfg(feature = "cli")]
mod mta;
#[cfg(feature = "cli")]
mod overview;
#[cfg(feature = "cli")]
mod page_parts;
#[cfg(feature = "cli")]
pub mod place;
#[cfg(feature = "rates")]
pub mod policy;
pub mod rate;
#[cfg(feature = "cli")]
pub mod redis;
#[cfg(feature = "cli")]
pub mod serve;
#[cfg(feature = "cli")]
mod setup;
#[cfg(feature = "rates")]
pub mod shadow;
pub mod spec;
pub mod spool;
#[cfg(feature = "cli")]
mod standing;
pub mod store;
pub mod sys;
mod text;
#[cfg(feature = "rates")]
pub mod toml_file;
#[cfg(feature = "trace")]
pub mod trace;
pub mod versions;
