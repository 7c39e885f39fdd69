//! The state of a key as commands show it.

use schemars::JsonSchema;
use serde::Serialize;

use super::key_text::{self, PolicyKey};
use crate::engine::{AlgorithmKind, Block, Kind, RecordKey, State};
use crate::rate::share::{self, Buckets, Counted};
use crate::rate::{Algorithm, Average, Bucket, CalendarWindow, Share, Timestamp, Wait, bloom};
use crate::spec::StoredKey;
use crate::store::Entry;
use crate::text;

/// A record, with the share of bits set in place of its filter's bits.
#[derive(Clone, Debug)]
pub(crate) struct KeyState {
    /// The stored key.
    pub(crate) stored: Box<[u8]>,
    identity_start: usize,
    kind: Kind,
    /// How it is counted.
    pub(crate) algorithm: AlgorithmKind,
    pub(crate) average: Average,
    /// The limit; of a bucket, the burst.
    pub(crate) limit: f64,
    period: Option<f64>,
    start: i64,
    over_since: u32,
    last_over: u32,
    pub(crate) filter: Option<Filter>,
    /// The buckets of a share.
    buckets: Option<Box<[u8]>>,
}

/// A filter of unique events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filter {
    /// Its size.
    pub(crate) bytes: usize,
    /// Which part of its bits is set, 0 to 1.
    pub(crate) fill: f64,
    /// When it was begun.
    pub(crate) since: Timestamp,
}

impl Filter {
    /// About how many different events it holds.
    pub(crate) fn events(&self) -> f64 {
        bloom::events(self.fill, self.bytes)
    }
}

/// Which part of its limit a record has used with one more event at most; cheaper than
/// [`KeyState::share`], and not less; infinite if it is blocked.
pub(crate) fn share_at_most(algorithm: AlgorithmKind, state: &State, now: Timestamp) -> f64 {
    // A store keeps periods rounded up; without one, nothing is known.
    let (Some(average), true) = (state.average, state.period > 0.0 && state.limit > 0.0) else {
        return f64::INFINITY;
    };
    if Block::in_force(state.last_over, now).is_some() {
        return f64::INFINITY;
    }
    let counted = Algorithm::of_record(algorithm, state.limit, state.period, state.start);
    // It grows when what did not fail leaves the period.
    if counted.share().is_some() {
        return f64::INFINITY;
    }
    counted.after(Some(average), now, 1.0) / state.limit
}

/// What is remembered of the record of a spec, as far as its name and these
/// figures say.
pub(crate) fn entry(stored: Vec<u8>, average: Average, limit: f64) -> Entry {
    let period = StoredKey::parse(&stored).and_then(|stored| stored.period_seconds());
    let RecordKey { identity_start, kind, algorithm, .. } = StoredKey::record_key(&stored);
    Entry {
        key: stored,
        identity_start,
        kind,
        algorithm,
        average,
        limit,
        over_since: 0,
        period: period.unwrap_or(0.0),
        start: 0,
        last_over: 0,
        crossings: 0,
        apart: 0.0,
        filter: None,
    }
}

impl From<Entry> for KeyState {
    fn from(entry: Entry) -> Self {
        let (filter, buckets) = match entry.algorithm {
            AlgorithmKind::Share => (None, entry.filter.map(|one| one.bits.into_boxed_slice())),
            _ => (entry.filter, None),
        };
        let filter = filter.map(|filter| Filter {
            bytes: filter.bits.len(),
            fill: bloom::fill(&filter.bits),
            since: second(filter.epoch),
        });
        // The name of a spec's record has the period as it was written.
        let period = match (entry.kind, entry.algorithm) {
            (Kind::Spec, AlgorithmKind::MovingAverage) => {
                StoredKey::parse(&entry.key).and_then(|parts| parts.period_seconds())
            }
            _ => Some(entry.period).filter(|&period| period > 0.0),
        };
        Self {
            stored: entry.key.into_boxed_slice(),
            identity_start: entry.identity_start,
            kind: entry.kind,
            algorithm: entry.algorithm,
            average: entry.average,
            limit: entry.limit,
            period,
            start: entry.start,
            over_since: entry.over_since,
            last_over: entry.last_over,
            filter,
            buckets,
        }
    }
}

