//! The follower of the mail log: counts what became of mail that was accepted.
//!
//! [`reader`] reads the log as it grows, over its rotation and its own restarts, and joins its
//! lines; [`counter`] counts each failed recipient by the policies in use; [`ledger`] remembers
//! on disk which ones have been counted, in a [`folder`]. By [`shared`] it is stopped.

mod counter;
pub mod daemon;
mod folder;
mod ledger;
mod reader;
mod shared;
pub mod state;
pub mod surroundings;
