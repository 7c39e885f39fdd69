//! The best results only: the envelopes of all others are not read.

use crate::trace::Hit;

use super::query::{Match, Pending, Searches};

/// The number of results after which the best are selected.
const FOUND_MAX: usize = 1 << 16;

/// The best results so far.
pub(super) struct Best {
    limit: usize,
    found: Vec<(usize, Ranked)>,
    /// The results that are no longer among the best.
    rest: Tally,
}

/// A matching message.
enum Ranked {
    /// The envelope has not been read: the number of the search, and its hit.
    Hit(usize, Hit),
    Pending(Pending),
}

/// The sort key: the best match first, then the earlier log or segment.
fn rank(hit: Option<Match>, source: usize) -> ((bool, u64, u64), usize) {
    (Match::rank(hit), source)
}

/// How many messages match, and how much of the content they all have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// The number of matching messages.
    pub(super) messages: u64,
    /// The smallest share of the content that one of them has; `None` if the query was about
    /// envelopes only.
    pub(super) share: Option<f64>,
}

impl Tally {
    /// Counts a message.
    pub(super) fn add(&mut self, hit: Option<Match>) {
        self.add_share(hit.map(|hit| hit.share()));
    }

    /// Counts a message that has this share of the content.
    fn add_share(&mut self, share: Option<f64>) {
        self.messages += 1;
        self.share = match (self.share, share) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
}

impl Best {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, found: Vec::new(), rest: Tally::default() }
    }

    /// Adds the hits of a search in a segment.
    pub(super) fn hits(
        &mut self,
        source: usize,
        hits: impl IntoIterator<Item = (usize, Hit)>,
        searches: &Searches<'_>,
    ) {
        let found = hits.into_iter().map(|(number, hit)| Ranked::Hit(number, hit));
        self.add(source, found, searches);
    }

    /// How many more results are wanted, if all are equally good.
    pub(super) fn room(&self) -> usize {
        self.limit.saturating_sub(self.found.len())
    }

    /// Adds results, and counts others that are no better: all that are about envelopes only are
    /// equally good.
    pub(super) fn results(
        &mut self,
        source: usize,
        results: impl IntoIterator<Item = Pending>,
        others: u64,
        searches: &Searches<'_>,
    ) {
        self.rest.messages += others;
        self.add(source, results.into_iter().map(Ranked::Pending), searches);
    }

    fn add(&mut self, source: usize, all: impl Iterator<Item = Ranked>, searches: &Searches<'_>) {
        self.found.extend(all.map(|found| (source, found)));
        if self.found.len() >= FOUND_MAX.saturating_add(self.limit.saturating_mul(2)) {
            self.cut(searches);
        }
    }

    /// Keeps the best results, and those that are no worse than the last of
    /// them and in the same segment: the order of those depends on their
    /// envelopes.
    fn cut(&mut self, searches: &Searches<'_>) {
        let key = |(source, found): &(usize, Ranked)| rank(found.matched(searches), *source);
        let mut keys: Vec<_> = self.found.iter().map(key).collect();
        let last = self.limit.checked_sub(1).filter(|&last| last < keys.len());
        // Most are not among the best, and are not sorted.
        let last = last.map(|last| *keys.clone().select_nth_unstable(last).1);
        let mut keys = keys.drain(..);
        let rest = &mut self.rest;
        let limit = self.limit;
        self.found.retain(|(_, found)| {
            let is_kept =
                limit > 0 && keys.next().is_some_and(|key| last.is_none_or(|last| key <= last));
            if !is_kept {
                rest.add_share(found.share());
            }
            is_kept
        });
        self.found.sort_by_cached_key(key);
    }

    /// The best results in order, and the tally of all. Missing envelopes are
    /// read by `read`: for some hits of one segment, in order of positions; all of them, or
    /// at least the first so many by the order of recording.
    pub(super) fn take(
        mut self,
        searches: &Searches<'_>,
        mut read: impl FnMut(usize, Vec<(usize, Hit)>, Option<usize>) -> Vec<Pending>,
    ) -> (Vec<Pending>, Tally) {
        self.cut(searches);
        let mut tally = self.rest;
        let (mut hits, mut alike, mut results) = (Vec::new(), Vec::new(), Vec::new());
        // Of those that are as good as the last one, and in the same segment, there may be
        // thousands.
        let key = |(source, found): &(usize, Ranked)| rank(found.matched(searches), *source);
        let last = self.limit.checked_sub(1).and_then(|last| self.found.get(last)).map(key);
        let better = match last {
            Some(last) => self.found.partition_point(|found| key(found) < last),
            None => self.found.len(),
        };
        for (at, (source, found)) in self.found.into_iter().enumerate() {
            tally.add_share(found.share());
            match found {
                Ranked::Hit(number, hit) if at >= better => alike.push((source, (number, hit))),
                Ranked::Hit(number, hit) => hits.push((source, (number, hit))),
                Ranked::Pending(result) => results.push((source, result)),
            }
        }
        for (mut hits, first) in [(hits, None), (alike, Some(self.limit.saturating_sub(better)))] {
            hits.sort_by_key(|(source, (_, hit))| (*source, hit.message));
            for hits in hits.chunk_by(|(source, _), (next, _)| source == next) {
                let source = hits.first().map_or(0, |(source, _)| *source);
                let read = read(source, hits.iter().map(|(_, hit)| *hit).collect(), first);
                results.extend(read.into_iter().map(|result| (source, result)));
            }
        }
        results.sort_by_cached_key(|(source, result)| rank(result.matched(searches), *source));
        results.truncate(self.limit);
        (results.into_iter().map(|(_, result)| result).collect(), tally)
    }
}

