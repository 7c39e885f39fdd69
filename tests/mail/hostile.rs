//! Peers that mean harm, or are in trouble; and a daemon that is killed.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use kit::front_ends::Machine;
use kit::front_ends::{Client, Message};
use kit::process::most_memory;
use kit::{TIMEOUT, until};

/// A limit that nobody reaches.
const COUNT: &str = "[policy.out]
when = \"authenticated\"
default.recipients = \"1000000/1w\"
";

/// A connection that is never closed from this side.
fn connect(machine: &Machine) -> UnixStream {
    let stream = UnixStream::connect(machine.path("policy.sock")).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// Waits until the daemon closes the connection; whatever else it sends is an error.
fn until_closed(mut stream: &UnixStream) {
    let mut byte = [0];
    match stream.read(&mut byte) {
        Ok(bytes) => assert_eq!(bytes, 0, "{byte:?}"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

#[test]
fn what_is_no_request_closes_the_connection_only() {
    let machine = Machine::new(COUNT, "");
    let daemon = machine.start();
    let mut honest = Client::connect(&machine);
    let message = Message::new("alice");
    let mut asked = 0;
    let mut check = |honest: &mut Client| {
        asked += 1;
        assert_eq!(honest.rcpt(&message, &format!("r{asked}@example.net")), "DUNNO");
    };
    let long = [b"sender=", vec![b'x'; 10 << 20].as_slice()].concat();
    let many = "a=b\n".repeat(1000);
    let large = format!("a={}\n", "x".repeat(8000)).repeat(20);
    for garbage in [
        &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        b"\n",
        b"request=other\n\n",
        b"\0\xff\xfe\0\n\n",
        b"EHLO example.net\r\n",
        &long,
        many.as_bytes(),
        large.as_bytes(),
    ] {
        let mut stream = connect(&machine);
        // It may be closed before all is written.
        let _ = stream.write_all(garbage);
        until_closed(&stream);
        check(&mut honest);
    }
    machine.until_logged("a request for a policy decision cannot be read: ");
    // Many lines without an end are never kept.
    let mut stream = connect(&machine);
    let _ = stream.write_all("unknown=value\n".repeat(100).as_bytes());
    check(&mut honest);
    assert!(most_memory(&daemon) < 64 << 20, "{}", most_memory(&daemon));
}

#[test]
fn requests_may_come_in_any_pieces() {
    let machine = Machine::new(COUNT, "");
    let _daemon = machine.start();
    let message = Message::new("alice");
    let requests: String =
        (0..4).map(|n| message.request("RCPT", &format!("r{n}@example.net"), 0, 0)).collect();
    // One byte at a time.
    let mut client = Client::connect(&machine);
    for byte in message.request("RCPT", "r0@example.net", 0, 0).bytes() {
        client.stream.get_mut().write_all(&[byte]).unwrap();
    }
    assert_eq!(client.action().unwrap(), "DUNNO");
    // Several at once, and the start of one more.
    client.send(&format!("{requests}request=smtpd")).unwrap();
    for _ in 0..4 {
        assert_eq!(client.action().unwrap(), "DUNNO");
    }
    client.send("_access_policy\nprotocol_state=VRFY\n\n").unwrap();
    assert_eq!(client.action().unwrap(), "DUNNO");
    assert!((machine.rate("auth:alice", "recipients") - 4.0).abs() < 0.1);
}

#[test]
fn slow_and_silent_peers_are_closed() {
    // Long enough for a busy machine to begin the slow request.
    let machine = Machine::new(COUNT, "idle_timeout = \"3s\"");
    let _daemon = machine.start();
    let [silent, mut slow, mut stuck] = [(); 3].map(|()| connect(&machine));
    slow.write_all(b"request=smtpd_access_policy\nsender=").unwrap();
    // It asks and never reads: replies pile up, and then it is read no more.
    stuck.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let request = Message::new("").request("VRFY", "", 0, 0).repeat(100);
    while stuck.write_all(request.as_bytes()).is_ok() {}
    until_closed(&silent);
    // It sends a byte now and then: that does not help.
    until("the slow one is closed", || {
        thread::sleep(Duration::from_millis(100));
        slow.write_all(b"x").is_err()
    });
    machine.until_logged("a request was not complete after 10s: the connection is closed");
    machine.until_logged("a peer does not take its reply: the connection is closed");
    let mut client = Client::connect(&machine);
    assert_eq!(client.rcpt(&Message::new("alice"), "a@example.net"), "DUNNO");
}

/// Allows this process as many files as the test needs.
fn allow_files(number: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < number) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(number), ..limit }).unwrap();
    }
}

