//! The store of a library whose limits are shared by several servers: it asks the local
//! agent, and decides on the spool store when no reply comes in time.

#[cfg(test)]
mod bound_tests;
pub mod wire;