impl Ranked {
    /// How much of the content it has; `None` if the query was about envelopes only.
    fn share(&self) -> Option<f64> {
        match self {
            Self::Hit(_, hit) => Some(hit.share()),
            Self::Pending(pending) => pending.hit.map(|(_, hit)| hit.share()),
        }
    }

    /// How well it matches the query.
    fn matched(&self, searches: &Searches<'_>) -> Option<Match> {
        match self {
            Self::Hit(number, hit) => Some(searches.matched(*number, hit)),
            Self::Pending(pending) => pending.matched(searches),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{content_query, envelope, ids, open, record_fifty, secret};
    use super::super::{Address, Query, QueryResult};
    use crate::trace::{QuerySummary, TraceStore};

    fn ask(trace: &TraceStore, query: &Query<'_>) -> (QuerySummary, Vec<QueryResult>) {
        let mut results = Vec::new();
        let summary = trace.query(query, &mut |_, _| {}, &mut |result| results.push(result));
        (summary.unwrap(), results)
    }

    #[test]
    fn the_best_are_returned_and_the_others_counted() {
        let folder = tempfile::tempdir().unwrap();
        let mut trace = open(folder.path());
        record_fifty(&mut trace);
        let common = "all of them begin with this line";
        let (summary, all) = ask(&trace, &content_query(common));
        assert_eq!((summary.matches, all.len()), (50, 50));
        // In one segment, in two, in the log as well, all, and none.
        for best in [1, 20, 25, 45, 50, 99, 0] {
            let query = Query { best: Some(best), ..content_query(common) };
            let (of_best, found) = ask(&trace, &query);
            assert_eq!(of_best.matches, 50);
            let (one, other) = (of_best.expected.unwrap(), summary.expected.unwrap());
            assert!((one / other - 1.0).abs() < 1e-9, "{one} {other}");
            let uncertainty =
                |result: &QueryResult| result.hit.map_or(0.0, |hit| hit.uncertainty());
            let mut ranked = all.clone();
            ranked.sort_by(|a, b| uncertainty(a).total_cmp(&uncertainty(b)));
            assert_eq!(found, ranked[..best.min(50)]);
        }
        let from = || Some(Address::Is("sender3@example.org".into()));
        let query = Query { best: Some(2), from: from(), ..content_query(common) };
        let (summary, found) = ask(&trace, &query);
        assert_eq!((summary.matches, found.len()), (7, 2));
        assert!(found.iter().all(|result| result.envelope.sender == "sender3@example.org"));
        // Without content, all are equally good.
        let query = Query { best: Some(2), from: from(), ..Query::default() };
        let (summary, found) = ask(&trace, &query);
        assert_eq!(
            (summary.matches, summary.expected, ids(&found)),
            (7, None, vec!["id-3", "id-10"])
        );
        // A message with all of the text comes before those with a part.
        let secrets = |count: u32| (100..100 + count).map(secret).collect::<Vec<_>>().join(" ");
        for (n, count) in [(71, 0), (72, 9), (73, 10), (74, 9)] {
            trace.record(&envelope(n), secrets(count).as_bytes()).unwrap();
        }
        let mut graded = content_query(&secrets(10));
        graded.content.as_mut().unwrap().min_share = 0.5;
        let (summary, all) = ask(&trace, &graded);
        graded.best = Some(1);
        let (of_best, found) = ask(&trace, &graded);
        assert_eq!((ids(&all), ids(&found)), (vec!["id-72", "id-73", "id-74"], vec!["id-73"]));
        assert_eq!(of_best.matches, summary.matches);
    }
}
