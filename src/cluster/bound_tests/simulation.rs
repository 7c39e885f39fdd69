//! The servers, the network, and the clock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::rc::Rc;

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::engine::{Algorithm, Authority, Check, Decision, RecordKey, Update};
use crate::rate::{CalendarWindow, Timestamp};
use crate::store::Memory;

use super::shared::{Part, Reply, Shared};
use super::truth::{Limit, ROUNDING, ServerMemory, Sum, decayed, share_of};

/// What a server asks its shared store through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Network {
    /// All requests and replies arrive at once.
    Up,
    /// Nothing arrives, which the server knows: it does not ask.
    Down,
    /// The nodes that have some of the keys do not reply, which the agent says at once.
    Nodes {
        /// Whether the node of each key is away.
        away: [bool; KEYS.len()],
    },
    /// Each request and each reply takes some time.
    Slow {
        /// How many of them are lost.
        lost: f64,
        /// How many arrive twice.
        repeated: f64,
        /// How many may arrive after the deadline.
        late: f64,
    },
}

/// The keys that are counted.
pub(super) const KEYS: [&str; 3] = ["1h/per_mail/alice", "1h/per_mail/bob", "1h/per_mail/domain"];

/// One server.
#[derive(Clone, Debug)]
pub(super) struct Memories {
    pub(super) copies: Memory,
    /// What `copies` should hold.
    pub(super) known: [Option<ServerMemory>; KEYS.len()],
    /// What it has admitted apart, and not forgotten by a crash.
    pub(super) apart: [Sum; KEYS.len()],
}

#[derive(Debug)]
pub(super) struct Server {
    pub(super) network: Network,
    /// Its clock is that far ahead, in microseconds.
    pub(super) ahead: i64,
    /// It has decided an event apart.
    pub(super) was_apart: bool,
    pub(super) memories: Memories,
    /// What is on its disk.
    pub(super) saved: Memories,
}

/// One event at a server.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) number: u64,
    pub(super) server: usize,
    pub(super) parts: Vec<Part>,
    pub(super) asked_at: i64,
    /// As above, by the server's clock.
    pub(super) asked_at_here: i64,
}

#[derive(Clone, Debug)]
pub(super) enum Message {
    Request(Rc<Event>),
    Reply(Rc<Event>, Rc<Reply>),
    Deadline(Rc<Event>),
}

/// What may go wrong besides the network.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Crashes {
    /// A process ends before it stores what it has decided, with this probability.
    pub(super) unsaved: f64,
}

#[derive(Debug)]
pub(super) struct Simulation {
    pub(super) random: SmallRng,
    pub(super) shared: Shared,
    /// The shared store's replica, which may lack the last events.
    pub(super) replica: Shared,
    pub(super) servers: Vec<Server>,
    /// Microseconds since 1970: the true time.
    pub(super) now: i64,
    pub(super) limits: [Limit; KEYS.len()],
    pub(super) crashes: Crashes,
    /// How long a server waits for a reply, in microseconds.
    pub(super) deadline: i64,
    /// By their times.
    pub(super) messages: BinaryHeap<Reverse<(i64, u64)>>,
    pub(super) contents: HashMap<u64, Message>,
    /// The events that have neither a reply nor reached their deadlines.
    pub(super) waiting: BTreeMap<u64, Rc<Event>>,
    pub(super) numbers: u64,
    /// The largest event of each key.
    pub(super) largest: [f64; KEYS.len()],
    /// All accepted events, each once.
    pub(super) accepted: [Sum; KEYS.len()],
    /// What the stores have forgotten by crashes and clocks that were set forward.
    pub(super) forgotten: [Sum; KEYS.len()],
    /// The highest that `accepted` was, without what was forgotten.
    pub(super) highest: [f64; KEYS.len()],
    /// Messages and decisions.
    pub(super) steps: u64,
    pub(super) seed: u64,
}

const START: i64 = 1_700_000_000_000_000;

