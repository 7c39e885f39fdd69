//! How much servers admit that are cut off from the store that they share: a simulation
//! without sockets, with a clock of its own, from a seed.
//!
//! Each server keeps a copy of the shared rates in a store of its own, as the library does
//! in the spool database. The network between it and the shared store loses, delays and
//! repeats requests and replies: a request may arrive after its server has given up and has
//! decided apart, so that both count the event. Processes end before they have stored what
//! they have decided, servers lose what was not on their disks, the shared store fails over
//! to a replica that lacks the last events, and clocks are set. An adversary cuts servers
//! off, by a schedule or as it likes, and floods all of them.
//!
//! After each decision, three sums of accepted events, each decayed since it was accepted,
//! are compared with their bounds, for a limit `m` and a largest event `c`: those of the
//! shared store with `m + c`, those of each of `N` servers while apart with `m/N + c`, and
//! all together with `m·(1 + k/N) + (k + 1)·c` if `k` servers were ever apart. (A moving
//! average `r` of the same events is never above such a sum, and never more than `c` below
//! it.) Above the last bound may be only as much as the stores have lost by a crash, or
//! forgotten because a clock was set forward.
//!
//! A server that refuses everything would stay below every bound. So each decision is also
//! compared with the one that [`ServerMemory`](truth::ServerMemory) expects: `R + N·A` against `m`.

mod bounds;
mod calendar;
mod crashes;
mod shared;
mod simulation;
mod truth;

use rand::RngExt as _;

use crate::engine::{RecordKey, Update};
use kit::counts;

use shared::Part;
use simulation::{KEYS, Network, Simulation, average, bucket, window};
use truth::Limit;

const SLOW: Network = Network::Slow { lost: 0.2, repeated: 0.3, late: 0.3 };
const LOSSY: Network = Network::Slow { lost: 0.5, repeated: 0.3, late: 0.0 };

impl Simulation {
    /// The time goes on: mostly a little, sometimes as long as some periods.
    fn wait(&mut self) {
        let period = self.period() * 1e6;
        let micros = match self.random.random_range(0..1000) {
            0 => self.random.random_range(0.0..4.0) * period,
            1..10 => self.random.random_range(0.0..0.3) * period,
            10..200 => self.random.random_range(0.0..0.01) * period,
            200..400 => self.random.random_range(0.0..5_000.0),
            400..700 => 1.0,
            _ => 0.0,
        };
        self.pass(micros as i64);
    }

    fn size(&mut self, key: usize) -> f64 {
        let limit = self.limits[key].algorithm.limit();
        match self.random.random_range(0..16) {
            0 => 0.0,
            1..5 => 1.0,
            5..9 => f64::from(self.random.random_range(1..=5)),
            9..13 => self.random.random_range(0.0..limit / 3.0),
            _ => self.largest[key].max(1.0),
        }
    }

    /// Some events at random servers, as an adversary sends them: of a user, or of a user
    /// and his domain.
    fn flood(&mut self, events: usize) {
        for _ in 0..events {
            self.wait();
            let server = self.random.random_range(0..self.servers.len());
            let user = usize::from(self.random.random_bool(0.2));
            let size = self.size(user);
            let part = |key: usize| Part { key, size, update: self.limits[key].update };
            let mut parts = vec![part(user)];
            match self.random.random_range(0..10) {
                0 => {
                    parts.insert(0, Part { size: 0.0, update: Update::ReadOnly, ..part(1 - user) })
                }
                1 => parts = vec![Part { size: 0.0, update: Update::ReadOnly, ..part(user) }],
                2..4 => parts.push(part(2)),
                4 => parts.insert(0, part(2)),
                _ => {}
            }
            self.send(server, parts);
        }
    }

    /// Other networks for some servers.
    fn change_networks(&mut self, networks: &[Network]) {
        for number in 0..self.servers.len() {
            if self.random.random_bool(0.7) {
                let network = networks[self.random.random_range(0..networks.len())];
                self.servers[number].network = network;
            }
        }
    }

    fn all_networks(&mut self, network: Network) {
        self.servers.iter_mut().for_each(|one| one.network = network);
    }