impl KeyState {
    /// The parts of the stored key, if it is that of a spec and has them.
    pub(crate) fn parts(&self) -> Option<StoredKey<'_>> {
        key_text::parts(&self.record_key())
    }

    /// The policy, unit and window that are counted, if it is a policy's.
    pub(crate) fn policy(&self) -> Option<PolicyKey<'_>> {
        key_text::policy(&self.record_key())
    }

    /// The key of the record.
    pub(crate) fn record_key(&self) -> RecordKey<'_> {
        let Self { stored, identity_start, kind, algorithm, .. } = self;
        let (identity_start, kind, algorithm) = (*identity_start, *kind, *algorithm);
        RecordKey { name: stored, identity_start, kind, algorithm }
    }

    /// What the administrator calls the key.
    pub(crate) fn key(&self) -> &[u8] {
        key_text::key_of(&self.record_key())
    }

    /// The period in seconds, if it is known. That of a bucket is the time in which a
    /// full one becomes empty.
    pub(crate) fn period(&self) -> Option<f64> {
        self.period
    }

    /// How it is counted, if its period is known.
    pub(crate) fn counted(&self) -> Option<Algorithm> {
        let of_period =
            |period| Algorithm::of_record(self.algorithm, self.limit, period, self.start);
        self.period.map(of_period)
    }

    /// The share that it is, and its buckets.
    fn share_of(&self) -> Option<(Share, Buckets<'_>)> {
        let share = self.counted()?.share()?;
        Some((share, Buckets(self.buckets.as_deref().unwrap_or_default())))
    }

    /// What a share is computed from at `now`.
    pub(crate) fn shared(&self, now: Timestamp) -> Counted {
        let counted =
            |(share, buckets): (Share, Buckets<'_>)| share.counted(buckets, self.average.at, now);
        self.share_of().map(counted).unwrap_or_default()
    }

    /// The parameters of the bucket, if it is one and they are known.
    pub(crate) fn bucket(&self) -> Option<Bucket> {
        self.counted()?.bucket()
    }

    /// The window of the calendar in which it counts, if it does and it is known.
    pub(crate) fn window(&self) -> Option<CalendarWindow> {
        self.counted()?.window()
    }

    /// The period as it was written, for people.
    pub(crate) fn period_text(&self) -> Option<String> {
        key_text::period(&self.record_key()).map(text::printable)
    }

    /// The mode the key is stored with, for people; of a policy, its name and the unit.
    pub(crate) fn mode(&self) -> Option<String> {
        let of_policy = || self.policy().map(|policy| policy.counted);
        self.parts().map(|parts| parts.mode).or_else(of_policy).map(text::printable)
    }

    /// What is left of the rate at `now`.
    pub(crate) fn rate(&self, now: Timestamp) -> f64 {
        self.rate_after(now, 0.0)
    }

    /// The rate that an event of size `count` would get at `now`. Without a
    /// period, nothing is known but the rate that was written.
    pub(crate) fn rate_after(&self, now: Timestamp, count: f64) -> f64 {
        if let Some((share, _)) = self.share_of() {
            return share.rate(self.shared(now));
        }
        let after = |counted: Algorithm| counted.after(Some(self.average), now, count);
        self.counted().map_or(self.average.rate, after)
    }

    /// The part of the limit that is used up at `now`: 1 at the limit.
    pub(crate) fn share(&self, now: Timestamp) -> f64 {
        let share = self.rate(now) / self.limit;
        if self.limit == 0.0 { f64::INFINITY } else { share }
    }

    /// Whether one more event, of size 1, would be at or over the limit.
    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        !self.passes(self.rate_after(now, 1.0))
    }

    /// Whether an event of size 1 that gets `rate` passes.
    pub(crate) fn passes(&self, rate: f64) -> bool {
        !self.algorithm.over(rate, self.limit, 1.0)
    }

    /// When one more event, of size 1, would pass.
    pub(crate) fn wait(&self, now: Timestamp) -> Option<Wait> {
        if let Some((share, buckets)) = self.share_of() {
            return Some(share::wait(share.under_from(buckets, self.average.at, now), now));
        }
        self.counted().map(|counted| counted.retry_after(Some(self.average), now, 1.0))
    }

    /// How many more events of size 1 would pass.
    pub(crate) fn remaining(&self, now: Timestamp) -> Option<f64> {
        let average = match self.share_of() {
            Some(_) => Average { at: now, rate: self.rate(now) },
            None => self.average,
        };
        self.counted().map(|counted| counted.remaining(Some(average), now, 1.0))
    }

    /// Since when every counted event was at or over the limit, if the last
    /// one was. Leaky checks do not count what is over, so they leave no trace
    /// here.
    pub(crate) fn over_since(&self) -> Option<Timestamp> {
        (self.over_since != 0).then(|| second(i64::from(self.over_since)))
    }

    /// The block that a crossing has set, if it is in force at `now`.
    pub(crate) fn blocked(&self, now: Timestamp) -> Option<Block> {
        Block::in_force(self.last_over, now)
    }

    /// Whether its filter has outlived the period.
    pub(crate) fn filter_expired(&self, now: Timestamp) -> bool {
        let filter = self.filter.zip(self.counted());
        filter.is_some_and(|(filter, counted)| counted.filter_expired(filter.since.seconds, now))
    }

    /// From which second on the database may forget this, if nothing more is
    /// counted; `None` if never.
    pub(crate) fn forgettable_from(&self) -> Option<Timestamp> {
        let since = self.filter.map(|filter| filter.since.seconds);
        self.counted()?.forgettable_from(self.average, since).map(second)
    }

    /// The record in JSON.
    pub(crate) fn json(&self, next: Next, now: Timestamp) -> KeyStateJson {
        let key = self.key();
        let wait = next.wait.and_then(Wait::whole_seconds);
        let over_for = wait.filter(|&seconds| seconds > 0);
        KeyStateJson {
            key: String::from_utf8(key.to_vec()).ok(),
            key_hex: text::hex(key),
            user: key_text::user_of(key),
            stored: text::hex(&self.stored),
            mode: self.mode(),
            unique: self.parts().is_some_and(|parts| parts.unique),
            algorithm: self.algorithm.word(),
            window: self.window().map(|window| WindowJson {
                start: text::iso(second(window.start)),
                end: text::iso(second(window.end)),
            }),
            leak: self.bucket().map(|bucket| bucket.rate),
            period: self.period(),
            period_text: self.period_text(),
            limit: self.limit,
            rate: self.rate(now),
            share: self.share(now),
            over: next.is_refused,
            over_limit: next.is_over,
            decided_by: next.decided_by,
            blocked: self.blocked(now).is_some(),
            blocked_until: self.blocked(now).and_then(Block::end).map(text::iso_second),
            over_since: self.over_since().map(text::iso),
            retry_after: wait,
            free_at: over_for.map(|seconds| text::iso(later(now, seconds))),
            last_rate: self.average.rate,
            last_seen: text::iso(self.average.at),
            filter: self.filter.map(|filter| FilterJson {
                bytes: filter.bytes,
                fill: filter.fill,
                events: filter.events(),
                since: text::iso(filter.since),
                expired: self.filter_expired(now),
            }),
        }
    }
}

