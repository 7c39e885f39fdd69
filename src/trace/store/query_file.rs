//! Running a query on one log or segment.

use std::time::Instant;

use crate::trace::{Envelope, Hit, Unsearched, decode, is_past};

use super::log::Log;
use super::query::{Address, Pending, Query, RunningQuery};
use super::record::{Record, Records};
use super::segment::{Authenticated, Messages, Segment, Wanted, Words};
use super::wire;

/// The number of messages of a log that are searched between two checks of the
/// deadline.
const DIGESTS_AT_ONCE: usize = 256;

/// A description of damage.
type Damage = String;

/// The description of damage that hides addresses, clients or authenticated ids.
pub(super) const DAMAGED_ADDRESSES: &str = "some of its addresses are damaged";

impl RunningQuery<'_, '_> {
    /// Searches the messages of a log.
    pub(super) fn log(
        &mut self,
        log: &Log,
        records: &Records,
        deadline: Option<Instant>,
    ) -> Vec<Pending> {
        let query = self.query;
        self.summary.damaged.extend(log.damage(records));
        let messages = records.sound.len();
        self.summary.messages += messages as u64;
        let recorded = log.status.map_or(0, |status| u64::from(status.messages));
        self.summary.unreadable += recorded.saturating_sub(messages as u64);
        let mut results = Vec::new();
        let mut candidate = |message: usize, hit| {
            let bytes = records.sound.get(message).map_or(&[][..], |r| records.envelope(r));
            let Some(time) = wire::time(bytes) else { return };
            if !query.is_within(time) {
                return;
            }
            let Some(envelope) = wire::decode(bytes) else { return };
            if query.fits(&envelope) {
                results.push(Pending { envelope, damaged: false, hit });
            }
        };
        if query.content.is_none() {
            (0..messages).for_each(|message| candidate(message, None));
            return results;
        }
        if log.head.decode != decode::VERSION {
            self.summary.add_other_decoder(messages as u64);
            return results;
        }
        let number = self.searches.number(log.settings);
        let Some(search) = self.searches.search(number) else {
            self.summary.unanswered += messages as u64;
            return results;
        };
        let is_partial = |record: &&Record| wire::is_partial(records.envelope(record));
        self.summary.partial += records.sound.iter().filter(is_partial).count() as u64;
        let digests: Vec<_> = records.sound.iter().map(|record| records.digest(record)).collect();
        for (chunk, digests) in digests.chunks(DIGESTS_AT_ONCE).enumerate() {
            if is_past(deadline) {
                break;
            }
            let before = (chunk * DIGESTS_AT_ONCE) as u32;
            search.digests(digests, &mut |hit| {
                let hit = Hit { message: hit.message + before, ..hit };
                candidate(hit.message as usize, Some((number, hit)));
            });
        }
        results
    }

    /// Searches the messages of a segment. Damaged parts do not prevent results
    /// from the rest.
    ///
    /// If the query is not about content, only the first `limit` results have to be returned;
    /// the others may be counted, and their number is returned.
    pub(super) fn segment(
        &mut self,
        segment: &Segment,
        limit: Option<usize>,
        damage: &mut Vec<Damage>,
    ) -> (Vec<Pending>, u64) {
        let (query, head) = (self.query, &segment.head);
        self.summary.messages += u64::from(head.messages);
        let [first, last] = head.times;
        if query.since.is_some_and(|since| last < since)
            || query.until.is_some_and(|until| first > until)
            || !query.ids.is_empty() && !query.ids.iter().any(|id| head.may_have_id(id))
        {
            return (Vec::new(), 0);
        }
        let hits = self.hits(segment, damage);
        let limit = limit.filter(|_| hits.is_none());
        let found = envelopes(segment, query, hits, limit, damage);
        self.summary.unreadable += found.unreadable;
        (found.results, found.others)
    }

    /// The hits in the body of a segment, in order of their positions; `None`
    /// if the query is not about content.
    pub(super) fn hits(
        &mut self,
        segment: &Segment,
        damage: &mut Vec<Damage>,
    ) -> Option<Vec<(usize, Hit)>> {
        self.query.content.as_ref()?;
        let mut hits = Vec::new();
        let messages = segment.head.messages;
        if segment.head.decode != decode::VERSION {
            self.summary.add_other_decoder(messages.into());
            return Some(hits);
        }
        let number = self.searches.number(segment.settings);
        let Some(search) = self.searches.search(number) else {
            self.summary.unanswered += u64::from(messages);
            return Some(hits);
        };
        self.summary.partial += u64::from(segment.head.partial);
        let searched = segment
            .with_body(|body| search.sealed(body, messages, &mut |hit| hits.push((number, hit))));
        let wrong = segment.take_wrong_block();
        // What was not read in time is not damaged.
        if let Err(Unsearched { messages, damage: fault }) = searched
            && !is_past(segment.deadline)
        {
            self.summary.unreadable += u64::from(messages);
            let what = match wrong {
                Some(offset) => format!("its block at byte {offset} is damaged"),
                None => format!("its digests are damaged ({})", fault.0),
            };
            damage.push(format!("{what}, so {messages} of its messages were not searched"));
        }
        hits.sort_by_key(|(_, hit)| hit.message);
        Some(hits)
    }
}

/// The messages of a segment that match a query.
#[derive(Default)]
pub(super) struct SegmentResults {
    pub(super) results: Vec<Pending>,
    /// How many others match.
    pub(super) others: u64,
    /// How many of all messages could not be read.
    pub(super) unreadable: u64,
}

