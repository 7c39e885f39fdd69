//! A segment of digests in memory.

use exirate::trace::{Body, ContentQuery, Hit, Part, Scheme, Sealed, Settings};

use crate::corpus::Corpus;
use crate::stores;
use crate::tally::Reported;

/// The maximum number of messages in a segment.
pub(crate) const SEGMENT: usize = 16_384;

/// The digests of the first messages.
pub(crate) struct Segment {
    scheme: Box<dyn Scheme>,
    sealed: Sealed,
    messages: usize,
}

impl Segment {
    pub(crate) fn new(corpus: &Corpus, settings: Settings, messages: usize) -> Self {
        let sealed = stores::sealed(corpus, settings, messages);
        Self { scheme: settings.scheme(&stores::KEY), sealed, messages }
    }

    /// The size of the digests.
    pub(crate) fn bytes(&self) -> usize {
        self.sealed.body.len()
    }

    /// Folds the filters, if they can be.
    pub(crate) fn fold(&mut self) {
        if let Some(body) = self.scheme.fold(&self.sealed.body) {
            self.sealed.body = body;
        }
    }

    /// Queries an excerpt; `None` if it is too short.
    pub(crate) fn ask(&self, excerpt: &str) -> Option<Vec<Reported>> {
        let question = ContentQuery { parts: vec![Part::Text(excerpt.to_owned())], min_share: 1.0 };
        let mut search = self.scheme.search(&question).ok()?;
        let mut hits = Vec::new();
        let hit = &mut |hit: Hit| hits.push(hit);
        search.sealed(&Body::plain(&self.sealed.body), self.messages as u32, hit).unwrap();
        let reported = |hit: &Hit| (self.sealed.order[hit.message as usize], search.chance(hit));
        Some(hits.iter().map(reported).collect())
    }
}