/// What becomes of the next event of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Next {
    /// It is refused.
    pub(crate) is_refused: bool,
    /// It is over the limit.
    pub(crate) is_over: bool,
    /// What decides.
    pub(crate) decided_by: &'static str,
    /// When one passes, if that is known.
    pub(crate) wait: Option<Wait>,
}

/// A record: the rate of a key, against one limit.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct KeyStateJson {
    /// The key; null where it is not UTF-8.
    key: Option<String>,
    /// The bytes of the key, in hexadecimal.
    key_hex: String,
    /// The name of a local user.
    user: Option<String>,
    /// The whole stored key, in hexadecimal.
    stored: String,
    /// What is counted: of a policy, POLICY/UNIT.
    mode: Option<String>,
    /// Whether each unique event counts once a period.
    unique: bool,
    /// average, bucket, calendar or share.
    algorithm: &'static str,
    /// The window of the calendar in which it counts.
    window: Option<WindowJson>,
    /// What leaks out of a bucket in a second.
    leak: Option<f64>,
    /// The period in seconds; of a bucket, the time in which a full one becomes empty.
    period: Option<f64>,
    /// The period as it was written.
    period_text: Option<String>,
    /// The limit of the last check that counted; of a bucket, the burst.
    limit: f64,
    /// The rate now; of a bucket, the level; of the calendar, the count; of a share, the
    /// percentage.
    rate: f64,
    /// Which part of the limit is used up.
    share: f64,
    /// Whether one more event of size 1 would be refused.
    over: bool,
    /// Whether one more event of size 1 would be over the limit.
    over_limit: bool,
    /// What decides: rate, allow, deny, blocked, exempt, observe, removed (no policy in use has the
    /// limit), or a verdict that does not refuse (log, delay, hold).
    decided_by: &'static str,
    /// Whether a crossing has blocked it: see `deny` of `[on.crossing]`.
    blocked: bool,
    /// When that ends; null if it does not by itself.
    blocked_until: Option<String>,
    /// Since when it is over the limit, of strict checks.
    over_since: Option<String>,
    /// In how many seconds one more event would pass; null if never.
    retry_after: Option<u64>,
    /// When that is.
    free_at: Option<String>,
    /// The rate at the last event.
    last_rate: f64,
    /// When the last event was counted.
    last_seen: String,
    /// The filter of unique events.
    filter: Option<FilterJson>,
}

