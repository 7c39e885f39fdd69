//! A query and its results: which messages may have contained this, or were
//! from or to this address?

use std::path::PathBuf;
use std::time::Instant;

use crate::trace::{
    ContentQuery, Envelope, Hit, MessageParts, Passage, Scheme, Search, Settings, TooShort, share,
};

use super::error::Problem;

/// Whether a result meets conditions that the store does not know.
pub struct Accepts<'a>(pub Box<dyn Fn(&QueryResult) -> bool + 'a>);

impl std::fmt::Debug for Accepts<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Accepts(..)")
    }
}

/// A query. All given conditions must be met.
#[derive(Debug, Default)]
pub struct Query<'a> {
    /// The content of the message.
    pub content: Option<ContentQuery>,
    /// The earliest time, in seconds since 1970.
    pub since: Option<i64>,
    /// The latest.
    pub until: Option<i64>,
    /// Its sender.
    pub from: Option<Address<'a>>,
    /// One of its recipients.
    pub to: Option<Address<'a>>,
    /// The authenticated id with which it was sent.
    pub auth: Option<Address<'a>>,
    /// Its id, one of these; any if there are none.
    pub ids: Vec<String>,
    /// The maximum number of results. With it, the newest come first, and the
    /// query ends when there are enough. Without it, the oldest come first.
    pub limit: Option<usize>,
    /// The maximum number of best results; all others are only counted. They
    /// are sorted as by [`Match::rank`], then by the time of recording. It takes much less
    /// time if there are many results.
    pub best: Option<usize>,
    /// Whether to find out in which parts of their messages the content is.
    pub locate: bool,
    /// Further conditions on results: only those for which this is true count. Not with
    /// [`Self::best`].
    pub accepts: Option<Accepts<'a>>,
    /// When to stop: results of a log or segment that cannot be searched in
    /// time are left out.
    pub deadline: Option<Instant>,
}

/// Selects addresses.
pub enum Address<'a> {
    /// This address, in any case; the empty one is the sender of a bounce.
    Is(String),
    /// All for which this is true. It may be called in any order, and once for
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
    /// Whether the address is selected.
    pub(super) fn matches(&self, address: &str) -> bool {
        match self {
            Self::Is(wanted) => wanted.eq_ignore_ascii_case(address),
            Self::Test(test) => test(address),
        }
    }
}

/// A message that may match the query.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryResult {
    /// Its envelope.
    pub envelope: Envelope,
    /// Whether a part of the envelope is damaged: such parts are empty.
    pub damaged: bool,
    /// How well its content matches, if the query is about content.
    pub hit: Option<Match>,
}

/// How well a message matches the content of a query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Match {
    /// How many of the query's elements are present.
    pub present: u32,
    /// How many elements the query has.
    pub of: u32,
    /// The probability, 0 to 1, that a message without this content looks like
    /// this.
    pub chance: f64,
    /// The longest passage that is present, if the query asked for passages.
    pub passage: Option<Passage>,
    /// The parts of the message in one of which each part of the content is, if it is in any;
    /// `None` if that is not known, or was not wanted ([`Query::locate`]). A display name is
    /// taken for a text.
    pub within: Option<MessageParts>,
}

impl Match {
    /// The share of the content that is present, 0 to 1.
    pub fn share(&self) -> f64 {
        share(self.present, self.of)
    }

    /// Its chance, if a false match like this is to be expected among ten
    /// thousand messages, else 0: smaller chances are treated as equal.
    pub fn uncertainty(&self) -> f64 {
        if self.chance >= 1e-4 { self.chance } else { 0.0 }
    }

    /// The sort key: those with all of the content first, those with the smallest uncertainty
    /// of them first; then the others, by what is evidence for them: the smallest chance first,
    /// and the largest share where that is too small to be told apart. A match by envelope
    /// alone ranks with the best.
    pub fn rank(hit: Option<Self>) -> (bool, u64, u64) {
        // For numbers from 0 on, the bits have the same order.
        let bits = |number: f64| number.max(0.0).to_bits();
        match hit {
            None => (false, 0, 0),
            Some(hit) if hit.present == hit.of => (false, bits(hit.uncertainty()), 0),
            Some(hit) => (true, bits(hit.chance), bits(1.0 - hit.share())),
        }
    }
}

/// The summary of a query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuerySummary {
    /// Messages searched.
    pub messages: u64,
    /// How many of them match, whether they were returned or not.
    pub matches: u64,
    /// How many of the messages searched are expected to have as much of the content by
    /// chance as the match with the least of it: the sum of the chances of them all. Of a
    /// query that is about envelopes too, this is an upper limit. `None` if the query is not
    /// about content, nothing matches, or the scheme cannot tell.
    pub expected: Option<f64>,
    /// The number of segments, and of logs that are not sealed yet, that were
    /// searched.
    pub segments: u64,
    /// Messages whose content was not searched: their digests cannot be
    /// searched for so short an excerpt, or they were decoded by another
    /// version.
    pub unanswered: u64,
    /// How many of these were decoded by another version, and may have other
    /// fragments.
    pub decoded_otherwise: u64,
    /// How many of the messages whose content was searched are partial, and may
    /// contain it even if they do not match. If the query is also about
    /// envelopes, this includes some that those exclude.
    pub partial: u64,
    /// Messages that could not be searched because of damage, as far as known.
    pub unreadable: u64,
    /// The shortest excerpt, in bytes of normalised text, that is always found
    /// in all of them.
    pub shortest: usize,
    /// Damage that was found; everything else was searched.
    pub damaged: Vec<Problem>,
    /// Files that were written with another key and cannot be queried.
    pub other_key: u64,
    /// It stopped at the deadline, before all were searched.
    pub late: bool,
}

