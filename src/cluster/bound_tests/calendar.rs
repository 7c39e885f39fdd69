//! Calendar windows of servers that are cut off from the store that they share.
//!
//! Windows follow one another, the clocks of the servers differ, replies are lost, and each server
//! is cut off and comes back as it likes. Whatever happens, the events accepted in one window
//! are at most `m·(1 + k/N)`, if `k` of `N` servers were ever apart; those that the shared store
//! accepted in it at most `m`, and those of one server that is apart at most `m/N`.

use std::collections::HashMap;

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::engine::{Algorithm, Authority, Check, Decision, Update};
use crate::rate::{CalendarWindow, Timestamp};
use crate::store::{Inspect as _, Memory};
use kit::counts;

const LIMIT: f64 = 20.0;
const LENGTH: i64 = 1000;
const START: i64 = 1_700_000_000;

struct Server {
    copies: Memory,
    /// Its clock is so many seconds ahead, by less than half a window.
    ahead: i64,
    /// Its zone is so many seconds ahead.
    zone: i64,
    is_up: bool,
    was_apart: bool,
    /// Replies of the shared store that were received, and are not yet stored.
    late: Vec<(Check<'static>, Decision)>,
    /// The start of the window of its copy.
    start: i64,
}

/// A leaky check of this size in the window of a clock.
fn check(now: Timestamp, zone: i64, count: f64) -> Check<'static> {
    let start = (now.seconds - zone).div_euclid(LENGTH) * LENGTH + zone;
    let window = CalendarWindow { start, end: start + LENGTH };
    let algorithm = Algorithm::Calendar { limit: LIMIT, window };
    Check { count, update: Update::Leaky, ..Check::new("alice", algorithm) }
}

fn decide(
    store: &mut Memory,
    authority: Authority<'_>,
    check: Check<'_>,
    now: Timestamp,
) -> Decision {
    let mut decisions = Vec::new();
    store.decide_as(authority, &[check], now, &mut decisions);
    decisions[0]
}

fn run(seed: u64, servers: u32, is_shifted: bool) {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut shared = Memory::new();
    let mut all: Vec<Server> = (0..servers)
        .map(|_| Server {
            copies: Memory::new(),
            ahead: random.random_range(-100..100),
            zone: if is_shifted { random.random_range(0..LENGTH) } else { 0 },
            is_up: true,
            was_apart: false,
            late: Vec::new(),
            start: 0,
        })
        .collect();
    // By the start of the window in which each event was counted.
    let mut accepted: HashMap<i64, f64> = HashMap::new();
    let mut by_shared: HashMap<i64, f64> = HashMap::new();
    let mut by_server: HashMap<(usize, i64), f64> = HashMap::new();
    let mut micros = START * 1_000_000;
    for _ in 0..3000 {
        micros += [0, 1, 1_000_000, 30_000_000, 400_000_000]
            [random.random_range(0..5_usize).min(random.random_range(0..5))];
        let number = random.random_range(0..all.len());
        let server = &mut all[number];
        if random.random_bool(0.02) {
            server.is_up = !server.is_up;
        }
        let now = Timestamp::from_micros(micros + server.ahead * 1_000_000);
        let count = [1.0, 1.0, 2.0, 5.0, 0.5][random.random_range(0..5)];
        let check = check(now, server.zone, count);
        let asks = server.is_up || random.random_bool(0.1);
        let reply = asks.then(|| {
            let now = Timestamp::from_micros(micros);
            decide(&mut shared, Authority::Local, check, now)
        });
        let reply = reply.filter(|_| server.is_up && !random.random_bool(0.05));
        let cluster = |copies: &mut Memory, check, decision| {
            let authority = Authority::Cluster { decisions: &[decision], servers };
            decide(copies, authority, check, now)
        };
        let late = server.late.len();
        if late > 0 && random.random_bool(0.1) {
            let (check, decision) = server.late.swap_remove(random.random_range(0..late));
            cluster(&mut server.copies, check, decision);
        }
        let decision = match reply {
            // The process that has received it is slow.
            Some(decision) if random.random_bool(0.1) => {
                server.late.push((check, decision));
                decision
            }
            Some(decision) => cluster(&mut server.copies, check, decision),
            None => {
                server.was_apart = true;
                decide(&mut server.copies, Authority::Share { servers }, check, now)
            }
        };
        let copy = server.copies.get(check.record_key()).unwrap();
        // One in which nothing is counted yet is not shown.
        let start = copy.map_or(server.start, |copy| copy.start);
        assert!(start >= server.start, "seed {seed}: a copy moved to an earlier window");
        server.start = start;
        if decision.over {
            continue;
        }
        let sum = match reply {
            Some(_) => by_shared.entry(decision.start).or_default(),
            None => by_server.entry((number, decision.start)).or_default(),
        };
        *sum += count;
        let most = if reply.is_some() { LIMIT } else { LIMIT / f64::from(servers) };
        assert!(*sum <= most, "seed {seed}: {sum} of {most} in one window");
        let apart = all.iter().filter(|server| server.was_apart).count() as f64;
        let total = accepted.entry(decision.start).or_default();
        *total += count;
        let most = LIMIT * (1.0 + apart / f64::from(servers));
        // Windows of other zones have other starts: what is accepted in all is bounded above.
        assert!(*total <= most, "seed {seed}: {total} of {most} by all servers");
    }
    assert!(accepted.len() > 20, "windows follow one another");
    assert!(accepted.values().any(|sum| *sum > LIMIT), "apart, more is accepted");
}

