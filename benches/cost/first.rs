//! The first check of a new process, including loading and opening.

use std::io::{BufRead, BufReader, Write as _};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::effort::Effort;
use crate::exim::{Check, dash_bs, processor_time, sessions, wait_for_end};
use kit::PrivateExim;
use kit::table::{head, micros, print, row};

/// The times of one process from its first RCPT on. The time before that does not depend
/// on the check, and varies by more than the cost of the check.
#[derive(Clone, Copy)]
struct Taken {
    /// Until the reply.
    answer: Duration,
    /// Until the process ends.
    process: Duration,
    /// The processor time until then.
    processor: Duration,
}

/// Prints the cost of the first check of an Exim process: the times of a process with
/// one check, minus those of a process without.
pub(crate) fn run(effort: Effort) {
    let spec = vec!["1000 / 1h / per_rcpt / strict / $sender_helo_name".to_owned()];
    let checks = [Check::None, Check::Nothing, Check::Native(spec.clone()), Check::Ours(spec)];
    let exims = checks.each_ref().map(Check::exim);
    for exim in &exims {
        // The databases exist already, as on a machine in use.
        sessions(exim, &["client.test".to_owned()], 0, 10);
    }
    let mut all = [const { Vec::new() }; 4];
    for _ in 0..effort.processes {
        for (taken, exim) in all.iter_mut().zip(&exims) {
            taken.push(first_answer(exim));
        }
    }
    head(&format!(
        "The first check of a new process, loading included: {} processes, minus as many without \
         a check",
        effort.processes
    ));
    println!("Medians:");
    show(&all, 0.5);
    println!("The fastest tenth, which waits least for the disk and for other programs:");
    show(&all, 0.1);
}

/// Prints the times of which `share` of the processes took less.
fn show(all: &[Vec<Taken>; 4], share: f64) {
    let parts = all.each_ref().map(|taken| {
        let of = |part: fn(&Taken) -> Duration| {
            let mut times: Vec<Duration> = taken.iter().map(part).collect();
            times.sort_unstable();
            times[(times.len() as f64 * share) as usize].as_secs_f64() * 1e6
        };
        [of(|t| t.answer), of(|t| t.process), of(|t| t.processor)]
    });
    let [none, nothing, native, ours] = parts;
    let less = |one: [f64; 3]| [0, 1, 2].map(|n| one[n] - none[n]);
    let mut rows = vec![row(["", "until the result", "until the end", "processor time"])];
    let mut add = |name: &str, figures: [String; 3]| {
        let [answer, process, cpu] = &figures;
        rows.push(row([name, answer, process, cpu]));
    };
    add("native", less(native).map(micros));
    add("exirate", less(ours).map(micros));
    let ratio = |n: usize| format!("{:.2}", less(ours)[n] / less(native)[n]);
    add("exirate / native", [0, 1, 2].map(ratio));
    add("floor: a dlfunc that does nothing", less(nothing).map(micros));
    add("(one without a check)", none.map(micros));
    print(&rows);
}

/// The times of a session with one recipient.
fn first_answer(exim: &PrivateExim) -> Taken {
    let mut child =
        dash_bs(exim).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Exim starts");
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut reply = String::new();
    let mut answered = |wanted: &str| {
        loop {
            reply.clear();
            output.read_line(&mut reply).unwrap();
            assert!(reply.starts_with(&wanted[..3]), "{reply}");
            if reply.starts_with(wanted) {
                return;
            }
        }
    };
    answered("220 ");
    input.write_all(b"EHLO client.test\r\n").unwrap();
    answered("250 ");
    input.write_all(b"MAIL FROM:<sender@client.test>\r\n").unwrap();
    answered("250 ");
    let before = processor_time(child.id());
    let asked = Instant::now();
    input.write_all(b"RCPT TO:<user@private.test>\r\n").unwrap();
    answered("250 ");
    let answer = asked.elapsed();
    input.write_all(b"QUIT\r\n").unwrap();
    // Exim would wait for a client that does not close the connection.
    drop(input);
    answered("221 ");
    let processor = wait_for_end(&child) - before;
    let process = asked.elapsed();
    assert!(child.wait().unwrap().success());
    Taken { answer, process, processor }
}