/// A content query, prepared for each digest setting in use.
pub(super) struct Searches<'a> {
    pub(super) all: Vec<(Settings, usize, Option<Prepared<'a>>)>,
}

/// A content query prepared for one setting, or the error that it is too short.
pub(super) type Prepared<'a> = Result<Box<dyn Search + 'a>, TooShort>;

impl<'a> Searches<'a> {
    pub(super) fn new(
        schemes: &'a [(Settings, Box<dyn Scheme>)],
        content: Option<&ContentQuery>,
        locate: bool,
    ) -> Self {
        let prepare = |(settings, scheme): &'a (Settings, Box<dyn Scheme>)| {
            let mut search = content.map(|content| scheme.search(content));
            if let Some(Ok(search)) = search.as_mut().filter(|_| locate) {
                search.locate();
            }
            (*settings, scheme.shortest(), search)
        };
        Self { all: schemes.iter().map(prepare).collect() }
    }

    /// The number of the search for these settings.
    pub(super) fn number(&self, settings: Settings) -> usize {
        self.all.iter().position(|(one, _, _)| *one == settings).unwrap_or(0)
    }

    pub(super) fn search(&mut self, number: usize) -> Option<&mut Box<dyn Search + 'a>> {
        self.all.get_mut(number)?.2.as_mut()?.as_mut().ok()
    }

    /// How many messages are expected to have this share of the content by chance; `None` if
    /// one of the schemes cannot tell.
    pub(super) fn expected(&self, share: f64) -> Option<f64> {
        let searches = self.all.iter().filter_map(|(_, _, search)| search.as_ref()?.as_ref().ok());
        searches.map(|search| search.expected(share)).sum()
    }

    /// The match of a hit.
    pub(super) fn matched(&self, number: usize, hit: &Hit) -> Match {
        let chance = match self.all.get(number) {
            Some((_, _, Some(Ok(search)))) => search.chance(hit),
            _ => 1.0,
        };
        let Hit { present, of, passage, within, .. } = *hit;
        Match { present, of, chance, passage, within }
    }
}

/// A query in progress.
pub(super) struct RunningQuery<'a, 'q> {
    pub(super) query: &'a Query<'q>,
    pub(super) searches: Searches<'a>,
    pub(super) summary: QuerySummary,
}

/// A result without its chance.
pub(super) struct Pending {
    pub(super) envelope: Envelope,
    pub(super) damaged: bool,
    /// The number of the search, and its hit.
    pub(super) hit: Option<(usize, Hit)>,
}

impl Pending {
    /// How well it matches the query.
    pub(super) fn matched(&self, searches: &Searches<'_>) -> Option<Match> {
        self.hit.as_ref().map(|(number, hit)| searches.matched(*number, hit))
    }
}

impl QuerySummary {
    /// Counts messages that were decoded by another version.
    pub(super) fn add_other_decoder(&mut self, messages: u64) {
        self.unanswered += messages;
        self.decoded_otherwise += messages;
    }

    pub(super) fn add_damage(&mut self, path: PathBuf, damage: Vec<String>) {
        let problem = |what| Problem { path: path.clone(), what };
        self.damaged.extend(damage.into_iter().map(problem));
    }
}

impl Query<'_> {
    /// Whether the query is only about content.
    pub(super) fn is_content_only(&self) -> bool {
        let Self { content, since, until, from, to, auth, ids, .. } = self;
        content.is_some()
            && since.is_none()
            && until.is_none()
            && from.is_none()
            && to.is_none()
            && auth.is_none()
            && ids.is_empty()
    }

    /// The first and last second of the query, unless it has neither.
    pub(super) fn times(&self) -> Option<(i64, i64)> {
        let given = self.since.is_some() || self.until.is_some();
        given.then(|| (self.since.unwrap_or(i64::MIN), self.until.unwrap_or(i64::MAX)))
    }

    /// Whether a time matches.
    pub(super) fn is_within(&self, time: i64) -> bool {
        self.times().is_none_or(|(since, until)| (since..=until).contains(&time))
    }

    /// Whether an envelope matches, except for its time.
    pub(super) fn fits(&self, envelope: &Envelope) -> bool {
        (self.ids.is_empty() || self.ids.contains(&envelope.id))
            && self.from.as_ref().is_none_or(|from| from.matches(&envelope.sender))
            && self.auth.as_ref().is_none_or(|auth| auth.matches(&envelope.authenticated))
            && (self.to.as_ref())
                .is_none_or(|to| envelope.recipients.iter().any(|address| to.matches(address)))
    }
}
