//! The daemon as a process: started, asked, reloaded, stopped and killed, with a real
//! Redis; and three servers with a real Exim that share their limits through it.

#![cfg(feature = "cli")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod agent;
mod attack;
mod broker_faults;
mod calendar;
mod client;
mod customer;
mod desk;
mod desk_reads;
mod exim;
mod exim_faults;
mod faults;
mod foreign;
mod held;
mod links;
mod mail_server;
mod page;
mod panel;
mod parts;
mod process;
mod proxied;
mod secret;
mod servers;
mod stores;
mod web;

/// Started by a test of this binary, in a mount namespace of its own.
#[test]
fn worker_process() {
    if kit::worker::arguments().is_some() {
        broker_faults::full_disk();
    }
}
