//! A Redis Cluster of six nodes: three primaries, each with a replica.

use std::path::Path;
use std::process::Command;

use super::server::RedisServer;
use crate::process::until;

/// The nodes.
pub struct Cluster {
    pub nodes: Vec<RedisServer>,
}

impl Cluster {
    /// Starts the nodes in folders of `folder`; a primary that does not reply for
    /// half a second is replaced.
    pub fn start(folder: &Path) -> Self {
        let options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "500"];
        let nodes: Vec<RedisServer> = (0..6)
            .map(|number| RedisServer::start(folder, &format!("node-{number}"), &options))
            .collect();
        let addresses: Vec<String> =
            nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        let mut create = Command::new("redis-cli");
        create.args(["--cluster", "create"]).args(addresses);
        let output = create.args(["--cluster-replicas", "1", "--cluster-yes"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let cluster = Self { nodes };
        for node in &cluster.nodes {
            node.until(&["cluster", "info"], "cluster_state:ok");
        }
        // Only a replica that has copied its primary can take over.
        until("all replicas follow", || {
            let linked = |node: &RedisServer| {
                let info = node.ask(&["info", "replication"]);
                info.contains("role:master") || info.contains("master_link_status:up")
            };
            cluster.nodes.iter().all(linked) && cluster.primaries().len() == 3
        });
        cluster
    }

    /// Starts primaries without replicas, each with so many slots in a row. They decide for
    /// their slots while another one is away.
    pub fn of_primaries(folder: &Path, slots: &[u16]) -> Self {
        let options = [
            &["--cluster-enabled", "yes", "--cluster-node-timeout", "500"][..],
            &["--cluster-require-full-coverage", "no"],
        ]
        .concat();
        let start = |number| RedisServer::start(folder, &format!("node-{number}"), &options);
        let cluster = Self { nodes: (0..slots.len()).map(start).collect() };
        let mut first = 0;
        for (node, count) in cluster.nodes.iter().zip(slots) {
            let (from, to) = (first.to_string(), (first + count - 1).to_string());
            assert_eq!(node.ask(&["cluster", "addslotsrange", &from, &to]), "OK\n");
            first += count;
            let port = node.port.to_string();
            assert_eq!(cluster.nodes[0].ask(&["cluster", "meet", "127.0.0.1", &port]), "OK\n");
        }
        assert_eq!(first, 16384, "all slots");
        let size = format!("cluster_size:{}", slots.len());
        for node in &cluster.nodes {
            node.until(&["cluster", "info"], "cluster_state:ok");
            node.until(&["cluster", "info"], &size);
        }
        cluster
    }

    /// The numbers of the nodes that are primaries by what each says of itself.
    pub fn primaries(&self) -> Vec<usize> {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter(|(_, node)| node.is_primary()).map(|(number, _)| number).collect()
    }
}
