//! The first check of a new process, including loading and opening.

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::Effort;
use crate::common::PrivateExim;
use crate::exim::{Check, dash_bs, sessions};
use crate::table::{head, median, micros, print, row};

/// The times of one process.
#[derive(Clone, Copy)]
struct Taken {
    /// From the first RCPT to its reply.
    answer: Duration,
    /// From its start to its end.
    process: Duration,
    /// Its CPU time.
    cpu: Duration,
}

/// Prints the cost of the first check of an Exim process: the time and CPU time
/// of a process with one check, minus those of a process without.
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
    let medians = all.map(|taken| {
        let of = |part: fn(&Taken) -> Duration| median(taken.iter().map(part).collect());
        [of(|t| t.answer), of(|t| t.process), of(|t| t.cpu)]
    });
    let [none, nothing, native, ours] = medians;
    let less = |one: [f64; 3]| [0, 1, 2].map(|n| one[n] - none[n]);
    head(&format!("The first check of a new process, {} processes each", effort.processes));
    let mut rows = vec![row(["", "until the result", "whole process", "its CPU time"])];
    let mut add = |name: &str, figures: [String; 3]| {
        let [answer, process, cpu] = &figures;
        rows.push(row([name, answer, process, cpu]));
    };
    add("native", less(native).map(micros));
    add("exirate", less(ours).map(micros));
    let ratio = |n: usize| format!("{:.2}", less(ours)[n] / less(native)[n]);
    add("exirate / native", [0, 1, 2].map(ratio));
    add("floor: a dlfunc that does nothing", less(nothing).map(micros));
    add("(without a check, to be added)", none.map(micros));
    print(&rows);
}

/// The times of a session with one recipient.
fn first_answer(exim: &PrivateExim) -> Taken {
    let started = Instant::now();
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
    let asked = Instant::now();
    input.write_all(b"RCPT TO:<user@private.test>\r\n").unwrap();
    answered("250 ");
    let answer = asked.elapsed();
    input.write_all(b"QUIT\r\n").unwrap();
    // Exim would wait for a client that does not close the connection.
    drop(input);
    answered("221 ");
    let cpu = cpu_time(&child);
    let process = started.elapsed();
    assert!(child.wait().unwrap().success());
    Taken { answer, process, cpu }
}

/// Waits for the end of a process; the CPU time that it took.
fn cpu_time(child: &Child) -> Duration {
    let pid = Pid::from_child(child);
    // The kernel keeps the figure until the process is waited for.
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
    let path = format!("/proc/{}/schedstat", child.id());
    let text = std::fs::read_to_string(path).unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}
