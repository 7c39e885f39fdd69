//! A query and its results: which messages may have carried this, or were from or
//! to this address?

use std::path::PathBuf;
use std::time::Instant;

use crate::trace::{ContentQuery, Envelope, Hit, Scheme, Search, Settings, TooShort};

use super::error::Problem;

/// What is asked. All that is given must hold.
#[derive(Debug, Default)]
pub struct Query<'a> {
    /// What the message carried.
    pub content: Option<ContentQuery>,
    /// The earliest time, in seconds since 1970.
    pub since: Option<i64>,
    /// The latest.
    pub until: Option<i64>,
    /// Its sender.
    pub from: Option<Address<'a>>,
    /// One of its recipients.
    pub to: Option<Address<'a>>,
    /// Its id.
    pub id: Option<String>,
    /// So many answers will do: then the newest come first, and it ends as
    /// soon as there are so many. Without it, the oldest come first.
    pub limit: Option<usize>,
    /// So many of the best answers will do; all the others are counted. They
    /// come in order: first those of which the largest share is there, of these
    /// first those with a chance of less than one in a million, of these those
    /// that were recorded first. It takes much less time where there are many.
    pub best: Option<usize>,
    /// When to stop, whatever is left: what is found in a log or segment that
    /// cannot be asked in time is left out.
    pub deadline: Option<Instant>,
}

/// Which addresses are asked for.
pub enum Address<'a> {
    /// This one, in upper or lower case; the empty one is the sender of a
    /// bounce.
    Is(String),
    /// All for which this is true. It may be asked in any order, and once for
    /// many messages.
    Test(Box<dyn Fn(&str) -> bool + 'a>),
}

impl std::fmt::Debug for Address<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Is(address) => f.debug_tuple("Is").field(address).finish(),
            Self::Test(_) => f.write_str("Test(..)"),
        }
    }
}

impl Address<'_> {
    /// Whether it is one of them.
    fn matches(&self, address: &str) -> bool {
        match self {
            Self::Is(wanted) => wanted.eq_ignore_ascii_case(address),
            Self::Test(test) => test(address),
        }
    }
}

/// A message that may be one that was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Its envelope.
    pub envelope: Envelope,
    /// Some of the envelope is damaged: what could not be read is empty.
    pub damaged: bool,
    /// How well it fits what it should have carried, if that was asked.
    pub hit: Option<Match>,
}

/// How well a message fits a question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Match {
    /// How many of the question's elements are present.
    pub present: u32,
    /// Of how many.
    pub of: u32,
    /// The chance, 0 to 1, that a message that carried nothing of it looks
    /// like this.
    pub chance: f64,
}

impl Match {
    /// Which part of what was asked for is there, 0 to 1.
    pub fn share(&self) -> f64 {
        f64::from(self.present) / f64::from(self.of.max(1))
    }

    /// Its chance, if a false one like this is to be expected among ten thousand
    /// messages, else 0: by less, no message is better than another.
    pub fn doubt(&self) -> f64 {
        if self.chance >= 1e-4 { self.chance } else { 0.0 }
    }

    /// What comes first: the largest share, then what is least doubtful. What
    /// was found by its envelope alone is as good as the best.
    pub fn rank(hit: Option<Self>) -> (u64, u64) {
        // Of numbers from 0 on, the bits are in the same order.
        let bits = |number: f64| number.max(0.0).to_bits();
        hit.map_or((0, 0), |hit| (bits(1.0 - hit.share()), bits(hit.doubt())))
    }
}

/// What was asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuerySummary {
    /// Messages that were asked.
    pub messages: u64,
    /// How many of them fit, whether they were told or not.
    pub matches: u64,
    /// The chance, 0 to 1, that a message that carried nothing of what is asked
    /// is among these: the mean of those of which the smallest share is there.
    pub chance: Option<f64>,
    /// In so many segments, and logs that are not sealed yet.
    pub segments: u64,
    /// Messages that were not asked what they carried: they were digested in a
    /// way that cannot answer so short an excerpt, or decoded otherwise.
    pub unanswered: u64,
    /// How many of these another version of the decoding has decoded: they may
    /// have other pieces than are looked for.
    pub decoded_otherwise: u64,
    /// How many of the messages that were asked what they carried are partial,
    /// and may have carried it even where they do not fit. Where envelopes are
    /// asked for too, it counts some that these exclude.
    pub partial: u64,
    /// The shortest excerpt of text, in bytes of normalised text, that is sure
    /// to be found in all of them.
    pub shortest: usize,
    /// What is damaged; all the rest has answered.
    pub damaged: Vec<Problem>,
    /// Files that were made with another key and can answer nothing.
    pub other_key: u64,
    /// It stopped at the deadline, before all were asked.
    pub late: bool,
}

