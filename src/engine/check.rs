//! What a front end wants decided: a [`Check`].

/// Which record a check is counted in, and whom it counts.
///
/// The identity is the end of the record's name: `alice` of
/// `1h/per_rcpt/alice`. All records of one identity are kept together, in one
/// shard under one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordKey<'a> {
    /// The record's name; unique among the records of its kind and identity.
    pub name: &'a [u8],
    /// Where in the name the identity begins: who is counted.
    pub identity_start: usize,
    /// What the record belongs to.
    pub kind: Kind,
}

impl<'a> RecordKey<'a> {
    /// Who is counted: a user, a client, a domain.
    #[must_use]
    #[inline]
    pub fn identity(&self) -> &'a [u8] {
        self.name.get(self.identity_start..).unwrap_or_default()
    }
}

/// The key of a spec's record whose whole name is the identity.
impl<'a, T: AsRef<[u8]> + ?Sized> From<&'a T> for RecordKey<'a> {
    fn from(name: &'a T) -> Self {
        Self { name: name.as_ref(), identity_start: 0, kind: Kind::Spec }
    }
}

/// What a record belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A spec: its name is `p/mode/[unique/]key`.
    Spec,
    /// A policy.
    Policy,
}

/// How events are turned into a rate, and what the rate is held against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Algorithm {
    /// The exponentially weighted moving average of Exim's `ratelimit`.
    MovingAverage {
        /// The limit: a rate at or over it is over. Not negative, not NaN; may
        /// be infinite.
        limit: f64,
        /// The period in seconds; greater than zero.
        period: f64,
    },
}

impl Algorithm {
    /// The limit.
    #[must_use]
    #[inline]
    pub fn limit(&self) -> f64 {
        match self {
            Self::MovingAverage { limit, .. } => *limit,
        }
    }

    /// The period in seconds.
    #[must_use]
    #[inline]
    pub fn period(&self) -> f64 {
        match self {
            Self::MovingAverage { period, .. } => *period,
        }
    }
}

/// When an event is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// Only while no enforced leaky check is over its limit: what was accepted
    /// is measured.
    Leaky,
    /// Always: what was attempted is measured.
    Strict,
    /// Never.
    ReadOnly,
}

impl Update {
    /// The option of a spec that asks for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Leaky => "leaky",
            Self::Strict => "strict",
            Self::ReadOnly => "readonly",
        }
    }
}

/// One thing to be counted and held against one limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Check<'a> {
    /// The record, and whom it counts.
    pub key: RecordKey<'a>,
    /// How it is counted, and the limit.
    pub algorithm: Algorithm,
    /// The size of this event; 0 in [`Update::ReadOnly`]. Not negative, not
    /// NaN.
    pub cost: f64,
    /// The text of a unique event, which is counted at most once a period.
    pub event: Option<&'a [u8]>,
    /// When the event is counted.
    pub update: Update,
    /// Whether the check only observes: it is counted as a strict one is, and
    /// being over its limit keeps no other check from counting.
    pub observed: bool,
}

impl Check<'_> {
    /// The update mode that takes effect.
    #[inline]
    pub(super) fn effective_update(&self) -> Update {
        match self.update {
            Update::Leaky if self.observed => Update::Strict,
            update => update,
        }
    }
}
