//! The broker: makes the changes that the web service may only ask for. It runs as the user whose
//! the database is, and looks for itself who asks, what he may do, and how much.
//!
//! - [`wire`]: a request and a reply, one line of JSON each
//! - [`decide`]: who may, within which bounds
//! - [`work`]: the change
//! - [`thief`]: what a thief has sent
//! - [`queue`]: the messages that policies hold, by a daemon that runs as root
//! - [`used`]: how many changes were made today
//! - [`daemon`]: start, reload and stop
//! - [`client`]: asks it

pub mod client;
pub mod daemon;
pub mod decide;
mod queue;
pub mod thief;
pub mod used;
pub mod wire;
mod work;
