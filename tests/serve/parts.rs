//! A primary of a Redis Cluster without a replica is away: only the checks of its keys are
//! decided without it, as long as it lasts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use exirate::cluster::{ClusterStore, read_counts};
use exirate::engine::{Algorithm, Check, RecordKey, Update};
use exirate::rate::Timestamp;
use exirate::spool::{Options, open_directory};
use exirate::store::Store as _;
use exirate::sys::clock;
use kit::redis::Cluster;
use rustix::process::Signal;

use crate::process::{Machine, Stops, until};
use crate::stores::urls;

/// How many identities are counted.
const IDENTITIES: usize = 400;
/// The processes that ask.
const ASKERS: usize = 4;
/// The slots of each primary: the last one has few.
const SLOTS: [u16; 3] = [8000, 7680, 704];

/// A check whose rate is the number of events.
fn level(identity: &str) -> Check<'_> {
    let algorithm = Algorithm::Bucket { burst: 1e6, rate: 0.0 };
    let key = RecordKey { algorithm: algorithm.kind(), ..identity.into() };
    Check { update: Update::Strict, ..Check::new(key, algorithm) }
}

/// How many checks were decided by the shared store and without it.
fn counts(machine: &Machine) -> (u64, u64) {
    let directory = open_directory(machine.folder.path(), false).unwrap();
    let counts = read_counts(&directory).unwrap_or_default();
    (counts.shared, counts.apart)
}

/// Processes that ask for all identities in turn, while `work` runs.
fn while_asking(machine: &Machine, work: impl FnOnce(&AtomicU64)) {
    let (stop, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let _stops = Stops(&stop);
        for asker in 0..ASKERS {
            let (stop, asked) = (&stop, &asked);
            scope.spawn(move || {
                let mut store =
                    ClusterStore::open(machine.folder.path(), Options::default()).unwrap();
                let now = || Timestamp::from(clock::now());
                for number in (0..IDENTITIES).cycle().skip(asker * 97) {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    store.decide_one(&level(&format!("user{number}")), now).unwrap();
                    asked.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_micros(500));
                }
            });
        }
        work(&asked);
    });
}

#[test]
fn a_primary_that_is_away_takes_its_keys_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::of_primaries(folder.path(), &SLOTS);
    let ports: Vec<u16> = cluster.nodes.iter().map(|node| node.port).collect();
    let machine = Machine::of(&format!("cluster = [{}]", urls(&ports)), "");
    machine.share("");
    let _agent = machine.start_deciding();
    let wait = |asked: &AtomicU64, more: u64| {
        let target = asked.load(Ordering::Relaxed) + more;
        until("checks are decided", || asked.load(Ordering::Relaxed) >= target);
    };
    while_asking(&machine, |asked| {
        wait(asked, 3000);
        let lost: usize = cluster.nodes[2].ask(&["dbsize"]).trim().parse().unwrap();
        let share = lost as f64 / IDENTITIES as f64;
        for signal in [Signal::STOP, Signal::KILL] {
            let (shared, apart) = counts(&machine);
            if signal == Signal::KILL {
                cluster.nodes[2].kill();
            } else {
                cluster.nodes[2].signal(signal);
            }
            wait(asked, 8000);
            let (shared, apart) = (counts(&machine).0 - shared, counts(&machine).1 - apart);
            let part = apart as f64 / (shared + apart) as f64;
            // Those that were on their way, and what a busy machine delays.
            assert!((part - share).abs() < 0.03, "{signal:?}: {part} {share}\n{}", machine.log());
            let what = format!("tenths of a percent of checks apart, {signal:?}, keys away");
            kit::counts::record(&format!("{what} {:.0}", share * 1e3), (part * 1e3) as u64);
            if signal == Signal::KILL {
                cluster.nodes[2].restart();
            } else {
                cluster.nodes[2].signal(Signal::CONT);
            }
            if signal == Signal::STOP {
                // A second time within a minute, it is only counted.
                machine.until_logged("replies again after ");
            }
            until("all are decided there again", || {
                let before = counts(&machine).1;
                wait(asked, 1000);
                counts(&machine).1 == before
            });
        }
        let log = machine.log();
        assert_eq!(log.matches("; this server decides alone for its keys").count(), 2, "{log}");
        assert!(log.lines().count() <= 8, "{log}");
    });
}
