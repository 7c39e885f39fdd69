//! A proxy in front of Redis misbehaves: every decision ends in time, and events are counted
//! again when the fault has ended.

use std::time::{Duration, Instant};

use exirate::redis::{Servers, Settings};
use rustix::process::Signal;

use crate::asker::{Asker, DEADLINE, MARGIN, level, runtime, settings, tcp};
use kit::counts;
use kit::redis::{Fault, Proxy, RedisServer};

fn is_expected(text: &str) -> impl Fn(&String) -> bool {
    move |why| why.contains(text)
}

/// Puts each fault in front of a store, in the midst of counting.
fn every_fault_ends(settings: &Settings, proxy: &Proxy, what: &str, is_cluster: bool) {
    let mut longest = Duration::ZERO;
    runtime().block_on(async {
        let mut asker = Asker::new(settings);
        let alice = [level("alice")];
        for (fault, expected) in Fault::every(proxy.port) {
            asker.until_decided(&alice).await;
            proxy.set(fault);
            // The first one finds a connection that was in order, others need a new one. It is
            // said what is wrong, unless the machine is so busy that the deadline passes first.
            let mut said = Vec::new();
            while said.len() < 4
                || said.len() < 40 && !is_cluster && !said.iter().any(is_expected(expected))
            {
                let begun = Instant::now();
                let why = asker.ask(&alice).await.expect_err(&format!("{fault:?} does nothing"));
                let most = Duration::from_secs(3) + 2 * DEADLINE + MARGIN;
                assert!(begun.elapsed() < most, "{fault:?}: {:?}", begun.elapsed());
                said.push(why);
            }
            let found = is_cluster || said.iter().any(is_expected(expected));
            assert!(found, "{fault:?}: {expected}: {said:#?}");
            proxy.set(Fault::None);
            let (away, _) = asker.until_decided(&alice).await;
            longest = longest.max(away);
            assert!(away < Duration::from_secs(10), "{fault:?}: {away:?}");
        }
        let sum = asker.sum(alice[0]).await;
        // All that were decided are counted, and none of the others twice.
        let decided = asker.decided - 1;
        let range = decided..=decided + asker.undecided;
        assert!(range.contains(&sum), "{sum} is not in {range:?}");
    });
    let longest = longest.as_millis() as u64;
    counts::record(&format!("ms until {what} counts again after a fault, at most"), longest);
}

#[test]
fn of_one_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = RedisServer::start(folder.path(), "redis", &[]);
    let proxy = Proxy::start(server.port);
    let settings = settings(Servers::Single(tcp(proxy.port)));
    every_fault_ends(&settings, &proxy, "a server", false);
}

#[test]
fn of_a_cluster() {
    let folder = tempfile::tempdir().unwrap();
    // The node announces the proxy's port.
    let proxy = Proxy::start(0);
    // A cluster of one node, which clients reach through the proxy alone.
    let server = RedisServer::start(
        folder.path(),
        "redis",
        &[
            "--cluster-enabled",
            "yes",
            "--cluster-announce-ip",
            "127.0.0.1",
            "--cluster-announce-port",
            &proxy.port.to_string(),
        ],
    );
    server.ask(&["cluster", "addslotsrange", "0", "16383"]);
    server.until(&["cluster", "info"], "cluster_state:ok");
    proxy.lead_to(server.port);
    let settings = settings(Servers::Cluster(vec![tcp(proxy.port)]));
    every_fault_ends(&settings, &proxy, "a cluster", true);
}

#[test]
fn of_a_server_that_is_killed_or_stands_still() {
    let folder = tempfile::tempdir().unwrap();
    let durable = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut server = RedisServer::start(folder.path(), "redis", &durable);
    let settings = settings(Servers::Single(tcp(server.port)));
    let mut longest = Duration::ZERO;
    runtime().block_on(async {
        let mut asker = Asker::new(&settings);
        let alice = [level("alice")];
        for _ in 0..3 {
            asker.until_decided(&alice).await;
            server.signal(Signal::STOP);
            for _ in 0..3 {
                asker.ask(&alice).await.unwrap_err();
            }
            server.signal(Signal::CONT);
            longest = longest.max(asker.until_decided(&alice).await.0);
            server.kill();
            for _ in 0..3 {
                asker.ask(&alice).await.unwrap_err();
            }
            server.restart();
            longest = longest.max(asker.until_decided(&alice).await.0);
        }
        let sum = asker.sum(alice[0]).await;
        let decided = asker.decided - 1;
        let range = decided..=decided + asker.undecided;
        assert!(range.contains(&sum), "{sum} is not in {range:?}");
    });
    assert!(longest < Duration::from_secs(10), "{longest:?}");
    let longest = longest.as_millis() as u64;
    counts::record("ms until a server counts again after SIGSTOP or SIGKILL, at most", longest);
}
