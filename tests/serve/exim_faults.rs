//! Faults of Redis, of the agent, and of a primary of a Redis Cluster, while an Exim receives
//! mail: every recipient is accepted in time, and soon after the fault all are counted by
//! the shared store again.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::mail_server::{self, Server};
use crate::process::{Stops, until};
use crate::stores::Store;
use kit::{PrivateExim, counts};

/// How long a check waits for the agent: longer than a process of a busy machine waits for
/// the scheduler, so that no check fails without a fault.
const DEADLINE: Duration = Duration::from_millis(500);
/// What a command may take beyond that: the machine may be busy, and in a cluster the second check
/// may be the one that tries whether a node replies.
const MARGIN: Duration = Duration::from_secs(2);
/// How long a fault lasts: until the pauses between attempts are at their longest.
const FAULT: Duration = Duration::from_millis(4400);
/// After the end of a fault, so soon all checks are decided by the shared store again.
const BACK: Duration = Duration::from_secs(10);
/// For so long no check may fail before a fault is taken to be over, where it may be too
/// small to be logged.
const CALM: Duration = Duration::from_secs(3);
/// The checks of a recipient are of one identity, so of one primary of a cluster.
const KEYS: [&str; 2] = ["$local_part"; 2];
/// SMTP connections at the same time.
const SESSIONS: usize = 4;
/// Recipients in each connection: Exim ends one that has sent 1000 messages.
const EACH: usize = 200;
/// The identity that is counted.
const ONE: &str = "one";

/// The lines of the main log.
const LINES: [&str; 2] =
    ["the shared limits cannot be reached", "the shared limits are reached again"];

/// The server, and another one on the same machine that shares no limits: its commands wait
/// for nothing but the scheduler.
struct Bench {
    server: Server,
    control: PrivateExim,
}

/// The longest times that were waited for a command, and by the control processes.
#[derive(Default)]
struct Longest {
    command: AtomicU64,
    control: AtomicU64,
    /// How many sessions have sent some recipients. Until all have, nothing is noted: the
    /// first commands create the databases.
    warm: AtomicUsize,
    stop: AtomicBool,
}

impl Longest {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn is_warm(&self) -> bool {
        self.warm.load(Ordering::Relaxed) == 2 * SESSIONS
    }

    fn note(&self, longest: &AtomicU64, time: Duration) {
        if self.is_warm() {
            longest.fetch_max(time.as_micros() as u64, Ordering::Relaxed);
        }
    }

    fn of(longest: &AtomicU64) -> Duration {
        Duration::from_micros(longest.load(Ordering::Relaxed))
    }

    /// Sends recipients, which must be accepted, until it is stopped.
    fn session(&self, exim: &PrivateExim, longest: &AtomicU64, names: impl Fn(usize) -> String) {
        for n in (0..).step_by(EACH) {
            let mut client = exim.session();
            for n in n..n + EACH {
                let recipient = format!("RCPT TO:<{}@private.test>", names(n));
                for command in ["MAIL FROM:<a@client.test>", &recipient, "RSET"] {
                    let begun = Instant::now();
                    let reply = client.command(command);
                    self.note(longest, begun.elapsed());
                    assert!(reply.is_ok(), "{command}: {}", reply.text);
                }
                if n == 10 {
                    self.warm.fetch_add(1, Ordering::Relaxed);
                }
                if self.stopped() {
                    client.quit();
                    return;
                }
                thread::sleep(Duration::from_millis(10));
            }
            client.quit();
        }
    }

    /// Sleeps again and again, and notes how much longer that took.
    fn sleep(&self) {
        const TIME: Duration = Duration::from_millis(1);
        while !self.stopped() {
            let begun = Instant::now();
            thread::sleep(TIME);
            self.note(&self.control, begun.elapsed().saturating_sub(TIME));
        }
    }
}

impl Bench {
    fn new(store: &Store) -> Self {
        Self { server: Server::start(store, DEADLINE, KEYS), control: mail_server::exim(KEYS) }
    }

    /// How many lines of each kind the main log has.
    fn lines(&self) -> [usize; 2] {
        let log = self.server.exim.log("main");
        LINES.map(|text| log.lines().filter(|line| line.contains(text)).count())
    }

