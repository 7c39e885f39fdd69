//! What a message costs, and what an account takes.

use std::hint::black_box;
use std::time::Instant;

use exirate::rate::habits::{Habits, Sensitivity};
use exirate::spool::habits::SentMessage;
use exirate::spool::{Options, Spool};
use exirate::store::habits_key;
use kit::Random;
use kit::habits::mix;
use kit::table::{head, middle_of, print, row};

/// Messages in a round.
const ROUND: usize = 20_000;
const ROUNDS: usize = 21;
/// Recipients of a message, and the most nanoseconds that it may cost.
const GOALS: [(usize, f64); 2] = [(1, 500.0), (50, 3000.0)];
/// Room for the most accounts.
const MAX_BYTES: u64 = 8 << 30;
const START: i64 = 1_790_000_000;

/// Prints the cost of an update, alone and in the database, and the size of so many accounts.
pub(crate) fn run(accounts: usize) {
    head(&format!("An update: medians of {ROUNDS} rounds, in nanoseconds"));
    let mut rows = vec![row([
        "recipients",
        "arithmetic",
        "at most",
        "in the database",
        "a lock and a lookup there",
        "difference",
    ])];
    let folder = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(folder.path(), Options::default()).unwrap();
    for (recipients, most) in GOALS {
        let mut random = Random::new(1);
        // One in ten is a stranger.
        let mut someone =
            || if random.chance(10) { random.bits() } else { random.below(100) as u64 };
        let numbers: Vec<u64> = (0..ROUND).map(|_| someone()).collect();
        let texts: Vec<String> = numbers.iter().map(|n| format!("r{n}@example.net")).collect();
        let hashes: Vec<u64> = numbers.iter().map(|&number| mix(number)).collect();
        let of = |n: usize| (0..recipients).map(move |place| (n * recipients + place) % ROUND);
        let mut bytes = Habits::default().to_bytes();
        let (mut name, mut at) = (Vec::new(), START);
        let identity = format!("auth:alice{recipients}@example.org");
        let client = "192.0.2.7".parse().ok();
        let (mut alone, mut stored, mut floor) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let first = at;
            alone.push(nanoseconds(|n| {
                at = first + 60 * n as i64;
                let mut habits = Habits::from_bytes(&bytes).unwrap_or_default();
                let to = of(n).map(|place| hashes[place]);
                black_box(habits.message(at, Some(7), to, Sensitivity::Normal));
                bytes = habits.to_bytes();
            }));
            stored.push(nanoseconds(|n| {
                at = first + 60 * n as i64;
                let recipients = of(n).map(|place| texts[place].as_bytes());
                let message = SentMessage { at, client, recipients };
                let key = habits_key(identity.as_bytes(), &mut name);
                spool.learn_habits(key, message, Sensitivity::Normal).unwrap();
            }));
            floor.push(nanoseconds(|_| {
                let key = habits_key(identity.as_bytes(), &mut name);
                let is_known = spool.update(key, None, |known, _| (known.is_some(), None)).unwrap();
                assert!(is_known);
            }));
        }
        let [alone, stored, floor] = [alone, stored, floor].map(middle_of);
        let missed = if stored - floor > most { ", missed" } else { "" };
        rows.push(row([
            &recipients.to_string(),
            &format!("{alone:.0}"),
            &format!("{most}{missed}"),
            &format!("{stored:.0}"),
            &format!("{floor:.0}"),
            &format!("{:.0}", stored - floor),
        ]));
    }
    print(&rows);
    fill(accounts);
}

/// The time of one of a round.
fn nanoseconds(mut one: impl FnMut(usize)) -> f64 {
    let before = Instant::now();
    (0..ROUND).for_each(&mut one);
    before.elapsed().as_nanos() as f64 / ROUND as f64
}

/// Prints what so many accounts take in the database.
fn fill(accounts: usize) {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(folder.path(), Options::default()).unwrap();
    spool.set_max_bytes(MAX_BYTES).unwrap();
    let (mut name, before) = (Vec::new(), Instant::now());
    for n in 0..accounts {
        let identity = format!("auth:user{n}@example.org");
        let message = SentMessage { at: START, client: None, recipients: [&b"a@b.test"[..]] };
        let key = habits_key(identity.as_bytes(), &mut name);
        spool.learn_habits(key, message, Sensitivity::Normal).unwrap();
    }
    let created = before.elapsed();
    let before = Instant::now();
    let mut found = 0;
    spool.for_each_habits(|_, _| found += 1).unwrap();
    assert_eq!(found, accounts);
    println!(
        "\n{accounts} accounts: {:.0} bytes of disk each; created in {:.1} s, read in {:.1} s",
        spool.stats().unwrap().disk as f64 / accounts as f64,
        created.as_secs_f64(),
        before.elapsed().as_secs_f64()
    );
}
