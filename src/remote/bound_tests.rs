//! How much servers admit that are cut off from the store that they share: a simulation
//! without sockets, with a clock of its own, from a seed.
//!
//! Each server keeps a copy of the shared rates in a store of its own, as the library does
//! in the spool database. The network between it and the shared store loses requests,
//! loses replies after the shared store has counted, and repeats requests. An adversary
//! cuts servers off, by a schedule or as it likes, and floods all of them.
//!
//! What is compared with the bound is `U`, the sum of all accepted events, each decayed
//! since it was accepted. A moving average `r` of the same events is never above it, and
//! never more than the largest event `c` below it. `U` adds up over servers: so the events
//! that the shared store has accepted are at most `m + c`, and those of each server that
//! is apart at most `m/N + c`.

use std::collections::HashMap;

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::engine::{Algorithm, Authority, Check, Decision, RecordKey, Update};
use crate::rate::Timestamp;
use crate::store::{Memory, Store as _};
use crate::sys::counts;

/// What a server asks its shared store through.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Network {
    /// All requests and replies arrive.
    Up,
    /// Nothing arrives.
    Down,
    /// A request is lost, or its reply, or it arrives twice, with this probability each.
    Lossy(f64),
}

/// The shared store: an event with the same number is counted once.
#[derive(Default)]
struct Shared {
    store: Memory,
    decided: HashMap<u64, Decision>,
}

impl Shared {
    fn decide(&mut self, event: u64, check: &Check<'_>, now: Timestamp) -> Decision {
        let store = &mut self.store;
        *self.decided.entry(event).or_insert_with(|| match store.decide_one(check, || now) {
            Ok(decision) => decision,
        })
    }
}

/// One server.
struct Server {
    copies: Memory,
    network: Network,
    /// Its clock is that far ahead, in microseconds.
    ahead: i64,
    /// It was apart at least once.
    was_apart: bool,
}

struct Simulation {
    random: SmallRng,
    shared: Shared,
    servers: Vec<Server>,
    /// Microseconds since 1970, of the shared store.
    now: i64,
    events: u64,
    limit: f64,
    period: f64,
    update: Update,
    bucket: bool,
    /// The largest event.
    largest: f64,
    /// `U`, and when it was computed.
    accepted: f64,
    accepted_at: i64,
    highest: f64,
}

