//! The input of a decision: a [`Check`].

use super::state::State;
use crate::rate::block::{Block, BlockTime};
use crate::rate::{Algorithm, AlgorithmKind, CalendarWindow, Timestamp};

/// The record that a check is counted in, and its identity.
///
/// The identity is the end of the record's name: `alice` of
/// `1h/per_rcpt/alice`. All records of one identity are in one shard, under one
/// lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordKey<'a> {
    /// The record's name; unique among the records of its kind and identity.
    pub name: &'a [u8],
    /// Where in the name the identity begins.
    pub identity_start: usize,
    /// What the record belongs to.
    pub kind: Kind,
    /// How it is counted. Records of one name with different algorithms are
    /// different records: neither is read or changed by checks of the other.
    pub algorithm: AlgorithmKind,
}

impl<'a> RecordKey<'a> {
    /// Who is counted: a user, a client, a domain.
    #[must_use]
    #[inline]
    pub fn identity(&self) -> &'a [u8] {
        self.name.get(self.identity_start..).unwrap_or_default()
    }
}

/// Makes the key of a spec's record, a moving average, whose whole name is the
/// identity.
impl<'a, T: AsRef<[u8]> + ?Sized> From<&'a T> for RecordKey<'a> {
    fn from(name: &'a T) -> Self {
        Self {
            name: name.as_ref(),
            identity_start: 0,
            kind: Kind::Spec,
            algorithm: AlgorithmKind::MovingAverage,
        }
    }
}

/// What a record belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A spec: its name is `p/mode/[unique/]key`.
    Spec,
    /// A policy.
    Policy,
    /// The habits of an account, which are no rate: no check has this kind.
    Habits,
    /// What an account sends, which is no rate either.
    Usage,
}

impl Algorithm {
    /// The present window of the calendar, if it counts in one, by the clock of the store, where
    /// `kept` is the state of the record.
    #[inline]
    pub(super) fn window_at(&self, now: Timestamp, kept: Option<&State>) -> Option<CalendarWindow> {
        self.window().map(|window| window.at(now.seconds, kept.map(State::window)))
    }

    /// The state of its record as it finds it at `now`: see [`State::in_window`].
    #[inline]
    pub(super) fn current(&self, state: State, now: Timestamp) -> State {
        match self.window_at(now, Some(&state)) {
            None => state,
            Some(window) => state.in_window(window, now),
        }
    }
}

/// When an event is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// Only while no leaky or read-only check refuses the event: measures accepted
    /// events.
    Leaky,
    /// Always: measures attempted events.
    Strict,
    /// Never.
    ReadOnly,
}

impl Update {
    /// The option that selects it in a spec.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Leaky => "leaky",
            Self::Strict => "strict",
            Self::ReadOnly => "readonly",
        }
    }
}

/// What an administrator has decided for all checks of an identity, whatever
/// its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overridden {
    /// Never over: the check is counted and measured as usual.
    Allow,
    /// Always over: the client may try again later.
    Deny,
    /// Always over: the client shall not try again.
    Reject,
}

impl Overridden {
    /// The command that sets it, and its name in output.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny | Self::Reject => "deny",
        }
    }

    /// Whether it denies.
    #[must_use]
    #[inline]
    pub fn is_denial(self) -> bool {
        self != Self::Allow
    }
}

/// One thing to count and compare with one limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Check<'a> {
    /// The record and its identity. The algorithm named here does not matter: see
    /// [`Check::record_key`].
    pub key: RecordKey<'a>,
    /// How events are counted, and the limit.
    pub algorithm: Algorithm,
    /// The size of this event; 0 in [`Update::ReadOnly`]. Not negative, not
    /// NaN.
    pub count: f64,
    /// The text of a unique event, which is counted at most once a period, or once in a window
    /// of the calendar.
    pub event: Option<&'a [u8]>,
    /// When the event is counted.
    pub update: Update,
    /// The part of its limit from which the check refuses the event: 1 is all of it,
    /// infinity means that only an override refuses it. `None`: the check only
    /// observes. It then counts as a strict check does, and never keeps another check
    /// from counting. That of a spec which is read-only refuses nothing either.
    pub refuses: Option<f64>,
    /// Whether others are counted in the record too: it counts accepted events only. An event
    /// that any check of the call refuses, this one included, is not counted there, also in
    /// [`Update::Strict`].
    pub total: bool,
    /// The override in force, if any. The spool database sets it from its list of
    /// overrides; front ends leave it empty.
    pub overridden: Option<Overridden>,
    /// For how long a crossing blocks the identity.
    pub blocks: BlockTime,
}

impl<'a> Check<'a> {
    /// A strict check of an event of size 1, which refuses it at the limit.
    #[must_use]
    #[inline]
    pub fn new(key: impl Into<RecordKey<'a>>, algorithm: Algorithm) -> Self {
        Self {
            key: key.into(),
            algorithm,
            count: 1.0,
            event: None,
            update: Update::Strict,
            refuses: Some(1.0),
            total: false,
            overridden: None,
            blocks: BlockTime::Ignored,
        }
    }

    /// The record of this check: [`Check::key`] with the check's own algorithm.
    #[must_use]
    #[inline]
    pub fn record_key(&self) -> RecordKey<'a> {
        RecordKey { algorithm: self.algorithm.kind(), ..self.key }
    }

    /// The block that denies the event, of a record with this [`State::last_over`].
    #[inline]
    pub(super) fn block_in(&self, last_over: u32, now: Timestamp) -> Option<Block> {
        Block::in_force(last_over, now)
            .filter(|_| self.overridden.is_none() && self.blocks != BlockTime::Ignored)
    }

    /// The unique event, if this check may count it: what a read-only check would
    /// find in the filter changes nothing.
    #[inline]
    pub(crate) fn counted_event(&self) -> Option<&'a [u8]> {
        self.event.filter(|_| self.update != Update::ReadOnly)
    }

    /// This check of an event that another check refuses, if it is a total: it counts
    /// nothing.
    #[must_use]
    pub(crate) fn of_refused(&self) -> Self {
        match self.total {
            true => Self { count: 0.0, update: Update::ReadOnly, ..*self },
            false => *self,
        }
    }

    /// The update mode that takes effect.
    #[inline]
    pub(super) fn effective_update(&self) -> Update {
        match self.update {
            Update::Leaky if self.refuses.is_none() => Update::Strict,
            Update::Strict if self.total && self.refuses.is_some() => Update::Leaky,
            update => update,
        }
    }
}
