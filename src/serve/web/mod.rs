//! The web service and its broker: a page and an API for people without a shell on the mail
//! server, and for panels.
//!
//! - [`token`]: the tokens, by which programs and people ask
//! - [`role`]: who may do what
//! - [`broker`]: makes the changes, as the user whose the database is
//! - `http`: requests, replies and problems
//! - `asker`: who asks
//! - `look`: reads the database
//! - `page`: what a browser shows
//! - `api`: the routes, and what is in their replies
//! - [`daemon`]: start, reload and stop of the web service, which only reads

mod api;
mod asker;
pub mod broker;
pub mod daemon;
mod http;
mod look;
mod page;
pub mod role;
pub mod token;
