//! Redis servers of a test: on this machine alone, in a temporary folder, and gone with the
//! test; and a proxy that makes a server misbehave.

#![allow(dead_code, unused_imports)] // not all test binaries use all of it

mod cluster;
mod process;
mod proxy;
mod sentinel;
mod server;

pub(crate) use cluster::Cluster;
pub(crate) use process::{Process, TIMEOUT, until};
pub(crate) use proxy::{Fault, Proxy};
pub(crate) use sentinel::Sentinels;
pub(crate) use server::{Program, RedisServer, free_port};
