//! Running a query over all logs and segments.

use std::path::PathBuf;
use std::time::Instant;

use crate::trace::{Scheme, Settings, TooShort, is_past};

use super::best_results::{Best, Tally};
use super::log::Log;
use super::query::{Pending, Query, QueryResult, QuerySummary, RunningQuery, Searches};
use super::query_file::envelopes;
use super::record::Records;
use super::segment::Segment;
use super::sources::{Source, Sources};
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
        let queries = std::slice::from_ref(query);
        let summaries = self.query_all(queries, progress, &mut |_, result| found(result))?;
        let summary = summaries.into_iter().next().unwrap_or_else(|| Ok(QuerySummary::default()));
        summary.map_err(TraceError::TooShort)
    }

    /// Runs several queries in one pass, so that each file is opened once, and each log is read
    /// once. `found` is called with the number of the query, too. Returns the summary of each,
    /// or that its content is too short. If one of them has a limit, the newest messages come
    /// first in all; the earliest deadline counts.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn query_all(
        &self,
        queries: &[Query<'_>],
        progress: &mut dyn FnMut(u64, u64),
        found: &mut dyn FnMut(usize, QueryResult),
    ) -> Result<Vec<Result<QuerySummary, TooShort>>, TraceError> {
        let deadline = queries.iter().filter_map(|query| query.deadline).min();
        let mut sources = self.sources_until(deadline)?;
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
        if queries.iter().any(|query| query.limit.is_some()) {
            sources.list.reverse();
        }
        for (_, source) in &mut sources.list {
            if let Source::Segment(segment) = source {
                segment.deadline = deadline;
            }
        }
        let mut runs: Vec<_> =
            queries.iter().map(|query| QueryRun::new(query, &schemes, &sources)).collect();
        let of = sources.list.iter().map(|(_, source)| source.messages()).sum();
        for (number, (name, source)) in sources.list.iter().enumerate() {
            let mut going = Vec::new();
            for (query, run) in runs.iter_mut().enumerate() {
                going.extend(run.as_mut().ok().filter(|run| !run.is_done).map(|run| (query, run)));
            }
            if going.is_empty() {
                break;
            }
            let file = match source {
                Source::Segment(segment) => File::Segment(segment),
                Source::Log(log) => {
                    let bytes = log.read_until(deadline).map_err(|error| error.to_string());
                    File::Log(log, bytes.map(|bytes| log.records(bytes, &self.key)))
                }
            };
            let mut done = 0;
            for (query, run) in going {
                run.file(number, &file, deadline, || self.dir.path_of(name), &mut |result| {
                    found(query, result);
                });
                done = done.max(run.running.summary.messages);
            }
            if !is_past(deadline) {
                progress(done, of);
            }
        }
        let finished = runs.into_iter().enumerate().map(|(query, run)| {
            Ok(run?.finish(self, &sources, deadline, &mut |result| found(query, result)))
        });
        Ok(finished.collect())
    }
}

