//! Three servers, each with an Exim, an agent and a database of its own, that share their
//! limits.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::common::{Client, EntryPoint, PrivateExim, Setup};
use crate::counts;
use crate::process::{Machine, Process, until};
use crate::stores::Store;

const SERVERS: usize = 3;
/// SMTP connections to each server at the same time.
const PROCESSES: usize = 8;
/// Recipients in each connection.
const EACH: usize = 12;

/// A mail server.
struct Server {
    exim: PrivateExim,
    machine: Machine,
    agent: Mutex<Process>,
}

impl Server {
    /// One of three whose rates are in `store`.
    fn start(store: &Store, deadline: Duration) -> Self {
        let ask = |spec: &str| EntryPoint::chosen().ask(spec);
        let of = |mode: &str| {
            [("per_rcpt", "shared"), ("per_addr", "addresses")]
                .map(|(unit, key)| ask(&format!("1000000 / 1w / {unit} / {mode} / {key}")))
        };
        let [all, unique] = of("strict");
        let [shown, shown_unique] = of("readonly");
        let acl = format!(
            "  defer senders   = show@client.test\n        message   = ={shown} $sender_rate \
             {shown_unique} $sender_rate\n  defer condition = {all}\n  defer condition = {unique}\n  \
             accept\n"
        );
        let mut exim = Setup::new()
            .library()
            .main("smtp_accept_max = 100\nsmtp_accept_queue = 0")
            .acl("acl_smtp_rcpt", &acl)
            .build();
        exim.start();
        let milliseconds = deadline.as_millis();
        let redis = format!("{}\ndeadline = \"{milliseconds}ms\"", store.settings);
        let machine = Machine::of(&redis, "users = [\"root\", \"Debian-exim\"]");
        let folder = machine.folder.path();
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        let agent = Mutex::new(machine.start_deciding());
        let server = Self { exim, machine, agent };
        let mut command = server.cluster(&["join", "--servers", "3", "--agent-user", "0"]);
        command.args(["--deadline", &milliseconds.to_string()]);
        command.arg("--socket").arg(server.machine.path("agent.sock"));
        let joined = command.output().unwrap();
        assert!(joined.status.success(), "{joined:?}");
        server
    }

    fn cluster(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
        command.arg("cluster").args(arguments).arg("--spool").arg(self.exim.spool());
        command
    }

    /// How many checks were decided by the shared store, and without it.
    fn decided(&self) -> [u64; 2] {
        let shown = self.cluster(&["status", "--json"]).output().unwrap().stdout;
        let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap();
        ["decided_shared", "decided_apart"].map(|name| shown[name].as_u64().unwrap())
    }

    /// The number of recipients, and of different recipients.
    fn counted(&self) -> [u64; 2] {
        let mut client = self.exim.session();
        client.command("MAIL FROM:<show@client.test>");
        let reply = client.command("RCPT TO:<u@private.test>");
        client.quit();
        let text = reply.text.split_once('=').unwrap().1;
        let [_, all, _, unique] = text.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("{text}");
        };
        [all, unique].map(|rate| rate.parse::<f64>().unwrap().round() as u64)
    }

    /// Sends a signal to the agent.
    fn signal(&self, signal: Signal) {
        let mut agent = self.agent.lock().unwrap();
        agent.signal(signal);
        if signal == Signal::KILL {
            agent.wait();
        }
    }

    /// The main log says that the store is away, and that it is back, about once for each
    /// fault; and nothing else is logged.
    fn sound(&self, faults: usize) {
        let log = self.exim.log("main");
        for text in ["the shared limits cannot be reached", "the shared limits are reached again"] {
            let lines = log.lines().filter(|line| line.contains(text)).count();
            assert!((faults..=4 * faults).contains(&lines), "{lines} lines with {text}:\n{log}");
        }
        assert_eq!(self.exim.log("panic"), "");
    }

    /// A MAIL and a RCPT, which must be accepted; how long the reply to RCPT took.
    fn recipient(client: &mut Client, name: &str) -> Duration {
        client.command("MAIL FROM:<a@client.test>");
        let begun = Instant::now();
        let reply = client.command(format!("RCPT TO:<{name}@private.test>"));
        let waited = begun.elapsed();
        assert!(reply.is_ok(), "{}", reply.text);
        client.command("RSET");
        waited
    }
}

fn three(store: &Store, deadline: Duration) -> Vec<Server> {
    (0..SERVERS).map(|_| Server::start(store, deadline)).collect()
}