    /// Compares the most that was ever accepted of any key with `bound` of its limit and its
    /// largest event.
    fn check(&self, what: &str, bound: impl Fn(f64, f64) -> f64) {
        for key in 0..KEYS.len() {
            let bound = bound(self.limits[key].algorithm.limit(), self.largest[key]);
            self.compare(self.highest[key], bound, what, key);
        }
    }
}

const SIZES: [usize; 4] = [1, 2, 4, 8];

/// Runs a simulation for each of these seeds.
fn simulate(seeds: u64, mut run: impl FnMut(&mut Simulation)) {
    let seeds = if counts::is_long() { 20 * seeds } else { seeds };
    let mut steps = 0;
    for seed in 0..seeds {
        let mut simulation = Simulation::new(seed, SIZES[seed as usize % SIZES.len()]);
        run(&mut simulation);
        // The last messages arrive.
        simulation.pass(1_000_000);
        steps += simulation.steps;
    }
    counts::record("simulated steps of servers that share a limit", steps);
}

#[test]
fn with_some_servers_apart_the_rate_stays_below_the_bound() {
    simulate(140, |simulation| {
        let servers = simulation.servers.len();
        let apart = simulation.random.random_range(0..=servers);
        // Some are cut off from the start, others later, when their copies are outdated.
        for number in 0..apart {
            simulation.servers[number].network =
                [Network::Up, Network::Down][simulation.random.random_range(0..2)];
        }
        simulation.flood(600);
        simulation.servers[..apart].iter_mut().for_each(|one| one.network = Network::Down);
        simulation.flood(600);
        let share = apart as f64 / servers as f64;
        simulation.check("some apart", |m, c| m * (1.0 + share) + (apart as f64 + 1.0) * c);
    });
}

#[test]
fn with_all_servers_apart_from_the_start_each_admits_its_share() {
    simulate(140, |simulation| {
        simulation.all_networks(Network::Down);
        simulation.flood(1200);
        let servers = simulation.servers.len() as f64;
        simulation.check("all apart", |m, c| m + servers * c);
    });
}

/// All servers have heard of the same rate when they are cut off.
#[test]
fn with_all_servers_apart_from_one_rate_they_admit_what_is_left() {
    simulate(140, |simulation| {
        let servers = simulation.servers.len();
        for _ in 0..10 {
            simulation.all_networks(Network::Up);
            let events = simulation.random.random_range(0..60);
            simulation.flood(events);
            // Nothing that was admitted apart before is left.
            simulation.pass((simulation.period() * 60e6) as i64);
            simulation.highest = [0.0; KEYS.len()];
            let events = simulation.random.random_range(0..60);
            for _ in 0..events {
                let size = simulation.size(0);
                simulation.event(0, size);
            }
            (0..servers).for_each(|number| {
                simulation.event(number, 0.0);
            });
            simulation.all_networks(Network::Down);
            simulation.flood(60);
            simulation.check("from one rate", |m, c| m + (servers as f64 + 1.0) * c);
        }
    });
}

/// Each subset of four servers is cut off, with each kind of limit.
#[test]
fn every_subset_of_servers_stays_below_the_bound() {
    for kind in 0..4 {
        simulate(160, |simulation| {
            let subset = simulation.seed % 16;
            let limit = match kind {
                0 => average(100.0, 3600.0, Update::Leaky),
                1 => average(100.0, 3600.0, Update::Strict),
                2 => bucket(100.0, 3600.0),
                _ => window(100.0),
            };
            *simulation = Simulation::new(simulation.seed / 16, 4).with_limit(limit);
            simulation.flood(60);
            for number in 0..4 {
                if subset >> number & 1 == 1 {
                    simulation.servers[number].network = Network::Down;
                }
            }
            simulation.flood(300);
            let apart = f64::from(subset.count_ones());
            simulation.check("a subset apart", |m, c| m * (1.0 + apart / 4.0) + (apart + 1.0) * c);
        });
    }
}

#[test]
fn servers_that_come_and_go_stay_below_the_bound() {
    simulate(140, |simulation| {
        for _ in 0..30 {
            simulation.change_networks(&[Network::Up, Network::Down, LOSSY]);
            simulation.flood(40);
        }
    });
}

