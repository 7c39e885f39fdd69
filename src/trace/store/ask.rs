//! Asking one log or segment.

use std::io;

use crate::trace::{Envelope, Hit, decode, is_past};

use super::log::Log;
use super::query::{Address, Asking, Pending, Query};
use super::record::{Record, Records};
use super::segment::{Messages, Segment, Wanted, Words};
use super::{TraceStore, wire};

/// How many messages of a log are asked between two looks at the deadline.
const DIGESTS_AT_ONCE: usize = 256;

/// What is damaged, in a sentence.
type Damage = String;

impl TraceStore {
    /// Asks the messages of a log.
    pub(super) fn ask_log(
        &self,
        log: &Log,
        asking: &mut Asking<'_, '_>,
    ) -> io::Result<Vec<Pending>> {
        let query = asking.query;
        let records = Records::of(log.read_until(query.deadline)?, &self.key);
        asking.asked.damaged.extend(log.damage(&records));
        let messages = records.sound.len();
        asking.asked.messages += messages as u64;
        let mut answers = Vec::new();
        let mut candidate = |message: usize, hit| {
            let bytes = records.sound.get(message).map_or(&[][..], |r| records.envelope(r));
            let Some(time) = wire::time(bytes) else { return };
            if !query.is_within(time) {
                return;
            }
            let Some(envelope) = wire::decode(bytes) else { return };
            if query.fits(&envelope) {
                answers.push(Pending { envelope, damaged: false, hit });
            }
        };
        if query.content.is_none() {
            (0..messages).for_each(|message| candidate(message, None));
            return Ok(answers);
        }
        if log.head.decode != decode::VERSION {
            asking.asked.tell_decoded_otherwise(messages as u64);
            return Ok(answers);
        }
        let number = asking.searches.number(log.settings);
        let Some(search) = asking.searches.search(number) else {
            asking.asked.unanswered += messages as u64;
            return Ok(answers);
        };
        let is_partial = |record: &&Record| wire::is_partial(records.envelope(record));
        asking.asked.partial += records.sound.iter().filter(is_partial).count() as u64;
        let digests: Vec<_> = records.sound.iter().map(|record| records.digest(record)).collect();
        for (chunk, digests) in digests.chunks(DIGESTS_AT_ONCE).enumerate() {
            if is_past(query.deadline) {
                break;
            }
            let before = (chunk * DIGESTS_AT_ONCE) as u32;
            search.digests(digests, &mut |hit| {
                let hit = Hit { message: hit.message + before, ..hit };
                candidate(hit.message as usize, Some((number, hit)));
            });
        }
        Ok(answers)
    }
}

impl Asking<'_, '_> {
    /// Asks the messages of a segment. What is damaged of it does not keep the
    /// rest from answering.
    pub(super) fn segment(&mut self, segment: &Segment, damage: &mut Vec<Damage>) -> Vec<Pending> {
        let (query, head) = (self.query, &segment.head);
        self.asked.messages += u64::from(head.messages);
        let [first, last] = head.times;
        if query.since.is_some_and(|since| last < since)
            || query.until.is_some_and(|until| first > until)
            || query.id.as_ref().is_some_and(|id| !head.may_have_id(id))
        {
            return Vec::new();
        }
        let hits = self.hits(segment, damage);
        envelopes(segment, query, hits, damage)
    }

    /// What the body of a segment says to a question, in order of its places;
    /// `None` where there is no question.
    pub(super) fn hits(
        &mut self,
        segment: &Segment,
        damage: &mut Vec<Damage>,
    ) -> Option<Vec<(usize, Hit)>> {
        self.query.content.as_ref()?;
        let mut hits = Vec::new();
        let messages = segment.head.messages;
        if segment.head.decode != decode::VERSION {
            self.asked.tell_decoded_otherwise(messages.into());
            return Some(hits);
        }
        let number = self.searches.number(segment.settings);
        let Some(search) = self.searches.search(number) else {
            self.asked.unanswered += u64::from(messages);
            return Some(hits);
        };
        self.asked.partial += u64::from(segment.head.partial);
        let asked = segment
            .with_body(|body| search.sealed(body, messages, &mut |hit| hits.push((number, hit))));
        if let Err(fault) = asked {
            damage.push(format!("its digests are damaged: {}", fault.0));
        }
        hits.sort_by_key(|(_, hit)| hit.message);
        Some(hits)
    }
}

