//! The messages that were found.

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Serialize;

use crate::csv;
use crate::trace::{
    self, Envelope, Match, MessagePart, MessageParts, Part, Passage, QueryResult, TraceError,
    TraceStore,
};

/// Sort order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// All of the text first, then the lowest probability of being false, then the earliest
    Best,
    /// The earliest
    Time,
}

/// The first results in the order `sort`, of those that are added.
pub(crate) struct First {
    sort: Sort,
    most: usize,
    answers: Vec<QueryResult>,
}

impl First {
    pub(crate) fn new(sort: Sort, most: usize) -> Self {
        Self { sort, most, answers: Vec::new() }
    }

    pub(crate) fn add(&mut self, answer: QueryResult) {
        self.answers.push(answer);
        // Rarely, so that it costs little for each.
        if self.answers.len() >= self.most.saturating_mul(2).saturating_add(1000) {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let sort = self.sort;
        self.answers.sort_by(|a, b| {
            let best = || Match::rank(a.hit).cmp(&Match::rank(b.hit));
            let first = if sort == Sort::Best { best() } else { std::cmp::Ordering::Equal };
            let (a, b) = (&a.envelope, &b.envelope);
            first.then_with(|| a.time.cmp(&b.time)).then_with(|| a.id.cmp(&b.id))
        });
        self.answers.truncate(self.most);
    }

    /// The results in order.
    pub(crate) fn take(&mut self) -> Vec<QueryResult> {
        self.cut();
        std::mem::take(&mut self.answers)
    }
}

/// The share that the message contains, 0 to 1.
pub(crate) fn share(answer: &QueryResult) -> Option<f64> {
    answer.hit.map(|hit| hit.share())
}

/// The probability that it is there by chance.
pub(crate) fn chance(answer: &QueryResult) -> Option<f64> {
    answer.hit.map(|hit| hit.chance)
}

/// A result, in JSON.
#[derive(Serialize, JsonSchema)]
pub(crate) struct AnswerJson<'a> {
    #[serde(flatten)]
    envelope: &'a Envelope,
    /// The probability that an unrelated message is listed; null, as the next two, if only
    /// envelopes were searched.
    chance: Option<f64>,
    /// How many of its elements are there.
    present: Option<u32>,
    /// How many elements it has.
    of: Option<u32>,
    /// The longest passage; null if passages were not searched for.
    passage: Option<PassageJson<'a>>,
    /// The parts of the message in one of which it is: subject, text, HTML, attachment 1 and so on;
    /// null if that is not known.
    r#in: Option<Vec<String>>,
    /// With --group, how many near-identical messages it stands for.
    alike: Option<u64>,
}

/// The longest passage that a message contains, in JSON.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PassageJson<'a> {
    /// The number of the part, from 1.
    part: u32,
    /// Where it begins in the part's text, in bytes.
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    pub(crate) text: &'a str,
}

impl<'a> AnswerJson<'a> {
    pub(crate) fn of(answer: &'a QueryResult, parts: &'a [Part], alike: Option<u64>) -> Self {
        Self {
            envelope: &answer.envelope,
            chance: chance(answer),
            present: answer.hit.map(|hit| hit.present),
            of: answer.hit.map(|hit| hit.of),
            passage: passage(answer, parts),
            r#in: within(answer).map(|parts| names(parts).collect()),
            alike,
        }
    }
}

/// In which parts of the message the content is.
pub(crate) fn within(answer: &QueryResult) -> Option<MessageParts> {
    answer.hit?.within
}

fn names(parts: MessageParts) -> impl Iterator<Item = String> {
    parts.iter().map(|part| part.to_string())
}

/// If it may be in more attachments than these, they are not named.
const ATTACHMENTS_NAMED: usize = 3;

/// In which parts of the message the content is, in words.
pub(crate) fn within_words(parts: MessageParts) -> String {
    let is_attachment = |part: &MessagePart| matches!(part, MessagePart::Attachment(_));
    let mut all: Vec<String> = names(parts).collect();
    let attachments = parts.iter().filter(is_attachment).count();
    if attachments > ATTACHMENTS_NAMED {
        all.truncate(all.len() - attachments);
        all.push("an attachment".to_owned());
    }
    all.join(" or ")
}

/// The longest passage of a text that a message contains, if passages were searched for.
pub(crate) fn passage<'a>(answer: &QueryResult, parts: &'a [Part]) -> Option<PassageJson<'a>> {
    let Passage { part, start, end } = answer.hit?.passage?;
    let Some(Part::Passage(text)) = parts.get(part as usize) else { return None };
    // Elements may begin and end within a letter.
    let (start, end) =
        (text.floor_char_boundary(start as usize), text.ceil_char_boundary(end as usize));
    let passage = text.get(start..end)?;
    Some(PassageJson { part: part + 1, start, bytes: passage.len(), text: passage })
}