/// A question, prepared for each way in which messages were digested.
pub(super) struct Searches<'a> {
    pub(super) all: Vec<(Settings, usize, Option<Prepared<'a>>)>,
}

/// A question prepared for one way, unless it is too short for that.
pub(super) type Prepared<'a> = Result<Box<dyn Search + 'a>, TooShort>;

impl<'a> Searches<'a> {
    pub(super) fn new(
        schemes: &'a [(Settings, Box<dyn Scheme>)],
        content: Option<&ContentQuery>,
    ) -> Self {
        let prepare = |(settings, scheme): &'a (Settings, Box<dyn Scheme>)| {
            (*settings, scheme.shortest(), content.map(|content| scheme.search(content)))
        };
        Self { all: schemes.iter().map(prepare).collect() }
    }

    /// The number of the one that goes with these settings.
    pub(super) fn number(&self, settings: Settings) -> usize {
        self.all.iter().position(|(known, _, _)| *known == settings).unwrap_or(0)
    }

    pub(super) fn search(&mut self, number: usize) -> Option<&mut Box<dyn Search + 'a>> {
        self.all.get_mut(number)?.2.as_mut()?.as_mut().ok()
    }

    /// What a hit of a search is worth.
    pub(super) fn matched(&self, number: usize, hit: &Hit) -> Match {
        let chance = match self.all.get(number) {
            Some((_, _, Some(Ok(search)))) => search.chance(hit),
            _ => 1.0,
        };
        Match { present: hit.present, of: hit.of, chance }
    }
}

/// A query under way.
pub(super) struct Asking<'a, 'q> {
    pub(super) query: &'a Query<'q>,
    pub(super) searches: Searches<'a>,
    pub(super) asked: QuerySummary,
}

/// An answer, but for its chance.
pub(super) struct Pending {
    pub(super) envelope: Envelope,
    pub(super) damaged: bool,
    /// The number of the search, and what it has found.
    pub(super) hit: Option<(usize, Hit)>,
}

impl Pending {
    /// How well it fits a question.
    pub(super) fn matched(&self, searches: &Searches<'_>) -> Option<Match> {
        self.hit.as_ref().map(|(number, hit)| searches.matched(*number, hit))
    }
}

impl QuerySummary {
    /// Counts messages that were decoded otherwise than the question was.
    pub(super) fn tell_decoded_otherwise(&mut self, messages: u64) {
        self.unanswered += messages;
        self.decoded_otherwise += messages;
    }

    pub(super) fn tell_damage(&mut self, path: PathBuf, damage: Vec<String>) {
        let problem = |what| Problem { path: path.clone(), what };
        self.damaged.extend(damage.into_iter().map(problem));
    }
}

impl Query<'_> {
    /// Whether what messages carried is all that is asked.
    pub(super) fn asks_no_envelopes(&self) -> bool {
        let Self { content, since, until, from, to, id, .. } = self;
        content.is_some()
            && since.is_none()
            && until.is_none()
            && from.is_none()
            && to.is_none()
            && id.is_none()
    }

    /// The first and last second that are asked for, unless all are.
    pub(super) fn times(&self) -> Option<(i64, i64)> {
        let given = self.since.is_some() || self.until.is_some();
        given.then(|| (self.since.unwrap_or(i64::MIN), self.until.unwrap_or(i64::MAX)))
    }

    /// Whether a time is one of those asked for.
    pub(super) fn is_within(&self, time: i64) -> bool {
        self.times().is_none_or(|(since, until)| (since..=until).contains(&time))
    }

    /// Whether an envelope is one of those asked for, but for its time.
    pub(super) fn fits(&self, envelope: &Envelope) -> bool {
        self.id.as_ref().is_none_or(|id| *id == envelope.id)
            && self.from.as_ref().is_none_or(|from| from.matches(&envelope.sender))
            && (self.to.as_ref())
                .is_none_or(|to| envelope.recipients.iter().any(|address| to.matches(address)))
    }
}
