//! A primary is killed or stands still, and its replica takes over.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use exirate::engine::{Algorithm, Check};
use exirate::redis::{Servers, Settings};
use rustix::process::Signal;
use tokio::task::LocalSet;

use crate::asker::{Asker, average, level, runtime, settings, tcp, unique};
use crate::sums::{behind, nodes, sums_are_exact, with_long_deadline};
use kit::redis::{Cluster, Program, RedisServer, Sentinels};
use kit::{TIMEOUT, counts};

/// Identities of all nodes of a cluster.
const IDENTITIES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

/// What clients saw of a failover.
struct Seen {
    /// Until each identity was decided again.
    away: Duration,
    decided: u64,
    undecided: u64,
}

/// Lets clients count on all identities, does `fail`, and waits until all of them are decided
/// again for every client, and `over`.
fn count_while(settings: &Settings, fail: impl FnOnce(), over: impl Fn() -> bool) -> Seen {
    let local = LocalSet::new();
    local.block_on(&runtime(), async {
        let stop = Rc::new(Cell::new(false));
        let last = Rc::new(Cell::new(Instant::now()));
        // How many events were decided without a failure since the last one.
        let runs: Rc<[Cell<u64>; 4]> = Rc::default();
        let clients: Vec<_> = (0..4)
            .map(|number| {
                let mut asker = Asker::new(settings);
                let (stop, last, runs) = (Rc::clone(&stop), Rc::clone(&last), Rc::clone(&runs));
                tokio::task::spawn_local(async move {
                    while !stop.get() {
                        let checks: Vec<Check<'_>> = IDENTITIES.map(level).to_vec();
                        let ok = asker.ask(&checks).await.is_ok();
                        runs[number].set(if ok { runs[number].get() + 1 } else { 0 });
                        if !ok {
                            last.set(Instant::now());
                        }
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    (asker.decided, asker.undecided)
                })
            })
            .collect();
        let begun = Instant::now();
        let all_count = async || {
            while runs.iter().any(|run| run.get() < 20) {
                assert!(begun.elapsed() < TIMEOUT);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        all_count().await;
        fail();
        let failed = Instant::now();
        while !over() {
            assert!(begun.elapsed() < TIMEOUT);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        runs.iter().for_each(|run| run.set(0));
        all_count().await;
        stop.set(true);
        let (mut decided, mut undecided) = (0, 0);
        for client in clients {
            let (more, less) = client.await.unwrap();
            decided += more;
            undecided += less;
        }
        Seen { away: last.get().saturating_duration_since(failed), decided, undecided }
    })
}

/// What may be lost at a failover: what the replica had not yet received.
fn assert_little_is_lost(settings: &Settings, what: &str, seen: &Seen, before: &mut [u64]) {
    runtime().block_on(async {
        let mut asker = Asker::new(&with_long_deadline(settings));
        for (identity, before) in IDENTITIES.iter().zip(before) {
            let sum = asker.sum(level(identity)).await;
            let now = sum - *before;
            // An event that was not decided was counted or not, and never twice.
            assert!(now <= seen.decided + seen.undecided, "{what}: {identity}: {now}");
            assert!(now + 100 >= seen.decided, "{what}: {now} of {}", seen.decided);
            *before = sum + 1;
        }
    });
    let away = seen.away.as_millis() as u64;
    counts::record(&format!("ms until all count again: {what}"), away);
    counts::record(&format!("events not decided meanwhile: {what}"), seen.undecided);
}

/// Lets this happen to the primary of new servers behind sentinels.
fn sentinel_replaces(signal: Signal, what: &str) {
    let folder = tempfile::tempdir().unwrap();
    let sentinels = Sentinels::start(folder.path(), &[]);
    let settings = settings(behind(&sentinels));
    let mut before = [0; IDENTITIES.len()];
    let old = sentinels.primary();
    let fail = || sentinels.servers[old].signal(signal);
    let seen = count_while(&settings, fail, || sentinels.primary() != old);
    assert!(seen.undecided > 0);
    if signal == Signal::STOP {
        // The old one still takes itself for the primary, and nobody asks it.
        sentinels.servers[old].signal(Signal::CONT);
    }
    assert_little_is_lost(&settings, what, &seen, &mut before);
    sums_are_exact(&settings, what);
}

#[test]
fn sentinel_replaces_a_primary_that_is_killed() {
    sentinel_replaces(Signal::KILL, "Sentinel, primary killed");
}

#[test]
fn sentinel_replaces_a_primary_that_stands_still() {
    sentinel_replaces(Signal::STOP, "Sentinel, primary stopped");
}

#[test]
fn a_cluster_replaces_a_primary_that_is_killed_or_stands_still() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(folder.path());
    let settings = settings(nodes(&cluster));
    let mut before = [0; IDENTITIES.len()];
    for signal in [Signal::KILL, Signal::STOP] {
        let what = match signal {
            Signal::KILL => "Cluster, primary killed",
            _ => "Cluster, primary stopped",
        };
        let old = cluster.primaries()[0];
        let others: Vec<usize> = (0..6).filter(|number| *number != old).collect();
        let fail = || cluster.nodes[old].signal(signal);
        // Three others are primaries.
        let over =
            || others.iter().filter(|number| cluster.nodes[**number].is_primary()).count() == 3;
        let seen = count_while(&settings, fail, over);
        assert!(seen.undecided > 0);
        if signal == Signal::KILL {
            cluster.nodes[old].kill();
            cluster.nodes[old].restart();
        } else {
            cluster.nodes[old].signal(Signal::CONT);
        }
        cluster.nodes[old].until(&["info", "replication"], "role:slave");
        cluster.nodes[old].until(&["info", "replication"], "master_link_status:up");
        assert_little_is_lost(&settings, what, &seen, &mut before);
        sums_are_exact(&settings, what);
    }
}

#[test]
fn a_failover_to_a_slower_clock_makes_no_rate_jump() {
    let folder = tempfile::tempdir().unwrap();
    let primary = RedisServer::start(folder.path(), "primary", &[]);
    let follows = ["--replicaof", "127.0.0.1", &primary.port.to_string()];
    let replica =
        RedisServer::start_program(Program::SlowRedis, folder.path(), "replica", &follows);
    replica.until(&["info", "replication"], "master_link_status:up");
    let to = |server: &RedisServer| {
        Asker::new(&with_long_deadline(&settings(Servers::Single(tcp(server.port)))))
    };
    let bucket =
        Check { algorithm: Algorithm::Bucket { burst: 100.0, rate: 1e-3 }, ..level("leaking") };
    let checks = [average("alice"), level("bob"), bucket, unique("campaign", "x@example.org")];
    runtime().block_on(async {
        let (mut before, mut after) = (to(&primary), to(&replica));
        let mut last = before.ask(&checks).await.unwrap();
        for _ in 2..=5 {
            last = before.ask(&checks).await.unwrap();
        }
        // What is written later arrives later.
        assert_eq!(primary.ask(&["set", "last", "arrived"]), "OK\n");
        replica.until(&["get", "last"], "arrived");
        assert_eq!(replica.ask(&["replicaof", "no", "one"]), "OK\n");
        for number in 6..=9 {
            let decisions = after.ask(&checks).await.unwrap();
            let rates: Vec<u64> = decisions.iter().map(|one| one.rate.round() as u64).collect();
            assert_eq!(rates, [number, number, number, 1]);
            assert!(decisions[0].at.seconds < last[0].at.seconds - 3000, "the clock is not slow");
        }
    });
}

/// Own limits are decided first, then totals.
#[test]
fn what_a_user_is_refused_uses_up_nothing_of_his_domain() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(folder.path());
    let settings = with_long_deadline(&settings(nodes(&cluster)));
    runtime().block_on(async {
        let mut asker = Asker::new(&settings);
        for number in 0..12 {
            let (user, domain) = (format!("carol{number}"), format!("domain{number}"));
            let own = Algorithm::Bucket { burst: 5.0, rate: 0.0 };
            let own = Check { algorithm: own, ..level(&user) };
            let total = Check { total: true, ..level(&domain) };
            for attempt in 1..=20 {
                let (_, decisions) = asker.until_decided(&[total, own]).await;
                let counted = f64::from(attempt.min(5));
                assert_eq!((decisions[0].rate, decisions[1].rate), (counted, attempt.into()));
                assert_eq!(decisions[0].details.written, attempt <= 5);
            }
            assert_eq!(asker.sum(total).await, 5);
        }
    });
}