/// The messages of a segment that match a query, among those with a hit if
/// `hits` is given, which is in order of positions; all of them, or at least the first `limit`.
pub(super) fn envelopes(
    segment: &Segment,
    query: &Query<'_>,
    hits: Option<Vec<(usize, Hit)>>,
    limit: Option<usize>,
    damage: &mut Vec<Damage>,
) -> SegmentResults {
    let first = segment.head.times[0];
    let mut results = Vec::new();
    if hits.as_ref().is_some_and(Vec::is_empty) {
        return SegmentResults::default();
    }
    let unreadable = |hits: Option<Vec<(usize, Hit)>>, damage: &mut Vec<Damage>| {
        damage.push("both copies of a table are damaged: its envelopes cannot be read".into());
        // Hits are results all the same.
        let unreadable = if hits.is_some() { 0 } else { u64::from(segment.head.messages) };
        let unread = hits.unwrap_or_default().into_iter();
        let results = unread.map(|hit| Pending::unread(first, Some(hit))).collect();
        SegmentResults { results, others: 0, unreadable }
    };
    let Some(words) = Words::of(segment) else {
        return unreadable(hits, damage);
    };
    // If damage prevents a lookup, each address is compared.
    let from = query.from.as_ref().and_then(|from| numbers_of(from, &words, damage));
    let to = query.to.as_ref().and_then(|to| numbers_of(to, &words, damage));
    let auth = query.auth.as_ref().and_then(|auth| authenticated_as(auth, &words, damage));
    // Otherwise, some of those that are read do not match.
    let all_known = query.from.is_some() == from.is_some()
        && query.to.is_some() == to.is_some()
        && query.auth.is_some() == auth.is_some();
    if [&from, &to].into_iter().flatten().any(Vec::is_empty) {
        return SegmentResults::default();
    }
    let Some(messages) = Messages::of(segment) else {
        return unreadable(hits, damage);
    };
    if from.as_ref().is_some_and(|numbers| !messages.has_sender(numbers))
        || to.as_ref().is_some_and(|numbers| !messages.has_recipient(numbers))
        || auth.as_ref().is_some_and(|auth| !messages.has_name(auth))
    {
        return SegmentResults::default();
    }
    let found = hits
        .as_ref()
        .map_or_else(Vec::new, |hits| with_message(&messages, hits, first, &mut results, damage));
    let numbers: Vec<u32> = found.iter().map(|(message, _)| *message).collect();
    let hit_of = |message: u32| {
        let position = found.binary_search_by_key(&message, |(message, _)| *message).ok()?;
        found.get(position).map(|(_, hit)| *hit)
    };
    let wanted = Wanted {
        times: query.times(),
        from: from.as_deref(),
        to: to.as_deref(),
        auth: auth.as_ref(),
        ids: &query.ids,
        messages: hits.as_ref().map(|_| numbers.as_slice()),
        first: limit.filter(|_| all_known),
    };
    let unread = messages.read(&words, &wanted, &mut |row| {
        let hit = hit_of(row.message);
        if row.damaged || query.fits(&row.envelope) {
            results.push(Pending { envelope: row.envelope, damaged: row.damaged, hit });
        }
    });
    let mut unreadable = 0;
    for range in unread.damaged {
        let (start, end) = (range.start, range.end);
        damage.push(format!("the envelopes of its messages {start} to {end} are damaged"));
        unreadable += if hits.is_none() { u64::from(end - start) } else { 0 };
        results.extend(range.filter_map(hit_of).map(|hit| Pending::unread(first, Some(hit))));
    }
    if words.is_damaged() || messages.is_damaged() {
        damage.push(DAMAGED_ADDRESSES.to_owned());
    }
    damage.dedup();
    SegmentResults { results, others: unread.others, unreadable }
}

/// The hit of each message that has one, in order of the messages. Of which the message is not
/// found are results of their own.
fn with_message(
    messages: &Messages<'_>,
    hits: &[(usize, Hit)],
    first: i64,
    results: &mut Vec<Pending>,
    damage: &mut Vec<Damage>,
) -> Vec<(u32, (usize, Hit))> {
    let positions: Vec<_> = hits.iter().map(|(_, hit)| hit.message).collect();
    let mut found = Vec::new();
    for (message, hit) in messages.at_positions(&positions).into_iter().zip(hits) {
        match message {
            Some(message) => found.push((message, *hit)),
            None => {
                results.push(Pending::unread(first, Some(*hit)));
                damage.push("the order of its messages is damaged".into());
            }
        }
    }
    found.sort_by_key(|(message, _)| *message);
    found
}

/// The numbers of the matching addresses; `None` if they cannot be determined
/// because of damage.
pub(super) fn numbers_of(
    address: &Address<'_>,
    words: &Words<'_>,
    damage: &mut Vec<Damage>,
) -> Option<Vec<u32>> {
    let found = match address {
        Address::Is(address) => words.find(address),
        Address::Test(test) => words.matching(test),
    };
    if found.is_none() {
        damage.push(DAMAGED_ADDRESSES.to_owned());
    }
    found
}

/// The matching authenticated ids; `None` if they cannot be determined because of damage.
pub(super) fn authenticated_as<'a>(
    auth: &'a Address<'a>,
    words: &'a Words<'a>,
    damage: &mut Vec<Damage>,
) -> Option<Authenticated<'a>> {
    let found = Authenticated::of(words, auth);
    if found.is_none() {
        damage.push(DAMAGED_ADDRESSES.to_owned());
    }
    found
}

impl Pending {
    /// A result whose envelope cannot be read.
    fn unread(time: i64, hit: Option<(usize, Hit)>) -> Self {
        Self { envelope: Envelope { time, ..Envelope::default() }, damaged: true, hit }
    }
}