impl Simulation {
    fn new(seed: u64, servers: usize) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let server = |random: &mut SmallRng| Server {
            copies: Memory::new(),
            network: Network::Up,
            ahead: random.random_range(-100_000_000..100_000_000),
            was_apart: false,
        };
        Self {
            servers: (0..servers).map(|_| server(&mut random)).collect(),
            shared: Shared::default(),
            now: 1_700_000_000_000_000,
            events: 0,
            limit: [5.0, 20.0, 100.0, 1000.0][random.random_range(0..4)],
            period: [1.0, 60.0, 3600.0, 604_800.0][random.random_range(0..4)],
            update: if random.random() { Update::Leaky } else { Update::Strict },
            bucket: false,
            largest: 0.0,
            accepted: 0.0,
            accepted_at: 0,
            highest: 0.0,
            random,
        }
    }

    /// An event of size `cost` at this server; whether it was accepted.
    fn event(&mut self, number: usize, cost: f64) -> bool {
        self.events += 1;
        let (limit, period) = (self.limit, self.period);
        let algorithm = match self.bucket {
            false => Algorithm::MovingAverage { limit, period },
            true => Algorithm::Bucket { burst: limit, rate: limit / period },
        };
        let check = Check {
            key: RecordKey { algorithm: algorithm.kind(), ..b"1h/per_mail/alice".into() },
            algorithm,
            cost,
            event: None,
            update: self.update,
            observed: false,
            forced: None,
        };
        let servers = self.servers.len() as u32;
        let Some(server) = self.servers.get_mut(number) else { return false };
        let lost = |random: &mut SmallRng| match server.network {
            Network::Up => false,
            Network::Down => true,
            Network::Lossy(share) => random.random_bool(share),
        };
        let random = &mut self.random;
        let (arrives, returns) = (!lost(random), !lost(random));
        let repeated = server.network != Network::Up && lost(random);
        let mut reply = None;
        if arrives {
            let decision =
                self.shared.decide(self.events, &check, Timestamp::from_micros(self.now));
            if repeated {
                let again =
                    self.shared.decide(self.events, &check, Timestamp::from_micros(self.now + 5));
                assert_eq!(again, decision);
            }
            reply = returns.then_some(decision);
        }
        server.was_apart |= reply.is_none();
        let decided = reply.as_slice();
        let authority = match decided {
            [] => Authority::Share { servers },
            decisions => Authority::Cluster { decisions, servers },
        };
        let mut decisions = Vec::new();
        let here = Timestamp::from_micros(self.now + server.ahead);
        server.copies.decide_as(authority, &[check], here, &mut decisions);
        let over = decisions[0].over;
        if let Some(reply) = reply {
            assert_eq!(over, reply.over, "the shared store's verdict is taken over");
        }
        if !over {
            self.accept(cost);
        }
        !over
    }

    fn accept(&mut self, cost: f64) {
        let passed = (self.now - self.accepted_at) as f64 / 1e6;
        self.accepted = match self.bucket {
            false => self.accepted * (-passed / self.period).exp(),
            // The shared store lets its bucket leak, and all that are apart their shares.
            true => (self.accepted - passed * 2.0 * self.limit / self.period).max(0.0),
        } + cost;
        self.accepted_at = self.now;
        self.highest = self.highest.max(self.accepted);
        self.largest = self.largest.max(cost);
    }

    /// The time goes on: mostly a little, sometimes as long as some periods.
    fn wait(&mut self) {
        let period = self.period * 1e6;
        let micros = match self.random.random_range(0..1000) {
            0 => self.random.random_range(0.0..4.0) * period,
            1..20 => self.random.random_range(0.0..0.3) * period,
            20..300 => self.random.random_range(0.0..0.01) * period,
            300..600 => 1.0,
            _ => 0.0,
        };
        self.now += micros as i64;
    }

    fn cost(&mut self) -> f64 {
        match self.random.random_range(0..4) {
            0 => 1.0,
            1 => f64::from(self.random.random_range(1..=5)),
            2 => self.random.random_range(0.0..self.limit / 3.0),
            _ => self.largest.max(1.0),
        }
    }

    /// Some events at random servers, as an adversary sends them.
    fn flood(&mut self, steps: usize) {
        for _ in 0..steps {
            self.wait();
            let number = self.random.random_range(0..self.servers.len());
            let cost = self.cost();
            self.event(number, cost);
        }
    }

    /// The most that may be accepted while `apart` servers were cut off at least once.
    fn bound(&self, apart: usize) -> f64 {
        let share = apart as f64 / self.servers.len() as f64;
        // Rates are stored in 32 bits.
        (self.limit * (1.0 + share) + (apart as f64 + 1.0) * self.largest) * (1.0 + 1e-5)
    }

    fn check(&self, bound: f64, seed: u64, what: &str) {
        let Self { highest, limit, largest, period, update, .. } = self;
        assert!(
            *highest <= bound,
            "{what}, seed {seed}: {highest} was accepted, the bound is {bound} \
             (limit {limit} / {period} s, largest event {largest}, {update:?}, {} servers)",
            self.servers.len()
        );
    }
}

const SIZES: [usize; 4] = [1, 2, 4, 8];

/// Runs a simulation for each of these seeds.
fn simulate(seeds: u64, mut run: impl FnMut(u64, &mut Simulation)) {
    let mut events = 0;
    for seed in 0..seeds {
        let mut simulation = Simulation::new(seed, SIZES[seed as usize % SIZES.len()]);
        run(seed, &mut simulation);
        events += simulation.events;
    }
    counts::record("simulated events of servers that share a limit", events);
}

#[test]
fn with_some_servers_apart_the_rate_stays_below_the_bound() {
    simulate(400, |seed, simulation| {
        let servers = simulation.servers.len();
        let apart = simulation.random.random_range(0..=servers);
        // Some are cut off from the start, others later, when their copies are outdated.
        for number in 0..apart {
            simulation.servers[number].network = Network::Down;
            if simulation.random.random_bool(0.5) {
                simulation.servers[number].network = Network::Up;
            }
        }
        simulation.flood(1500);
        simulation.servers[..apart].iter_mut().for_each(|one| one.network = Network::Down);
        simulation.flood(1500);
        simulation.check(simulation.bound(apart), seed, "some apart");
    });
}

#[test]
fn with_all_servers_apart_from_the_start_each_admits_its_share() {
    simulate(300, |seed, simulation| {
        simulation.servers.iter_mut().for_each(|one| one.network = Network::Down);
        simulation.flood(2500);
        let servers = simulation.servers.len() as f64;
        let bound = simulation.limit + servers * simulation.largest;
        simulation.check(bound * (1.0 + 1e-5), seed, "all apart");
    });
}

