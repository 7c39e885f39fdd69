//! What would have been refused, by limit and key.

use std::collections::{HashMap, hash_map};
use std::hash::BuildHasher as _;

use serde::{Serialize, Serializer};

use super::attempt::AttemptPart;
use super::decided::{Decided, first_and_last};
use crate::hash::{FastHash, FastMap};
use crate::identity::fold::TOTALS;
use crate::policy::outcome::Reason;
use crate::policy::replay::Window;
use crate::policy::word::{Unit, Verdict};
use crate::rate::{Timestamp, Wait};

/// So many limits and keys are remembered; the refusals of further ones are only counted.
const ROWS_MAX: usize = 500_000;

/// A limit, and who was counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct LimitKey {
    /// The policy.
    pub policy: String,
    /// The table that the limit is from.
    pub rule: String,
    /// What is counted.
    #[serde(serialize_with = "word")]
    pub unit: Unit,
    /// The limit as written: `100/1h`.
    pub window: String,
    /// Who is counted: `auth:alice`.
    pub key: String,
}

fn word<S: Serializer>(unit: &Unit, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(unit.word())
}

impl LimitKey {
    /// Orders those with as many refusals.
    fn order(&self) -> (&str, &str, &str, &str) {
        (&self.key, &self.policy, self.unit.word(), &self.window)
    }
}

/// What a limit did to a key.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Refused {
    /// The limit and the key.
    #[serde(flatten)]
    pub of: LimitKey,
    /// The policy observes: all this would have been, had it been enforced.
    pub observed: bool,
    /// Attempts of the log that it refused.
    #[serde(rename = "refused")]
    pub events: u64,
    /// Messages with such an attempt.
    pub messages: u64,
    /// Recipients that it refused, those of messages refused at DATA not counted.
    pub recipients: u64,
    /// Of the events, those that were refused for good.
    pub rejected: u64,
    /// Modelled retries that it refused.
    pub retries: u64,
    /// The first and the last time that it refused.
    #[serde(flatten, serialize_with = "first_and_last")]
    pub refused: Option<(Timestamp, Timestamp)>,
    /// How often the key crossed the limit.
    #[serde(rename = "times")]
    pub crossings: u64,
    /// For how long the key was over the limit, in seconds, all times together.
    pub over: f64,
    /// The longest time that it was over without a break, in seconds.
    pub longest: f64,
    /// For how long a crossing has blocked it (`deny` of `[on.crossing]`), in seconds, all times
    /// together, until the log ends.
    pub blocked: f64,
    /// The highest rate.
    #[serde(rename = "peak")]
    pub highest: f64,
    /// The limit.
    pub limit: f64,
}

/// Adds up what would have been refused: see [`Refusals::add`].
#[derive(Debug)]
pub struct Refusals {
    /// By a hash of the limit and the key.
    all: FastMap<u64, RefusalEntry>,
    hasher: FastHash,
    /// The most entries.
    most: usize,
    /// Attempts of the log that were refused, and that would have been.
    events: [u64; 2],
    /// Of both, those that no row is of.
    omitted: u64,
}

#[derive(Debug)]
struct RefusalEntry {
    refused: Refused,
    /// Since when it is over, and when the next event would pass.
    since: Option<(Timestamp, Timestamp)>,
    /// The latest block: since when, and until when.
    block: Option<(Timestamp, Timestamp)>,
    /// The latest message that was refused.
    message: u64,
}

impl Default for Refusals {
    fn default() -> Self {
        Self::of_at_most(ROWS_MAX)
    }
}

impl Refusals {
    /// Nothing yet; at most so many limits and keys will be remembered.
    pub(super) fn of_at_most(rows: usize) -> Self {
        Self {
            all: FastMap::default(),
            hasher: FastHash::default(),
            most: rows,
            events: [0; 2],
            omitted: 0,
        }
    }