/// A log or segment that is searched.
enum File<'s> {
    Segment(&'s Segment),
    /// With its records, or why it cannot be read.
    Log(&'s Log, Result<Records, String>),
}

/// A query with its results so far.
struct QueryRun<'a, 'q> {
    running: RunningQuery<'a, 'q>,
    /// The best results, if only these are wanted.
    best: Option<Best>,
    /// Results that have not been reported.
    pending: Vec<Pending>,
    /// The results that have been.
    tally: Tally,
    /// Whether it needs no more files.
    is_done: bool,
}

impl<'a, 'q> QueryRun<'a, 'q> {
    /// Prepares it; an error if the content is too short for all messages.
    fn new(
        query: &'a Query<'q>,
        schemes: &'a [(Settings, Box<dyn Scheme>)],
        sources: &Sources,
    ) -> Result<Self, TooShort> {
        let searches = Searches::new(schemes, query.content.as_ref(), query.locate);
        if let Some((_, _, Some(Err(short)))) = searches.all.first()
            && searches.all.iter().all(|(_, _, search)| matches!(search, Some(Err(_))))
        {
            return Err(*short);
        }
        let summary = QuerySummary {
            shortest: searches.all.iter().map(|(_, shortest, _)| *shortest).max().unwrap_or(0),
            damaged: sources.problems.clone(),
            other_key: sources.other_key,
            late: sources.late,
            ..QuerySummary::default()
        };
        Ok(Self {
            best: query.best.filter(|_| query.accepts.is_none()).map(Best::new),
            pending: Vec::new(),
            tally: Tally::default(),
            is_done: summary.late,
            running: RunningQuery { query, searches, summary },
        })
    }

    fn limit(&self) -> usize {
        self.running.query.limit.unwrap_or(usize::MAX)
    }

    /// Searches a log or segment, which has this number and path.
    fn file(
        &mut self,
        number: usize,
        file: &File<'_>,
        deadline: Option<Instant>,
        path: impl Fn() -> PathBuf,
        found: &mut dyn FnMut(QueryResult),
    ) {
        let query = self.running.query;
        let running = &mut self.running;
        if is_past(deadline) {
            running.summary.late = true;
            self.is_done = true;
            return;
        }
        let mut damage = Vec::new();
        let mut others = 0;
        let mut results = match (file, &mut self.best) {
            (File::Segment(segment), Some(best)) if query.is_content_only() => {
                running.summary.messages += u64::from(segment.head.messages);
                let hits = running.hits(segment, &mut damage).unwrap_or_default();
                best.hits(number, hits, &running.searches);
                Vec::new()
            }
            (File::Segment(segment), best) => {
                let room = best.as_ref().map(Best::room);
                let (results, more) = running.segment(segment, room, &mut damage);
                others = more;
                results
            }
            (File::Log(log, Ok(records)), _) => running.log(log, records, deadline),
            (File::Log(_, Err(error)), _) => {
                damage.push(format!("it cannot be read: {error}"));
                Vec::new()
            }
        };
        if is_past(deadline) {
            // Parts that could not be read in time look damaged.
            running.summary.late = true;
            self.is_done = true;
            return;
        }
        if !damage.is_empty() {
            running.summary.add_damage(path(), damage);
        }
        running.summary.segments += 1;
        if let Some(best) = &mut self.best {
            best.results(number, results, others, &running.searches);
            return;
        }
        if query.limit.is_some() {
            results.reverse();
        }
        self.pending.append(&mut results);
        if query.content.is_none() || self.pending.len() > PENDING_MAX || query.limit.is_some() {
            self.report(found);
        }
        self.is_done = self.tally.messages as usize >= self.limit();
    }

    /// Reports the pending results.
    fn report(&mut self, found: &mut dyn FnMut(QueryResult)) {
        let left = self.limit() - self.tally.messages as usize;
        report(&self.running, self.pending.drain(..), left, &mut self.tally, found);
    }

    /// Reports the remaining results; returns the summary.
    fn finish(
        mut self,
        store: &TraceStore,
        sources: &Sources,
        deadline: Option<Instant>,
        found: &mut dyn FnMut(QueryResult),
    ) -> QuerySummary {
        if let Some(best) = self.best.take() {
            let RunningQuery { query, searches, summary } = &mut self.running;
            let (results, all) = best.take(searches, |number, hits, first| {
                let Some((name, Source::Segment(segment))) = sources.list.get(number) else {
                    return Vec::new();
                };
                let mut damage = Vec::new();
                let found = envelopes(segment, query, Some(hits), first, &mut damage);
                if is_past(deadline) {
                    summary.late = true;
                    return Vec::new();
                }
                summary.add_damage(store.dir.path_of(name), damage);
                found.results
            });
            self.pending = results;
            report(&self.running, self.pending.drain(..), usize::MAX, &mut self.tally, found);
            self.tally = all;
        } else {
            self.report(found);
        }
        let Self { running: RunningQuery { searches, mut summary, .. }, tally, .. } = self;
        summary.matches = tally.messages;
        summary.expected = tally.share.and_then(|share| searches.expected(share));
        summary
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
