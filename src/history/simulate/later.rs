//! Mail that is sent later: the recipients that wait by policies at delivery, in a queue that is run
//! once a minute.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use serde::Serialize;

use super::decided::exact;
use crate::event::Event;
use crate::logs::item::Text;
use crate::policy::outcome::Outcome;
use crate::policy::word::{AfterWaiting, Verdict};
use crate::rate::Timestamp;

/// How often the queue is run, in seconds.
const RUN: i64 = 60;
/// For so long after the last attempt it is run: what waits then goes on waiting.
pub(super) const AFTER: i64 = 14 * 86_400;

/// The most recipients that wait at a time; more are only counted.
const WAITING_MAX: u64 = 1_000_000;

/// The policy and the key by which a recipient waits.
type WaitsBy = (Arc<str>, Box<str>);

/// A recipient of a message that was received.
#[derive(Clone, Debug)]
pub(super) struct Routed {
    pub(super) event: Rc<Event<Text>>,
    pub(super) recipient: Text,
    /// The number of its message.
    pub(super) message: u64,
    pub(super) size: u64,
    /// When that was received.
    pub(super) received: Timestamp,
}

/// The recipients that wait, and what came of all.
#[derive(Debug, Default)]
pub(super) struct Queue {
    keys: BTreeMap<WaitsBy, KeyQueue>,
    /// When it is run next, while anything waits.
    next: Option<i64>,
    recipients: u64,
    observed: u64,
    forgotten: u64,
    most: Most,
}

#[derive(Debug, Default)]
struct KeyQueue {
    waiting: VecDeque<Routed>,
    /// How long each has waited that does no more, in seconds.
    waited: Vec<u32>,
    returned: u64,
    over: u64,
    most: Most,
}

/// How many wait at a time.
#[derive(Clone, Copy, Debug, Default)]
struct Most {
    now: u64,
    most: u64,
    at: Timestamp,
}

impl Most {
    fn add(&mut self, at: Timestamp) {
        self.now += 1;
        if self.now > self.most {
            (self.most, self.at) = (self.now, at);
        }
    }
}

impl Queue {
    /// A recipient of a message that is received now was routed.
    pub(super) fn received(&mut self, one: Routed, policy: Option<&Arc<str>>, outcome: &Outcome) {
        self.recipients += 1;
        self.observed += u64::from(outcome.observed && outcome.measured >= Verdict::Defer);
        let waits = waits_by(policy, outcome);
        if waits.is_some() && self.most.now >= WAITING_MAX {
            self.forgotten += 1;
        } else if let Some(by) = waits {
            self.next.get_or_insert((one.received.seconds.div_euclid(RUN) + 1) * RUN);
            self.add(by, one.received, one);
        }
    }

    fn add(&mut self, by: WaitsBy, at: Timestamp, one: Routed) {
        self.most.add(at);
        let key = self.keys.entry(by).or_default();
        key.most.add(at);
        // One that has waited for something else may be older.
        let after = key.waiting.partition_point(|other| other.message <= one.message);
        key.waiting.insert(after, one);
    }

    /// The time of the next run, if it is not after `now`.
    pub(super) fn due(&mut self, now: i64) -> Option<Timestamp> {
        let seconds = self.next.filter(|next| *next <= now)?;
        self.next = (self.most.now > 0).then_some(seconds + RUN);
        self.next.map(|_| Timestamp { seconds, micros: 0 })
    }

