//! The cost of a check in a session: the time with it minus the time without
//! it, for each recipient.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::effort::Effort;
use crate::exim::{Check, Taken, sessions};
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

/// What one check costs, by time and by processor time, in microseconds.
#[derive(Clone, Copy)]
struct Cost {
    time: f64,
    processor: f64,
}

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
    let mut taken: Vec<Vec<Taken>> = vec![Vec::new(); exims.len()];
    for round in 0..effort.rounds {
        let mut this_round = vec![Vec::new(); exims.len()];
        for run in 0..RUNS {
            for (n, exim) in exims.iter().enumerate().filter(|&(n, _)| run < runs(&checks[n])) {
                let taken = sessions(exim, names, round * RUNS + run, effort.recipients);
                this_round[n].push(taken);
            }
        }
        for (all, these) in taken.iter_mut().zip(this_round) {
            let part = |part: fn(&Taken) -> Duration| middle(these.iter().map(part).collect());
            all.push(Taken { time: part(|t| t.time), processor: part(|t| t.processor) });
        }
    }
    let checks_made = (effort.recipients * names.len()) as f64;
    let medians: Vec<Cost> = taken
        .iter()
        .map(|taken| {
            let part = |part: fn(&Taken) -> Duration| median(taken.iter().map(part).collect());
            Cost { time: part(|t| t.time), processor: part(|t| t.processor) }
        })
        .collect();
    let cost = |n: usize| Cost {
        time: (medians[n].time - medians[0].time) / checks_made,
        processor: (medians[n].processor - medians[0].processor) / checks_made,
    };
    // The ratio of two consecutive measurements; the median over all rounds.
    let in_rounds = |ours: usize, before: usize| {
        let seconds = |n: usize, round: usize| taken[n][round].time.as_secs_f64();
        let more = |n, round| seconds(n, round) - seconds(0, round);
        let ratios = (0..effort.rounds).map(|round| more(ours, round) / more(before, round));
        middle_of(ratios.collect())
    };

    head(&format!(
        "A recipient's checks in Exim, {} RCPTs, {title}, on {}",
        effort.recipients,
        file_system(&exims[0])
    ));
    let [nothing, lock] = [1, 2].map(cost);
    let mut titles = row([
        "",
        "native",
        "exirate",
        "native / exirate",
        "exirate / lock",
        "processor: native",
        "exirate",
        "native / exirate",
    ]);
    if rows.iter().any(|(_, _, before, _)| before.is_some()) {
        titles.extend(row(["before", "exirate / before"]));
    }
    let mut table = vec![titles];
    for &(name, native, before, ours) in &rows {
        let ours_costs = cost(ours);
        let of_native = |text: &dyn Fn(Cost) -> String| {
            native.map_or_else(String::new, |native| text(cost(native)))
        };
        table.push(vec![
            name.to_owned(),
            of_native(&|native| micros(native.time)),
            micros(ours_costs.time),
            of_native(&|native| times(native.time, ours_costs.time)),
            ratio(ours_costs.time, lock.time),
            of_native(&|native| micros(native.processor)),
            micros(ours_costs.processor),
            of_native(&|native| times(native.processor, ours_costs.processor)),
        ]);
        if let Some((before, cells)) = before.zip(table.last_mut()) {
            cells.extend([micros(cost(before).time), format!("{:.3}", in_rounds(ours, before))]);
        }
    }
    for (name, floor) in
        [("a dlfunc that does nothing", nothing), ("one that locks and unlocks a file", lock)]
    {
        table.push(vec![
            format!("floor: {name}"),
            String::new(),
            micros(floor.time),
            String::new(),
            String::new(),
            String::new(),
            micros(floor.processor),
        ]);
    }
    print(&table);
    println!("(a bare RCPT: {})", micros(medians[0].time / checks_made));
    rows.iter().map(|&(.., ours)| cost(ours).time).collect()
}

/// The kind of the file system that an Exim's databases are on.
fn file_system(exim: &PrivateExim) -> String {
    let output = Command::new("stat").args(["-f", "-c", "%T"]).arg(exim.spool()).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
