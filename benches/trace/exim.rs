//! The time that recording adds to a message in a real Exim.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::goals::Goals;
use crate::options::Options;
use crate::stores;
use kit::exim::PROGRAM;
use kit::mail::World;
use kit::table::{head, middle, print};
use kit::{PrivateExim, Setup};

const RECORD: &str = "  warn condition = ${dlfunc{EXIRATE_TRACE}{record}}\n  accept\n";

pub(crate) fn run(options: &Options, goals: &mut Goals) {
    let world = World::new(11);
    let small = (0..)
        .map(|n| world.mail(n).raw)
        .filter(|raw| (19_500..20_500).contains(&raw.len()))
        .take(options.session)
        .collect::<Vec<_>>();
    let one = |raw: Vec<u8>| vec![raw];
    let cases = [
        (format!("20 KB, {} in a session", small.len()), small.clone()),
        (LONE.to_owned(), small[..1].to_vec()),
        ("10 MB with a PDF, the only one".to_owned(), one(world.with_file(1, 7_400_000).raw)),
        ("10 MB of text, the only one".to_owned(), one(world.with_text(1, 9_900_000).raw)),
    ];
    let without = Setup::new().main(LIMITS).acl("acl_smtp_data", "  accept\n").build();
    let with = Setup::new().main(LIMITS).library().acl("acl_smtp_data", RECORD).build();
    let mut rows =
        vec![["a message of", "without", "with `record`", "added"].map(str::to_owned).to_vec()];
    let mut sent = 0;
    for (name, messages) in cases {
        let input = script(&messages);
        // The difference is a twentieth of the time of a short session, and less than its variation.
        let rounds = options.rounds
            * match input.len() {
                0..100_000 => 60,
                100_000..5_000_000 => 8,
                _ => 3,
            };
        let mut times = [Vec::new(), Vec::new()];
        sent += (rounds * messages.len()) as u64;
        // Alternately, so that other load affects both alike.
        for _ in 0..rounds {
            for (exim, times) in [&without, &with].into_iter().zip(&mut times) {
                times.push(session(exim, &input, messages.len()));
            }
        }
        let [without, with] =
            times.map(|t| middle(t).as_secs_f64() * 1_000.0 / messages.len() as f64);
        if name == LONE {
            goals.at_most("added to a lone message of 20 KB", 0.5, with - without, " ms");
        }
        let cells = [without, with, with - without].map(|ms| format!("{ms:.2} ms"));
        rows.push(std::iter::once(name).chain(cells).collect());
    }
    let recorded = stores::reader(&with.folder().join("spool")).stats().unwrap().messages;
    let log = with.log("main") + &with.log("panic");
    assert_eq!(recorded, sent, "messages are missing: {log:.800}");
    head("Time added to a message in Exim, medians");
    print(&rows);
}

/// The case that there is a goal for.
const LONE: &str = "20 KB, the only one of a session";

const LIMITS: &str = "message_size_limit = 100M\nsmtp_accept_max_per_connection = 100000";

/// The client's side of a session.
fn script(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut text = b"EHLO client.test\r\n".to_vec();
    for message in messages {
        text.extend(b"MAIL FROM:<sender@client.test>\r\nRCPT TO:<user@private.test>\r\nDATA\r\n");
        for line in message.split_inclusive(|&b| b == b'\n') {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            if line.starts_with(b".") {
                text.push(b'.');
            }
            text.extend_from_slice(line);
            text.extend(b"\r\n");
        }
        text.extend(b".\r\n");
    }
    text.extend(b"QUIT\r\n");
    text
}

/// Runs a session; returns its time. Every message must have been accepted.
fn session(exim: &PrivateExim, input: &[u8], messages: usize) -> Duration {
    let files = ["input", "output"].map(|name| exim.folder().join(name));
    std::fs::write(&files[0], input).unwrap();
    let mut command = Command::new(PROGRAM);
    command.arg("-C").arg(exim.config()).arg("-bs");
    command.env_clear().env("PATH", "/usr/bin:/bin").stderr(Stdio::null());
    command.stdin(File::open(&files[0]).unwrap()).stdout(File::create(&files[1]).unwrap());
    let start = Instant::now();
    let status = command.status().unwrap();
    let taken = start.elapsed();
    let replies = std::fs::read_to_string(&files[1]).unwrap();
    let accepted = replies.matches("250 OK id=").count();
    assert!(status.success() && accepted == messages, "{status}, {accepted}: {replies:.600}");
    // The queue must not grow: Exim scans it.
    for folder in ["spool/input", "spool/msglog"] {
        let folder = exim.folder().join(folder);
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    taken
}
