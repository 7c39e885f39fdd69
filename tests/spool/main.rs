//! The spool database: many processes, kills, damage, and resource limits.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bound;
mod bytes;
mod common;
mod concurrency;
mod crafted;
mod events;
mod files;
mod hard_world;
mod kill;
mod numbers;
mod paper_tables;
mod random;

/// The entry point for a worker, as which a test starts this binary again.
#[test]
fn worker_process() {
    let Some(arguments) = kit::worker::arguments() else { return };
    let [module, rest @ ..] = &arguments[..] else { panic!("{arguments:?}") };
    match module.as_str() {
        "bound" => bound::worker(rest),
        "concurrency" => concurrency::worker(rest),
        "events" => events::worker(rest),
        "hard_world" => hard_world::worker(rest),
        "kill" => kill::worker(rest),
        other => panic!("{other}"),
    }
}
