//! Running a query over all logs and segments.

use crate::trace::is_past;

use super::best_results::{Best, Tally};
use super::query::{Pending, Query, QueryResult, QuerySummary, RunningQuery, Searches};
use super::query_file::envelopes;
use super::sources::Source;
use super::{TraceError, TraceStore};

/// The maximum number of results held back until all files have been searched:
/// by then, their chances are known more precisely.
const PENDING_MAX: usize = 1 << 16;

impl TraceStore {
    /// Runs a query on all messages. `progress` is called with the number of
    /// messages searched so far and their total, and `found` with each match.
    ///
    /// Nothing is locked: messages recorded during the query may be missing.
    ///
    /// # Errors
    /// The content is too short, or the directory cannot be read. Damage is
    /// reported in [`QuerySummary`].
    pub fn query(
        &self,
        query: &Query<'_>,
        progress: &mut dyn FnMut(u64, u64),
        found: &mut dyn FnMut(QueryResult),
    ) -> Result<QuerySummary, TraceError> {
        let sources = self.sources_until(query.deadline)?;
        let mut settings = vec![self.options.settings];
        for (_, source) in &sources.list {
            if source.has_current_decoder() && !settings.contains(&source.settings()) {
                settings.push(source.settings());
            }
        }
        let schemes: Vec<_> = settings
            .into_iter()
            .map(|settings| (settings, settings.scheme(&self.key.digest)))
            .collect();
        let searches = Searches::new(&schemes, query.content.as_ref());
        if let Some((_, _, Some(Err(short)))) = searches.all.first()
            && searches.all.iter().all(|(_, _, search)| matches!(search, Some(Err(_))))
        {
            return Err(TraceError::TooShort(*short));
        }
        let summary = QuerySummary {
            shortest: searches.all.iter().map(|(_, shortest, _)| *shortest).max().unwrap_or(0),
            damaged: sources.problems,
            other_key: sources.other_key,
            late: sources.late,
            ..QuerySummary::default()
        };
        let mut running = RunningQuery { query, searches, summary };
        let of = sources.list.iter().map(|(_, source)| source.messages()).sum();
        let limit = query.limit.unwrap_or(usize::MAX);
        let mut list = sources.list;
        if query.limit.is_some() {
            list.reverse();
        }
        let (mut pending, mut tally) = (Vec::new(), Tally::default());
        let mut best = query.best.filter(|_| query.accepts.is_none()).map(Best::new);
        for (_, source) in &mut list {
            if let Source::Segment(segment) = source {
                segment.deadline = query.deadline;
            }
        }
        for (number, (name, source)) in list.iter().enumerate() {
            if running.summary.late || is_past(query.deadline) {
                running.summary.late = true;
                break;
            }
            let mut damage = Vec::new();
            let mut results = match (source, &mut best) {
                (Source::Segment(segment), Some(best)) if query.is_content_only() => {
                    running.summary.messages += u64::from(segment.head.messages);
                    let hits = running.hits(segment, &mut damage).unwrap_or_default();
                    best.hits(number, hits, &running.searches);
                    Vec::new()
                }
                (Source::Segment(segment), _) => running.segment(segment, &mut damage),
                (Source::Log(log), _) => {
                    self.query_log(log, &mut running).unwrap_or_else(|error| {
                        damage.push(format!("it cannot be read: {error}"));
                        Vec::new()
                    })
                }
            };
            if is_past(query.deadline) {
                // Parts that could not be read in time look damaged.
                running.summary.late = true;
                break;
            }
            running.summary.add_damage(self.dir.path_of(name), damage);
            running.summary.segments += 1;
            progress(running.summary.messages, of);
            if let Some(best) = &mut best {
                best.results(number, results, &running.searches);
                continue;
            }
            if query.limit.is_some() {
                results.reverse();
            }
            pending.append(&mut results);
            if query.content.is_none() || pending.len() > PENDING_MAX || query.limit.is_some() {
                let left = limit - tally.messages as usize;
                report(&running, pending.drain(..), left, &mut tally, found);
            }
            if tally.messages as usize >= limit {
                break;
            }
        }
        if let Some(best) = best {
            let RunningQuery { query, searches, summary } = &mut running;
            let (results, all) = best.take(searches, |number, hits| {
                let Some((name, Source::Segment(segment))) = list.get(number) else {
                    return Vec::new();
                };
                let mut damage = Vec::new();
                let results = envelopes(segment, query, Some(hits), &mut damage);
                if is_past(query.deadline) {
                    summary.late = true;
                    return Vec::new();
                }
                summary.add_damage(self.dir.path_of(name), damage);
                results
            });
            report(&running, results.into_iter(), usize::MAX, &mut tally, found);
            tally = all;
        } else {
            let left = limit - tally.messages as usize;
            report(&running, pending.into_iter(), left, &mut tally, found);
        }
        running.summary.matches = tally.messages;
        running.summary.expected = tally.share.and_then(|share| running.searches.expected(share));
        Ok(running.summary)
    }
}

/// Passes the results that the query accepts to `found`, at most `limit`, and counts them.
fn report(
    running: &RunningQuery<'_, '_>,
    results: impl Iterator<Item = Pending>,
    limit: usize,
    tally: &mut Tally,
    found: &mut dyn FnMut(QueryResult),
) {
    let results = results.map(|result| {
        let hit = result.matched(&running.searches);
        QueryResult { envelope: result.envelope, damaged: result.damaged, hit }
    });
    let accepts = running.query.accepts.as_ref();
    for result in
        results.filter(|result| accepts.is_none_or(|accepts| accepts.0(result))).take(limit)
    {
        tally.add(result.hit);
        found(result);
    }
}