/// The heads of [`csv_line`].
pub(crate) const CSV_HEAD: &str = "chance,present,of,passage_start,passage_bytes,in";

/// How well a message matches, as comma-separated values; empty if only envelopes were searched.
pub(crate) fn csv_line(answer: &QueryResult, parts: &[Part]) -> String {
    let number = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
    let (hit, passage) = (answer.hit, passage(answer, parts));
    csv::line([
        chance(answer).map(|chance| format!("{chance:e}")).unwrap_or_default(),
        number(hit.map(|hit| hit.present.into())),
        number(hit.map(|hit| hit.of.into())),
        number(passage.as_ref().map(|passage| passage.start as u64)),
        number(passage.as_ref().map(|passage| passage.bytes as u64)),
        within(answer).map(|parts| names(parts).collect::<Vec<_>>().join("|")).unwrap_or_default(),
    ])
}

/// So many messages are compared with each other.
const GROUPED: usize = 1000;

/// Keeps one of near-identical messages; returns how many there are of each.
pub(crate) fn group(
    store: &TraceStore,
    found: &mut Vec<QueryResult>,
) -> Result<Vec<u64>, TraceError> {
    let some = found.iter().take(GROUPED);
    let query = trace::Query {
        ids: some.map(|answer| answer.envelope.id.clone()).collect(),
        ..trace::Query::default()
    };
    let sample = if found.is_empty() {
        trace::Sample::default()
    } else {
        store.sample(&query, usize::MAX, GROUPED)?
    };
    // In the order of the results, so that the best of a group is shown.
    let sketch_of = |answer: &QueryResult| {
        let is_it = |(at, _): &&(usize, trace::Sketch)| {
            sample.messages.get(*at).is_some_and(|message| *message == answer.envelope)
        };
        sample.sketches.iter().find(is_it).map(|(_, sketch)| sketch)
    };
    let compared: Vec<(usize, &trace::Sketch)> = (0..)
        .zip(found.iter().take(GROUPED))
        .filter_map(|(number, answer)| Some((number, sketch_of(answer)?)))
        .collect();
    let sketches: Vec<&trace::Sketch> = compared.iter().map(|(_, sketch)| *sketch).collect();
    let mut alike = vec![1_u64; found.len()];
    for (this, first) in trace::grouped(&sketches).into_iter().enumerate() {
        let (Some((this, _)), Some((first, _))) = (compared.get(this), compared.get(first)) else {
            continue;
        };
        if this != first {
            alike.get_mut(*first).into_iter().for_each(|count| *count += 1);
            alike.get_mut(*this).into_iter().for_each(|count| *count = 0);
        }
    }
    let mut counts = alike.iter();
    found.retain(|_| counts.next().is_some_and(|count| *count > 0));
    alike.retain(|count| *count > 0);
    Ok(alike)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(time: i64, hit: Option<(u32, u32, f64)>) -> QueryResult {
        let hit = hit.map(|(present, of, chance)| Match {
            present,
            of,
            chance,
            passage: None,
            within: None,
        });
        QueryResult { envelope: Envelope { time, ..Envelope::default() }, damaged: false, hit }
    }

    fn times(sort: Sort, most: usize, answers: &[QueryResult]) -> Vec<i64> {
        let mut first = First::new(sort, most);
        answers.iter().cloned().for_each(|answer| first.add(answer));
        first.take().iter().map(|answer| answer.envelope.time).collect()
    }

    #[test]
    fn the_best_come_first_and_the_earliest_of_those() {
        let answers = [
            answer(5, Some((9, 10, 1e-9))),
            answer(4, Some((10, 10, 1.1e-9))),
            answer(3, Some((10, 10, 1.2e-9))),
            answer(2, Some((10, 10, 1e-3))),
            answer(6, Some((10, 10, 1e-4))),
            answer(1, Some((8, 10, 1e-12))),
        ];
        assert_eq!(times(Sort::Best, 9, &answers), [3, 4, 6, 2, 1, 5]);
        assert_eq!(times(Sort::Best, 2, &answers), [3, 4]);
        assert_eq!(times(Sort::Time, 9, &answers), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn many_answers_take_little_memory_and_none_is_lost() {
        let mut first = First::new(Sort::Time, 3);
        for time in (0..10_000).rev() {
            first.add(answer(time, None));
            assert!(first.answers.len() < 1_100);
        }
        let times: Vec<i64> = first.take().iter().map(|answer| answer.envelope.time).collect();
        assert_eq!(times, [0, 1, 2]);
    }
}