/// Nodes of a cluster are away, with the keys that they have: events of these keys are decided
/// apart, others are not.
#[test]
fn nodes_that_are_away_stay_below_the_bound() {
    simulate(140, |simulation| {
        let servers = simulation.servers.len() as f64;
        for _ in 0..30 {
            let away = std::array::from_fn(|_| simulation.random.random_bool(0.4));
            match simulation.random.random_range(0..3) {
                0 => simulation.change_networks(&[Network::Nodes { away }, Network::Up]),
                _ => simulation.all_networks(Network::Nodes { away }),
            }
            simulation.flood(40);
        }
        simulation.check("nodes away", |m, c| 2.0 * m + (servers + 1.0) * c);
    });
}

/// One node is away for good: its key is admitted as if all servers were apart, and the others
/// as if none was.
#[test]
fn a_node_that_is_away_concerns_its_keys_only() {
    simulate(140, |simulation| {
        let servers = simulation.servers.len() as f64;
        simulation.all_networks(Network::Nodes { away: [true, false, false] });
        for _ in 0..1200 {
            simulation.wait();
            let server = simulation.random.random_range(0..simulation.servers.len());
            let key = simulation.random.random_range(0..KEYS.len());
            let size = simulation.size(key);
            let update = simulation.limits[key].update;
            simulation.send(server, vec![Part { key, size, update }]);
        }
        simulation.check("one node", |m, c| m + servers * c);
        for key in 1..KEYS.len() {
            let bound = simulation.limits[key].algorithm.limit() + simulation.largest[key];
            simulation.compare(simulation.highest[key], bound, "its node replies", key);
        }
    });
}

/// Requests and replies arrive late, twice, and not in their order.
#[test]
fn late_and_repeated_messages_stay_below_the_bound() {
    simulate(140, |simulation| {
        simulation.all_networks(SLOW);
        for _ in 0..30 {
            simulation.flood(40);
            simulation.change_networks(&[SLOW, SLOW, Network::Up, Network::Down]);
            let number = simulation.random.random_range(0..simulation.servers.len());
            simulation.restart_agent(number);
        }
    });
}

/// While the shared store is away, some processes wait for a reply, and others decide at
/// once, because they know that it is away. An event that waited is not counted as of a
/// time before those that others have counted meanwhile: the rate would decay twice.
#[test]
fn processes_that_waited_admit_no_more() {
    simulate(40, |simulation| {
        let limit = match simulation.seed % 3 {
            0 => average(1000.0, 1.0, Update::Leaky),
            1 => average(1000.0, 1.0, Update::Strict),
            _ => bucket(1000.0, 1.0),
        };
        *simulation = Simulation::new(simulation.seed, 2).with_limit(limit);
        let lost = Network::Slow { lost: 1.0, repeated: 0.0, late: 0.0 };
        for _ in 0..5000 {
            let micros = simulation.random.random_range(0..1000);
            simulation.pass(micros);
            simulation.change_networks(&[lost, Network::Down]);
            let part = Part { key: 0, size: 5.0, update: limit.update };
            simulation.send(0, vec![part]);
        }
    });
}

/// Processes, servers, agents and the shared store crash. More is accepted only by what they
/// lose.
#[test]
fn crashes_admit_only_what_they_lose() {
    simulate(160, |simulation| {
        for _ in 0..40 {
            simulation.change_networks(&[Network::Up, Network::Down, SLOW]);
            simulation.crashes.unsaved = [0.0, 0.02][simulation.random.random_range(0..2)];
            for _ in 0..4 {
                simulation.flood(8);
                let number = simulation.random.random_range(0..simulation.servers.len());
                match simulation.random.random_range(0..10) {
                    0..3 => simulation.save(number),
                    3 => simulation.fail_power(number),
                    4 => simulation.restart_agent(number),
                    5..7 => simulation.replicate(),
                    7 => simulation.fail_over(),
                    8 => simulation.restart_shared(),
                    _ => {}
                }
            }
        }
    });
}

/// Clocks are set. More is accepted only by what a clock that is set forward lets decay.
#[test]
fn clocks_that_are_set_admit_only_what_they_forget() {
    simulate(160, |simulation| {
        for _ in 0..40 {
            simulation.change_networks(&[Network::Up, Network::Down, Network::Down, SLOW]);
            simulation.flood(25);
            let number = simulation.random.random_range(0..simulation.servers.len());
            let period = simulation.period();
            let by = simulation.random.random_range(-1.0..1.0_f64).powi(3) * period;
            match simulation.random.random_range(0..3) {
                0 => simulation.set_clock(number, by),
                1 => simulation.set_shared_clock(by),
                _ => {}
            }
        }
    });
}