#[test]
fn five_thousand_silent_connections_hold_nobody_up() {
    allow_files(6000);
    // All of them fit; and one in ten of them does.
    for (most, fit) in [(6000, true), (500, false)] {
        let machine = Machine::new(COUNT, &format!("max_connections = {most}"));
        let daemon = machine.start();
        let mut honest = Client::connect(&machine);
        let message = Message::new("alice");
        assert_eq!(honest.rcpt(&message, "a@example.net"), "DUNNO");
        let before = most_memory(&daemon);
        let silent: Vec<UnixStream> = (0..5000).map(|_| connect(&machine)).collect();
        // Who has asked before is not closed for those who have not.
        assert_eq!(honest.rcpt(&message, "b@example.net"), "DUNNO");
        let mut new = Client::connect(&machine);
        assert_eq!(new.rcpt(&message, "c@example.net"), "DUNNO");
        let used = most_memory(&daemon) - before;
        assert!(used < 32 << 20, "{used} bytes");
        if !fit {
            machine
                .until_logged("500 connections are open, and no more may: the one that has been");
            until_closed(&silent[0]);
        }
        daemon.signal(Signal::TERM);
    }
}

/// Clients that ask until they are stopped: how many requests were replied to, and how
/// many were sent of which that is not known.
struct Load {
    stop: AtomicBool,
    replied: AtomicUsize,
    lost: AtomicUsize,
    refused: AtomicUsize,
}

impl Load {
    fn new() -> Self {
        let number = AtomicUsize::default;
        Self { stop: AtomicBool::new(false), replied: number(), lost: number(), refused: number() }
    }

    /// Asks over one connection after the other.
    fn ask(&self, machine: &Machine) {
        let path = machine.path("policy.sock");
        while !self.stop.load(Ordering::Relaxed) {
            let Ok(mut client) = Client::to(&path) else {
                self.refused.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(2));
                continue;
            };
            while !self.stop.load(Ordering::Relaxed) {
                let request = Message::new("alice").request("RCPT", "a@example.net", 0, 0);
                if client.send(&request).is_err() {
                    // Nobody has read it.
                    break;
                }
                match client.action() {
                    Ok(action) => {
                        assert_eq!(action, "DUNNO");
                        self.replied.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(_) => {
                        self.lost.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                }
            }
        }
    }

    /// Runs `during` while four clients ask.
    fn run(&self, machine: &Machine, during: impl FnOnce(&Self)) {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| self.ask(machine));
            }
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| during(self)));
            self.stop.store(true, Ordering::Relaxed);
            if let Err(panic) = result {
                std::panic::resume_unwind(panic);
            }
        });
    }

    /// Waits until so many more requests were replied to.
    fn until_replied(&self, more: usize) {
        let wanted = self.replied.load(Ordering::Relaxed) + more;
        until("requests are replied to", || self.replied.load(Ordering::Relaxed) >= wanted);
    }
}

#[test]
fn a_kill_under_load_loses_nothing_that_was_counted() {
    let machine = Machine::new(COUNT, "");
    let load = Load::new();
    let mut daemon = machine.start();
    load.run(&machine, |load| {
        for _ in 0..5 {
            load.until_replied(200);
            daemon.signal(Signal::KILL);
            daemon.wait();
            daemon = machine.start();
        }
        load.until_replied(200);
    });
    let [replied, lost] = [&load.replied, &load.lost].map(|one| one.load(Ordering::Relaxed) as f64);
    assert!(lost >= 1.0, "no kill hit a request");
    let counted = machine.rate("auth:alice", "recipients");
    // The rate decays: by a hundredth in some minutes.
    let range = replied * 0.99 - 1.0..=replied + lost + 1.0;
    assert!(range.contains(&counted), "{counted} is not in {range:?}");
}

#[test]
fn reload_and_stop_under_load_lose_no_decision() {
    let machine = Machine::new(COUNT, "");
    let load = Load::new();
    let mut daemon = machine.start();
    load.run(&machine, |load| {
        for round in 0..5 {
            load.until_replied(200);
            machine.configure(&format!("max_in_flight = {}", 100 + round));
            daemon.signal(Signal::HUP);
            load.until_replied(200);
            daemon.signal(Signal::TERM);
            assert!(daemon.wait().success());
            daemon = machine.start();
        }
        load.until_replied(200);
    });
    let [replied, lost] = [&load.replied, &load.lost].map(|one| one.load(Ordering::Relaxed) as f64);
    let counted = machine.rate("auth:alice", "recipients");
    // Each that was counted was replied to: a request that was lost was not read.
    let range = replied * 0.99 - 1.0..=replied + 1.0;
    assert!(range.contains(&counted), "{counted} is not in {range:?}, and {lost} were lost");
    assert!(!machine.log().contains("have not ended"), "{}", machine.log());
}
