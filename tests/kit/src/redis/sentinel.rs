//! A primary with a replica, and three sentinels that watch over them.

use std::path::Path;
use std::process::{Command, Stdio};

use super::server::{RedisServer, free_port};
use crate::process::{Process, until};

/// The name of the primary in the sentinels.
const NAME: &str = "rates";

/// The servers and the sentinels.
pub struct Sentinels {
    pub servers: [RedisServer; 2],
    pub ports: Vec<u16>,
    _sentinels: Vec<Process>,
}

impl Sentinels {
    /// The name of the primary in the sentinels.
    pub const NAME: &'static str = NAME;

    /// Starts all in folders of `folder`; a primary that does not reply for half a second is
    /// replaced. `options` are for the servers.
    pub fn start(folder: &Path, options: &[&str]) -> Self {
        let primary = RedisServer::start(folder, "primary", options);
        let port = primary.port.to_string();
        let follows = ["--replicaof", "127.0.0.1", &port];
        let replica = RedisServer::start(folder, "replica", &[options, &follows].concat());
        replica.until(&["info", "replication"], "master_link_status:up");
        let mut ports = Vec::new();
        let mut sentinels = Vec::new();
        for number in 0..3 {
            let folder = folder.join(format!("sentinel-{number}"));
            std::fs::create_dir(&folder).unwrap();
            let own = free_port();
            let text = format!(
                "port {own}\nbind 127.0.0.1\nsentinel monitor {NAME} 127.0.0.1 {port} 2\n\
                 sentinel down-after-milliseconds {NAME} 500\n\
                 sentinel failover-timeout {NAME} 3000\n"
            );
            std::fs::write(folder.join("sentinel.conf"), text).unwrap();
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", "redis-server", "sentinel.conf", "--sentinel"]);
            let log = std::fs::File::create(folder.join("log")).unwrap();
            command.current_dir(&folder).stdin(Stdio::null()).stdout(log);
            sentinels.push(Process(command.spawn().unwrap()));
            ports.push(own);
        }
        // Each knows the others and the replica.
        for port in &ports {
            until("the sentinels know each other", || {
                let shown = sentinel(*port, &["master", NAME]);
                let has = |name: &str, number: &str| {
                    let mut lines = shown.lines();
                    lines.any(|line| line == name) && lines.next() == Some(number)
                };
                has("num-slaves", "1") && has("num-other-sentinels", "2")
            });
        }
        Self { servers: [primary, replica], ports, _sentinels: sentinels }
    }

    /// The number of the server that the first sentinel says is the primary.
    pub fn primary(&self) -> usize {
        self.primary_of(0)
    }

    /// The number of the server that the sentinel with this number says is the primary.
    pub fn primary_of(&self, number: usize) -> usize {
        let reply = sentinel(self.ports[number], &["get-master-addr-by-name", NAME]);
        let port: u16 = reply.lines().nth(1).unwrap().parse().unwrap();
        self.servers.iter().position(|server| server.port == port).unwrap()
    }
}

fn sentinel(port: u16, command: &[&str]) -> String {
    let mut cli = Command::new("redis-cli");
    cli.args(["-p", &port.to_string(), "sentinel"]).args(command);
    String::from_utf8(cli.output().unwrap().stdout).unwrap()
}
