//! The servers that keep the rates: one Redis or Valkey, one behind Sentinel, and a Redis
//! Cluster. They end with the test.

use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use rustix::process::Signal;

use kit::redis::{Cluster, Program, RedisServer, Sentinels};
use kit::until;

/// Servers of one kind.
pub(crate) struct Store {
    pub(crate) name: &'static str,
    servers: Mutex<Servers>,
    /// What the configuration of an agent says of them.
    pub(crate) settings: String,
    _folder: tempfile::TempDir,
}

enum Servers {
    Single(RedisServer),
    Sentinel(Sentinels),
    Cluster(Cluster),
}

impl Servers {
    /// The servers that keep rates.
    fn all(&mut self) -> &mut [RedisServer] {
        match self {
            Self::Single(server) => std::slice::from_mut(server),
            Self::Sentinel(sentinels) => &mut sentinels.servers,
            Self::Cluster(cluster) => &mut cluster.nodes,
        }
    }
}

impl Store {
    fn new(
        name: &'static str,
        start: impl FnOnce(&Path) -> Servers,
        settings: impl FnOnce(&Servers) -> String,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let servers = start(folder.path());
        let settings = settings(&servers);
        Self { name, servers: Mutex::new(servers), settings, _folder: folder }
    }

    fn one(name: &'static str, program: Program) -> Self {
        let start = |folder: &Path| {
            Servers::Single(RedisServer::start_program(program, folder, "server", &[]))
        };
        Self::new(name, start, |servers| match servers {
            Servers::Single(server) => format!("server = {}", urls(&[server.port])),
            _ => unreachable!(),
        })
    }

    /// One server.
    pub(crate) fn single() -> Self {
        Self::one("a single Redis", Program::Redis)
    }

    /// One server, which is Valkey.
    pub(crate) fn valkey() -> Self {
        Self::one("Valkey", Program::Valkey)
    }

    /// A primary and a replica, and three sentinels.
    pub(crate) fn sentinel() -> Self {
        let start = |folder: &Path| Servers::Sentinel(Sentinels::start(folder, &[]));
        Self::new("a Redis behind Sentinel", start, |servers| match servers {
            Servers::Sentinel(sentinels) => {
                let (name, urls) = (Sentinels::NAME, urls(&sentinels.ports));
                format!("sentinel = {{ master = \"{name}\", servers = [{urls}] }}")
            }
            _ => unreachable!(),
        })
    }

    /// Three primaries, each with a replica.
    pub(crate) fn cluster() -> Self {
        let start = |folder: &Path| Servers::Cluster(Cluster::start(folder));
        Self::new("a Redis Cluster of six nodes", start, |servers| match servers {
            Servers::Cluster(cluster) => {
                format!("cluster = [{}]", urls(&[cluster.nodes[0].port, cluster.nodes[1].port]))
            }
            _ => unreachable!(),
        })
    }

    fn servers(&self) -> MutexGuard<'_, Servers> {
        self.servers.lock().unwrap()
    }

    /// The number of the primary that has the rates of an identity.
    pub(crate) fn primary_of(&self, identity: &str) -> usize {
        self.find_primary(identity, None).unwrap()
    }

    /// As above, if there is one besides a server that does not reply.
    fn find_primary(&self, identity: &str, silent: Option<usize>) -> Option<usize> {
        let mut servers = self.servers();
        let pattern = format!("*/{identity}");
        let mut all = servers.all().iter().enumerate();
        let found = all.find(|(number, server)| {
            silent != Some(*number)
                && server.is_primary()
                && !server.ask(&["keys", &pattern]).trim().is_empty()
        });
        found.map(|(number, _)| number)
    }

    /// Waits until another server has replaced this primary, and the others know it.
    pub(crate) fn until_replaced(&self, primary: usize, identity: &str) {
        until("the primary is replaced", || self.find_primary(identity, Some(primary)).is_some());
        let mut servers = self.servers();
        for (number, server) in servers.all().iter().enumerate() {
            if number != primary {
                server.until(&["cluster", "info"], "cluster_state:ok");
            }
        }
    }

    /// Waits until a server that was a primary follows the one that has replaced it.
    pub(crate) fn until_follows(&self, server: usize) {
        self.servers().all()[server].until(&["info", "replication"], "master_link_status:up");
    }

    /// Sends a signal to a server.
    pub(crate) fn signal(&self, server: usize, signal: Signal) {
        let mut servers = self.servers();
        let server = &mut servers.all()[server];
        if signal == Signal::KILL {
            server.kill();
        } else {
            server.signal(signal);
        }
    }

    /// Starts a server again that was killed.
    pub(crate) fn start_again(&self, server: usize) {
        self.servers().all()[server].restart();
    }
}

/// The URLs of the servers with these ports, in TOML.
pub(crate) fn urls(ports: &[u16]) -> String {
    let urls: Vec<String> =
        ports.iter().map(|port| format!("\"redis://127.0.0.1:{port}\"")).collect();
    urls.join(", ")
}
