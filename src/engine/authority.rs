//! Who decides the checks of one event, where several servers share the limits.

use super::check::{Check, Update};
use super::decide::{Pending, decide, decide_adjusted, second};
use super::decision::{Decision, decide_over};
use super::over_since;
use super::state::{Change, FilterChange, Remembered, State};
use crate::rate::block::{Block, BlockTime};
use crate::rate::bloom::Event;
use crate::rate::{Algorithm, Average, Bucket, CalendarWindow, Timestamp};

/// Who decides the checks of one event.
#[derive(Clone, Copy, Debug)]
pub enum Authority<'d> {
    /// This store, for itself alone.
    Local,
    /// This store, because the store that `servers` servers share cannot be reached. The
    /// record holds a copy of the shared rate `R`, and the rate `A` that this server has
    /// admitted while it was apart, as [`State::apart`]. It may admit its share of the room
    /// that is left below the limit `m`: a check is over if `R + servers·A >= m`.
    ///
    /// `A` decays with the period as every rate does; the `A` of a bucket leaks `1/servers`
    /// of what the bucket leaks, and that of a calendar window goes with the window. Neither `R` nor a reconnection resets it. So servers that
    /// are cut off again and again admit no more than servers that are cut off all the
    /// time: each at most `m/servers`.
    Share {
        /// How many servers share the limits. At least 1.
        servers: u32,
    },
    /// The shared store, which has made these decisions. The rates are stored as its
    /// copies, unless the stored ones are newer, by up to a minute.
    Cluster {
        /// One decision for each check.
        decisions: &'d [Decision],
        /// How many servers share the limits. At least 1.
        servers: u32,
    },
}

impl Authority<'_> {
    /// Decides the checks of one event as [`decide`] does.
    pub fn decide<'r>(
        &self,
        checks: &[Check<'_>],
        read: impl Fn(usize) -> (Option<Remembered<'r>>, Option<Event>),
        now: Timestamp,
        pending: &mut Vec<Pending>,
    ) {
        match *self {
            Self::Local => decide(checks, read, now, pending),
            Self::Share { servers } => {
                decide_share(f64::from(servers.max(1)), checks, read, now, pending);
            }
            Self::Cluster { decisions, servers } => {
                pending.clear();
                let all = checks.iter().zip(decisions);
                let refused = refused_by_own(all.clone());
                pending.extend(all.enumerate().map(|(number, (check, decision))| {
                    let before = read(number).0.map(|remembered| remembered.state);
                    let check = if refused { check.of_refused() } else { *check };
                    take_over(&check, decision, before, f64::from(servers.max(1)), now)
                }));
            }
        }
    }
}

/// Whether one of these checks that is no total refuses the event.
pub(crate) fn refused_by_own<'a>(
    mut decided: impl Iterator<Item = (&'a Check<'a>, &'a Decision)>,
) -> bool {
    decided.any(|(check, decision)| !check.total && decision.refuses(check.refuses))
}

/// The rate, level or count at `now`, if nothing is counted. The count is that of a window which
/// is not over.
fn decayed(algorithm: Algorithm, average: Option<Average>, now: Timestamp) -> f64 {
    match (algorithm, average) {
        (_, None) => 0.0,
        (Algorithm::MovingAverage { period, .. }, Some(average)) => {
            average.next(now, period, 0.0).rate
        }
        (Algorithm::Bucket { burst, rate }, average) => Bucket { burst, rate }.level(average, now),
        (Algorithm::Calendar { .. } | Algorithm::Share { .. }, Some(average)) => average.rate,
    }
}

/// What this server admitted while apart, at `now`.
fn decayed_apart(algorithm: Algorithm, state: &State, servers: f64, now: Timestamp) -> f64 {
    let Some(Average { at, .. }) = state.average else { return 0.0 };
    let apart = Some(Average { at, rate: state.apart.into() });
    match algorithm {
        Algorithm::MovingAverage { .. } | Algorithm::Calendar { .. } | Algorithm::Share { .. } => {
            decayed(algorithm, apart, now)
        }
        Algorithm::Bucket { burst, rate } => {
            decayed(Algorithm::Bucket { burst, rate: rate / servers }, apart, now)
        }
    }
}

