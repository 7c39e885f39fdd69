//! Request + remembered state + now → [`Decision`]: the one API that front
//! ends call.

use crate::rate::{Average, Timestamp, Wait, bloom, remaining, retry_after};
use crate::spec::{Request, Update};
use crate::store::{Change, FilterChange, Remembered, Store};

/// The answer to one check, and what led to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// Smoothed events per period, this event included: `$sender_rate`.
    pub rate: f64,
    /// Whether the rate is at or over the limit.
    pub over: bool,
    /// The limit the rate was held against.
    pub limit: f64,
    /// The period in seconds.
    pub period: f64,
    /// The size this event was counted with; 0 where it was read-only or had
    /// been seen before.
    pub count: f64,
    /// The size one more event of this kind would have.
    pub next_count: f64,
    /// When it was decided.
    pub at: Timestamp,
    /// What is remembered after it, where anything is.
    pub kept: Option<Average>,
    /// What the store knew and did.
    pub details: Details,
}

/// What the store knew and did: the lines of `exim -d+acl`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// The key was known.
    pub found: bool,
    /// The filter there was had outlived its period.
    pub filter_expired: bool,
    /// Whether the unique event had been seen before, where there was one and
    /// it was looked for.
    pub seen: Option<bool>,
    /// The record was written.
    pub written: bool,
}

impl Decision {
    /// The same rate held against another limit.
    ///
    /// This is how an answer is given again from memory: against whatever
    /// limit the later line has.
    #[must_use]
    pub fn against(self, limit: f64) -> Self {
        Self { limit, over: over(self.rate, limit), ..self }
    }

    /// How many more events of the same kind would pass at the moment `now`.
    #[must_use]
    pub fn remaining(&self, now: Timestamp) -> f64 {
        remaining(self.kept, now, self.period, self.limit, self.next_count)
    }

    /// The least wait from `now` after which one more event of the same kind
    /// would pass.
    #[must_use]
    pub fn retry_after(&self, now: Timestamp) -> Wait {
        retry_after(self.kept, now, self.period, self.limit, self.next_count)
    }
}

/// A sender exactly at the limit is over it: a limit of zero blocks.
fn over(rate: f64, limit: f64) -> bool {
    // Exim asks `rate < limit`, so a rate that is no number is over.
    rate.partial_cmp(&limit) != Some(std::cmp::Ordering::Less)
}

/// Decides one request against `store`: counts it, compares, and remembers it
/// as its update mode wants.
///
/// `clock` is read once, while the record is locked, so that the events of
/// one key are ordered as their times are.
///
/// # Errors
/// Those of the store; then nothing was counted.
pub fn decide<S: Store>(
    store: &mut S,
    request: &Request,
    clock: impl FnOnce() -> Timestamp,
) -> Result<Decision, S::Error> {
    let event = match request.update {
        Update::ReadOnly => None,
        Update::Leaky | Update::Strict => request.unique.as_deref(),
    };
    store
        .update(&request.key, event, |remembered, event| weigh(request, remembered, event, clock()))
}

/// The decision itself, with the change to the record that it asks for.
fn weigh(
    request: &Request,
    remembered: Option<Remembered<'_>>,
    event: Option<bloom::Event>,
    now: Timestamp,
) -> (Decision, Option<Change>) {
    let mut details = Details { found: remembered.is_some(), ..Details::default() };
    let mut filter_change = FilterChange::Keep;
    let mut count = request.count;
    if let Some(event) = event {
        let filter = remembered.and_then(|r| r.filter);
        let live = filter.filter(|f| !bloom::expired(f.epoch, now, request.period));
        details.filter_expired = filter.is_some() && live.is_none();
        let seen = live.is_some_and(|f| bloom::contains(f.bits, event));
        details.seen = Some(seen);
        filter_change = match live {
            Some(_) if seen => FilterChange::Keep,
            Some(_) => FilterChange::Insert(event),
            None => FilterChange::Renew {
                bytes: bloom::bytes_for(request.limit),
                epoch: now.seconds,
                event,
            },
        };
        if seen {
            count = 0.0;
        }
    }

    let average = match remembered {
        Some(r) => r.average.next(now, request.period, count),
        None => Average::first(now, count),
    };
    let over = over(average.rate, request.limit);
    details.written = match request.update {
        Update::Strict => true,
        Update::Leaky => !over,
        Update::ReadOnly => false,
    };
    let decision = Decision {
        rate: average.rate,
        over,
        limit: request.limit,
        period: request.period,
        count,
        next_count: next_count(request),
        at: now,
        kept: if details.written { Some(average) } else { remembered.map(|r| r.average) },
        details,
    };
    let change = details.written.then(|| Change {
        average,
        limit: request.limit,
        over_since: over_since(over, remembered, now),
        filter: filter_change,
    });
    (decision, change)
}

/// The size one more event would have: a read-only check foresees one of one.
fn next_count(request: &Request) -> f64 {
    if request.update == Update::ReadOnly { 1.0 } else { request.count }
}

/// Since when the key has been over its limit, 0 where it is not.
fn over_since(over: bool, remembered: Option<Remembered<'_>>, now: Timestamp) -> u32 {
    match remembered {
        _ if !over => 0,
        Some(r) if r.over_since != 0 => r.over_since,
        _ => u32::try_from(now.seconds).unwrap_or(u32::MAX),
    }
}
