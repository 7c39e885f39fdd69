//! What a message costs.

use std::hint::black_box;
use std::time::Instant;

use exirate::rate::habits::{Habits, Sensitivity};
use kit::Random;
use kit::table::{head, middle_of, print, row};

/// Messages in a round.
const ROUND: usize = 100_000;
const ROUNDS: usize = 21;
/// Recipients of a message, and the most nanoseconds that it may cost.
const GOALS: [(usize, f64); 2] = [(1, 500.0), (50, 3000.0)];

/// Prints the cost of an update of habits that are read from bytes and written to them.
pub(crate) fn run() {
    head(&format!(
        "An update, {} bytes read and written: median of {ROUNDS} rounds",
        Habits::BYTES
    ));
    let mut rows = vec![row(["recipients", "nanoseconds", "at most"])];
    for (recipients, most) in GOALS {
        let mut random = Random::new(1);
        let mut bytes = Habits::default().to_bytes();
        let mut at = 1_790_000_000;
        let mut times = Vec::new();
        // One in ten is a stranger.
        let hashes: Vec<u64> = (0..ROUND)
            .map(|_| if random.chance(10) { random.bits() } else { random.below(100) as u64 })
            .collect();
        let mut sent = vec![0; recipients];
        for _ in 0..ROUNDS {
            let before = Instant::now();
            for n in 0..ROUND {
                at += 60;
                for (place, one) in sent.iter_mut().enumerate() {
                    *one = hashes[(n * recipients + place) % ROUND];
                }
                let mut habits = Habits::from_bytes(&bytes).unwrap_or_default();
                let network = Some(hashes[n] % 8);
                black_box(habits.message(at, network, sent.iter().copied(), Sensitivity::Normal));
                bytes = habits.to_bytes();
            }
            times.push(before.elapsed().as_nanos() as f64 / ROUND as f64);
        }
        let cost = middle_of(times);
        let missed = if cost > most { ", missed" } else { "" };
        rows.push(row([
            &recipients.to_string(),
            &format!("{cost:.0}"),
            &format!("{most}{missed}"),
        ]));
    }
    print(&rows);
}
