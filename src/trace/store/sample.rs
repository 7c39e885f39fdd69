//! Messages whose contents are to be compared with each other.

use std::collections::BTreeMap;

use crate::trace::{Envelope, Scheme, Settings, Sketch};

use super::error::Problem;
use super::query::{Accepts, Query, QueryResult, QuerySummary};
use super::query_file::{DAMAGED_ADDRESSES, authenticated_as, numbers_of};
use super::segment::{Messages, Segment, Wanted, Words};
use super::sources::Source;
use super::{TraceError, TraceStore, wire};

/// The messages that fit a query, and what can be compared of some of them.
#[derive(Debug, Default)]
pub struct Sample {
    /// The messages, the newest last.
    pub messages: Vec<Envelope>,
    /// How many older ones fit as well, and are not among these.
    pub omitted: u64,
    /// How many of the messages were chosen, evenly, to be compared.
    pub chosen: usize,
    /// What can be compared of the chosen ones: each is a message's number and its sketch.
    pub sketches: Vec<(usize, Sketch)>,
    /// How many of the chosen ones are in sealed segments of a scheme that does not tell the
    /// messages of a segment apart.
    pub mixed: usize,
    /// How many of them were recorded with other settings, or by another version, than the
    /// newest: their digests differ whatever they contain.
    pub otherwise: usize,
    /// Damage that was found.
    pub damaged: Vec<Problem>,
    /// Files that were written with another key and cannot be read.
    pub other_key: u64,
}

/// Where a message is.
struct MessageAt {
    envelope: Envelope,
    source: usize,
    /// Its number in the log or segment.
    number: usize,
}

impl TraceStore {
    /// The messages that fit `query`, which is about envelopes: its content, limit and deadline
    /// are ignored. At most the newest `most` are returned, and what can be compared of at most
    /// `compared` of them, chosen evenly.
    ///
    /// # Errors
    /// The directory cannot be read. Damage is reported in [`Sample`].
    pub fn sample(
        &self,
        query: &Query<'_>,
        most: usize,
        compared: usize,
    ) -> Result<Sample, TraceError> {
        let sources = self.sources()?;
        let mut sample =
            Sample { damaged: sources.problems, other_key: sources.other_key, ..Sample::default() };
        let mut found: Vec<MessageAt> = Vec::new();
        // The newest first, so that what is too much is what is oldest.
        for (source, (name, file)) in sources.list.iter().enumerate().rev() {
            let mut damage = Vec::new();
            let mut these = match file {
                Source::Log(log) => self.in_log(log, query, &mut sample),
                Source::Segment(segment) => in_segment(segment, query, &mut damage),
            };
            let mut summary = QuerySummary::default();
            summary.add_damage(self.dir.path_of(name), damage);
            sample.damaged.append(&mut summary.damaged);
            these.retain(|(envelope, _)| accepted(query, envelope));
            let room = most.saturating_sub(found.len());
            sample.omitted += these.len().saturating_sub(room) as u64;
            these.drain(..these.len().saturating_sub(room));
            let these = these.into_iter().rev();
            found.extend(these.map(|(envelope, number)| MessageAt { envelope, source, number }));
        }
        found.reverse();
        found.sort_by_key(|found| found.envelope.time);
        let chosen = chosen(found.len(), compared);
        sample.chosen = chosen.len();
        let mut by_source: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
        for at in chosen {
            if let Some(one) = found.get(at) {
                by_source.entry(one.source).or_default().push((one.number, at));
            }
        }
        let mut settings: Option<Settings> = None;
        for (source, mut wanted) in by_source.into_iter().rev() {
            wanted.sort_unstable();
            let Some((_, file)) = sources.list.get(source) else { continue };
            let same = *settings.get_or_insert(file.settings()) == file.settings();
            if !same || !file.has_current_decoder() {
                sample.otherwise += wanted.len();
                continue;
            }
            let scheme = file.settings().scheme(&self.key.digest);
            match file {
                Source::Log(log) => {
                    let Ok(bytes) = log.read() else { continue };
                    let records = log.records(bytes, &self.key);
                    let digest = |number: usize| Some(records.digest(records.sound.get(number)?));
                    let sketch = |number| scheme.sketch(digest(number)?);
                    let sketches = wanted.iter().filter_map(|&(n, at)| Some((at, sketch(n)?)));
                    sample.sketches.extend(sketches);
                }
                Source::Segment(_) if !scheme.compares_sealed() => sample.mixed += wanted.len(),
                Source::Segment(segment) => of_segment(segment, &*scheme, &wanted, &mut sample),
            }
        }
        sample.sketches.sort_by_key(|(at, _)| *at);
        sample.messages = found.into_iter().map(|found| found.envelope).collect();
        Ok(sample)
    }