/// The schedule that is worst for servers whose copies are outdated: the shared store
/// admits all that it can while they have heard nothing, then they admit their shares, then
/// they reconnect for one event, and so on.
#[test]
fn a_link_that_flaps_admits_no_second_share() {
    simulate(140, |simulation| {
        let servers = simulation.servers.len();
        let size = simulation.limits[0].algorithm.limit() / 50.0;
        for _ in 0..20 {
            // A broken limit would admit events without end.
            (0..100).take_while(|_| simulation.event(0, size)).count();
            for number in 1..servers {
                simulation.servers[number].network = Network::Down;
                (0..100).take_while(|_| simulation.event(number, size)).count();
                simulation.servers[number].network = Network::Up;
                simulation.event(number, size);
            }
            simulation.pass((simulation.period() * 1e6 / 100.0) as i64);
        }
        simulation.check("flapping", |m, c| m * (2.0 - 1.0 / servers as f64) + servers as f64 * c);
    });
}

#[test]
fn a_server_that_is_apart_admits_its_share() {
    let limits: [fn(f64, f64) -> Limit; 3] = [
        |limit, period| average(limit, period, Update::Leaky),
        |limit, period| average(limit, period, Update::Strict),
        bucket,
    ];
    for servers in SIZES {
        for (seed, limit) in limits.iter().enumerate() {
            let mut simulation =
                Simulation::new(seed as u64, servers).with_limit(limit(800.0, 3600.0));
            simulation.all_networks(Network::Down);
            for number in 0..servers {
                let share = 800 / servers;
                let admitted = (0..=share).filter(|_| simulation.event(number, 1.0)).count();
                assert!((share - 1..=share).contains(&admitted), "{admitted} of {share}");
            }
            // Half a period later, some of it has decayed.
            simulation.pass((simulation.period() * 0.5e6) as i64);
            let admitted = (0..800).take_while(|_| simulation.event(0, 1.0)).count() as f64;
            let left = if seed == 2 { 0.5 } else { (-0.5_f64).exp() };
            let decayed = 800.0 / servers as f64 * (1.0 - left);
            assert!((admitted - decayed).abs() <= 3.0, "{admitted} of {decayed}");
        }
    }
}

/// A moving average that reaches the limit is over, a bucket that is full is not, and an
/// empty bucket admits an event that is larger than the share.
#[test]
fn a_share_that_is_used_exactly() {
    for (limit, admits, admits_more) in [
        (average(20.0, 3600.0, Update::Leaky), false, false),
        (average(20.0, 3600.0, Update::Strict), false, false),
        (bucket(20.0, 3600.0), true, true),
    ] {
        for (size, admits) in [(4.999, true), (5.0, admits), (5.001, admits_more)] {
            let mut simulation = Simulation::new(0, 4).with_limit(limit);
            simulation.all_networks(Network::Down);
            assert_eq!(simulation.event(0, size), admits, "{limit:?}, {size}");
            if admits {
                assert!(!simulation.event(0, 1.0), "{limit:?}, {size}");
            }
        }
    }
}

/// The rate that was admitted apart decreases also while it is written very often.
#[test]
fn a_rate_admitted_apart_decays_under_many_replies() {
    let limit = average(1e6, 604_800.0, Update::Leaky);
    let mut simulation = Simulation::new(3, 2).with_limit(limit);
    simulation.servers[0].network = Network::Down;
    simulation.event(0, 1000.0);
    simulation.servers[0].network = Network::Up;
    let start = simulation.now;
    for _ in 0..100_000 {
        simulation.pass(2000);
        simulation.event(0, 1.0);
    }
    let key = RecordKey::from(KEYS[0]);
    let entry = crate::store::Inspect::get(simulation.copies(0), key);
    let apart = f64::from(entry.unwrap().unwrap().apart);
    let expected = 1000.0 * (-((simulation.now - start) as f64 / 1e6) / 604_800.0).exp();
    assert!(1000.0 - expected > 0.3, "there is something to see");
    assert!((apart - expected).abs() < 0.1, "{apart} instead of {expected}");
}
