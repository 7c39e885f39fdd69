//! Three servers, each with an Exim, an agent and a database of its own, that share their
//! limits.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Client, EntryPoint, PrivateExim, Setup};
use crate::counts;
use crate::process::{Machine, Process};
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
    _agent: Process,
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
        let agent = machine.start_deciding();
        let server = Self { exim, machine, _agent: agent };
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

    /// A MAIL and a RCPT, which must be accepted.
    fn recipient(client: &mut Client, name: &str) {
        client.command("MAIL FROM:<a@client.test>");
        let reply = client.command(format!("RCPT TO:<{name}@private.test>"));
        assert!(reply.is_ok(), "{}", reply.text);
        client.command("RSET");
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