#[test]
fn in_each_window_servers_admit_their_shares_of_what_is_left() {
    let seeds = if counts::is_long() { 400 } else { 20 };
    for seed in 0..seeds {
        let servers = [2, 4, 8][seed as usize % 3];
        run(seed, servers, seed % 5 == 4);
    }
    counts::record("simulated events of servers that share calendar windows", seeds * 3000);
}

/// What a server knows of the shared count bounds what it admits when it is cut off.
#[test]
fn what_is_left_is_shared() {
    let now = |seconds| Timestamp { seconds: START + seconds, micros: 0 };
    let (mut shared, mut copies) = (Memory::new(), Memory::new());
    for _ in 0..12 {
        let decision = decide(&mut shared, Authority::Local, check(now(1), 0, 1.0), now(1));
        let authority = Authority::Cluster { decisions: &[decision], servers: 4 };
        assert!(!decide(&mut copies, authority, check(now(1), 0, 1.0), now(1)).over);
    }
    let mut apart = |at, count| {
        let authority = Authority::Share { servers: 4 };
        decide(&mut copies, authority, check(now(at), 0, count), now(at))
    };
    // 8 are left of 20, so that each of four servers admits 2.
    let decisions: Vec<bool> = (0..4).map(|_| apart(2, 1.0).over).collect();
    assert_eq!(decisions, [false, false, true, true]);
    let refused = apart(3, 1.0);
    assert_eq!((refused.rate, refused.remaining(now(3))), (12.0 + 4.0 * 3.0, 0.0));
    assert_eq!(refused.restarts, check(now(3), 0, 1.0).algorithm.window().unwrap().end);
    // The next window is a whole one.
    let decisions: Vec<bool> = (0..6).map(|_| apart(LENGTH, 1.0).over).collect();
    assert_eq!(decisions, [false, false, false, false, false, true]);
    let last = apart(LENGTH, 0.0);
    assert_eq!((last.rate, last.over), (20.0, false));
}

/// A reply to an event of yesterday is stored after one of today.
#[test]
fn a_late_reply_moves_no_copy_to_an_earlier_window() {
    let now = |seconds| Timestamp { seconds: START + seconds, micros: 0 };
    let (mut shared, mut copies) = (Memory::new(), Memory::new());
    let mut reply =
        |at, count| decide(&mut shared, Authority::Local, check(now(at), 0, count), now(at));
    let (old, over, new) = (reply(999, 20.0), reply(999, 1.0), reply(1000, 5.0));
    assert!(over.crossed);
    let mut store = |at, decision, count| {
        let authority = Authority::Cluster { decisions: &[decision], servers: 4 };
        let decision = decide(&mut copies, authority, check(now(at), 0, count), now(1000));
        (decision.rate, copies.get(check(now(at), 0, 0.0).record_key()).unwrap().unwrap())
    };
    assert_eq!(store(1000, new, 5.0).1.start, START + 1000);
    // The event itself is decided as the shared store has decided it.
    for (decision, count, rate) in [(old, 20.0, 20.0), (over, 1.0, 21.0)] {
        let (decided, kept) = store(999, decision, count);
        assert_eq!((decided, kept.start, kept.average.rate), (rate, START + 1000, 5.0));
        assert_eq!((kept.last_over, kept.over_since), (0, 0));
    }
    // A window of another zone, which began a little earlier, is the same one.
    let other = CalendarWindow { start: START + 700, end: START + 700 + LENGTH };
    let (_, kept) = store(1000, Decision { start: other.start, ..new }, 5.0);
    assert_eq!((kept.start, kept.average.rate), (START + 1000, 5.0));
}
