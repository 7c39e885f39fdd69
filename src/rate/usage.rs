//! What an account sends: counts of the last [`DAYS`] days and [`HOURS`] hours, in a fixed number
//! of words.
//!
//! Days are those of a time zone, which the caller knows; hours begin when those of UTC do. Each
//! count is a word of its own, so that a store which writes words in one step loses nothing but
//! the event that it is counting, wherever it is stopped.

use std::ops::AddAssign;

/// So many days are known, the present one included.
pub const DAYS: usize = 35;
/// So many hours are known, the present one included.
pub const HOURS: usize = 24;
/// How many words there are.
pub const WORDS: usize = FIRST_HOUR + HOURS * HOUR_COUNTS;
/// The largest count: a word has 40 bits.
pub const COUNT_MAX: u64 = (1 << 40) - 1;

/// The word that says to which day and quarter of an hour the counts lead: see [`Latest`].
const LATEST: usize = 0;
/// The first word of the days: each has one for each count of [`Sent`].
const FIRST_DAY: usize = 1;
/// The first word of the hours: each has recipients and refused ones.
const FIRST_HOUR: usize = FIRST_DAY + DAYS * DAY_COUNTS;
const DAY_COUNTS: usize = 5;
const HOUR_COUNTS: usize = 2;
/// The clocks of all zones differ by quarters of an hour: within one, no day ends.
const QUARTER: i64 = 900;
const QUARTERS_AN_HOUR: u64 = 4;
const QUARTER_BITS: u32 = 24;
/// From so many quarters of an hour on, what is counted in the future is of a clock that was
/// wrong.
const FAR: u64 = 96;

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(serde::Serialize, schemars::JsonSchema))]
pub struct Sent {
    /// Messages that were accepted.
    pub messages: u64,
    /// Recipients that were accepted.
    pub recipients: u64,
    /// Bytes of messages, where their size was known.
    pub bytes: u64,
    /// Recipients that were refused.
    pub refused: u64,
    /// Recipients whose delivery failed.
    pub failed: u64,
}

impl Sent {
    /// The counts, in the order of their words.
    #[must_use]
    pub fn counts(&self) -> [u64; DAY_COUNTS] {
        [self.messages, self.recipients, self.bytes, self.refused, self.failed]
    }

    fn of(counts: [u64; DAY_COUNTS]) -> Self {
        let [messages, recipients, bytes, refused, failed] = counts;
        Self { messages, recipients, bytes, refused, failed }
    }

    /// Whether it is nothing.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl AddAssign for Sent {
    fn add_assign(&mut self, more: Self) {
        let [mut counts, more] = [self.counts(), more.counts()];
        counts.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(more));
        *self = Self::of(counts);
    }
}

/// What was sent in an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentInHour {
    /// Recipients that were accepted.
    pub recipients: u64,
    /// Recipients that were refused.
    pub refused: u64,
}

/// Where the counts are: [`WORDS`] words, all 0 at first.
pub trait Words {
    /// A word; 0 if it is damaged.
    fn get(&self, word: usize) -> u64;

    /// Writes a word, in one step. `None` if that is not possible.
    fn set(&mut self, word: usize, value: u64) -> Option<()>;
}

impl Words for [u64; WORDS] {
    #[inline]
    fn get(&self, word: usize) -> u64 {
        self[word]
    }

    #[inline]
    fn set(&mut self, word: usize, value: u64) -> Option<()> {
        self[word] = value;
        Some(())
    }
}

/// The latest day, since 1970 in the time zone, and the latest quarter of an hour, since 1970.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Latest {
    day: u64,
    quarter: u64,
}

impl Latest {
    #[inline]
    fn of(words: &impl Words) -> Option<Self> {
        match words.get(LATEST) {
            0 => None,
            word => {
                Some(Self { day: word >> QUARTER_BITS, quarter: word & ((1 << QUARTER_BITS) - 1) })
            }
        }
    }

    fn at(at: i64, day: i64) -> Self {
        Self { day: day.clamp(1, u16::MAX.into()).cast_unsigned(), quarter: quarter(at) }
    }

    fn hour(self) -> u64 {
        self.quarter / QUARTERS_AN_HOUR
    }

    fn word(self) -> u64 {
        self.day << QUARTER_BITS | self.quarter
    }
}

#[inline]
fn quarter(at: i64) -> u64 {
    (at / QUARTER).clamp(1, (1 << QUARTER_BITS) - 1).cast_unsigned()
}

#[inline]
fn word_of_day(day: u64) -> usize {
    FIRST_DAY + day as usize % DAYS * DAY_COUNTS
}

#[inline]
fn word_of_hour(hour: u64) -> usize {
    FIRST_HOUR + hour as usize % HOURS * HOUR_COUNTS
}

/// Counts what was sent `at` this second since 1970. `day` returns the number of its day since
/// 1970 in the time zone; it is called once in a quarter of an hour or so. Returns whether a day
/// has begun; `None` if a word could not be written.
#[inline]
pub fn count(
    words: &mut impl Words,
    at: i64,
    day: impl FnOnce() -> i64,
    sent: &Sent,
) -> Option<bool> {
    let latest = Latest::of(words);
    let (day, hour, begins, in_hours) = match latest {
        Some(latest) if latest.quarter == quarter(at) => (latest.day, latest.hour(), false, true),
        latest => {
            let now = Latest::at(at, day());
            let begins = latest.is_none_or(|latest| latest.day != now.day);
            let (day, hour) = (now.day, now.hour());
            let latest = turn(words, latest, now)?;
            (day, hour, begins, hour + HOURS as u64 > latest.hour())
        }
    };
    add(words, word_of_day(day), sent.counts())?;
    if in_hours {
        add(words, word_of_hour(hour), [sent.recipients, sent.refused])?;
    }
    Some(begins)
}

