//! What is compared after each decision.

use crate::engine::{Algorithm, Update};

use super::simulation::{Event, Simulation};
use super::truth::share_of;

impl Simulation {
    /// An event that was counted at `at` is accepted.
    pub(super) fn accept(&mut self, event: &Event, at: i64) {
        for part in &event.parts {
            if part.update == Update::ReadOnly {
                continue;
            }
            let total = total_of(self.limits[part.key].algorithm);
            self.accepted[part.key].add(self.now, total, part.size, at);
            let forgotten = self.forgotten[part.key].at(self.now, forgotten_of(total));
            let sum = self.accepted[part.key].at(self.now, total) - forgotten;
            self.highest[part.key] = self.highest[part.key].max(sum);
            let apart = self.servers.iter().filter(|one| one.was_apart).count();
            self.compare(sum, self.bound(part.key, apart), "all servers", part.key);
        }
    }

    /// The most that may be accepted while `apart` servers were cut off at least once.
    pub(super) fn bound(&self, key: usize, apart: usize) -> f64 {
        let share = apart as f64 / self.servers.len() as f64;
        self.limits[key].algorithm.limit() * (1.0 + share)
            + (apart as f64 + 1.0) * self.largest[key]
    }

    pub(super) fn compare(&self, sum: f64, bound: f64, what: &str, key: usize) {
        // The average of Exim loses up to 4e-4 of an event: see `Average::next`.
        assert!(
            sum <= bound * (1.0 + 5e-4),
            "seed {}: {what} accepted {sum}, the bound is {bound} ({:?}, largest event {}, {} servers)",
            self.seed,
            self.limits[key],
            self.largest[key],
            self.servers.len()
        );
    }

    /// The stores have lost that much of what was accepted.
    pub(super) fn forget(&mut self, key: usize, size: f64) {
        let total = forgotten_of(total_of(self.limits[key].algorithm));
        self.forgotten[key].add(self.now, total, size, self.now);
    }
}

/// The shared store lets its bucket leak, and all that are apart their shares.
fn total_of(algorithm: Algorithm) -> Algorithm {
    share_of(algorithm, 0.5)
}

/// What was forgotten of a bucket does not leak.
fn forgotten_of(algorithm: Algorithm) -> Algorithm {
    share_of(algorithm, f64::INFINITY)
}
