//! Asking: which messages may have carried this, or were from or to this
//! address?

use std::time::Instant;

use crate::trace::{Envelope, Hit, Question, Scheme, Search, Settings, TooShort};

use super::sources::Source;
use super::verify::Problem;
use super::{Trace, TraceError};

/// No more answers than these are held back until all has been asked, which
/// tells their chances better.
const PENDING_MAX: usize = 1 << 16;

/// What is asked. All that is given must hold.
#[derive(Debug, Default)]
pub struct Query<'a> {
    /// What the message carried.
    pub question: Option<Question>,
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
    pub most: Option<usize>,
    /// When to stop, whatever is left: looked at before each log and segment.
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

/// What was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Messages that were asked.
    pub messages: u64,
    /// In so many segments, and logs that are not sealed yet.
    pub segments: u64,
    /// Messages that were digested in a way that cannot answer so short an
    /// excerpt.
    pub unanswered: u64,
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
    all: Vec<(Settings, usize, Option<Prepared<'a>>)>,
}

/// A question prepared for one way, unless it is too short for that.
type Prepared<'a> = Result<Box<dyn Search + 'a>, TooShort>;

impl<'a> Searches<'a> {
    fn new(schemes: &'a [(Settings, Box<dyn Scheme>)], question: Option<&Question>) -> Self {
        let prepare = |(settings, scheme): &'a (Settings, Box<dyn Scheme>)| {
            (*settings, scheme.shortest(), question.map(|question| scheme.search(question)))
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

    fn chance(&self, number: usize, hit: &Hit) -> f64 {
        match self.all.get(number) {
            Some((_, _, Some(Ok(search)))) => search.chance(hit),
            _ => 1.0,
        }
    }
}

/// A query under way.
pub(super) struct Asking<'a, 'q> {
    pub(super) query: &'a Query<'q>,
    pub(super) searches: Searches<'a>,
    pub(super) asked: Asked,
}

/// An answer, but for its chance.
pub(super) struct Pending {
    pub(super) envelope: Envelope,
    pub(super) damaged: bool,
    /// The number of the search, and what it has found.
    pub(super) hit: Option<(usize, Hit)>,
}

impl Trace {
    /// Asks all messages. `progress` is told how many have been asked, of how
    /// many; `found` gets each that may be one of those asked for.
    ///
    /// Nothing is locked: messages that are recorded meanwhile may be missing.
    ///
    /// # Errors
    /// The question is too short, or the directory cannot be read. What is
    /// damaged is told in [`Asked`].
    pub fn query(
        &self,
        query: &Query<'_>,
        progress: &mut dyn FnMut(u64, u64),
        found: &mut dyn FnMut(Answer),
    ) -> Result<Asked, TraceError> {
        let sources = self.sources()?;
        let mut settings = vec![self.options.settings];
        for (_, source) in &sources.list {
            if !settings.contains(&source.settings()) {
                settings.push(source.settings());
            }
        }
        let schemes: Vec<_> = settings
            .into_iter()
            .map(|settings| (settings, settings.scheme(&self.key.digest)))
            .collect();
        let searches = Searches::new(&schemes, query.question.as_ref());
        if let Some((_, _, Some(Err(short)))) = searches.all.first()
            && searches.all.iter().all(|(_, _, search)| matches!(search, Some(Err(_))))
        {
            return Err(TraceError::TooShort(*short));
        }
        let asked = Asked {
            shortest: searches.all.iter().map(|(_, shortest, _)| *shortest).max().unwrap_or(0),
            damaged: sources.problems,
            other_key: sources.other_key,
            ..Asked::default()
        };
        let mut asking = Asking { query, searches, asked };
        let of = sources.list.iter().map(|(_, source)| source.messages()).sum();
        let most = query.most.unwrap_or(usize::MAX);
        let mut list = sources.list;
        if query.most.is_some() {
            list.reverse();
        }
        let (mut pending, mut told) = (Vec::new(), 0);
        for (name, source) in &list {
            if query.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                asking.asked.late = true;
                break;
            }
            let (mut answers, damage) = match source {
                Source::Segment(segment) => self.ask_segment(segment, &mut asking),
                Source::Log(log) => match self.ask_log(log, &mut asking) {
                    Ok(answers) => (answers, Vec::new()),
                    Err(error) => (Vec::new(), vec![format!("it cannot be read: {error}")]),
                },
            };
            let path = || self.place.path_of(name);
            asking
                .asked
                .damaged
                .extend(damage.into_iter().map(|what| Problem { path: path(), what }));
            asking.asked.segments += 1;
            if query.most.is_some() {
                answers.reverse();
            }
            pending.append(&mut answers);
            progress(asking.asked.messages, of);
            if query.question.is_none() || pending.len() > PENDING_MAX || query.most.is_some() {
                told += tell(&asking.searches, pending.drain(..).take(most - told), found);
            }
            if told >= most {
                return Ok(asking.asked);
            }
        }
        tell(&asking.searches, pending.into_iter(), found);
        Ok(asking.asked)
    }
}

impl Query<'_> {
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

/// Tells answers; how many.
fn tell(
    searches: &Searches<'_>,
    pending: impl Iterator<Item = Pending>,
    found: &mut dyn FnMut(Answer),
) -> usize {
    pending
        .map(|Pending { envelope, damaged, hit }| {
            let hit = hit.map(|(number, hit)| Match {
                present: hit.present,
                of: hit.of,
                chance: searches.chance(number, &hit),
            });
            found(Answer { envelope, damaged, hit });
        })
        .count()
}