/// As [`count`] where that is of the latest quarter of an hour, as it is as a rule; returns the first
/// words of its day and of its hour. `None` if it is of another, and nothing was counted.
#[inline]
pub fn count_on(words: &mut impl Words, at: i64, sent: &Sent) -> Option<[usize; 2]> {
    let latest = Latest::of(words).filter(|latest| latest.quarter == quarter(at))?;
    let [day, hour] = [word_of_day(latest.day), word_of_hour(latest.hour())];
    add(words, day, sent.counts())?;
    add(words, hour, [sent.recipients, sent.refused])?;
    Some([day, hour])
}

#[inline]
fn add<const N: usize>(words: &mut impl Words, first: usize, counts: [u64; N]) -> Option<()> {
    for (word, more) in (first..).zip(counts).filter(|(_, more)| *more > 0) {
        words.set(word, words.get(word).saturating_add(more).min(COUNT_MAX))?;
    }
    Some(())
}

/// Begins the days and hours after the `latest` until `now`: first they are cleared, then the word
/// is written, so that one who is stopped in between has lost nothing that is still shown.
#[cold]
fn turn(words: &mut impl Words, latest: Option<Latest>, now: Latest) -> Option<Latest> {
    let next = match latest {
        None => {
            clear_days(words, 0, now.day)?;
            clear_hours(words, 0, now.hour())?;
            now
        }
        Some(latest) if latest.quarter >= now.quarter + FAR => {
            clear_days(words, now.day + 1, latest.day)?;
            clear_hours(words, 0, now.hour())?;
            now
        }
        Some(latest) => {
            clear_days(words, latest.day + 1, now.day)?;
            clear_hours(words, latest.hour() + 1, now.hour())?;
            Latest { day: latest.day.max(now.day), quarter: latest.quarter.max(now.quarter) }
        }
    };
    if latest != Some(next) {
        words.set(LATEST, next.word())?;
    }
    Some(next)
}

/// Clears the days of a range, its end included.
fn clear_days(words: &mut impl Words, from: u64, to: u64) -> Option<()> {
    let from = from.max((to + 1).saturating_sub(DAYS as u64));
    let mut all = (from..=to).map(word_of_day).flat_map(|first| first..first + DAY_COUNTS);
    all.try_for_each(|word| words.set(word, 0))
}

/// As above, of hours.
fn clear_hours(words: &mut impl Words, from: u64, to: u64) -> Option<()> {
    let from = from.max((to + 1).saturating_sub(HOURS as u64));
    let mut all = (from..=to).map(word_of_hour).flat_map(|first| first..first + HOUR_COUNTS);
    all.try_for_each(|word| words.set(word, 0))
}

/// What was sent in each of the last [`DAYS`] days and [`HOURS`] hours, the present ones last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// By day.
    pub days: [Sent; DAYS],
    /// By hour.
    pub hours: [SentInHour; HOURS],
}

impl Default for Usage {
    fn default() -> Self {
        Self { days: [Sent::default(); DAYS], hours: [SentInHour::default(); HOURS] }
    }
}

impl Usage {
    /// What `words` count, until the second `at`, which is in this `day`.
    #[must_use]
    pub fn of(words: &impl Words, at: i64, day: i64) -> Self {
        let mut usage = Self::default();
        let Some(latest) = Latest::of(words) else { return usage };
        let now = Latest::at(at, day);
        let known = |number: u64, latest: u64, most: usize| {
            number <= latest && number + most as u64 > latest
        };
        let last_days = (now.day + 1).saturating_sub(DAYS as u64)..;
        for (sent, day) in usage.days.iter_mut().zip(last_days) {
            if known(day, latest.day, DAYS) {
                let first = word_of_day(day);
                *sent = Sent::of(std::array::from_fn(|count| words.get(first + count)));
            }
        }
        let last_hours = (now.hour() + 1).saturating_sub(HOURS as u64)..;
        for (sent, hour) in usage.hours.iter_mut().zip(last_hours) {
            if known(hour, latest.hour(), HOURS) {
                let first = word_of_hour(hour);
                let [recipients, refused] = [0, 1].map(|count| words.get(first + count));
                *sent = SentInHour { recipients, refused };
            }
        }
        usage
    }

    /// Whether nothing was sent.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.days.iter().all(Sent::is_nothing)
    }

    /// What was sent in the last days, at most [`DAYS`], the present one included.
    #[must_use]
    pub fn last(&self, days: usize) -> Sent {
        let mut sum = Sent::default();
        self.days.iter().rev().take(days).for_each(|day| sum += *day);
        sum
    }
}

impl AddAssign<&Usage> for Usage {
    fn add_assign(&mut self, more: &Usage) {
        self.days.iter_mut().zip(&more.days).for_each(|(sum, more)| *sum += *more);
        for (sum, more) in self.hours.iter_mut().zip(&more.hours) {
            sum.recipients = sum.recipients.saturating_add(more.recipients);
            sum.refused = sum.refused.saturating_add(more.refused);
        }
    }
}
