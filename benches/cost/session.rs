//! The cost of a check in a session: the time with it minus the time without
//! it, for each recipient.

use std::path::Path;
use std::time::Duration;

use crate::effort::Effort;
use crate::exim::{Check, sessions};
use kit::PrivateExim;
use kit::table::{head, median, micros, middle, middle_of, print, ratio, row, times};

/// The measurements in one row.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) native: Option<Check>,
    pub(crate) before: Option<Check>,
    pub(crate) ours: Check,
}

/// The key is the client's HELO name, so that a session chooses its key.
const KEY: &str = "$sender_helo_name";

/// The cases, each also with the library `before` if there is one. The last two
/// have the same four windows of one key, in four conditions and in one
/// `ratelimit_all`.
fn cases(before: Option<&Path>) -> Vec<Case> {
    let case = |name, windows: &[&str], mode: &str| {
        let specs: Vec<_> =
            windows.iter().map(|window| format!("{window} / {mode} / strict / {KEY}")).collect();
        Case {
            name,
            native: Some(Check::Native(specs.clone())),
            before: before.map(|library| Check::Before(library.to_owned(), specs.clone())),
            ours: Check::Ours(specs),
        }
    };
    let windows = ["1000 / 1h", "2000 / 2h", "5000 / 1d", "9000 / 1w"];
    let specs = windows.map(|window| format!("{window} / per_rcpt / strict"));
    vec![
        case("per_rcpt", &["1000 / 1h"], "per_rcpt"),
        case("per_addr, limit 100", &["100 / 1h"], "per_addr"),
        case("per_addr, limit 10,000", &["10000 / 1h"], "per_addr"),
        case("four conditions", &windows, "per_rcpt"),
        Case {
            name: "the same four in one ratelimit_all",
            native: None,
            before: None,
            ours: Check::All(KEY, specs.to_vec()),
        },
    ]
}

/// Prints the cost of a check in one session.
pub(crate) fn alone(effort: Effort, before: Option<&Path>) {
    let medians = measure("one session", cases(before), &names(1), effort);
    if let [.., four, one] = medians[..] {
        println!("(four conditions take {} times as long as one ratelimit_all)", ratio(four, one));
    }
}

/// Prints the cost of a check whose KEY is folded.
pub(crate) fn identities(effort: Effort) {
    let case = |name, key| Case { name, native: None, before: None, ours: Check::Keyed(key) };
    let cases = vec![
        case("a key as it is", "$sender_helo_name"),
        case("in lower case", "${lc:$sender_helo_name}"),
        case("a login, folded already", "${dlfunc{EXIRATE}{identity}{auth}{$sender_helo_name}}"),
        case("a login to fold", "${dlfunc{EXIRATE}{identity}{auth}{Client.Test.}}"),
        case("a client of IPv4", "${dlfunc{EXIRATE}{identity}{client}{192.0.2.7}}"),
        case("a client of IPv6", "${dlfunc{EXIRATE}{identity}{client}{2001:db8::7}}"),
    ];
    measure("keys that are folded", cases, &names(1), effort);
}

/// Prints the cost of a check in several concurrent sessions, each with its own
/// key, and all with the same key.
pub(crate) fn parallel(effort: Effort, before: Option<&Path>) {
    let n = effort.sessions;
    let title = format!("{n} sessions at once, each with its own key");
    measure(&title, cases(before), &names(n), effort);
    let same = vec!["client.test".to_owned(); n];
    let mut one = cases(before);
    one.truncate(1);
    measure(&format!("{n} sessions at once, all with the same key"), one, &same, effort);
}

pub(crate) fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("client{n}.test")).collect()
}

/// How often a session is run in each round. One with native checks takes a
/// second; the others take milliseconds, so that other processes affect the
/// measurement.
fn runs(check: &Check) -> usize {
    if matches!(check, Check::Native(_)) { 1 } else { RUNS }
}
const RUNS: usize = 7;

/// Prints a table, and returns the cost of exirate's check in each case.
pub(crate) fn measure(title: &str, cases: Vec<Case>, names: &[String], effort: Effort) -> Vec<f64> {
    let mut checks = vec![Check::None, Check::Nothing, Check::Lock];
    let mut add = |check| {
        checks.push(check);
        checks.len() - 1
    };
    let rows: Vec<_> = cases
        .into_iter()
        .map(|Case { name, native, before, ours }| {
            (name, native.map(&mut add), before.map(&mut add), add(ours))
        })
        .collect();
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
    let checks_made = (effort.recipients * names.len()) as f64;
    let medians: Vec<f64> = times_taken.iter().cloned().map(median).collect();
    let cost = |n: usize| (medians[n] - medians[0]) / checks_made;
    // The ratio of two consecutive measurements; the median over all rounds.
    let in_rounds = |ours: usize, before: usize| {
        let micros = |n: usize, round: usize| times_taken[n][round].as_secs_f64();
        let ratio = |round| {
            (micros(ours, round) - micros(0, round)) / (micros(before, round) - micros(0, round))
        };
        middle_of((0..effort.rounds).map(ratio).collect())
    };

    head(&format!("A recipient's checks in Exim, {} RCPTs, {title}", effort.recipients));
    let mut titles = row(["", "native", "exirate", "native / exirate"]);
    if rows.iter().any(|(_, _, before, _)| before.is_some()) {
        titles.extend(row(["before", "exirate / before"]));
    }
    let mut table = vec![titles];
    for &(name, native, before, ours) in &rows {
        let of_native = |text: &dyn Fn(usize) -> String| native.map_or_else(String::new, text);
        table.push(vec![
            name.to_owned(),
            of_native(&|n| micros(cost(n))),
            micros(cost(ours)),
            of_native(&|n| times(cost(n), cost(ours))),
        ]);
        if let Some((before, cells)) = before.zip(table.last_mut()) {
            cells.extend([micros(cost(before)), format!("{:.3}", in_rounds(ours, before))]);
        }
    }
    for (name, n) in [("a dlfunc that does nothing", 1), ("one that locks and unlocks a file", 2)] {
        table.push(vec![format!("floor: {name}"), String::new(), micros(cost(n))]);
    }
    print(&table);
    println!("(a bare RCPT: {})", micros(medians[0] / checks_made));
    rows.iter().map(|&(.., ours)| cost(ours)).collect()
}
