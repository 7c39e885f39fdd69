//! Running a query over all logs and segments.

use crate::trace::is_past;

use super::ask::envelopes;
use super::best::{Best, Tally};
use super::query::{Answer, Asking, Pending, Query, QuerySummary, Searches};
use super::sources::Source;
use super::{TraceError, TraceStore};

/// No more answers than these are held back until all files have been queried:
/// by then, their chances are known better.
const PENDING_MAX: usize = 1 << 16;

impl TraceStore {
    /// Asks all messages. `progress` is told how many have been asked, of how
    /// many; `found` gets each that may be one of those asked for.
    ///
    /// Nothing is locked: messages that are recorded meanwhile may be missing.
    ///
    /// # Errors
    /// The question is too short, or the directory cannot be read. What is
    /// damaged is told in [`QuerySummary`].
    pub fn query(
        &self,
        query: &Query<'_>,
        progress: &mut dyn FnMut(u64, u64),
        found: &mut dyn FnMut(Answer),
    ) -> Result<QuerySummary, TraceError> {
        let sources = self.sources_until(query.deadline)?;
        let mut settings = vec![self.options.settings];
        for (_, source) in &sources.list {
            if source.is_decoded_as_now() && !settings.contains(&source.settings()) {
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
        let asked = QuerySummary {
            shortest: searches.all.iter().map(|(_, shortest, _)| *shortest).max().unwrap_or(0),
            damaged: sources.problems,
            other_key: sources.other_key,
            late: sources.late,
            ..QuerySummary::default()
        };
        let mut asking = Asking { query, searches, asked };
        let of = sources.list.iter().map(|(_, source)| source.messages()).sum();
        let most = query.limit.unwrap_or(usize::MAX);
        let mut list = sources.list;
        if query.limit.is_some() {
            list.reverse();
        }
        let (mut pending, mut tally) = (Vec::new(), Tally::default());
        let mut best = query.best.map(Best::new);
        for (_, source) in &mut list {
            if let Source::Segment(segment) = source {
                segment.deadline = query.deadline;
            }
        }
        for (number, (name, source)) in list.iter().enumerate() {
            if asking.asked.late || is_past(query.deadline) {
                asking.asked.late = true;
                break;
            }
            let mut damage = Vec::new();
            let mut answers = match (source, &mut best) {
                (Source::Segment(segment), Some(best)) if query.asks_no_envelopes() => {
                    asking.asked.messages += u64::from(segment.head.messages);
                    let hits = asking.hits(segment, &mut damage).unwrap_or_default();
                    best.hits(number, hits, &asking.searches);
                    Vec::new()
                }
                (Source::Segment(segment), _) => asking.segment(segment, &mut damage),
                (Source::Log(log), _) => self.ask_log(log, &mut asking).unwrap_or_else(|error| {
                    damage.push(format!("it cannot be read: {error}"));
                    Vec::new()
                }),
            };
            if is_past(query.deadline) {
                // What could not be read in time looks like damage.
                asking.asked.late = true;
                break;
            }
            asking.asked.tell_damage(self.dir.path_of(name), damage);
            asking.asked.segments += 1;
            progress(asking.asked.messages, of);
            if let Some(best) = &mut best {
                best.answers(number, answers, &asking.searches);
                continue;
            }
            if query.limit.is_some() {
                answers.reverse();
            }
            pending.append(&mut answers);
            if query.content.is_none() || pending.len() > PENDING_MAX || query.limit.is_some() {
                let left = most - tally.messages as usize;
                tell(&asking.searches, pending.drain(..).take(left), &mut tally, found);
            }
            if tally.messages as usize >= most {
                break;
            }
        }
        if let Some(best) = best {
            let Asking { query, searches, asked } = &mut asking;
            let (answers, all) = best.take(searches, |number, hits| {
                let Some((name, Source::Segment(segment))) = list.get(number) else {
                    return Vec::new();
                };
                let mut damage = Vec::new();
                let answers = envelopes(segment, query, Some(hits), &mut damage);
                if is_past(query.deadline) {
                    asked.late = true;
                    return Vec::new();
                }
                asked.tell_damage(self.dir.path_of(name), damage);
                answers
            });
            tell(searches, answers.into_iter(), &mut tally, found);
            tally = all;
        } else {
            tell(&asking.searches, pending.into_iter(), &mut tally, found);
        }
        asking.asked.matches = tally.messages;
        asking.asked.chance = tally.chance();
        Ok(asking.asked)
    }
}

/// Tells answers, and counts them.
fn tell(
    searches: &Searches<'_>,
    answers: impl Iterator<Item = Pending>,
    tally: &mut Tally,
    found: &mut dyn FnMut(Answer),
) {
    for answer in answers {
        let hit = answer.matched(searches);
        tally.add(hit);
        found(Answer { envelope: answer.envelope, damaged: answer.damaged, hit });
    }
}
