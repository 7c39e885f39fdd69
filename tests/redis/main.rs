//! The Redis store on real servers: one, behind Sentinel, a Cluster, and Valkey; with
//! permissions, failovers and faults.

#![cfg(feature = "cli")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod asker;
mod budget;
mod desk;
mod failover;
mod faults;
mod nodes;
mod permissions;
mod servers;
mod sums;
mod tools;
