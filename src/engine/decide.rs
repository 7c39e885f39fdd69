//! Deciding the checks of one event.

use crate::rate::block::{BLOCKED, Block, BlockTime};
use crate::rate::bloom::Event;
use crate::rate::share::{Booked, Buckets, Counted};
use crate::rate::{Algorithm, AlgorithmKind, Average, Bucket, CalendarWindow, Share, Timestamp};

use super::check::{Check, Overridden, Update};
use super::decision::{Decision, Details, decide_over};
use super::state::{Change, Filter, FilterChange, Remembered, State};
use super::unique::UniqueEvent;

/// One check of a call: its decision, and the change to its record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pending {
    /// Before [`Pending::settle`], `kept` is what is remembered if the event is not
    /// counted.
    pub(super) decision: Decision,
    /// The change to the record; before [`Pending::settle`], the change if the
    /// event is counted.
    pub(super) change: Change,
    /// Whether the change must be written.
    pub(super) changed: bool,
    /// See [`Pending::is_first_over`].
    pub(super) first_over: bool,
    /// The remembered state.
    pub(super) before: Option<State>,
    pub(super) update: Update,
    /// As in the check.
    pub(super) refuses: Option<f64>,
    pub(super) total: bool,
    pub(super) blocks: BlockTime,
    /// The earlier check of this call whose record this one shares.
    pub(super) same_as: Option<usize>,
}

impl Pending {
    /// The decision.
    #[must_use]
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// The change to make in the record of this check, if any.
    #[must_use]
    pub fn change(&self) -> Option<&Change> {
        self.changed.then_some(&self.change)
    }

    /// The remembered state.
    #[must_use]
    pub fn before(&self) -> Option<&State> {
        self.before.as_ref()
    }

    /// Whether this is the record's first over decision of a leaky or strict check in
    /// this second; every crossing is one.
    #[must_use]
    #[inline]
    pub fn is_first_over(&self) -> bool {
        self.first_over
    }

    /// Whether this check refuses the event.
    #[must_use]
    #[inline]
    pub fn refuses(&self) -> bool {
        self.decision.refuses(self.refuses)
    }

    /// Whether this check keeps the leaky checks of the same call from
    /// counting.
    #[inline]
    fn stops_leaky(&self) -> bool {
        self.update != Update::Strict && self.refuses()
    }
}

/// Decides one check with the remembered record; `event` is the hash of its
/// unique event, if it has one and is not read-only.
#[inline]
#[must_use]
pub fn decide_one(
    check: &Check<'_>,
    remembered: Option<Remembered<'_>>,
    event: Option<Event>,
    now: Timestamp,
) -> Pending {
    let mut one = compute(check, remembered, event, now);
    one.settle(one.stops_leaky(), one.is_over_decision());
    one
}