/// A window of the calendar.
#[derive(Debug, Serialize, JsonSchema)]
struct WindowJson {
    /// When it begins.
    start: String,
    /// When it ends.
    end: String,
}

/// A filter of unique events.
#[derive(Debug, Serialize, JsonSchema)]
struct FilterJson {
    /// Its size.
    bytes: usize,
    /// Which part of its bits is set, 0 to 1.
    fill: f64,
    /// About how many different events it holds.
    events: f64,
    /// When it was begun.
    since: String,
    /// Whether it has outlived the period.
    expired: bool,
}

/// When one more event would pass: roughly how long that takes, and the second.
pub(crate) fn passes(wait: Wait, now: Timestamp) -> String {
    match wait.whole_seconds() {
        None => text::wait(wait),
        Some(seconds) => format!("{}, at {}", text::wait(wait), text::local(later(now, seconds))),
    }
}

/// The moment `seconds` after `at`.
pub(crate) fn later(at: Timestamp, seconds: u64) -> Timestamp {
    Timestamp { seconds: at.seconds.saturating_add_unsigned(seconds), ..at }
}

/// The start of this second.
pub(crate) fn second(seconds: i64) -> Timestamp {
    Timestamp { seconds, micros: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(stored: &[u8], rate: f64, limit: f64) -> KeyState {
        KeyState::from(entry(stored.to_vec(), Average { at: second(1000), rate }, limit))
    }

    #[test]
    fn who_is_over_is_refused_and_waits() {
        let leaky = record(b"1h/per_mail/x", 9.5, 10.0);
        assert!(leaky.is_over(second(1000)), "one more would be the tenth and a half");
        assert!(leaky.share(second(1000)) < 1.0);
        let Some(Wait::Seconds(wait)) = leaky.wait(second(1000)) else { panic!() };
        assert!(wait > 0.0);
        assert!(!leaky.is_over(later(second(1000), wait.ceil() as u64)));
    }

    kit::quickcheck! {
        /// What a snapshot leaves out uses less of its limit, and its next event passes.
        fn a_share_is_not_more_than_it_is_at_most(
            rate: u16, limit: u16, period: u16, age: u32, bucket: bool
        ) -> quickcheck::TestResult {
            let (rate, limit) = (f64::from(rate) / 16.0, f64::from(limit) / 64.0);
            let at = Timestamp { seconds: 1_795_000_000, micros: 0 };
            let now = later(at, u64::from(age) % 100_000);
            let name = format!("{period}s/per_rcpt/x").into_bytes();
            let mut entry = super::entry(name, Average { at, rate }, limit);
            // As a store keeps it.
            entry.period = f64::from(period).max(f64::from(u8::from(bucket)));
            if bucket {
                (entry.algorithm, entry.kind) = (AlgorithmKind::Bucket, Kind::Policy);
            }
            let most = share_at_most(entry.algorithm, &entry.state(), now);
            let record = KeyState::from(entry);
            let is_right = record.share(now) <= most && (most >= 1.0 || !record.is_over(now));
            quickcheck::TestResult::from_bool(is_right || limit == 0.0 && most.is_infinite())
        }
    }

    #[test]
    fn a_bucket_is_shown_as_one() {
        let average = Average { at: second(1000), rate: 5.0 };
        let plain = entry(b"1h/per_mail/x".to_vec(), average, 5.0);
        let bucket = Entry { algorithm: AlgorithmKind::Bucket, period: 50.0, ..plain };
        let bucket = KeyState::from(bucket);
        assert_eq!(bucket.bucket(), Some(Bucket { burst: 5.0, rate: 0.1 }));
        for (at, level, remaining, wait) in
            [(1000, 5.0, 0.0, 10.0), (1010, 4.0, 1.0, 0.0), (1040, 1.0, 4.0, 0.0)]
        {
            let now = second(at);
            assert_eq!((bucket.rate(now), bucket.remaining(now)), (level, Some(remaining)));
            assert_eq!((bucket.is_over(now), bucket.share(now)), (wait > 0.0, level / 5.0));
            assert_eq!(bucket.wait(now), Some(Wait::Seconds(wait)));
        }
        assert_eq!(bucket.forgettable_from(), Some(second(1050)));
        let strict = KeyState { average: Average { rate: 1e6, ..average }, ..bucket.clone() };
        assert_eq!(strict.forgettable_from(), Some(second(1000 + 10_000_000)));
        let never = KeyState { period: Some(f64::INFINITY), ..bucket };
        assert_eq!((never.forgettable_from(), never.rate(second(1 << 40))), (None, 5.0));
        let next = Next { is_refused: true, is_over: true, decided_by: "rate", wait: None };
        let json = serde_json::to_value(strict.json(next, second(1000))).unwrap();
        assert_eq!((&json["algorithm"], &json["leak"]), (&"bucket".into(), &0.1.into()));
        assert_eq!((&json["limit"], &json["period"]), (&5.0.into(), &50.0.into()));
    }

    #[test]
    fn a_calendar_window_is_shown_as_one() {
        let average = Average { at: second(1000), rate: 5.0 };
        let plain = entry(b"p/messages/daily/x".to_vec(), average, 5.0);
        let (kind, algorithm) = (Kind::Policy, AlgorithmKind::Calendar);
        let day = KeyState::from(Entry { kind, algorithm, start: 500, period: 1000.0, ..plain });
        for (at, count, remaining, wait) in [(1000, 5.0, 0.0, 500.0), (1500, 0.0, 5.0, 0.0)] {
            let now = second(at);
            assert_eq!((day.rate(now), day.remaining(now)), (count, Some(remaining)));
            assert_eq!((day.is_over(now), day.wait(now)), (wait > 0.0, Some(Wait::Seconds(wait))));
        }
        assert_eq!(day.forgettable_from(), Some(second(1500 + 86_400)));
        let next = Next { is_refused: true, is_over: true, decided_by: "rate", wait: None };
        let json = serde_json::to_value(day.json(next, second(1000))).unwrap();
        assert_eq!(json["algorithm"], "calendar");
        assert_eq!(json["window"]["end"], "1970-01-01T00:25:00Z");
    }

    #[test]
    fn limits_that_are_no_limits() {
        let none = record(b"1h/per_mail/x", 1e9, f64::INFINITY);
        assert_eq!((none.share(second(1000)), none.is_over(second(1000))), (0.0, false));
        let zero = record(b"1h/per_mail/x", 0.0, 0.0);
        assert_eq!((zero.share(second(1000)), zero.is_over(second(1000))), (f64::INFINITY, true));
        assert_eq!(zero.wait(second(1000)), Some(Wait::Never));
    }

    #[test]
    fn a_record_is_forgotten_in_the_second_from_which_it_may_go() {
        for events in [0.0, 1.0, 5.0, 1e9] {
            let record = record(b"1h/per_mail/x", events, 10.0);
            let from = record.forgettable_from().unwrap().seconds;
            let may_go =
                |at| record.counted().unwrap().forgettable(record.average, None, 0.0, second(at));
            assert!(may_go(from) && !may_go(from - 1), "{events}");
        }
        assert_eq!(record(b"1h/per_mail/x", f64::INFINITY, 1.0).forgettable_from(), None);
        assert_eq!(record(b"odd", 1.0, 1.0).forgettable_from(), None);
    }

    #[test]
    fn a_key_without_a_period_keeps_the_rate_that_was_written() {
        let odd = record(b"odd", 3.0, 2.0);
        assert_eq!((odd.rate(second(9000)), odd.wait(second(9000))), (3.0, None));
        assert_eq!((odd.key(), odd.is_over(second(9000))), (&b"odd"[..], true));
    }
}
