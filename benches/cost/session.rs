//! The cost of a check in a session: the time with it minus the time without
//! it, for each recipient.

use std::time::Duration;

use crate::Effort;
use crate::common::PrivateExim;
use crate::exim::{Check, sessions};
use crate::table::{head, median, micros, middle, print, row, times};

/// The measured specs and their names. The key is the client's HELO name, so
/// that a session determines which key it counts.
fn cases() -> Vec<(&'static str, Vec<String>)> {
    let spec = |m: &str, mode: &str, key: &str| {
        format!("{m} / 1h / {mode} / strict / {key}$sender_helo_name")
    };
    vec![
        ("per_rcpt", vec![spec("1000", "per_rcpt", "")]),
        ("per_addr, limit 100", vec![spec("100", "per_addr", "")]),
        ("per_addr, limit 10,000", vec![spec("10000", "per_addr", "")]),
        (
            "four conditions",
            ["a:", "b:", "c:", "d:"].map(|key| spec("1000", "per_rcpt", key)).to_vec(),
        ),
    ]
}

/// Prints the cost of a check in one session.
pub(crate) fn alone(effort: Effort) {
    measure("one session", &cases(), &names(1), effort);
}

/// Prints the cost of a check in several concurrent sessions, each with its own
/// key, and all with the same key.
pub(crate) fn parallel(effort: Effort) {
    let (all, n) = (cases(), effort.sessions);
    measure(&format!("{n} sessions at once, each with a key of its own"), &all, &names(n), effort);
    let same = vec!["client.test".to_owned(); n];
    measure(&format!("{n} sessions at once, all on one key"), &all[..1], &same, effort);
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("client{n}.test")).collect()
}

/// How often a session is run in each round. One with native checks takes a
/// second; the others take milliseconds, so that other processes affect the
/// measurement.
fn runs(check: &Check) -> usize {
    if matches!(check, Check::Native(_)) { 1 } else { RUNS }
}
const RUNS: usize = 7;

fn measure(title: &str, cases: &[(&str, Vec<String>)], names: &[String], effort: Effort) {
    let mut checks = vec![Check::None, Check::Nothing, Check::Lock];
    for (_, specs) in cases {
        checks.push(Check::Native(specs.clone()));
        checks.push(Check::Ours(specs.clone()));
    }
    let exims: Vec<PrivateExim> = checks.iter().map(Check::exim).collect();
    let mut times_taken: Vec<Vec<Duration>> = vec![Vec::new(); exims.len()];
    for round in 0..effort.rounds {
        let mut this_round = vec![Vec::new(); exims.len()];
        for run in 0..RUNS {
            for (n, exim) in exims.iter().enumerate().filter(|&(n, _)| run < runs(&checks[n])) {
                let taken = sessions(exim, names, round * RUNS + run, effort.recipients);
                this_round[n].push(taken);
            }
        }
        for (all, taken) in times_taken.iter_mut().zip(this_round) {
            all.push(middle(taken));
        }
    }
    let medians: Vec<f64> = times_taken.into_iter().map(median).collect();
    let checks_made = (effort.recipients * names.len()) as f64;
    let cost = |n: usize| (medians[n] - medians[0]) / checks_made;

    head(&format!("A recipient's checks in Exim, {} RCPTs, {title}", effort.recipients));
    let mut rows = vec![row(["", "native", "exirate", "native / exirate"])];
    for (n, (name, _)) in cases.iter().enumerate() {
        let (native, ours) = (cost(3 + 2 * n), cost(4 + 2 * n));
        rows.push(row([name, &micros(native), &micros(ours), &times(native, ours)]));
    }
    rows.push(row(["floor: a dlfunc that does nothing", "", &micros(cost(1)), ""]));
    rows.push(row(["floor: one that locks and unlocks a file", "", &micros(cost(2)), ""]));
    print(&rows);
    println!("(a bare RCPT: {})", micros(medians[0] / checks_made));
}