    /// Sends mail while `begin` makes a fault, and until it is over after `end`. The name of
    /// each recipient depends on the session and its number. Returns how many lines of each
    /// kind were logged, and whether the machine was so busy that checks may have failed without
    /// the fault.
    fn fault(
        &self,
        what: &str,
        names: impl Fn(usize, usize) -> String + Sync,
        begin: impl FnOnce(),
        end: impl FnOnce(),
    ) -> ([usize; 2], bool) {
        let longest = Longest::default();
        let [away, back] = self.lines();
        let mut last = Duration::ZERO;
        thread::scope(|scope| {
            let _stops = Stops(&longest.stop);
            for session in 0..SESSIONS {
                let (longest, names) = (&longest, &names);
                let names = move |n| names(session, n);
                let exim = &self.server.exim;
                scope.spawn(move || longest.session(exim, &longest.command, names));
                scope.spawn(move || longest.session(&self.control, &longest.control, names));
                scope.spawn(|| longest.sleep());
            }
            until("mail is received", || longest.is_warm());
            let before = self.server.counts();
            until("mail is counted", || self.server.counts().shared > before.shared + 20);
            begin();
            until("mail is counted without the store", || {
                self.server.counts().apart > before.apart + 10
            });
            end();
            let ended = Instant::now();
            let mut apart = self.server.counts().apart;
            until("the fault is over", || {
                let counts = self.server.counts();
                if counts.apart != apart {
                    (apart, last) = (counts.apart, ended.elapsed());
                }
                let lines = self.lines();
                ended.elapsed() > last + CALM
                    && counts.away_since.is_none()
                    && lines[0] - away == lines[1] - back
            });
        });
        let [command, control] = [&longest.command, &longest.control].map(Longest::of);
        for (text, time) in [
            ("longest command", command),
            ("longest command of the control process", control),
            ("until all are counted by the store again", last),
        ] {
            counts::record(&format!("{what}: ms, {text}"), time.as_millis() as u64);
        }
        // A command waits for more processes than one of the control process.
        assert!(command <= DEADLINE + MARGIN + 3 * control, "{what}: {command:?}, {control:?}");
        assert!(last <= BACK + 3 * control, "{what}: {last:?}, {control:?}");
        assert_eq!(self.server.exim.log("panic"), "");
        let lines = self.lines();
        ([lines[0] - away, lines[1] - back], control > DEADLINE / 4)
    }

    /// A fault that concerns all recipients, and is logged once. It lasts for some time.
    fn long_fault(&self, what: &str, begin: impl FnOnce(), end: impl FnOnce()) {
        self.fault_of_all(what, begin, || {
            thread::sleep(FAULT);
            end();
        });
    }

    /// A fault of one node of a cluster, which the agent logs: Exim at most once.
    fn fault_of_a_node(
        &self,
        what: &str,
        names: impl Fn(usize, usize) -> String + Sync,
        begin: impl FnOnce(),
        end: impl FnOnce(),
    ) {
        let ([away, back], is_busy) = self.fault(what, names, begin, end);
        let is_one = away == back && (away <= 1 || is_busy);
        assert!(is_one, "{what}: {away} {back}:\n{}", self.server.exim.log("main"));
    }

    /// A fault that concerns all recipients, and is logged once.
    fn fault_of_all(&self, what: &str, begin: impl FnOnce(), end: impl FnOnce()) {
        let ([away, back], is_busy) = self.fault(what, |_, _| ONE.to_owned(), begin, end);
        let is_one = away == back && (away == 1 || away > 1 && is_busy);
        assert!(is_one, "{what}: {away} {back}:\n{}", self.server.exim.log("main"));
    }
}

#[test]
fn redis_may_stand_still_or_be_killed() {
    let store = Store::single();
    let bench = Bench::new(&store);
    let signal = |signal| store.signal(0, signal);
    bench.long_fault("Redis stopped", || signal(Signal::STOP), || signal(Signal::CONT));
    bench.long_fault("Redis killed", || signal(Signal::KILL), || store.start_again(0));
}

#[test]
fn the_agent_may_stand_still_or_be_killed() {
    let store = Store::single();
    let bench = Bench::new(&store);
    let server = &bench.server;
    let signal = |signal| server.signal(signal);
    bench.long_fault("agent stopped", || signal(Signal::STOP), || signal(Signal::CONT));
    bench.long_fault("agent killed", || signal(Signal::KILL), || server.start_agent());
}

#[test]
fn a_replica_takes_over_from_the_primary_of_all_recipients() {
    let store = Store::cluster();
    let bench = Bench::new(&store);
    primaries(&store, |what, begin, end| {
        bench.fault_of_a_node(what, |_, _| ONE.to_owned(), begin, end);
    });
}

/// Other recipients are of other primaries, and are counted meanwhile.
#[test]
fn a_replica_takes_over_from_the_primary_of_some_recipients() {
    let store = Store::cluster();
    let bench = Bench::new(&store);
    let names = |session: usize, n: usize| match session % 2 {
        0 => ONE.to_owned(),
        _ => format!("other-{}", n % 50),
    };
    primaries(&store, |what, begin, end| {
        let what = format!("{what}, of some recipients");
        bench.fault_of_a_node(&what, names, begin, end);
    });
}

/// The primary of [`ONE`] is stopped, and the next one killed.
fn primaries(store: &Store, fault: impl Fn(&str, &dyn Fn(), &dyn Fn())) {
    for (what, signal) in [("primary stopped", Signal::STOP), ("primary killed", Signal::KILL)] {
        let primary = AtomicU64::new(0);
        let number = || primary.load(Ordering::Relaxed) as usize;
        let begin = || {
            primary.store(store.primary_of(ONE) as u64, Ordering::Relaxed);
            store.signal(number(), signal);
        };
        fault(what, &begin, &|| store.until_replaced(number(), ONE));
        if signal == Signal::STOP {
            store.signal(number(), Signal::CONT);
            store.until_follows(number());
        }
    }
}
