//! What a check costs, in real Exim and in process: `scripts/bench`.
//!
//! `cargo bench --bench cost -- [PART]...` with the parts `door` (a session in
//! a real Exim, beside native `ratelimit`), `crowd` (several at once), `first` (the first check of a
//! fresh process), `spool` (the database in process) and `library` (size and
//! load time); all of them without. Run as a test it measures next to nothing
//! and only shows that it still works.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod door;
mod exim;
mod first;
mod library;
mod spool;
mod table;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Interleaved rounds, of which the median is taken.
    pub(crate) rounds: usize,
    /// RCPT commands in a session.
    pub(crate) recipients: usize,
    /// Sessions at once, where there are several.
    pub(crate) sessions: usize,
    /// Fresh processes whose first check is measured.
    pub(crate) processes: usize,
    /// Keys in the databases that are measured in process.
    pub(crate) keys: &'static [usize],
    /// Rounds in process, which are short.
    pub(crate) short_rounds: usize,
}

const FULL: Effort = Effort {
    rounds: 5,
    recipients: 3_000,
    sessions: 8,
    processes: 201,
    keys: &[1_000, 100_000, 1_000_000],
    short_rounds: 301,
};
const SMOKE: Effort =
    Effort { rounds: 1, recipients: 20, sessions: 2, processes: 2, keys: &[500], short_rounds: 2 };

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Cargo says `--bench` when it benches, and not when it tests.
    let effort = if arguments.iter().any(|a| a == "--bench") { FULL } else { SMOKE };
    let parts: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|a| !a.starts_with('-')).collect();
    let known = ["door", "crowd", "first", "spool", "library"];
    if let Some(unknown) = parts.iter().find(|p| !known.contains(p)) {
        eprintln!("bench: there is no part {unknown:?}; there are {}", known.join(", "));
        std::process::exit(2);
    }
    let wanted = |part| parts.is_empty() || parts.contains(&part);
    if wanted("door") {
        door::alone(effort);
    }
    if wanted("crowd") {
        door::crowd(effort);
    }
    if wanted("first") {
        first::run(effort);
    }
    if wanted("spool") {
        spool::run(effort);
    }
    if wanted("library") {
        library::run(effort);
    }
}
