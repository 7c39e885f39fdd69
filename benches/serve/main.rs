//! What it costs Postfix to ask for limits: the same mail without, with exirate by milter and
//! by policy protocol, with rspamd as a milter that does only `ratelimit`, and with postfwd as
//! a policy server; one Postfix, in a chroot, with its own network and its files in memory.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod servers;

use std::time::{Duration, Instant};

use kit::machine::{Machine, OUTSIDE};
use kit::table::{head, print, row};
use servers::SERVERS;

/// Where Postfix is from.
const CHROOT: &str = "trixie-postfix";
/// Clients at the same time, for messages a second.
const CLIENTS: usize = 8;
/// Messages of a connection, recipients of a message, and bytes of its body.
const MESSAGES: usize = 10;
const RECIPIENTS: usize = 3;
const BODY: usize = 4096;
/// Each server is measured so often, by turns.
const ROUNDS: usize = 5;

/// How much is measured.
struct Effort {
    /// Connections of each client, in each round.
    parallel: usize,
    /// Connections of the one client whose messages are timed, in each round.
    alone: usize,
    rounds: usize,
}

/// The results of a server.
#[derive(Default)]
struct Results {
    per_second: Vec<f64>,
    times: Vec<Duration>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|one| one != "--bench").collect();
    let effort = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Effort { parallel: 10, alone: 30, rounds: ROUNDS },
        // Only to see that it runs.
        ["--quick"] => Effort { parallel: 1, alone: 1, rounds: 1 },
        _ => panic!("{arguments:?}: the only option is --quick"),
    };
    let machine = Machine::start(CHROOT);
    let version = servers::prepare(&machine);
    head(&format!(
        "{version}: {CLIENTS} clients, {MESSAGES} messages a connection, {RECIPIENTS} recipients, {BODY} bytes"
    ));
    let mut results: Vec<Results> = SERVERS.iter().map(|_| Results::default()).collect();
    for _ in 0..effort.rounds {
        for (server, results) in SERVERS.iter().zip(&mut results) {
            let running = server.start(&machine);
            // Its processes have started, and Postfix's.
            connection(&machine);
            server.limits(&machine);
            results.per_second.push(parallel(&machine, effort.parallel));
            for _ in 0..effort.alone {
                results.times.extend(connection(&machine));
            }
            drop(running);
        }
    }
    report(results);
}

/// The messages a second of all clients together.
fn parallel(machine: &Machine, connections: usize) -> f64 {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                for _ in 0..connections {
                    connection(machine);
                }
            });
        }
    });
    (CLIENTS * connections * MESSAGES) as f64 / begun.elapsed().as_secs_f64()
}

/// One connection; how long each message took, from MAIL to the reply to its last dot.
fn connection(machine: &Machine) -> Vec<Duration> {
    let text = format!("Subject: x\r\n\r\n{}", "0123456789abcdef\r\n".repeat(BODY / 18));
    let mut client = machine.session(OUTSIDE);
    let times = (0..MESSAGES).map(|_| {
        let begun = Instant::now();
        let to: Vec<String> = (0..RECIPIENTS).map(|n| format!("u{n}@mail.test")).collect();
        let to: Vec<&str> = to.iter().map(String::as_str).collect();
        let reply = client.message("client@example.org", &to, &text);
        assert!(reply.is_ok(), "{reply:?}");
        client.transcript.clear();
        begun.elapsed()
    });
    let times = times.collect();
    assert!(client.quit().unwrap().is_ok());
    times
}

fn report(results: Vec<Results>) {
    let mut lines =
        vec![row(["", "messages a second", "median", "99 %", "added, median", "added, 99 %"])];
    let mut base = None;
    for (server, Results { per_second, mut times }) in SERVERS.iter().zip(results) {
        times.sort_unstable();
        let part = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e3;
        let (median, most) = (part(50), part(99));
        let (without_median, without_most) = *base.get_or_insert((median, most));
        lines.push(row([
            server.name,
            &format!("{:.0}", kit::table::middle_of(per_second)),
            &format!("{median:.2} ms"),
            &format!("{most:.2} ms"),
            &format!("{:.2} ms", median - without_median),
            &format!("{:.2} ms", most - without_most),
        ]));
    }
    print(&lines);
}
