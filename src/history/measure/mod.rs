//! The rates that keys would have had, from logs: `exirate measure`, and the rates of the page
//! of `exirate report`.
//!
//! Lines of a log → [`Events`] → [`Runs`], the events in the order of time, in bounded memory →
//! [`Rates`] of each key in each period → [`Suggestion`], a limit.

mod events;
mod peaks;
mod periods;
mod rates;
mod runs;
mod suggest;
mod unique;

use std::io;

use crate::calendar::{Every, Zone};
use crate::engine::AlgorithmKind;

pub use events::{By, Count, CountedEvents, Events, Lines, Measured, MeasuredBy, cut};
pub use peaks::{Peak, PeaksWanted, RatesReport, Suggestions};
pub use periods::Periods;
pub use rates::{Histogram, MessageRate, Rates, replay};
pub use runs::{Event, Runs};
pub use suggest::{CountMode, KeyPeak, Limit, Suggestion};

/// So many events are kept in memory: 64 MB.
const EVENTS_MAX: usize = 2 << 20;
/// The length of an event in a file.
const RECORD: usize = 29;

/// A period, as it was written.
#[derive(Clone, Debug)]
pub struct Period {
    /// In seconds; of the calendar, as a rule.
    pub seconds: f64,
    /// Its text.
    pub text: String,
    /// By the calendar: how often the count starts again, and in which zone.
    pub calendar: Option<(Every, Zone)>,
}

impl Period {
    /// Whether a limit in this period refuses an event with this rate or count.
    #[must_use]
    pub fn is_over(&self, rate: f64, limit: f64) -> bool {
        self.kind().over(rate, limit, 0.0)
    }

    /// By the calendar: `daily`.
    #[must_use]
    pub fn every(&self) -> Option<&'static str> {
        self.calendar.as_ref().map(|(every, _)| every.word())
    }

    fn kind(&self) -> AlgorithmKind {
        match self.calendar {
            None => AlgorithmKind::MovingAverage,
            Some(_) => AlgorithmKind::Calendar,
        }
    }
}

/// Why rates cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// There are more keys than are kept in memory.
    #[error(
        "more than {keys} different keys ({} MB): measure by another identity, such as --by host \
         or --by auth, or fewer logs at a time",
        .bytes >> 20
    )]
    TooManyKeys {
        /// How many there are.
        keys: usize,
        /// How many bytes their texts take.
        bytes: usize,
    },
    /// The events in temporary files cannot be read.
    #[error("cannot read a temporary file of events: {0}")]
    Read(#[source] io::Error),
    /// Events cannot be written to a temporary file.
    #[error(
        "cannot write a temporary file in {}: {}; events beyond {EVENTS_MAX} are kept there, \
         {RECORD} bytes each: set TMPDIR to a directory with enough space",
        std::env::temp_dir().display(), .0
    )]
    Write(#[source] io::Error),
}