    /// By what recipients wait, the oldest message first.
    pub(super) fn order(&self) -> Vec<WaitsBy> {
        let first = |key: &KeyQueue| key.waiting.front().map(|one| one.message);
        let mut all: Vec<_> =
            self.keys.iter().filter_map(|(by, key)| Some((first(key)?, by))).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, by)| by.clone()).collect()
    }

    /// The first of those that wait by the same.
    pub(super) fn first(&self, by: &WaitsBy) -> Option<Routed> {
        self.keys.get(by)?.waiting.front().cloned()
    }

    /// What came of the first of those that wait by the same, when it was routed again; whether the next
    /// one is to be tried: else all of them wait for the same.
    pub(super) fn again(
        &mut self,
        by: &WaitsBy,
        at: Timestamp,
        policy: Option<&Arc<str>>,
        outcome: &Outcome,
    ) -> bool {
        let then = waits_by(policy, outcome);
        let Some(key) = self.keys.get_mut(by) else { return false };
        if then.as_ref() == Some(by) {
            return false;
        }
        let Some(one) = key.waiting.pop_front() else { return false };
        let waited = at.seconds.saturating_sub(one.received.seconds);
        key.waited.push(u32::try_from(waited).unwrap_or(u32::MAX));
        key.most.now -= 1;
        self.most.now -= 1;
        match outcome.overdue {
            Some(AfterWaiting::Return) => key.returned += 1,
            Some(AfterWaiting::Deliver) => key.over += 1,
            None => {}
        }
        if let Some(then) = then {
            self.add(then, at, one);
        }
        true
    }

    /// What came of all.
    pub(super) fn found(&self) -> SentLater {
        let keys = self.keys.iter().map(|((policy, key), queue)| {
            let waits = Waits::of(queue.waited.clone());
            let KeyQueue { returned, over, most, waiting, .. } = queue;
            LaterKey {
                policy: policy.to_string(),
                key: key.to_string(),
                recipients: (queue.waited.len() + waiting.len()) as u64,
                waits,
                returned: *returned,
                over: *over,
                waiting: waiting.len() as u64,
                queue: most.most,
                at: Some(most.at),
            }
        });
        let mut keys: Vec<LaterKey> = keys.collect();
        keys.sort_by_key(|one| (std::cmp::Reverse(one.recipients), one.key.clone()));
        let all = self.keys.values().flat_map(|queue| &queue.waited).copied().collect();
        let sum = |of: fn(&LaterKey) -> u64| keys.iter().map(of).sum();
        SentLater {
            recipients: self.recipients,
            waited: sum(|one| one.recipients),
            waits: Waits::of(all),
            returned: sum(|one| one.returned),
            over: sum(|one| one.over),
            waiting: self.most.now,
            observed: self.observed,
            forgotten: self.forgotten,
            queue: self.most.most,
            at: (self.most.most > 0).then_some(self.most.at),
            keys,
        }
    }
}

fn waits_by(policy: Option<&Arc<str>>, outcome: &Outcome) -> Option<WaitsBy> {
    let waits = outcome.verdict == Verdict::Defer && outcome.waits;
    let (key, _) = outcome.counted().filter(|_| waits)?;
    Some((Arc::clone(policy?), key.into()))
}

/// For how long recipients have waited, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Waits {
    /// Half of them for at most as long.
    pub median: u32,
    /// 95 % of them.
    pub most: u32,
    /// All of them.
    pub longest: u32,
}

impl Waits {
    fn of(mut all: Vec<u32>) -> Self {
        all.sort_unstable();
        let of = |percent: usize| {
            let rank = (all.len() * percent).div_ceil(100).max(1);
            all.get(rank - 1).copied().unwrap_or(0)
        };
        Self { median: of(50), most: of(95), longest: of(100) }
    }
}

/// What policies at delivery would have sent later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SentLater {
    /// Recipients of received messages.
    pub recipients: u64,
    /// Those of them that would have waited; one that waited by several policies is several.
    pub waited: u64,
    /// For how long, those that left in the end.
    #[serde(flatten)]
    pub waits: Waits,
    /// Those that would have been returned in the end, as they waited for too long.
    pub returned: u64,
    /// Those that would have been delivered over the limit, for the same reason.
    pub over: u64,
    /// Those that waited in the end.
    pub waiting: u64,
    /// Those that would have waited if their policy was enforced.
    pub observed: u64,
    /// Those that are not followed, as too many waited.
    pub forgotten: u64,
    /// How many waited at a time at most.
    pub queue: u64,
    /// When that was.
    #[serde(serialize_with = "exact")]
    pub at: Option<Timestamp>,
    /// Each policy and key, most recipients first.
    pub keys: Vec<LaterKey>,
}

/// What one policy would have sent later of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "as in `SentLater`")]
pub struct LaterKey {
    pub policy: String,
    pub key: String,
    pub recipients: u64,
    #[serde(flatten)]
    pub waits: Waits,
    pub returned: u64,
    pub over: u64,
    pub waiting: u64,
    pub queue: u64,
    #[serde(serialize_with = "exact")]
    pub at: Option<Timestamp>,
}
