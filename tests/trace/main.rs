//! The trace store: its format, damage, resource limits, and the mail that it
//! is tested with.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bytes;
mod chance;
mod expected;
mod format;
mod mail_generator;
mod parts;
mod passages;
mod world;

/// The entry point for a worker, as which a test starts this binary again.
#[test]
fn worker_process() {
    if let Some(arguments) = kit::worker::arguments() {
        world::worker(&arguments);
    }
}
