//! What comes of a simulation: each decision, the totals, and why it cannot go on.

use serde::{Serialize, Serializer};

use super::attempt::Attempt;
use super::retry::Retries;
use crate::logs::files::LogError;
use crate::policy::replay::Decisions;
use crate::policy::word::{Verdict, Word as _};
use crate::rate::Timestamp;
use crate::text::iso_exact;

/// The most records within their periods.
pub(super) const RECORDS_MAX: usize = 4_000_000;

/// Why a simulation cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// There is no such policy; the text says which there are.
    #[error("{0}")]
    Policy(String),
    /// The policies could not be evaluated.
    #[error("{0}")]
    Decide(String),
    /// There are too many keys within their periods to remember.
    #[error(
        "more than {RECORDS_MAX} keys within their periods; simulate fewer policies at a time \
         (--only)"
    )]
    TooManyKeys,
    /// The logs cannot be read.
    #[error("{0}")]
    Log(#[from] LogError),
    /// The logs show no mail.
    #[error(
        "no line shows mail that came in: expected the main log of Exim, or the log of Postfix or \
         Sendmail"
    )]
    NoMail,
}

/// An attempt and what the policies make of it.
#[derive(Clone, Copy, Debug)]
pub struct Decided<'a> {
    /// The attempt; of a retry, its own time.
    pub attempt: &'a Attempt,
    /// What the policies make of it.
    pub decisions: &'a Decisions,
    /// Which modelled retry it is; 0 for what the log shows.
    pub retry: u32,
    /// A number for the message, the same for all its steps and its retries.
    pub message: u64,
}

impl Decided<'_> {
    /// Whether it is refused: `hold` is not, as the client does not notice.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.decisions.outcome.verdict >= Verdict::Defer
    }

    /// Whether it would be refused if the policy was enforced.
    #[must_use]
    pub fn would_be_refused(&self) -> bool {
        let outcome = &self.decisions.outcome;
        outcome.observed && !outcome.exempt && outcome.measured >= Verdict::Defer
    }
}

/// What was decided so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// The first and the last time.
    #[serde(flatten, serialize_with = "first_and_last")]
    pub span: Option<(Timestamp, Timestamp)>,
    /// Attempts of the log that were decided, by verdict.
    pub verdicts: Verdicts,
    /// Messages that the log shows.
    pub messages: u64,
    /// Recipients that the log shows.
    pub recipients: u64,
    /// Logins that the log shows.
    pub logins: u64,
    /// Attempts that a policy or a limit of exirate refused when the log was written.
    #[serde(rename = "limited_in_log")]
    pub limited: u64,
    /// Attempts at a stage at which no policy is evaluated.
    pub undecided: u64,
    /// Attempts whose time was more than 10 minutes before that of an earlier one.
    #[serde(skip)]
    pub back: u64,
    /// What came of the modelled retries.
    #[serde(skip)]
    pub retries: Retries,
}

/// How many attempts got each verdict, the mildest first, as
/// [`Verdict`](crate::policy::word::Verdict) lists them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdicts([u64; 6]);

impl Serialize for Verdicts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Verdict::ALL.iter().map(|one| (one.word(), self.of(*one))))
    }
}

/// A time, if there is one, as JSON has it.
pub(super) fn exact<S: Serializer>(
    at: &(impl Copy + Into<Option<Timestamp>>),
    serializer: S,
) -> Result<S::Ok, S::Error> {
    (*at).into().map(iso_exact).serialize(serializer)
}

/// The first and the last time of something, as JSON has them.
pub(super) fn first_and_last<S: Serializer>(
    span: &Option<(Timestamp, Timestamp)>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let (first, last) = span.unzip();
    serializer
        .collect_map([("first", first), ("last", last)].map(|(name, at)| (name, at.map(iso_exact))))
}

impl Verdicts {
    pub(super) fn add(&mut self, verdict: Verdict) {
        if let Some(count) = self.0.get_mut(verdict as usize) {
            *count += 1;
        }
    }

    /// How many got `verdict`.
    #[must_use]
    pub fn of(&self, verdict: Verdict) -> u64 {
        self.0.get(verdict as usize).copied().unwrap_or(0)
    }

    /// All.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.0.iter().sum()
    }
}
