//! A server: an Exim, an agent, and a database that shares its limits.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use exirate::cluster::ClusterCounts;
use rustix::process::Signal;

use crate::process::{Machine, Process};
use crate::stores::Store;
use kit::{EntryPoint, PrivateExim, Setup};

/// A mail server.
pub(crate) struct Server {
    pub(crate) exim: PrivateExim,
    machine: Machine,
    agent: Mutex<Process>,
}

/// An Exim whose RCPT is checked twice: all recipients are counted by the first key, and
/// different ones by the second.
pub(crate) fn exim(keys: [&str; 2]) -> PrivateExim {
    let ask = |spec: &str| EntryPoint::chosen().ask(spec);
    let of = |mode: &str| {
        // What is known of each address takes memory, in proportion to the limit.
        [("1000000", "per_rcpt", keys[0]), ("1000", "per_addr", keys[1])]
            .map(|(limit, unit, key)| ask(&format!("{limit} / 1w / {unit} / {mode} / {key}")))
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
    exim
}

impl Server {
    /// One of three whose rates are in `store`.
    pub(crate) fn start(store: &Store, deadline: Duration, keys: [&str; 2]) -> Self {
        let exim = exim(keys);
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
    pub(crate) fn decided(&self) -> [u64; 2] {
        let shown = self.cluster(&["status", "--json"]).output().unwrap().stdout;
        let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap();
        ["decided_shared", "decided_apart"].map(|name| shown[name].as_u64().unwrap())
    }

    /// The number of recipients, and of different recipients.
    pub(crate) fn counted(&self) -> [u64; 2] {
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
    pub(crate) fn signal(&self, signal: Signal) {
        let mut agent = self.agent.lock().unwrap();
        agent.signal(signal);
        if signal == Signal::KILL {
            agent.wait();
        }
    }

    /// Starts the agent again after it was killed.
    pub(crate) fn start_agent(&self) {
        *self.agent.lock().unwrap() = self.machine.start();
    }

    /// Restarts the agent, as an upgrade does.
    pub(crate) fn restart_agent(&self) {
        self.signal(Signal::TERM);
        let mut agent = self.agent.lock().unwrap();
        agent.wait();
        *agent = self.machine.start_deciding();
    }

    /// What the processes of this server know together.
    pub(crate) fn counts(&self) -> ClusterCounts {
        let directory = exirate::spool::open_directory(&self.exim.spool(), false).unwrap();
        exirate::cluster::read_counts(&directory).unwrap_or_default()
    }
}
