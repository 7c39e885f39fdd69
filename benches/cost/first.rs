//! The first check of a fresh process, loading and opening included.

use std::io::{BufRead, BufReader, Write as _};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::Effort;
use crate::common::PrivateExim;
use crate::exim::{Check, dash_bs, sessions};
use crate::table::{head, median, micros, print, row};

/// Prints how long Exim takes to answer the first RCPT of a process, with and
/// without a check, and the difference.
pub(crate) fn run(effort: Effort) {
    let spec = vec!["1000 / 1h / per_rcpt / strict / $sender_helo_name".to_owned()];
    let checks = [Check::None, Check::Nothing, Check::Native(spec.clone()), Check::Ours(spec)];
    let exims = checks.each_ref().map(Check::exim);
    for exim in &exims {
        // The databases are there, as they are on a machine that is in use.
        sessions(exim, &["client.test".to_owned()], 0, 10);
    }
    let (mut answers, mut processes) = ([const { Vec::new() }; 4], [const { Vec::new() }; 4]);
    for _ in 0..effort.processes {
        for (n, exim) in exims.iter().enumerate() {
            let (answer, process) = first_answer(exim);
            answers[n].push(answer);
            processes[n].push(process);
        }
    }
    let answers = answers.map(median);
    let processes = processes.map(median);
    head(&format!("The first check of a fresh process, {} processes each", effort.processes));
    let mut rows = vec![row(["", "until the answer", "whole process"])];
    for (n, name) in [(2, "native"), (3, "exirate"), (1, "floor: a dlfunc that does nothing")] {
        let [answer, process] = [answers[n] - answers[0], processes[n] - processes[0]];
        rows.push(row([name, &micros(answer), &micros(process)]));
    }
    rows.push(row(["(without a check, to be added)", &micros(answers[0]), &micros(processes[0])]));
    print(&rows);
}

/// From the first RCPT to its answer, and from the start of the process to its
/// end.
fn first_answer(exim: &PrivateExim) -> (Duration, Duration) {
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
    // Exim would wait a while for a client that does not hang up.
    drop(input);
    answered("221 ");
    assert!(child.wait().unwrap().success());
    (answer, started.elapsed())
}
