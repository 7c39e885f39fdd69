//! The cost of a check, in a real Exim and in process: `scripts/bench`.
//!
//! `cargo bench --bench cost -- [PART]...` with the parts `session` (a session
//! in a real Exim, compared with native `ratelimit`), `parallel` (several
//! concurrent sessions), `identity` (keys that are folded), `first` (the first check of a new
//! process), `spool`
//! (the database in process, by size), `growth` (pauses during growth),
//! `library` (size and load time), `image` (compiled policies in process: compiling,
//! opening, searching), `policy` (policies, compared with a check
//! of a spec) and `cluster` (checks that servers share, through the agent and Redis); all of them by default. `--before=FILE` also
//! measures another exirate.so in `session` and `parallel`, in the same rounds.
//! Run as a test, it makes only a few measurements, to check that it works.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cluster;
mod exim;
mod first;
mod growth;
mod image;
mod keys;
mod library;
mod policy;
mod session;
mod spool;

use std::path::Path;

/// The amount of measurements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Interleaved rounds, of which the median is taken.
    pub(crate) rounds: usize,
    /// RCPT commands in a session.
    pub(crate) recipients: usize,
    /// Concurrent sessions.
    pub(crate) sessions: usize,
    /// New processes whose first check is measured.
    pub(crate) processes: usize,
    /// Keys in the databases that are measured in process.
    pub(crate) keys: &'static [usize],
    /// Keys with which a database is filled to measure growth.
    pub(crate) growth: usize,
    /// Users in the table of the large policy.
    pub(crate) users: usize,
    /// Users of the policy file whose commands are measured as a whole.
    pub(crate) many_users: usize,
    /// Rounds in process, which are short.
    pub(crate) short_rounds: usize,
    /// How often the large policy is applied.
    pub(crate) applied_rounds: usize,
}

const FULL: Effort = Effort {
    rounds: 5,
    recipients: 3_000,
    sessions: 8,
    processes: 201,
    keys: &[1_000, 10_000, 100_000, 1_000_000, 10_000_000],
    growth: 10_000_000,
    users: 100_000,
    many_users: 1_000_000,
    short_rounds: 301,
    applied_rounds: 7,
};
const SMOKE: Effort = Effort {
    rounds: 1,
    recipients: 20,
    sessions: 2,
    processes: 2,
    keys: &[500],
    growth: 2_000,
    users: 100,
    many_users: 10_000,
    short_rounds: 2,
    applied_rounds: 1,
};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Cargo passes `--bench` for benchmarks, and not for tests.
    let effort = if arguments.iter().any(|a| a == "--bench") { FULL } else { SMOKE };
    let before = arguments.iter().find_map(|argument| argument.strip_prefix("--before="));
    let before = before.map(Path::new);
    let parts: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|a| !a.starts_with('-')).collect();
    let known = [
        "session", "parallel", "identity", "first", "spool", "growth", "library", "image",
        "policy", "cluster",
    ];
    if let Some(unknown) = parts.iter().find(|p| !known.contains(p)) {
        eprintln!("bench: unknown part {unknown:?}; the parts are {}", known.join(", "));
        std::process::exit(2);
    }
    let wanted = |part| parts.is_empty() || parts.contains(&part);
    if wanted("session") {
        session::alone(effort, before);
    }
    if wanted("parallel") {
        session::parallel(effort, before);
    }
    if wanted("identity") {
        session::identities(effort);
    }
    if wanted("first") {
        first::run(effort);
    }
    if wanted("spool") {
        spool::run(effort);
    }
    if wanted("growth") {
        growth::run(effort);
    }
    if wanted("library") {
        library::run(effort);
    }
    if wanted("image") {
        image::run(effort);
    }
    if wanted("policy") {
        policy::run(effort);
    }
    if wanted("cluster") {
        cluster::run(effort);
    }
}
