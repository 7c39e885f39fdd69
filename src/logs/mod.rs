//! Reads the logs of mail servers.
//!
//! [`files::LogFiles`] finds files, puts them in the order of time and decompresses them;
//! [`stamp`] reads the time at the start of a line, as Exim, syslog or RFC 3339 writes it;
//! [`exim`] and [`postfix`] read what follows; [`messages`] joins the lines to [`item`]s: messages, refusals,
//! sessions. Everything after the time may be text that a client chose.

pub mod decompress;
pub mod exim;
pub mod files;
pub mod item;
mod limited;
pub mod messages;
pub mod postfix;
mod split;
pub mod stamp;
