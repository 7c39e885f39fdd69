//! The web service and its broker: a page and an API for people without a shell on the mail
//! server, and for panels.
//!
//! - [`token`]: the tokens, by which programs and people ask
//! - [`role`]: who may do what
//! - [`broker`]: makes the changes, as the user whose the database is
//! - [`server`]: HTTP: reads only

pub mod broker;
pub mod role;
pub mod server;
pub mod token;
