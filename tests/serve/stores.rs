//! The servers that keep the rates: one Redis or Valkey, one behind Sentinel, and a Redis
//! Cluster. They end with the test.

use std::path::Path;

use crate::redis_common::{Cluster, Program, RedisServer, Sentinels};

/// Servers of one kind.
pub(crate) struct Store {
    pub(crate) name: &'static str,
    _servers: Servers,
    /// What the configuration of an agent says of them.
    pub(crate) settings: String,
    _folder: tempfile::TempDir,
}

enum Servers {
    Single(RedisServer),
    Sentinel(Sentinels),
    Cluster(Cluster),
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
        Self { name, _servers: servers, settings, _folder: folder }
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
}

/// The URLs of the servers with these ports, in TOML.
fn urls(ports: &[u16]) -> String {
    let urls: Vec<String> =
        ports.iter().map(|port| format!("\"redis://127.0.0.1:{port}\"")).collect();
    urls.join(", ")
}