#[test]
fn servers_that_come_and_go_stay_below_the_bound() {
    simulate(300, |seed, simulation| {
        for _ in 0..60 {
            for number in 0..simulation.servers.len() {
                let network = match simulation.random.random_range(0..4) {
                    0 => Network::Up,
                    1 => Network::Down,
                    2 => Network::Lossy(0.5),
                    _ => continue,
                };
                simulation.servers[number].network = network;
            }
            simulation.flood(50);
        }
        let apart = simulation.servers.iter().filter(|one| one.was_apart).count();
        simulation.check(simulation.bound(apart), seed, "coming and going");
    });
}

/// The schedule that is worst for servers whose copies are outdated: the shared store
/// admits all that it can while they have heard nothing, then they admit their shares, then
/// they reconnect for one event, and so on.
#[test]
fn a_link_that_flaps_admits_no_second_share() {
    simulate(300, |seed, simulation| {
        let servers = simulation.servers.len();
        let cost = simulation.limit / 50.0;
        for _ in 0..30 {
            while simulation.event(0, cost) {}
            for number in 1..servers {
                simulation.servers[number].network = Network::Down;
                while simulation.event(number, cost) {}
                simulation.servers[number].network = Network::Up;
                simulation.event(number, cost);
            }
            simulation.now += (simulation.period * 1e6 / 100.0) as i64;
        }
        simulation.check(simulation.bound(servers - 1), seed, "flapping");
    });
}

#[test]
fn a_bucket_admits_its_burst_and_a_share_of_it_on_each_server() {
    simulate(200, |seed, simulation| {
        (simulation.bucket, simulation.update) = (true, Update::Leaky);
        for _ in 0..40 {
            for number in 0..simulation.servers.len() {
                let network = [Network::Up, Network::Down, Network::Lossy(0.5)]
                    [simulation.random.random_range(0..3)];
                simulation.servers[number].network = network;
            }
            simulation.flood(50);
        }
        let bound = simulation.bound(simulation.servers.len());
        simulation.check(bound, seed, "buckets");
    });
}

/// Refusing everything would stay below every bound.
#[test]
fn a_server_that_is_apart_admits_its_share() {
    for servers in SIZES {
        for update in [Update::Leaky, Update::Strict] {
            let mut simulation = Simulation::new(7, servers);
            (simulation.limit, simulation.update) = (800.0, update);
            simulation.servers.iter_mut().for_each(|one| one.network = Network::Down);
            for number in 0..servers {
                let share = 800 / servers;
                let admitted = (0..=share).filter(|_| simulation.event(number, 1.0)).count();
                assert!((share - 1..=share).contains(&admitted), "{admitted} of {share}");
            }
            // A period later, most of it has decayed.
            simulation.now += (simulation.period * 1e6) as i64;
            let admitted = (0..800).take_while(|_| simulation.event(0, 1.0)).count();
            let decayed = 800.0 / servers as f64 * (1.0 - (-1.0_f64).exp());
            let expected = if update == Update::Leaky { decayed } else { decayed - 2.0 };
            assert!(admitted as f64 >= expected - 3.0, "{admitted} of {expected}");
        }
    }
}

/// The rate that was admitted apart decreases also while it is written very often.
#[test]
fn a_rate_admitted_apart_decays_under_many_replies() {
    let mut simulation = Simulation::new(3, 2);
    (simulation.limit, simulation.period, simulation.update) = (1e6, 604_800.0, Update::Leaky);
    let key = RecordKey::from(b"1h/per_mail/alice");
    simulation.servers[0].network = Network::Down;
    simulation.event(0, 1000.0);
    simulation.servers[0].network = Network::Up;
    let start = simulation.now;
    for _ in 0..200_000 {
        simulation.now += 1000;
        simulation.event(0, 1.0);
    }
    let entry = crate::store::Inspect::get(&mut simulation.servers[0].copies, key);
    let apart = f64::from(entry.unwrap().unwrap().apart);
    let expected = 1000.0 * (-((simulation.now - start) as f64 / 1e6) / 604_800.0).exp();
    assert!(1000.0 - expected > 0.3, "there is something to see");
    assert!((apart - expected).abs() < 0.1, "{apart} instead of {expected}");
}
