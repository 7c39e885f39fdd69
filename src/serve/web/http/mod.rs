//! Requests, replies and problems.

pub(super) mod connection;
pub(super) mod problem;
pub(super) mod reply;
mod timed;
