//! Kills, floods and garbage.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use exirate::cluster::wire::ReplyStatus;
use rustix::process::Signal;

use crate::client::{Client, NotDecided, fresh, request};
use crate::process::{Machine, Redis, until};

#[test]
fn killed_and_restarted_while_16_threads_ask_it_loses_nothing() {
    const THREADS: u64 = 16;
    let machine = Machine::new("", "");
    let _redis = machine.redis();
    let mut agent = machine.start_deciding();
    let (stop, counted) = (AtomicBool::new(false), AtomicU64::new(0));
    let (repeated, lost) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let path = machine.path("agent.sock");
                let mut client = None;
                while !stop.load(Ordering::Relaxed) {
                    // An event is asked for until it is decided.
                    let event = fresh();
                    let begun = Instant::now();
                    for attempt in 0.. {
                        assert!(begun.elapsed() < kit::TIMEOUT, "{}", machine.log());
                        repeated.fetch_add(u64::from(attempt > 0), Ordering::Relaxed);
                        if client.is_none() {
                            client = Client::connect(&path).ok();
                        }
                        let Some(open) = &mut client else {
                            thread::sleep(Duration::from_millis(2));
                            continue;
                        };
                        match open.ask_as(event, "shared") {
                            Ok(_) => break,
                            Err(NotDecided::Closed) => {
                                lost.fetch_add(1, Ordering::Relaxed);
                                client = None;
                            }
                            Err(NotDecided::Refused(ReplyStatus::Unavailable, _)) => {
                                thread::sleep(Duration::from_millis(2));
                            }
                            Err(other) => panic!("{other:?}"),
                        }
                    }
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..5 {
            let before = counted.load(Ordering::Relaxed);
            until("they are served", || counted.load(Ordering::Relaxed) > before + 200);
            agent.signal(Signal::KILL);
            agent.wait();
            agent = machine.start();
        }
        let before = counted.load(Ordering::Relaxed);
        until("they are served again", || counted.load(Ordering::Relaxed) > before + 200);
        stop.store(true, Ordering::Relaxed);
    });
    let counted = counted.into_inner();
    assert!(repeated.into_inner() > 0);
    // An event whose reply was lost may be counted again, if many others came in between.
    let most = counted + lost.into_inner();
    let sum = machine.client().ask("shared").unwrap() - 1;
    assert!((counted..=most).contains(&sum), "{sum} of {counted} to {most}");
}

#[test]
fn redis_may_be_killed_and_started_again() {
    let machine = Machine::new("", "");
    let mut redis = machine.redis();
    let _agent = machine.start_deciding();
    let mut client = machine.client();
    for _ in 0..3 {
        redis.process.signal(Signal::KILL);
        redis.process.wait();
        until("it is noticed", || {
            matches!(client.ask("alice"), Err(NotDecided::Refused(ReplyStatus::Unavailable, _)))
        });
        redis = Redis::start(machine.folder.path(), &[]);
        until("it is there again", || client.ask("alice").is_ok());
    }
    let log = machine.log();
    // The first changes of a minute are there, and no line for each of the others.
    assert!(
        log.contains(" is away: ") && log.contains("; requests not decided meanwhile: "),
        "{log}"
    );
    let is_change = |line: &&str| line.contains(" is away: ") || line.contains(": connected to ");
    assert!(log.lines().filter(is_change).count() <= 5, "{log}");
}

#[test]
fn a_redis_that_stands_still_delays_no_request_beyond_its_deadline() {
    let machine = Machine::new("deadline = \"50ms\"", "");
    let redis = machine.redis();
    let _agent = machine.start_deciding();
    let mut client = machine.client();
    redis.process.signal(Signal::STOP);
    until("it is away", || {
        assert!(matches!(
            client.ask("alice"),
            Err(NotDecided::Refused(ReplyStatus::Unavailable, _))
        ));
        machine.log().contains(" is away: ")
    });
    redis.process.signal(Signal::CONT);
    until("it is there again", || client.ask("alice").is_ok());
}

#[test]
fn garbage_and_cut_requests_disturb_nobody() {
    let machine = Machine::new("", "");
    let _redis = machine.redis();
    let mut agent = machine.start_deciding();
    let mut good = machine.client();
    let whole = request(7, "alice");
    for n in 0..300_u64 {
        let mut stream = UnixStream::connect(machine.path("agent.sock")).unwrap();
        let mut bytes = whole.clone();
        // Cut, with a wrong byte, or nothing but noise.
        match n % 3 {
            0 => bytes.truncate(n as usize % whole.len()),
            1 => bytes[n as usize % whole.len()] ^= 1 << (n % 8),
            _ => bytes.iter_mut().zip(0_u64..).for_each(|(b, i)| *b = (n * 31 + i * i) as u8),
        }
        // The agent may have closed the connection.
        let _ = stream.write_all(&bytes);
        if n % 2 == 0 {
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
        drop(stream);
        assert_eq!(good.ask("bob").unwrap(), n + 1);
    }
    assert!(machine.log().contains("bad request: "), "{}", machine.log());
    assert!(machine.log().lines().count() < 20, "{}", machine.log());
    agent.signal(Signal::TERM);
    assert!(agent.wait().success());
}

#[test]
fn thousands_of_silent_connections_leave_room_for_no_more_and_disturb_nobody() {
    let machine = Machine::new("", "max_connections = 1500");
    let _redis = machine.redis();
    let mut command = std::process::Command::new("sh");
    // Few open files at first: the agent raises that to what it needs.
    let inner = machine.command();
    command.args(["-c", "ulimit -S -n 256 && exec \"$@\"", "sh"]).arg(inner.get_program());
    command.args(inner.get_args());
    let log = std::fs::File::options().append(true).open(machine.path("log")).unwrap();
    let agent = crate::process::Process(command.stderr(log).spawn().unwrap());
    until("it listens", || machine.path("agent.sock").exists());
    machine.until_decided();
    let mut good = machine.client();
    good.ask("alice").unwrap();
    // One process gets its share, and no more.
    let silent = (0..300).map(|_| machine.client()).collect::<Vec<_>>();
    let share = format!("process {} has 187 connections, and no more may", std::process::id());
    until("the process has its share", || machine.log().contains(&share));
    assert_eq!(good.ask("alice").unwrap(), 2);
    let full = "processes are connected, and no more may";
    assert!(!machine.log().contains(full), "{}", machine.log());
    let script = "@all = map { IO::Socket::UNIX->new(Peer => $ARGV[0]) } 1..187; <STDIN>";
    let mut command = std::process::Command::new("perl");
    command.args(["-MIO::Socket::UNIX", "-e", script]).arg(machine.path("agent.sock"));
    command.stdin(std::process::Stdio::piped());
    let others: Vec<_> =
        (0..8).map(|_| crate::process::Process(command.spawn().unwrap())).collect();
    until("the agent is full", || machine.log().contains(full));
    assert_eq!(good.ask("alice").unwrap(), 3);
    drop(others);
    drop(silent);
    until("there is room again", || machine.client().ask("alice").is_ok());
    agent.signal(Signal::TERM);
}
