//! The cost of a check, in a real Exim and in process: `scripts/bench`.
//!
//! `cargo bench --bench cost -- [PART]...` with the parts `session` (a session
//! in a real Exim, compared with native `ratelimit`), `parallel` (several
//! concurrent sessions), `identity` (keys that are folded), `first` (the first check of a new
//! process), `spool`
//! (the database in process, by size), `growth` (pauses during growth),
//! `library` (size and load time), `image` (compiled policies in process: compiling,
//! opening, searching), `customers` (very many customers, and a check with their totals), `policy`
//! (policies, compared with a check
//! of a spec), `cluster` (checks that servers share, through the agent and Redis), `keys` (commands and the desk with very
//! many shared keys), `far` (shared checks where Redis is far away), `socket`
//! (an Exim without the library, and its daemon) and `web` (the web service, and checks meanwhile); all of them by default. `--before=FILE` also
//! measures another exirate.so in `session` and `parallel`, in the same rounds, and
//! `--before-program=FILE` another program in `keys` and `far`.
//! Run as a test, it makes only a few measurements, to check that it works.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cluster;
mod customers;
mod effort;
mod exim;
mod first;
mod growth;
mod image;
mod keys;
mod library;
mod policy;
mod session;
mod shared;
mod socket;
mod spool;
mod web;

use std::path::Path;

use effort::{FULL, SMOKE};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Cargo passes `--bench` for benchmarks, and not for tests.
    let effort = if arguments.iter().any(|a| a == "--bench") { FULL } else { SMOKE };
    let option = |name| arguments.iter().find_map(|argument| argument.strip_prefix(name));
    let before = option("--before=").map(Path::new);
    let program = option("--before-program=").map(Path::new);
    let parts: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|a| !a.starts_with('-')).collect();
    let known = [
        "session",
        "parallel",
        "identity",
        "first",
        "spool",
        "growth",
        "library",
        "image",
        "customers",
        "policy",
        "cluster",
        "keys",
        "far",
        "socket",
        "web",
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
    if wanted("customers") {
        customers::run(effort);
    }
    if wanted("policy") {
        policy::run(effort);
    }
    if wanted("cluster") {
        cluster::run(effort);
    }
    if wanted("keys") {
        shared::keys(effort, program);
    }
    if wanted("far") {
        shared::far(effort, program);
    }
    if wanted("socket") {
        socket::run(effort);
    }
    if wanted("web") {
        web::run(effort);
    }
}
