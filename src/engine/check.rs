//! The input of a decision: a [`Check`].

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
}

impl<'a> RecordKey<'a> {
    /// Who is counted: a user, a client, a domain.
    #[must_use]
    #[inline]
    pub fn identity(&self) -> &'a [u8] {
        self.name.get(self.identity_start..).unwrap_or_default()
    }
}

/// Makes the key of a spec's record whose whole name is the identity.
impl<'a, T: AsRef<[u8]> + ?Sized> From<&'a T> for RecordKey<'a> {
    fn from(name: &'a T) -> Self {
        Self { name: name.as_ref(), identity_start: 0, kind: Kind::Spec }
    }
}

/// What a record belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A spec: its name is `p/mode/[unique/]key`.
    Spec,
    /// A policy.
    Policy,
}

/// How events become a rate, and the limit it is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Algorithm {
    /// The exponentially weighted moving average of Exim's `ratelimit`.
    MovingAverage {
        /// The limit: a rate at or above it is over. Not negative, not NaN; may
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
    /// Only while no enforced leaky check is over its limit: measures accepted
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

/// One thing to count and compare with one limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Check<'a> {
    /// The record and its identity.
    pub key: RecordKey<'a>,
    /// How events are counted, and the limit.
    pub algorithm: Algorithm,
    /// The size of this event; 0 in [`Update::ReadOnly`]. Not negative, not
    /// NaN.
    pub cost: f64,
    /// The text of a unique event, which is counted at most once a period.
    pub event: Option<&'a [u8]>,
    /// When the event is counted.
    pub update: Update,
    /// Whether the check only observes: it counts as a strict check does, and
    /// never keeps another check from counting.
    pub observed: bool,
}

impl<'a> Check<'a> {
    /// The unique event, if this check may count it: what a read-only check would
    /// find in the filter changes nothing.
    #[inline]
    pub(crate) fn counted_event(&self) -> Option<&'a [u8]> {
        self.event.filter(|_| self.update != Update::ReadOnly)
    }

    /// The update mode that takes effect.
    #[inline]
    pub(super) fn effective_update(&self) -> Update {
        match self.update {
            Update::Leaky if self.observed => Update::Strict,
            update => update,
        }
    }
}