/// The messages of a segment that a query asks for, of those with a hit if
/// there are `hits`, which are in order of their places.
pub(super) fn envelopes(
    segment: &Segment,
    query: &Query<'_>,
    hits: Option<Vec<(usize, Hit)>>,
    damage: &mut Vec<Damage>,
) -> Vec<Pending> {
    let first = segment.head.times[0];
    let mut answers = Vec::new();
    if hits.as_ref().is_some_and(Vec::is_empty) {
        return answers;
    }
    let unreadable = |hits: Option<Vec<(usize, Hit)>>, damage: &mut Vec<Damage>| {
        damage.push("both copies of a table are damaged: its envelopes cannot be read".into());
        let unread = hits.unwrap_or_default().into_iter();
        unread.map(|hit| Pending::unread(first, Some(hit))).collect()
    };
    let Some(words) = Words::of(segment) else {
        return unreadable(hits, damage);
    };
    // Where damage hides which they are, each address is looked at.
    let from = query.from.as_ref().and_then(|from| numbers_of(from, &words, damage));
    let to = query.to.as_ref().and_then(|to| numbers_of(to, &words, damage));
    if [&from, &to].into_iter().flatten().any(Vec::is_empty) {
        return answers;
    }
    let mut numbers = Vec::new();
    let Some(messages) = Messages::of(segment) else {
        return unreadable(hits, damage);
    };
    if from.as_ref().is_some_and(|numbers| !messages.has_sender(numbers))
        || to.as_ref().is_some_and(|numbers| !messages.has_recipient(numbers))
    {
        return answers;
    }
    // Of each message with a hit, that hit.
    let mut found: Vec<(u32, (usize, Hit))> = Vec::new();
    if let Some(hits) = &hits {
        let places: Vec<_> = hits.iter().map(|(_, hit)| hit.message).collect();
        for (message, hit) in messages.at_places(&places).into_iter().zip(hits) {
            match message {
                Some(message) => found.push((message, *hit)),
                None => {
                    answers.push(Pending::unread(first, Some(*hit)));
                    damage.push("it does not tell any more which message is where".into());
                }
            }
        }
        found.sort_by_key(|(message, _)| *message);
        numbers.extend(found.iter().map(|(message, _)| *message));
    }
    let hit_of = |message: u32| {
        let place = found.binary_search_by_key(&message, |(message, _)| *message).ok()?;
        found.get(place).map(|(_, hit)| *hit)
    };
    let wanted = Wanted {
        times: query.times(),
        from: from.as_deref(),
        to: to.as_deref(),
        id: query.id.as_deref(),
        messages: hits.as_ref().map(|_| numbers.as_slice()),
    };
    let unreadable = messages.read(&words, &wanted, &mut |row| {
        let hit = hit_of(row.message);
        if row.damaged || query.fits(&row.envelope) {
            answers.push(Pending { envelope: row.envelope, damaged: row.damaged, hit });
        }
    });
    for range in unreadable {
        let (start, end) = (range.start, range.end);
        damage.push(format!("the envelopes of its messages {start} to {end} are damaged"));
        answers.extend(range.filter_map(hit_of).map(|hit| Pending::unread(first, Some(hit))));
    }
    if words.is_damaged() {
        damage.push("some of its addresses are damaged".into());
    }
    damage.dedup();
    answers
}

/// The numbers of the addresses that are asked for; `None` where damage does
/// not tell.
fn numbers_of(
    address: &Address<'_>,
    words: &Words<'_>,
    damage: &mut Vec<Damage>,
) -> Option<Vec<u32>> {
    let found = match address {
        Address::Is(address) => words.find(address),
        Address::Test(test) => words.matching(test),
    };
    if found.is_none() {
        damage.push("some of its addresses are damaged".into());
    }
    found
}

impl Pending {
    /// An answer whose envelope cannot be read.
    fn unread(time: i64, hit: Option<(usize, Hit)>) -> Self {
        Self { envelope: Envelope { time, ..Envelope::default() }, damaged: true, hit }
    }
}
