//! The servers that keep the rates: one Redis, one behind Sentinel, and a Redis Cluster.
//! They end with the test.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::process::Signal;

use crate::process::{Process, until};

/// Servers of one kind.
pub(crate) struct Store {
    pub(crate) name: &'static str,
    folder: tempfile::TempDir,
    /// The port and the process of each server that keeps rates.
    pub(crate) servers: Vec<(u16, Mutex<Process>)>,
    _sentinels: Vec<Process>,
    /// What the configuration of an agent says of them.
    pub(crate) settings: String,
}

impl Store {
    /// One server.
    pub(crate) fn single() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let servers = vec![(port, Mutex::new(redis(folder.path(), port, &[])))];
        let settings = format!("server = \"redis://127.0.0.1:{port}\"");
        Self { name: "a single Redis", folder, servers, _sentinels: Vec::new(), settings }
    }

    /// A primary and a replica, and three sentinels.
    pub(crate) fn sentinel() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [primary, replica] = [free_port(), free_port()];
        let of_primary = ["--replicaof", "127.0.0.1", &primary.to_string()];
        let servers = vec![
            (primary, Mutex::new(redis(folder.path(), primary, &[]))),
            (replica, Mutex::new(redis(folder.path(), replica, &of_primary))),
        ];
        until("the replica is connected", || {
            ask(replica, &["INFO", "replication"]).contains("master_link_status:up")
        });
        let ports = [free_port(), free_port(), free_port()];
        let sentinels = ports.map(|port| {
            let file = folder.path().join(format!("sentinel-{port}.conf"));
            let text = format!(
                "port {port}\ndir {}\nsentinel monitor exirate 127.0.0.1 {primary} 2\n\
                 sentinel down-after-milliseconds exirate 500\n\
                 sentinel failover-timeout exirate 2000\n",
                folder.path().display()
            );
            fs::write(&file, text).unwrap();
            let file = file.to_str().unwrap();
            start(folder.path(), port, &[file, "--sentinel"])
        });
        until("the sentinels know each other", || {
            let shown = ports.map(|port| ask(port, &["SENTINEL", "MASTER", "exirate"]));
            shown.iter().all(|one| {
                after(one, "num-other-sentinels") == "2" && after(one, "num-slaves") == "1"
            })
        });
        let names = ports.map(|port| format!("\"redis://127.0.0.1:{port}\"")).join(", ");
        let settings = format!("sentinel = {{ master = \"exirate\", servers = [{names}] }}");
        let name = "a Redis behind Sentinel";
        Self { name, folder, servers, _sentinels: sentinels.into(), settings }
    }

    /// Three primaries, each with a replica.
    pub(crate) fn cluster() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let servers: Vec<_> = (0..6)
            .map(|_| {
                let (port, bus) = (free_port(), free_port().to_string());
                let nodes = format!("nodes-{port}.conf");
                let options = [
                    &["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"][..],
                    &["--cluster-port", &bus, "--cluster-config-file", &nodes],
                ];
                (port, Mutex::new(redis(folder.path(), port, &options.concat())))
            })
            .collect();
        let addresses = servers.iter().map(|(port, _)| format!("127.0.0.1:{port}"));
        let mut create = Command::new("redis-cli");
        create.args(["--cluster", "create"]).args(addresses);
        create.args(["--cluster-replicas", "1", "--cluster-yes"]);
        let created = create.output().unwrap();
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stdout));
        let store = Self {
            name: "a Redis Cluster of six nodes",
            folder,
            settings: format!(
                "cluster = [\"redis://127.0.0.1:{}\", \"redis://127.0.0.1:{}\"]",
                servers[0].0, servers[1].0
            ),
            servers,
            _sentinels: Vec::new(),
        };
        until("the cluster is complete", || {
            store.servers.iter().all(|&(port, _)| {
                let roles = ask(port, &["CLUSTER", "NODES"]);
                ask(port, &["CLUSTER", "INFO"]).contains("cluster_state:ok")
                    && roles.matches("slave").count() == 3
            }) && store.servers.iter().all(|&(port, _)| {
                let info = ask(port, &["INFO", "replication"]);
                info.contains("connected_slaves:1") || info.contains("master_link_status:up")
            })
        });
        store
    }

    /// The servers, of `servers`, that are primaries.
    pub(crate) fn primaries(&self) -> Vec<usize> {
        let is_primary =
            |&n: &usize| ask(self.servers[n].0, &["INFO", "replication"]).contains("role:master");
        (0..self.servers.len()).filter(is_primary).collect()
    }

    /// Sends a signal to a server.
    pub(crate) fn signal(&self, server: usize, signal: Signal) {
        let mut process = self.servers[server].1.lock().unwrap();
        process.signal(signal);
        if signal == Signal::KILL {
            process.wait();
        }
    }

    /// Starts a single server again that was killed.
    pub(crate) fn start_again(&self) {
        let (port, process) = &self.servers[0];
        *process.lock().unwrap() = redis(self.folder.path(), *port, &[]);
    }
}

/// A Redis that listens on this port.
fn redis(folder: &Path, port: u16, options: &[&str]) -> Process {
    let number = port.to_string();
    let always = ["--port", &number, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
    start(folder, port, &[&always, options].concat())
}

fn start(folder: &Path, port: u16, arguments: &[&str]) -> Process {
    let child = Command::new("redis-server")
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server is needed: apt-get install redis-server");
    let process = Process(child);
    until("Redis listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
    process
}

/// The reply to a command.
pub(crate) fn ask(port: u16, command: &[&str]) -> String {
    let mut client = Command::new("redis-cli");
    let output = client.args(["-p", &port.to_string()]).args(command).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The line after the line `name`.
fn after<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines().skip_while(|line| *line != name).nth(1).unwrap_or_default()
}

/// A port that nothing uses, below those that the kernel gives to clients.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = (std::process::id() % 10_000) as u16;
    loop {
        let port = 15_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 15_000;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}