    /// The messages of a log that fit, with their numbers.
    fn in_log(
        &self,
        log: &super::log::Log,
        query: &Query<'_>,
        sample: &mut Sample,
    ) -> Vec<(Envelope, usize)> {
        let Ok(bytes) = log.read() else { return Vec::new() };
        let records = log.records(bytes, &self.key);
        sample.damaged.extend(log.damage(&records));
        let each = records.sound.iter().enumerate();
        let fitting = each.filter_map(|(number, record)| {
            let bytes = records.envelope(record);
            let envelope = wire::time(bytes)
                .filter(|&time| query.is_within(time))
                .and_then(|_| wire::decode(bytes))?;
            query.fits(&envelope).then_some((envelope, number))
        });
        fitting.collect()
    }
}

/// Whether the further conditions of a query hold.
fn accepted(query: &Query<'_>, envelope: &Envelope) -> bool {
    query.accepts.as_ref().is_none_or(|Accepts(accepts)| {
        accepts(&QueryResult { envelope: envelope.clone(), damaged: false, hit: None })
    })
}

/// At most `most` of the numbers below `count`, evenly.
fn chosen(count: usize, most: usize) -> Vec<usize> {
    let taken = count.min(most);
    (0..taken).map(|n| n * count / taken.max(1)).collect()
}

/// The messages of a segment that fit, with their numbers.
pub(super) fn in_segment(
    segment: &Segment,
    query: &Query<'_>,
    damage: &mut Vec<String>,
) -> Vec<(Envelope, usize)> {
    let [first, last] = segment.head.times;
    let outside = query.since.is_some_and(|since| last < since)
        || query.until.is_some_and(|until| first > until)
        || !query.ids.is_empty() && !query.ids.iter().any(|id| segment.head.may_have_id(id));
    if outside {
        return Vec::new();
    }
    let mut found = Vec::new();
    let (Some(words), Some(messages)) = (Words::of(segment), Messages::of(segment)) else {
        damage.push("both copies of a table are damaged: its envelopes cannot be read".into());
        return found;
    };
    let from = query.from.as_ref().and_then(|from| numbers_of(from, &words, damage));
    let to = query.to.as_ref().and_then(|to| numbers_of(to, &words, damage));
    let auth = query.auth.as_ref().and_then(|auth| authenticated_as(auth, &words, damage));
    let wanted = Wanted {
        times: query.times(),
        from: from.as_deref(),
        to: to.as_deref(),
        auth: auth.as_ref(),
        ids: &query.ids,
        messages: None,
        first: None,
    };
    let mut is_damaged = false;
    let unread = messages.read(&words, &wanted, &mut |row| {
        is_damaged |= row.damaged;
        if query.fits(&row.envelope) {
            found.push((row.envelope, row.message as usize));
        }
    });
    for range in unread.damaged {
        let (start, end) = (range.start, range.end);
        damage.push(format!("the envelopes of its messages {start} to {end} are damaged"));
    }
    if is_damaged || words.is_damaged() || messages.is_damaged() {
        damage.push(DAMAGED_ADDRESSES.to_owned());
    }
    damage.dedup();
    found
}

/// Adds what can be compared of messages of a segment: their numbers, in order, and their
/// places in the sample.
fn of_segment(
    segment: &Segment,
    scheme: &dyn Scheme,
    wanted: &[(usize, usize)],
    sample: &mut Sample,
) {
    let Some(messages) = Messages::of(segment) else { return };
    let count = segment.head.messages;
    let all: Vec<u32> = (0..count).collect();
    let mut places: Vec<(u32, usize)> = Vec::with_capacity(wanted.len());
    for (position, message) in all.iter().zip(messages.at_positions(&all)) {
        let Some(message) = message else { continue };
        let found = wanted.binary_search_by_key(&(message as usize), |(number, _)| *number);
        if let Some((_, at)) = found.ok().and_then(|n| wanted.get(n)) {
            places.push((*position, *at));
        }
    }
    let positions: Vec<u32> = places.iter().map(|(position, _)| *position).collect();
    let mut add = |position: u32, sketch: Sketch| {
        let found = places.binary_search_by_key(&position, |(position, _)| *position);
        if let Some((_, at)) = found.ok().and_then(|n| places.get(n)) {
            sample.sketches.push((*at, sketch));
        }
    };
    // What is damaged cannot be compared; it is reported by `exirate verify`.
    let _ = segment.with_body(|body| scheme.sealed_sketches(body, count, &positions, &mut add));
}
