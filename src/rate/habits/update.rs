//! What a message does to the score of an account, and the alarm that it may raise.

use crate::rate::block::BlockTime;

/// How early an alarm is raised: the score that it needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sensitivity {
    /// At 20 nats.
    Low,
    /// At 16 nats, for which the constants were chosen.
    #[default]
    Normal,
    /// At 12 nats.
    High,
}

impl Sensitivity {
    /// All, from the lowest.
    pub const ALL: [Self; 3] = [Self::Low, Self::Normal, Self::High];

    /// How it is written.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }

    /// The threshold of the score, in nats, where no alarm was raised before.
    #[must_use]
    pub fn threshold(self) -> f64 {
        match self {
            Self::Low => 20.0,
            Self::Normal => 16.0,
            Self::High => 12.0,
        }
    }
}

/// What a message has done to the score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// The score after it, before an alarm sets it to 0.
    pub score: f64,
    /// The score at which an alarm would have been raised.
    pub threshold: f64,
    /// How many of its recipients the account had never written to.
    pub strangers: u32,
    /// What it added, or took away.
    pub added: Added,
    /// The alarm, if it has raised one.
    pub alarm: Option<Alarm>,
}

/// What the signals of one message come to, in nats. Together they add no more than 6, and
/// a message with strangers takes nothing away.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Added {
    /// That the recipients are known, or strangers.
    pub recipients: f64,
    /// That there are more strangers than usual.
    pub many: f64,
    /// That the hour is unusual.
    pub hour: f64,
    /// That the network is new.
    pub network: f64,
    /// That recipients of it have failed since.
    pub failures: f64,
}

impl Added {
    /// In hundredths of a nat.
    pub(super) fn hundredths(self) -> [i16; 5] {
        let Self { recipients, many, hour, network, failures } = self;
        // A number beyond the range becomes the nearest that is within.
        [recipients, many, hour, network, failures].map(|nats| (nats * 100.0).round() as i16)
    }

    pub(super) fn of_hundredths(stored: [i16; 5]) -> Self {
        let [recipients, many, hour, network, failures] = stored.map(|of| f64::from(of) / 100.0);
        Self { recipients, many, hour, network, failures }
    }
}

/// Which of the two rules has raised an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The score reached its threshold.
    Score,
    /// More strangers in about a day than the account has ever had.
    Volume,
}

/// An alarm and its evidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alarm {
    /// The rule that raised it.
    pub rule: Rule,
    /// Recipients never written to, since the evidence began.
    pub strangers: u32,
    /// Messages since then.
    pub messages: u32,
    /// How long ago that was, in seconds.
    pub seconds: i64,
    /// An alarm by volume may have put that back by a day: these were sent in less time.
    pub is_put_back: bool,
    /// New networks since then.
    pub networks: u32,
    /// Strangers since then who could not be reached, as far as they count.
    pub failures: u32,
    /// New recipients a day, as usual.
    pub usual: f64,
    /// How many messages were known before the evidence began.
    pub before: u16,
    /// Strangers of about a day; a message with `u` of them counts 1 + log2 u.
    pub volume: f64,
    /// The most of earlier days.
    pub record: f64,
    /// Whether somebody is to be told: not if that was done within a day before.
    pub is_told: bool,
    /// How many alarms were not told since the one before this.
    pub untold: u32,
    /// For how long it has blocked the account.
    pub blocked: Option<BlockTime>,
}