    /// Adds a decision.
    pub fn add(&mut self, decided: &Decided<'_>) {
        for window in &decided.decisions.windows {
            self.add_window(window);
        }
        let (refused, would_be) = (decided.is_refused(), decided.would_be_refused());
        if !refused && !would_be {
            return;
        }
        if decided.retry == 0 {
            self.events[usize::from(would_be)] += 1;
        }
        let outcome = &decided.decisions.outcome;
        let (Some(policy), Some(reason)) = (&decided.decisions.policy, &outcome.reason) else {
            return;
        };
        let hash = self.hash(policy, reason.unit, reason.window(), reason.key());
        let Some(entry) = self.entry(hash, || RefusalEntry::of_reason(policy, reason)) else {
            self.omitted += u64::from(decided.retry == 0);
            return;
        };
        entry.refused.observed = would_be;
        if decided.retry > 0 {
            entry.refused.retries += 1;
            return;
        }
        let at = decided.attempt.at;
        let one = &mut entry.refused;
        one.events += 1;
        one.recipients += u64::from(matches!(decided.attempt.part, AttemptPart::Rcpt { .. }));
        one.rejected += u64::from(outcome.measured == Verdict::Reject);
        if let AttemptPart::NotSmtp { recipients, .. } = &decided.attempt.part {
            one.recipients += recipients.len() as u64;
        }
        if decided.message != 0 && decided.message != entry.message {
            (one.messages, entry.message) = (one.messages + 1, decided.message);
        }
        one.refused = Some((one.refused.map_or(at, |(first, _)| first), at));
    }

    fn add_window(&mut self, window: &Window) {
        let decision = &window.decision;
        if !decision.over && self.all.is_empty() {
            return;
        }
        let hash = self.hash(window.policy(), window.unit, window.text(), window.key());
        if !decision.over {
            if let Some(entry) = self.all.get_mut(&hash) {
                entry.pass(decision.at);
            }
            return;
        }
        let Some(entry) = self.entry(hash, || RefusalEntry::of_window(window)) else { return };
        let passes = match decision.retry_after(decision.at) {
            Wait::Seconds(seconds) => later(decision.at, seconds),
            Wait::Never if decision.blocked.is_some() => later(decision.at, f64::MAX),
            Wait::Never => decision.at,
        };
        entry.over(decision.at, passes);
        if decision.crossed && decision.blocked.is_some() {
            entry.end_block(decision.at);
            entry.block = Some((decision.at, passes));
        }
        entry.refused.crossings += u64::from(decision.crossed);
        entry.refused.highest = entry.refused.highest.max(decision.rate);
        entry.refused.limit = decision.limit;
    }

    /// The entry of a limit and key; `None` if it is new and there are too many.
    fn entry(
        &mut self,
        hash: u64,
        new: impl FnOnce() -> RefusalEntry,
    ) -> Option<&mut RefusalEntry> {
        let is_full = self.all.len() >= self.most;
        match self.all.entry(hash) {
            hash_map::Entry::Occupied(known) => Some(known.into_mut()),
            hash_map::Entry::Vacant(_) if is_full => None,
            hash_map::Entry::Vacant(place) => Some(place.insert(new())),
        }
    }

    fn hash(&self, policy: &str, unit: Unit, window: &str, key: &str) -> u64 {
        self.hasher.hash_one((policy, unit, window, key))
    }

    /// How many attempts of the log were refused.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events[0]
    }

    /// How many attempts of the log were not refused because a policy only observes.
    #[must_use]
    pub fn observed(&self) -> u64 {
        self.events[1]
    }

    /// How many of both [`sorted`](Self::sorted) does not show, as there are too many limits
    /// and keys.
    #[must_use]
    pub fn omitted(&self) -> u64 {
        self.omitted
    }

    /// What was refused until `end`, the most events first. Keys that were over a limit
    /// without being refused are not among it.
    #[must_use]
    pub fn sorted(self, end: Timestamp) -> Vec<Refused> {
        let mut all: Vec<Refused> = self
            .all
            .into_values()
            .map(|mut entry| {
                entry.pass(end);
                entry.end_block(end);
                entry.refused
            })
            .filter(|one| one.events + one.retries > 0)
            .collect();
        sort(&mut all);
        all
    }
}

impl Refused {
    /// Adds what the same limit did to another key.
    fn join(&mut self, other: &Self) {
        self.observed |= other.observed;
        self.events += other.events;
        self.messages += other.messages;
        self.recipients += other.recipients;
        self.rejected += other.rejected;
        self.retries += other.retries;
        self.crossings += other.crossings;
        self.over += other.over;
        self.longest = self.longest.max(other.longest);
        self.blocked += other.blocked;
        self.highest = self.highest.max(other.highest);
        let both = self.refused.into_iter().chain(other.refused);
        self.refused = both.reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
    }
}

