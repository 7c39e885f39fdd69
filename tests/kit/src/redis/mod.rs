//! Redis servers of a test: on this machine alone, in a temporary folder, and gone with the
//! test; and a proxy that makes a server misbehave.

mod cluster;
mod proxy;
mod sentinel;
mod server;

pub use cluster::Cluster;
pub use proxy::{Fault, Proxy};
pub use sentinel::Sentinels;
pub use server::{Program, RedisServer, free_port};