/// Decides checks for this server's share: see [`Authority::Share`].
///
/// The engine counts the event in `A`, which it takes for the record's rate. `adjust`
/// compares `R + servers·A` with the limit, and afterwards `R` is put back.
fn decide_share<'r>(
    servers: f64,
    checks: &[Check<'_>],
    read: impl Fn(usize) -> (Option<Remembered<'r>>, Option<Event>),
    now: Timestamp,
    pending: &mut Vec<Pending>,
) {
    let state_of = |number: usize, check: &Check<'_>| {
        read(number).0.map(|remembered| check.algorithm.current(remembered.state, now))
    };
    let read_apart = |number: usize| {
        let (remembered, event) = read(number);
        let algorithm = checks.get(number).map(|check| check.algorithm);
        let remembered = remembered.zip(algorithm).map(|(remembered, algorithm)| {
            let state = algorithm.current(remembered.state, now);
            let apart = |Average { at, .. }| match algorithm {
                Algorithm::MovingAverage { .. }
                | Algorithm::Calendar { .. }
                | Algorithm::Share { .. } => Average { at, rate: state.apart.into() },
                // It leaks more slowly than the engine lets it leak.
                Algorithm::Bucket { .. } => {
                    Average { at: now, rate: decayed_apart(algorithm, &state, servers, now) }
                }
            };
            Remembered { state: State { average: state.average.map(apart), ..state }, ..remembered }
        });
        (remembered, event)
    };
    let merged = |number: usize, check: &Check<'_>| {
        decayed(check.algorithm, state_of(number, check).and_then(|state| state.average), now)
    };
    let adjust = |number: usize, check: &Check<'_>, one: &mut Pending| {
        let Pending { decision, change, before, .. } = one;
        let (merged, of_servers) = (merged(number, check), servers * decision.rate);
        // Of a share, the last that is known, or that of what this server has sent since.
        decision.rate = match check.algorithm {
            Algorithm::Share { .. } => decision.rate.max(merged),
            _ => merged + of_servers,
        };
        let count = servers * decision.count;
        let over = decision.algorithm.over(decision.rate, decision.limit, count);
        decision.over = decide_over(over, decision.overridden);
        change.state.over_since = over_since(over, *before, now);
    };
    decide_adjusted(checks, read_apart, adjust, now, pending);
    for (number, (check, one)) in checks.iter().zip(pending).enumerate() {
        let before = state_of(number, check);
        let merged = merged(number, check);
        // What is not dated now was not changed.
        let settle = |average: Average| match before {
            Some(before) if average.at != now => (before.average, before.apart),
            _ => (Some(Average { at: now, rate: merged }), stored(average.rate, now)),
        };
        if let Some(average) = one.change.state.average {
            let (average, apart) = settle(average);
            one.change.state = State { average, apart, ..one.change.state };
        }
        one.decision.kept = one.decision.kept.and_then(|average| {
            let (merged, _) = settle(average);
            merged.map(|merged| Average { rate: merged.rate + servers * average.rate, ..merged })
        });
        one.decision.next_count *= servers;
        one.before = before;
    }
}

/// A copy that is newer than a reply by up to this is that of a later event, whose reply came
/// first. No request waits that long, so one that is dated even later was stored before the
/// clock was set back.
const NEWER_SECONDS: f64 = 60.0;

/// Stores what the shared store has decided at `now`.
fn take_over(
    check: &Check<'_>,
    decision: &Decision,
    before: Option<State>,
    servers: f64,
    now: Timestamp,
) -> Pending {
    let mut decision = *decision;
    let Decision { start, period, limit, .. } = decision;
    let window = check.algorithm.window().map(|_| CalendarWindow::lasting(start, period));
    let before = before.map(|state| match window {
        None => state,
        Some(window) => state.in_window(window, now),
    });
    let state = before.unwrap_or(State { start, ..State::empty(limit, period) });
    // The reply was late: this server counts in a later window already.
    let is_over = window.is_some_and(|window| state.window().follows(window));
    // That of another zone may have begun a little later, too.
    let kept = match window {
        Some(_) if state.start > start => state,
        _ => State { start, period, ..state },
    };
    // The shared store's clock may be another.
    let rate = decayed(check.algorithm, decision.kept, decision.at);
    let newer = state.average.map_or(0.0, |average| average.at.as_seconds() - now.as_seconds());
    let outdated = is_over || newer > 0.0 && newer <= NEWER_SECONDS;
    let known = check.update != Update::ReadOnly && decision.kept.is_some() && !outdated;
    let mut change = Change { state, filter: FilterChange::Keep };
    if known {
        change.state = State {
            average: Some(Average { at: now, rate }),
            apart: stored(decayed_apart(check.algorithm, &state, servers, now), now),
            limit,
            over_since: over_since(decision.over, before, now),
            ..kept
        };
    }
    decision.kept = decision.kept.map(|_| Average { at: now, rate });
    decision.at = now;
    let mut one = Pending {
        decision,
        change,
        changed: known,
        first_over: false,
        before,
        update: check.update,
        refuses: check.refuses,
        total: check.total,
        blocks: check.blocks,
        same_as: None,
    };
    if one.is_over_decision() {
        let second = second(now);
        one.first_over = state.last_over != second || decision.crossed;
        one.changed |= one.first_over;
        // The first over decision of the later window is still to come.
        if !is_over {
            let last_over = Block::held(state.last_over).map_or(state.last_over, |_| 0);
            one.change.state.last_over = second.max(last_over);
        }
        one.change.state.crossings = decision.crossings;
    }
    // What is blocked is blocked in the shared store: one that this server has set ends here.
    if check.blocks != BlockTime::Ignored {
        let last_over = &mut one.change.state.last_over;
        let known = match decision.blocked {
            Some(block) => block.code(),
            None if Block::held(*last_over).is_some() => 0,
            None => *last_over,
        };
        one.changed |= *last_over != known;
        *last_over = known;
        if decision.blocked.is_some() {
            one.change.state.average.get_or_insert(Average { at: now, rate: 0.0 });
        }
    }
    one
}

/// `rate` as [`State::apart`]: one of the two nearest `f32`, the nearer one more often.
///
/// If it were always the nearest one, a rate that is stored a thousand times in a second
/// with a period of a week would never decrease. `now` chooses.
fn stored(rate: f64, now: Timestamp) -> f32 {
    let nearest = rate as f32;
    let (below, above) = match f64::from(nearest) > rate {
        true => (nearest.next_down(), nearest),
        false => (nearest, nearest.next_up()),
    };
    let share = (rate - f64::from(below)) / (f64::from(above) - f64::from(below));
    let mixed = (rate.to_bits() ^ u64::from(now.micros) ^ now.seconds.cast_unsigned() << 20)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xff51_afd7_ed55_8ccd);
    // NaN and infinity stay as they are.
    if share.is_nan() {
        nearest
    } else if ((mixed >> 11) as f64) < share * (1_u64 << 53) as f64 {
        above
    } else {
        below
    }
}