/// Decides the checks of one call together and writes the results to `pending`,
/// in order.
///
/// `read` returns the remembered state for the check with that number, and the
/// hash of its unique event.
pub fn decide<'r>(
    checks: &[Check<'_>],
    read: impl Fn(usize) -> (Option<Remembered<'r>>, Option<Event>),
    now: Timestamp,
    pending: &mut Vec<Pending>,
) {
    decide_adjusted(checks, read, |_, _, _| (), now, pending);
}

/// As above; `adjust` may change what was computed for the check with this number, before
/// it is known which checks count.
#[inline]
pub(super) fn decide_adjusted<'r>(
    checks: &[Check<'_>],
    read: impl Fn(usize) -> (Option<Remembered<'r>>, Option<Event>),
    adjust: impl Fn(usize, &Check<'_>, &mut Pending),
    now: Timestamp,
    pending: &mut Vec<Pending>,
) {
    compute_all(checks, &read, &adjust, now, pending);
    let refused = pending.iter().any(|one| !one.total && one.refuses());
    if refused && pending.iter().any(|one| one.total) {
        let of_refused: Vec<_> = checks.iter().map(Check::of_refused).collect();
        compute_all(&of_refused, &read, &adjust, now, pending);
        for (one, check) in pending.iter_mut().zip(checks) {
            one.decision.next_count = next_count(check);
        }
    }
    settle(pending);
}

/// Computes all checks of a call.
fn compute_all<'r>(
    checks: &[Check<'_>],
    read: &impl Fn(usize) -> (Option<Remembered<'r>>, Option<Event>),
    adjust: &impl Fn(usize, &Check<'_>, &mut Pending),
    now: Timestamp,
    pending: &mut Vec<Pending>,
) {
    pending.clear();
    for (number, check) in checks.iter().enumerate() {
        let same = |earlier: &usize| {
            let one: Option<(&Check<'_>, &Pending)> =
                checks.get(*earlier).zip(pending.get(*earlier));
            one.is_some_and(|(one, pending)| {
                one.record_key() == check.record_key()
                    && pending.same_as.is_none()
                    && pending.update != Update::ReadOnly
            })
        };
        let next = match (0..number).find(same).and_then(|n| Some((n, pending.get(n)?))) {
            Some((number, first)) => repeat(check, number, first),
            None => {
                let (remembered, event) = read(number);
                let event = event.filter(|_| check.update != Update::ReadOnly);
                let mut one = compute(check, remembered, event, now);
                adjust(number, check, &mut one);
                one
            }
        };
        pending.push(next);
    }
}

/// The record with the event.
struct After {
    average: Average,
    /// What is stored where it is not counted.
    kept: Option<Average>,
    /// Of a share, what it becomes.
    share: Option<NextShare>,
}

#[inline(always)]
fn next(
    check: &Check<'_>,
    filter: Option<Filter<'_>>,
    average: Option<Average>,
    period: f64,
    count: f64,
    now: Timestamp,
) -> After {
    let (mut kept, mut with_share) = (average, None);
    let average = match (check.algorithm, average) {
        (Algorithm::MovingAverage { .. }, Some(average)) => average.next(now, period, count),
        (Algorithm::MovingAverage { .. }, None) => Average::first(now, count),
        (Algorithm::Bucket { burst, rate }, _) => {
            let level = Bucket { burst, rate }.level(average, now);
            // A leaky check that does not count the event stores the level.
            if average.is_some() && check.update == Update::Leaky {
                kept = Some(Average { at: now, rate: level });
            }
            Average { at: now, rate: level + count }
        }
        (Algorithm::Calendar { .. }, average) => {
            Average { at: now, rate: average.map_or(0.0, |average| average.rate) + count }
        }
        (Algorithm::Share { share, accepted }, average) => {
            let bits = filter.map_or(&[][..], |filter| filter.bits);
            let next = next_share(share, accepted, bits, average, count, now);
            let rate = share.rate(next.counted);
            with_share = Some(next);
            Average { at: now, rate }
        }
    };
    After { average, kept, share: with_share }
}

/// A share with an event.
struct NextShare {
    /// The bucket in which the event is counted, unless it only looks or nothing is known of its
    /// message.
    booked: Option<Booked>,
    counted: Counted,
    /// When it is under its limit again.
    under_from: i64,
}

/// What a share with these buckets becomes.
#[inline(never)] // few limits are shares
fn next_share(
    share: Share,
    accepted: Option<i64>,
    bits: &[u8],
    average: Option<Average>,
    count: f64,
    now: Timestamp,
) -> NextShare {
    // What was counted more than a period ago is as nothing.
    let last = average.map_or(now, |average| average.at);
    let is_over = now.seconds.saturating_sub(last.seconds) > share.lasts();
    let bits = if is_over { &[][..] } else { bits };
    let booked = share.book(Buckets(bits), accepted, count, now);
    // What goes out now has not failed yet: else a share that is over would be so no more.
    let all = Buckets(bits).with(booked.filter(|_| accepted.is_some()));
    let counted = share.counted(Buckets(&all), now, now);
    let under_from = share.under_from(Buckets(&all), now, now);
    NextShare { booked, counted, under_from }
}

/// When what is counted began, the period, and when it starts again; of a share, how many must have
/// gone out stands for the first.
#[inline(always)]
fn times(
    algorithm: Algorithm,
    window: Option<CalendarWindow>,
    before: Option<State>,
) -> (i64, f64, i64) {
    match (window, algorithm) {
        // The window in which the record counts.
        (Some(window), _) => {
            let kept = before.map_or(window, |state| state.window());
            (kept.start, kept.seconds(), window.restarts(kept))
        }
        (None, Algorithm::Share { share, .. }) => (share.least.into(), share.period, 0),
        (None, _) => (0, algorithm.period(), 0),
    }
}

/// Computes a check from the remembered state.
#[inline(always)] // the result is large
fn compute(
    check: &Check<'_>,
    remembered: Option<Remembered<'_>>,
    event: Option<Event>,
    now: Timestamp,
) -> Pending {
    let limit = check.algorithm.limit();
    let window = check.algorithm.window_at(now, remembered.as_ref().map(|r| &r.state));
    let before = remembered.map(|r| check.algorithm.current(r.state, now));
    let (start, period, mut restarts) = times(check.algorithm, window, before);
    let filter = remembered.and_then(|r| r.filter);
    let average = before.and_then(|state| state.average);
    let mut details = Details { found: average.is_some(), ..Details::default() };
    let mut filter_change = FilterChange::Keep;
    let mut count = check.count;
    // What has buckets has no filter.
    if let Some(event) = event.filter(|_| check.algorithm.share().is_none()) {
        let unique = UniqueEvent::find(filter, event, limit, period, window.map(|_| start), now);
        details.filter_expired = unique.expired;
        details.seen = Some(unique.seen);
        filter_change = unique.change;
        count = if unique.seen { 0.0 } else { count };
    }
    let mut update = check.effective_update();
    let After { average: next, kept, share } = next(check, filter, average, period, count, now);
    if let Some(share) = &share {
        (restarts, count) = (share.under_from, share.counted.failed as f64);
        match share.booked {
            Some(booked) => filter_change = FilterChange::Book(booked),
            // It only looks, or nothing is known of the message.
            None => update = Update::ReadOnly,
        }
    }
    let algorithm = check.algorithm.kind();
    let measured = algorithm.over(next.rate, limit, count);
    let over_since = over_since(measured, before, now);
    let blocked = before.and_then(|state| check.block_in(state.last_over, now));
    let overridden = check.overridden.or(blocked.map(|_| Overridden::Deny));
    Pending {
        decision: Decision {
            rate: next.rate,
            over: decide_over(measured, overridden),
            overridden,
            blocked,
            algorithm,
            limit,
            period,
            start,
            restarts,
            share: share.map_or_else(Counted::default, |share| share.counted),
            leak: check.algorithm.leak(),
            count,
            next_count: next_count(check),
            at: now,
            kept,
            crossed: false,
            crossings: before.map_or(0, |state| state.crossings),
            details,
        },
        change: Change {
            state: State {
                average: Some(next),
                limit,
                period,
                start,
                over_since,
                ..before.unwrap_or(State::empty(limit, period))
            },
            filter: filter_change,
        },
        changed: false,
        first_over: false,
        before,
        update,
        refuses: check.refuses,
        total: check.total,
        blocks: check.blocks,
        same_as: None,
    }
}

/// Compares the rate computed for an earlier check of the same record with the
/// limit of this check.
fn repeat(check: &Check<'_>, number: usize, first: &Pending) -> Pending {
    let blocked = first.before.and_then(|state| check.block_in(state.last_over, first.decision.at));
    let decision = Decision {
        overridden: check.overridden.or(blocked.map(|_| Overridden::Deny)),
        blocked,
        leak: check.algorithm.leak(),
        ..match check.algorithm.window_at(first.decision.at, Some(&first.change.state)) {
            None => Decision { period: check.algorithm.period(), ..first.decision },
            Some(window) => {
                let restarts = window.restarts(first.change.state.window());
                Decision { restarts, ..first.decision }
            }
        }
    };
    let decision = decision.against_limit_of(&check.algorithm);
    Pending {
        decision: Decision { next_count: next_count(check), ..decision },
        update: check.effective_update(),
        refuses: check.refuses,
        total: check.total,
        blocks: check.blocks,
        same_as: Some(number),
        changed: false,
        ..*first
    }
}

/// After all checks have been computed, decides which of them count the event,
/// and the changes to the records.
fn settle(pending: &mut [Pending]) {
    let refused = pending.iter().any(Pending::stops_leaky);
    if pending.iter().all(|one| one.same_as.is_none()) {
        pending.iter_mut().for_each(|one| one.settle(refused, one.is_over_decision()));
        return;
    }
    // Checks of one record share one change: the event is counted if any of them
    // counts it, and the record is over its limit if any of them is.
    for number in 0..pending.len() {
        let Some(&one) = pending.get(number).filter(|one| one.same_as.is_none()) else { continue };
        let of_record = |other: &&Pending| other.same_as == Some(number);
        let strict = pending.iter().filter(of_record).any(|other| other.update == Update::Strict);
        let over = pending.iter().filter(of_record).any(Pending::is_over_decision);
        let mut first = one;
        if strict {
            first.update = Update::Strict;
        }
        first.settle(refused, one.is_over_decision() || over);
        let (crossed, is_first) = (first.decision.crossed, first.first_over);
        let begun = first.decision.blocked.filter(|_| crossed);
        for (index, other) in pending.iter_mut().enumerate() {
            if index == number {
                *other = first;
            } else if other.same_as == Some(number) {
                other.decision.details.written = first.decision.details.written;
                other.decision.kept = first.decision.kept;
                other.decision.crossings = first.decision.crossings;
            } else {
                continue;
            }
            let is_over = other.is_over_decision();
            other.decision.crossed = crossed && is_over;
            other.decision.blocked = other.decision.blocked.or(begun);
            other.first_over = is_first && is_over;
        }
    }
}

impl Pending {
    /// Whether this is an over decision of a leaky or strict check: one that the
    /// rate has made. An override is not, so it never crosses.
    pub(super) fn is_over_decision(&self) -> bool {
        self.decision.over && self.update != Update::ReadOnly && self.decision.overridden.is_none()
    }

    /// Completes the change to the record. `refused`: a check of this call keeps leaky
    /// ones from counting; `over`: a leaky or strict check of this record is.
    #[inline(always)]
    fn settle(&mut self, refused: bool, over: bool) {
        let written = match self.update {
            Update::Strict => true,
            Update::Leaky => !refused,
            Update::ReadOnly => false,
        };
        let before = self.before;
        self.decision.details.written = written;
        if written {
            self.decision.kept = self.change.state.average;
        } else {
            // A record that holds only a crossing has no average, so the next
            // event is still the first.
            let Decision { limit, period, start, kept: average, .. } = self.decision;
            let state = before.unwrap_or(State { start, ..State::empty(limit, period) });
            self.change = Change { state: State { average, ..state }, filter: FilterChange::Keep };
        }
        let leaked = self.decision.algorithm == AlgorithmKind::Bucket
            && self.update == Update::Leaky
            && self.change.state.average.is_some();
        self.changed = written || leaked;
        if over {
            let Decision { at, period, algorithm, .. } = self.decision;
            let state = &mut self.change.state;
            let second = second(at);
            // A block that has ended, or refuses nothing, is no over decision.
            let last = if Block::held(state.last_over).is_some() { 0 } else { state.last_over };
            let since = f64::from(second) - f64::from(last);
            let crossed = match algorithm {
                // The first of the window has none before.
                AlgorithmKind::Calendar => false,
                AlgorithmKind::MovingAverage | AlgorithmKind::Bucket | AlgorithmKind::Share => {
                    since > period
                }
            };
            self.first_over = last != second;
            self.changed |= self.first_over;
            state.last_over = second;
            if last == 0 || crossed {
                state.crossings = state.crossings.saturating_add(1);
                self.decision.crossed = true;
                if let Some(block) = self.blocks.begun(at) {
                    state.last_over = block.code();
                    self.decision.blocked = Some(block);
                    // Commands find records by their rates.
                    state.average.get_or_insert(Average { at, rate: 0.0 });
                }
            }
            self.decision.crossings = state.crossings;
        }
    }
}

/// The second of an over decision, as a state has it: from 2097 on, the last one that is no block.
pub(super) fn second(at: Timestamp) -> u32 {
    u32::try_from(at.seconds).unwrap_or(u32::MAX).clamp(1, BLOCKED - 1)
}

/// The size of one more event; for a read-only check, 1.
fn next_count(check: &Check<'_>) -> f64 {
    if check.update == Update::ReadOnly { 1.0 } else { check.count }
}

/// The second since which the key has been over its limit; 0 if it is not over.
pub(crate) fn over_since(over: bool, before: Option<State>, now: Timestamp) -> u32 {
    match before {
        _ if !over => 0,
        Some(state) if state.over_since != 0 => state.over_since,
        _ => u32::try_from(now.seconds).unwrap_or(u32::MAX),
    }
}
