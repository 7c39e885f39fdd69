//! The databases: their state, settings, upkeep and copies.

pub(super) mod config;
pub(super) mod copy;
pub(super) mod export;
pub(super) mod import;
pub(super) mod repair;
pub(super) mod stats;
