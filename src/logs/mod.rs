//! Reads the logs of mail servers.
//!
//! [`files::LogFiles`] finds files, puts them in the order of time and decompresses them, or reads
//! the [`journal`]; [`stamp`] reads the time at the start of a line, as Exim and each syslog write
//! it; [`exim`], [`postfix`] and [`sendmail`] read what follows; [`messages`] joins the lines to [`item`]s:
//! messages, refusals, sessions. Lines that are not used are counted by reason ([`unused`]).
//! Everything after the time may be text that a client chose.

mod copies;
pub mod decompress;
pub mod exim;
pub mod failure;
pub mod files;
pub mod follow;
mod handed_on;
pub mod item;
pub mod journal;
mod json_lines;
mod leap_day;
mod limited;
pub mod messages;
mod night;
pub mod notes;
pub mod postfix;
mod queue;
mod quotes;
pub mod sendmail;
mod sources;
mod split;
pub mod stamp;
mod submitted;
pub mod unused;
pub mod usual;
