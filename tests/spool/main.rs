//! The spool database: many processes, kills, damage, and a system that does
//! not give what it needs.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bound;
mod bytes;
mod concurrency;
mod crafted;
mod files;
mod hard_world;
mod kill;
mod numbers;
mod random;
mod seed_tables;
#[path = "../spool_common/mod.rs"]
mod spool_common;

/// What this binary does where a test has started it again as a worker.
#[test]
fn worker_process() {
    let Some(arguments) = spool_common::arguments() else { return };
    let [module, rest @ ..] = &arguments[..] else { panic!("{arguments:?}") };
    match module.as_str() {
        "bound" => bound::worker(rest),
        "concurrency" => concurrency::worker(rest),
        "hard_world" => hard_world::worker(rest),
        "kill" => kill::worker(rest),
        other => panic!("{other}"),
    }
}
