//! What a store does while a server or a node of a cluster is silent or slow, where requests
//! have less time than a connection takes.

use std::time::Duration;

use exirate::engine::Check;
use exirate::redis::{RedisStore, Servers, Settings};
use kit::redis::{Cluster, Fault, Proxy, RedisServer};
use kit::{TIMEOUT, until};
use rustix::process::Signal;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::asker::{fresh, level, runtime, settings, tcp};
use crate::sums::nodes;

/// A store, asked as the agent does: a request that has no reply in time is dropped.
struct Asked {
    runtime: Runtime,
    store: RedisStore,
    deadline: Duration,
}

impl Asked {
    fn new(settings: &Settings) -> Self {
        let runtime = runtime();
        let store = runtime.block_on(RedisStore::connect(settings)).unwrap();
        Self { runtime, store, deadline: settings.deadline }
    }

    /// Asks for a new event. The rate of the first check, if it is decided.
    fn ask(&self, checks: &[Check<'_>]) -> Option<f64> {
        let mut decisions = Vec::new();
        let decided = async {
            let decide = self.store.decide(fresh(), checks, &mut decisions);
            timeout(self.deadline, decide).await.is_ok_and(|result| result.is_ok())
        };
        self.runtime.block_on(decided).then(|| decisions[0].rate)
    }

    fn wait(&self, milliseconds: u64) {
        self.runtime.block_on(async {
            tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        });
    }

    /// Asks until an event is decided.
    fn until_decided(&self, checks: &[Check<'_>]) -> f64 {
        let begun = std::time::Instant::now();
        loop {
            if let Some(rate) = self.ask(checks) {
                return rate;
            }
            assert!(begun.elapsed() < TIMEOUT, "nothing is decided");
            self.wait(20);
        }
    }
}

/// A cluster of one node, which clients reach through a proxy alone.
fn behind_proxy(folder: &tempfile::TempDir) -> (RedisServer, Proxy) {
    let proxy = Proxy::start(0);
    let port = proxy.port.to_string();
    let mut options = vec!["--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1"];
    options.extend(["--cluster-announce-port", &port]);
    let server = RedisServer::start(folder.path(), "redis", &options);
    server.ask(&["cluster", "addslotsrange", "0", "16383"]);
    server.until(&["cluster", "info"], "cluster_state:ok");
    proxy.lead_to(server.port);
    (server, proxy)
}

#[test]
fn a_connection_may_take_longer_than_a_request() {
    let folder = tempfile::tempdir().unwrap();
    let deadline = Duration::from_millis(100);
    let (_server, proxy) = behind_proxy(&folder);
    let of = |servers| Settings { deadline, ..settings(servers) };
    let cluster = Asked::new(&of(Servers::Cluster(vec![tcp(proxy.port)])));
    assert_eq!(cluster.until_decided(&[level("alice")]), 1.0);
    // The connection is lost, and each new one is slow.
    proxy.set(Fault::Refuse);
    until("it is away", || cluster.ask(&[level("alice")]).is_none());
    proxy.set(Fault::SlowStart);
    assert!(cluster.until_decided(&[level("bob")]) >= 1.0);
    // So is the first one to a server.
    let single = RedisServer::start(folder.path(), "single", &[]);
    proxy.lead_to(single.port);
    let single = Asked::new(&of(Servers::Single(tcp(proxy.port))));
    assert_eq!(single.until_decided(&[level("carol")]), 1.0);
}

#[test]
fn a_node_is_silent_however_short_the_deadline_is() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, proxy) = behind_proxy(&folder);
    let mut asked = Asked::new(&settings(Servers::Cluster(vec![tcp(proxy.port)])));
    assert_eq!(asked.until_decided(&[level("alice")]), 1.0);
    asked.deadline = Duration::from_millis(4);
    proxy.set(Fault::Swallow);
    until("it is away", || {
        asked.ask(&[level("alice")]);
        !asked.store.nodes_away().is_empty() && asked.store.is_away()
    });
    let (_, why) = &asked.store.nodes_away()[0];
    assert_eq!(why, "no reply in time");
    // Replies that are too late for a request show that it works.
    proxy.set(Fault::None);
    asked.deadline = Duration::from_millis(200);
    asked.until_decided(&[level("alice")]);
    assert!(asked.store.nodes_away().is_empty());
}

#[test]
fn an_event_of_a_node_that_is_away_counts_no_other_key() {
    let folder = tempfile::tempdir().unwrap();
    // The others are a majority, and so go on.
    let cluster = Cluster::of_primaries(folder.path(), &[4000, 8384, 4000]);
    let asked = Asked::new(&settings(nodes(&cluster)));
    let names: Vec<String> = (0..12).map(|number| format!("user{number}")).collect();
    names.iter().for_each(|name| {
        asked.until_decided(&[level(name)]);
    });
    cluster.nodes[1].signal(Signal::STOP);
    // Whose node is it?
    until("it is away", || {
        names.iter().for_each(|name| {
            asked.ask(&[level(name)]);
        });
        asked.store.nodes_away().len() == 1
    });
    let (here, away): (Vec<_>, Vec<_>) =
        names.iter().partition(|name| asked.ask(&[level(name)]).is_some());
    assert!(!here.is_empty() && !away.is_empty(), "{here:?} {away:?}");
    let before = asked.ask(&[level(here[0])]).unwrap();
    // Some of these events are those that try whether the node is back.
    let total = Check { total: true, ..level(away[0]) };
    for both in [[level(here[0]), level(away[0])], [level(here[0]), total]] {
        for _ in 0..40 {
            assert_eq!(asked.ask(&both), None);
            asked.wait(50);
        }
    }
    assert_eq!(asked.ask(&[level(here[0])]), Some(before + 1.0));
    cluster.nodes[1].signal(Signal::CONT);
    let back = asked.until_decided(&[level(here[0]), level(away[0])]);
    assert_eq!(back, before + 2.0);
}
