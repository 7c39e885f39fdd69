//! The Redis store on real servers: one, behind Sentinel, a Cluster, and Valkey; with
//! permissions, failovers and faults.

#![cfg(feature = "cli")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod asker;
mod budget;
#[path = "../../src/sys/counts.rs"]
mod counts;
mod failover;
mod faults;
mod permissions;
#[path = "../redis_common/mod.rs"]
mod redis_common;
mod servers;
mod sums;
mod tools;