impl Simulation {
    pub(super) fn new(seed: u64, servers: usize) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let memories = Memories {
            copies: Memory::new(),
            known: [None; KEYS.len()],
            apart: [Sum::default(); KEYS.len()],
        };
        let server = |random: &mut SmallRng| Server {
            network: Network::Up,
            ahead: random.random_range(-100_000_000..100_000_000),
            was_apart: false,
            memories: memories.clone(),
            saved: memories.clone(),
        };
        let period = [1.0, 60.0, 3600.0, 604_800.0][random.random_range(0..4)];
        let limit = |random: &mut SmallRng| {
            let limit = [5.0, 20.0, 100.0, 1000.0][random.random_range(0..4)];
            match random.random_range(0..3) {
                0 => bucket(limit, period),
                1 => average(limit, period, Update::Leaky),
                _ => average(limit, period, Update::Strict),
            }
        };
        let mut shared = Shared::new(KEYS.len());
        shared.ahead = random.random_range(-100_000_000..100_000_000);
        Self {
            servers: (0..servers).map(|_| server(&mut random)).collect(),
            replica: shared.clone(),
            shared,
            now: START,
            limits: std::array::from_fn(|_| limit(&mut random)),
            crashes: Crashes::default(),
            deadline: random.random_range(1_000..20_000),
            messages: BinaryHeap::new(),
            contents: HashMap::new(),
            waiting: BTreeMap::new(),
            numbers: 0,
            largest: [0.0; KEYS.len()],
            accepted: [Sum::default(); KEYS.len()],
            forgotten: [Sum::default(); KEYS.len()],
            highest: [0.0; KEYS.len()],
            steps: 0,
            seed,
            random,
        }
    }

    /// All keys with one limit.
    pub(super) fn with_limit(mut self, limit: Limit) -> Self {
        self.limits = [limit; KEYS.len()];
        self
    }

    /// The store of a server.
    pub(super) fn copies(&mut self, server: usize) -> &mut Memory {
        &mut self.servers[server].memories.copies
    }

    pub(super) fn period(&self) -> f64 {
        match self.limits[0].algorithm {
            // Its window does not end while the simulation runs.
            Algorithm::Calendar { .. } => 3600.0,
            algorithm => algorithm.period(),
        }
    }

    /// An event of size `size` of the first key at this server; whether it was accepted.
    /// The network is up or down.
    pub(super) fn event(&mut self, server: usize, size: f64) -> bool {
        let update = self.limits[0].update;
        self.send(server, vec![Part { key: 0, size, update }]).expect("the network is not slow")
    }

    /// An event at this server. Whether it was accepted, if that is certain now.
    pub(super) fn send(&mut self, server: usize, parts: Vec<Part>) -> Option<bool> {
        self.numbers += 1;
        for part in &parts {
            self.largest[part.key] = self.largest[part.key].max(part.size);
        }
        let Server { network, ahead, .. } = self.servers[server];
        let (number, asked_at) = (self.numbers, self.now);
        let event =
            Rc::new(Event { number, server, parts, asked_at, asked_at_here: asked_at + ahead });
        match network {
            Network::Up => {
                let reply = self.ask(&event);
                Some(self.take_over(&event, &reply))
            }
            Network::Down => Some(self.decide_apart(&event)),
            Network::Nodes { away } => {
                let (lost, others): (Vec<_>, Vec<_>) =
                    event.parts.iter().partition(|part| away[part.key]);
                if lost.is_empty() {
                    let reply = self.ask(&event);
                    return Some(self.take_over(&event, &reply));
                }
                // The other nodes may have counted their parts of it.
                if !others.is_empty() && self.random.random_bool(0.5) {
                    self.ask(&Event { server, parts: others, ..*event });
                }
                Some(self.decide_apart(&event))
            }
            Network::Slow { .. } => {
                self.waiting.insert(number, event.clone());
                self.post(self.deadline, Message::Deadline(event.clone()));
                self.transmit(server, Message::Request(event));
                None
            }
        }
    }

    /// Sends a message through a server's network.
    pub(super) fn transmit(&mut self, server: usize, message: Message) {
        let (lost, repeated, late) = match self.servers[server].network {
            Network::Slow { lost, repeated, late } => (lost, repeated, late),
            Network::Up | Network::Nodes { .. } => (0.0, 0.0, 0.0),
            Network::Down => return,
        };
        let copies = 1 + usize::from(self.random.random_bool(repeated));
        for _ in 0..copies {
            if self.random.random_bool(lost) {
                continue;
            }
            let longest = match self.random.random_bool(late) {
                true => 4 * self.deadline,
                false => self.deadline / 3,
            };
            let delay = self.random.random_range(0..=longest);
            self.post(delay, message.clone());
        }
    }

    fn post(&mut self, delay: i64, message: Message) {
        self.numbers += 1;
        self.contents.insert(self.numbers, message);
        self.messages.push(Reverse((self.now + delay, self.numbers)));
    }

    /// The time goes on, and messages arrive.
    pub(super) fn pass(&mut self, micros: i64) {
        let until = self.now + micros;
        while let Some(&Reverse((at, number))) = self.messages.peek()
            && at <= until
        {
            self.messages.pop();
            self.now = self.now.max(at);
            self.steps += 1;
            match self.contents.remove(&number).expect("a message") {
                Message::Request(event) => {
                    let reply = self.ask(&event);
                    self.transmit(event.server, Message::Reply(event, Rc::new(reply)));
                }
                // A reply that comes too late, or for the second time, is ignored.
                Message::Reply(event, reply) => {
                    if self.waiting.remove(&event.number).is_some() {
                        self.take_over(&event, &reply);
                    }
                }
                Message::Deadline(event) => {
                    if self.waiting.remove(&event.number).is_some() {
                        self.decide_apart(&event);
                    }
                }
            }
        }
        self.now = until;
    }

    fn checks(&self, event: &Event) -> Vec<Check<'static>> {
        let check = |part: &Part| {
            let algorithm = self.limits[part.key].algorithm;
            Check {
                count: part.size,
                update: part.update,
                refuses: (part.update != Update::ReadOnly).then_some(1.0),
                ..Check::new(
                    RecordKey { algorithm: algorithm.kind(), ..KEYS[part.key].into() },
                    algorithm,
                )
            }
        };
        event.parts.iter().map(check).collect()
    }

    /// The shared store decides an event.
    fn ask(&mut self, event: &Event) -> Reply {
        self.steps += 1;
        let checks = self.checks(event);
        let reply = self.shared.decide(event.number, &event.parts, &checks, &self.limits, self.now);
        for part in &event.parts {
            let Limit { algorithm, .. } = self.limits[part.key];
            let sum = self.shared.accepted(part.key).at(self.now, algorithm);
            let bound = algorithm.limit() + self.largest[part.key];
            self.compare(sum, bound, "the shared store", part.key);
        }
        reply
    }

    /// The server stores the reply, and decides as it says.
    fn take_over(&mut self, event: &Event, reply: &Reply) -> bool {
        self.steps += 1;
        let (checks, servers) = (self.checks(event), self.servers.len());
        let unsaved = self.random.random_bool(self.crashes.unsaved);
        let here = event.asked_at_here;
        let Memories { copies, known, .. } = &mut self.servers[event.server].memories;
        if !unsaved {
            let mut decisions = Vec::new();
            let authority =
                Authority::Cluster { decisions: &reply.decisions, servers: servers as u32 };
            copies.decide_as(authority, &checks, Timestamp::from_micros(here), &mut decisions);
            for (one, replied) in decisions.iter().zip(&reply.decisions) {
                assert_eq!(one.over, replied.over, "the shared store's verdict is taken over");
            }
            for (part, rate) in event.parts.iter().zip(&reply.rates) {
                let known = &mut known[part.key];
                // One that is dated even later was stored before the clock was set back.
                let outdated =
                    known.is_some_and(|known| (1..=60_000_000).contains(&(known.at - here)));
                if let (Some(shared), false, true) =
                    (*rate, outdated, part.update != Update::ReadOnly)
                {
                    let share = share_of(self.limits[part.key].algorithm, servers as f64);
                    let apart = known.map_or(0.0, |one| decayed(share, one.apart, one.at, here));
                    *known = Some(ServerMemory { at: here, shared, apart });
                }
            }
        }
        let over = |(part, one): (&Part, &Decision)| one.over && part.update != Update::ReadOnly;
        let accepted = !event.parts.iter().zip(&reply.decisions).any(over);
        if accepted {
            self.accept(event, reply.at);
        }
        accepted
    }

    /// The server decides without the shared store.
    fn decide_apart(&mut self, event: &Event) -> bool {
        self.steps += 1;
        let (checks, servers) = (self.checks(event), self.servers.len());
        let unsaved = self.random.random_bool(self.crashes.unsaved);
        let server = &mut self.servers[event.server];
        server.was_apart = true;
        let before = unsaved.then(|| server.memories.clone());
        let here = event.asked_at_here + self.now - event.asked_at;
        let Memories { copies, known, apart } = &mut server.memories;
        let authority = Authority::Share { servers: servers as u32 };
        let mut decisions = Vec::new();
        copies.decide_as(authority, &checks, Timestamp::from_micros(here), &mut decisions);
        let of = |(part, decision): (&Part, &Decision)| {
            let limit = &self.limits[part.key];
            let expected =
                ServerMemory::expect(known[part.key], limit, servers as f64, here, part.size);
            let difference = (decision.rate - expected.rate).abs();
            assert!(
                difference <= ROUNDING * (expected.rate + limit.algorithm.limit())
                    && (expected.is_close || decision.over == expected.over),
                "seed {}, {limit:?}, {part:?}: {decision:?} is not {expected:?}",
                self.seed
            );
            expected
        };
        let expected: Vec<_> = event.parts.iter().zip(&decisions).map(of).collect();
        let over = |leaky: bool| {
            event.parts.iter().zip(&decisions).any(|(part, one)| {
                one.over
                    && match leaky {
                        true => part.update == Update::Leaky,
                        false => part.update != Update::ReadOnly,
                    }
            })
        };
        let (refused, accepted) = (over(true), !over(false));
        let (mut sums, mut lost) = ([0.0; KEYS.len()], [0.0; KEYS.len()]);
        for (part, expected) in event.parts.iter().zip(&expected) {
            let counts = match part.update {
                Update::Leaky => !refused,
                Update::Strict => true,
                Update::ReadOnly => continue,
            };
            let known = &mut known[part.key];
            *known = match counts {
                true => Some(expected.counted),
                false => known.map(|_| expected.kept),
            };
            let share = share_of(self.limits[part.key].algorithm, servers as f64);
            if accepted {
                apart[part.key].add(self.now, share, part.size, self.now);
                sums[part.key] = apart[part.key].at(self.now, share);
                lost[part.key] = part.size;
            }
        }
        if let Some(before) = before {
            server.memories = before;
        } else {
            lost = [0.0; KEYS.len()];
        }
        for (key, lost) in lost.into_iter().enumerate() {
            self.forget(key, lost);
            let bound = self.limits[key].algorithm.limit() / servers as f64 + self.largest[key];
            self.compare(sums[key], bound, "a server apart", key);
        }
        if accepted {
            self.accept(event, self.now);
        }
        accepted
    }
}

pub(super) fn average(limit: f64, period: f64, update: Update) -> Limit {
    Limit { algorithm: Algorithm::MovingAverage { limit, period }, update }
}

pub(super) fn bucket(limit: f64, period: f64) -> Limit {
    let algorithm = Algorithm::Bucket { burst: limit, rate: limit / period };
    Limit { algorithm, update: Update::Leaky }
}

/// A window of the calendar that does not end while the simulation runs.
pub(super) fn window(limit: f64) -> Limit {
    let start = START / 1_000_000 - 1000;
    let window = CalendarWindow { start, end: start + (1 << 31) };
    Limit { algorithm: Algorithm::Calendar { limit, window }, update: Update::Leaky }
}
