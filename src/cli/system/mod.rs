//! This server: whether it works, its daemons, and the others that share its limits.

pub(super) mod bypass;
pub(super) mod cluster;
pub(super) mod doctor;
pub(super) mod serve;
pub(super) mod setup;
pub(super) mod status;
pub(super) mod web;
pub(super) mod where_is;
