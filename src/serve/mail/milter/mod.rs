//! The milter: Sendmail's protocol for filters of mail, versions 2 to 6, which Postfix
//! speaks too.
//!
//! It is our own implementation, as the crate `miltr-server` sends a reply to every command,
//! also where it was agreed that there will be none, cannot be stopped between two
//! commands, and holds each packet as a whole. It would also bring twenty crates.
//!
//! - [`packet`]: packets in a stream of bytes
//! - [`negotiate`]: what both sides can do; as few commands as the policies need
//! - [`reply`]: what is sent to the mail server
//! - [`dialogue`]: commands → events to be decided, verdicts → replies, without input and
//!   output
//! - [`connection`]: input and output
//! - [`content`], [`room`]: headers and bodies of messages to be recorded, in bounded memory
//!
//! Which commands are events:
//!
//! | command | ACL stage |
//! |---|---|
//! | CONNECT, HELO, MAIL, if the configuration names them | connect, helo, mail |
//! | RCPT, if the mail server has not refused the recipient | rcpt |
//! | the end of a message | data |
//! | the end of a message that was not handed over by SMTP | not SMTP, with all recipients |
//!
//! That a message was not handed over by SMTP can be known where the mail server itself
//! hands it to the milter: Sendmail then names no address of the client, and Postfix
//! (`non_smtpd_milters`) one of the local host without a port. Sendmail's command `sendmail`
//! uses SMTP to the local host, which cannot be distinguished from any other local client.

pub mod connection;
pub mod content;
pub mod dialogue;
mod macros;
pub mod marks;
mod needs;
pub mod negotiate;
pub mod packet;
pub mod reply;
pub mod room;
mod service;

pub use service::Milter;