/// Eight processes of each Exim count the same recipients.
fn the_sum_is_exact(store: &Store) {
    let servers = three(store, Duration::from_secs(5));
    let begun = Instant::now();
    thread::scope(|scope| {
        for server in servers.iter().cycle().take(SERVERS * PROCESSES) {
            scope.spawn(|| {
                let mut client = server.exim.session();
                for n in 0..EACH {
                    Server::recipient(&mut client, &format!("u{n}"));
                }
                client.quit();
            });
        }
    });
    let sum = (SERVERS * PROCESSES * EACH) as u64;
    let rate = sum as f64 * 2.0 / begun.elapsed().as_secs_f64();
    counts::record(&format!("checks of three Exims, counted by {}", store.name), sum * 2);
    counts::record(&format!("  a second, {}", store.name), rate as u64);
    for server in &servers {
        assert_eq!(server.counted(), [sum, EACH as u64], "{}", store.name);
        assert_eq!(server.decided()[1], 0, "{}", store.name);
        assert_eq!(server.exim.log("panic"), "");
    }
}

#[test]
fn a_single_redis_counts_for_three_exims() {
    the_sum_is_exact(&Store::single());
}

#[test]
fn a_valkey_counts_for_three_exims() {
    the_sum_is_exact(&Store::valkey());
}

#[test]
fn a_redis_behind_sentinel_counts_for_three_exims() {
    the_sum_is_exact(&Store::sentinel());
}

#[test]
fn a_redis_cluster_counts_for_three_exims() {
    the_sum_is_exact(&Store::cluster());
}

/// What a fault does to the mail that comes in meanwhile.
struct Effect {
    /// The longest time that the reply to a RCPT took.
    longest: Duration,
    /// After the fault, until a check was decided by the shared store again.
    back: Duration,
}

/// Sends mail to a server while `fault` is there, and after `heal`. Every recipient is
/// accepted.
fn suffer(server: &Server, fault: impl FnOnce(), heal: impl FnOnce()) -> Effect {
    let (stop, longest) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut back = Duration::ZERO;
    let [shared, apart] = [0, 1].map(|which| move || server.decided()[which]);
    thread::scope(|scope| {
        for number in 0..4 {
            let (stop, longest) = (&stop, &longest);
            scope.spawn(move || {
                let mut client = server.exim.session();
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let waited = Server::recipient(&mut client, &format!("c{number}.{n}"));
                    longest.fetch_max(waited.as_micros() as u64, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(5));
                }
                client.quit();
            });
        }
        let before = shared();
        until("mail is counted", || shared() > before);
        fault();
        let before = apart();
        until("mail is counted without the store", || apart() > before + 20);
        heal();
        let (healed, before) = (Instant::now(), shared());
        until("mail is counted by the store again", || shared() > before);
        back = healed.elapsed();
        stop.store(true, Ordering::Relaxed);
    });
    Effect { longest: Duration::from_micros(longest.into_inner()), back }
}

/// Records and checks an effect. The times are those of a busy machine: that they hold on
/// an idle one is to be seen in what is recorded.
fn check(what: &str, effect: &Effect) {
    counts::record(
        &format!("ms at most for a reply to RCPT, {what}"),
        effect.longest.as_millis() as u64,
    );
    counts::record(
        &format!("ms until counted by the store again, {what}"),
        effect.back.as_millis() as u64,
    );
    assert!(effect.longest < Duration::from_secs(5), "{what}: {:?}", effect.longest);
    assert!(effect.back < Duration::from_secs(20), "{what}: {:?}", effect.back);
}

const DEADLINE: Duration = Duration::from_millis(50);

#[test]
fn redis_may_stand_still_or_be_killed() {
    let store = Store::single();
    let server = Server::start(&store, DEADLINE);
    let stop = || store.signal(0, Signal::STOP);
    check("Redis stopped", &suffer(&server, stop, || store.signal(0, Signal::CONT)));
    let kill = || store.signal(0, Signal::KILL);
    check("Redis killed", &suffer(&server, kill, || store.start_again()));
    server.sound(2);
}

#[test]
fn the_agent_may_stand_still_or_be_killed() {
    let store = Store::single();
    let server = Server::start(&store, DEADLINE);
    let stop = || server.signal(Signal::STOP);
    check("agent stopped", &suffer(&server, stop, || server.signal(Signal::CONT)));
    let kill = || server.signal(Signal::KILL);
    let start = || *server.agent.lock().unwrap() = server.machine.start();
    check("agent killed", &suffer(&server, kill, start));
    server.sound(2);
}

#[test]
fn a_replica_takes_over_when_its_primary_is_killed() {
    for store in [Store::sentinel(), Store::cluster()] {
        let server = Server::start(&store, DEADLINE);
        let primaries = store.primaries();
        let kill = || primaries.iter().take(1).for_each(|&one| store.signal(one, Signal::KILL));
        check(&format!("primary killed, {}", store.name), &suffer(&server, kill, || {}));
        server.sound(1);
    }
}