/// The rows of the keys of which `group` is the same, as one: each policy, table, unit, and limit, of
/// each key or of all together, stays a row.
#[must_use]
pub(super) fn grouped(
    rows: Vec<Refused>,
    group: impl Fn(&LimitKey) -> Option<String>,
) -> Vec<Refused> {
    let mut all: Vec<Refused> = Vec::new();
    let mut known: HashMap<(LimitKey, bool), usize> = HashMap::new();
    for mut row in rows {
        let is_total = TOTALS.iter().any(|total| row.of.key.starts_with(&format!("{total}:")));
        row.of.key = group(&row.of).unwrap_or_default();
        match known.entry((row.of.clone(), is_total)) {
            hash_map::Entry::Occupied(at) => {
                if let Some(one) = all.get_mut(*at.get()) {
                    one.join(&row);
                }
            }
            hash_map::Entry::Vacant(place) => {
                place.insert(all.len());
                all.push(row);
            }
        }
    }
    sort(&mut all);
    all
}

/// The most events first.
fn sort(rows: &mut [Refused]) {
    let by = |one: &Refused| (std::cmp::Reverse(one.events), std::cmp::Reverse(one.retries));
    rows.sort_by(|a, b| by(a).cmp(&by(b)).then_with(|| a.of.order().cmp(&b.of.order())));
}

impl RefusalEntry {
    fn new(of: LimitKey) -> Self {
        let refused = Refused {
            of,
            observed: false,
            events: 0,
            messages: 0,
            recipients: 0,
            rejected: 0,
            retries: 0,
            refused: None,
            crossings: 0,
            over: 0.0,
            longest: 0.0,
            blocked: 0.0,
            highest: 0.0,
            limit: 0.0,
        };
        Self { refused, since: None, block: None, message: 0 }
    }

    fn of_window(window: &Window) -> Self {
        Self::new(LimitKey {
            policy: window.policy().to_owned(),
            rule: window.rule.to_string(),
            unit: window.unit,
            window: window.text().to_owned(),
            key: window.key().to_owned(),
        })
    }

    /// A limit that refused although no window was over: below 100 % in `verdicts`.
    fn of_reason(policy: &str, reason: &Reason) -> Self {
        let mut entry = Self::new(LimitKey {
            policy: policy.to_owned(),
            rule: reason.rule.clone().into_owned(),
            unit: reason.unit,
            window: reason.window().to_owned(),
            key: reason.key().to_owned(),
        });
        (entry.refused.highest, entry.refused.limit) =
            (reason.decision.rate, reason.decision.limit);
        entry
    }

    /// It is over, until `passes` if nothing happens.
    fn over(&mut self, at: Timestamp, passes: Timestamp) {
        match &mut self.since {
            Some((_, before)) if at <= *before => *before = passes,
            // An event would have passed in between.
            _ => {
                self.pass(at);
                self.since = Some((at, passes));
            }
        }
    }

    /// Adds up the latest block, until `end` at most.
    fn end_block(&mut self, end: Timestamp) {
        if let Some((since, until)) = self.block.take() {
            self.refused.blocked += (until.min(end).as_seconds() - since.as_seconds()).max(0.0);
        }
    }

    /// It is not over at `at`.
    fn pass(&mut self, at: Timestamp) {
        let Some((since, passes)) = self.since.take() else { return };
        let took = passes.min(at).as_seconds() - since.as_seconds();
        let took = took.max(0.0);
        self.refused.over += took;
        self.refused.longest = self.refused.longest.max(took);
    }
}

fn later(at: Timestamp, seconds: f64) -> Timestamp {
    let micros = u64::from(at.micros).saturating_add((seconds.max(0.0) * 1e6) as u64); // saturates
    let whole = i64::try_from(micros / 1_000_000).unwrap_or(i64::MAX);
    Timestamp {
        seconds: at.seconds.saturating_add(whole),
        micros: (micros % 1_000_000) as u32, // less than a million
    }
}
