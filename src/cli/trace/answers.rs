//! The messages that were found.

use std::collections::HashSet;
use std::io::Write as _;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::Failure;
use super::probability::one_in;
use crate::cli::shared::screen::Screen;
use crate::cli::shared::table::{self, Column};
use crate::csv;
use crate::text;
use crate::trace::{Envelope, Match, MessagePart, MessageParts, Part, Passage, QueryResult};

/// How many recipients of one message a table shows.
const RECIPIENTS_SHOWN: usize = 10;

/// Sort order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Sort {
    /// All of the text first, then the lowest probability of being false, then the earliest
    Best,
    /// The earliest
    Time,
}

/// The first results in the order `sort`, of those that are added.
pub(super) struct First {
    sort: Sort,
    most: usize,
    answers: Vec<QueryResult>,
}

impl First {
    pub(super) fn new(sort: Sort, most: usize) -> Self {
        Self { sort, most, answers: Vec::new() }
    }

    pub(super) fn add(&mut self, answer: QueryResult) {
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
    pub(super) fn take(&mut self) -> Vec<QueryResult> {
        self.cut();
        std::mem::take(&mut self.answers)
    }
}

/// The share that the message contains, 0 to 1.
fn share(answer: &QueryResult) -> Option<f64> {
    answer.hit.map(|hit| hit.share())
}

fn chance(answer: &QueryResult) -> Option<f64> {
    answer.hit.map(|hit| hit.chance)
}

/// A result, in JSON.
#[derive(Serialize, JsonSchema)]
pub(super) struct AnswerJson<'a> {
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
struct PassageJson<'a> {
    /// The number of the part, from 1.
    part: u32,
    /// Where it begins in the part's text, in bytes.
    start: usize,
    bytes: usize,
    text: &'a str,
}

impl<'a> AnswerJson<'a> {
    pub(super) fn of(answer: &'a QueryResult, parts: &'a [Part], alike: Option<u64>) -> Self {
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
fn within(answer: &QueryResult) -> Option<MessageParts> {
    answer.hit?.within
}

fn names(parts: MessageParts) -> impl Iterator<Item = String> {
    parts.iter().map(|part| part.to_string())
}

/// If it may be in more attachments than these, they are not named.
const ATTACHMENTS_NAMED: usize = 3;

/// In which parts of the message the content is, in words.
fn within_words(parts: MessageParts) -> String {
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
fn passage<'a>(answer: &QueryResult, parts: &'a [Part]) -> Option<PassageJson<'a>> {
    let Passage { part, start, end } = answer.hit?.passage?;
    let Some(Part::Passage(text)) = parts.get(part as usize) else { return None };
    // Elements may begin and end within a letter.
    let (start, end) =
        (text.floor_char_boundary(start as usize), text.ceil_char_boundary(end as usize));
    let passage = text.get(start..end)?;
    Some(PassageJson { part: part + 1, start, bytes: passage.len(), text: passage })
}

/// The heads of [`csv_line`].
pub(super) const CSV_HEAD: &str = "chance,present,of,passage_start,passage_bytes,in";

/// How well a message matches, as comma-separated values; empty if only envelopes were searched.
pub(super) fn csv_line(answer: &QueryResult, parts: &[Part]) -> String {
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

/// Of a longer passage, so many letters of its beginning and its end are printed.
const PASSAGE_SHOWN: usize = 40;

/// Prints which passages of the texts the messages may have contained, the longest of each.
pub(super) fn print_passages(
    screen: &mut Screen<'_>,
    answers: &[QueryResult],
    parts: &[Part],
) -> Result<(), Failure> {
    let found = || answers.iter().filter_map(|answer| Some((answer, passage(answer, parts)?)));
    if found().next().is_none() {
        return Ok(());
    }
    writeln!(screen, "\nThe longest passage in each:")?;
    for (answer, PassageJson { start, bytes, text, .. }) in found() {
        let id = text::printable(answer.envelope.id.as_bytes());
        writeln!(screen, "{id}: {bytes} bytes from byte {start}: {}", shortened(text))?;
    }
    writeln!(screen)?;
    Ok(())
}

/// The beginning and the end of a text.
fn shortened(text: &str) -> String {
    let letters = text.chars().count();
    if letters <= 2 * PASSAGE_SHOWN + 5 {
        return text::printable(text.as_bytes());
    }
    let first: String = text.chars().take(PASSAGE_SHOWN).collect();
    let last: String = text.chars().skip(letters - PASSAGE_SHOWN).collect();
    let [first, last] = [first, last].map(|text| text::printable(text.trim().as_bytes()));
    format!("{first} … {last}")
}

/// Prints results as a table; `alike` is how many near-identical messages each stands for.
pub(super) fn print(
    screen: &mut Screen<'_>,
    answers: &[QueryResult],
    graded: bool,
    alike: Option<&[u64]>,
) -> Result<(), Failure> {
    let word = |text: &str| text::printable(text.as_bytes());
    let alike = |number: usize| alike.and_then(|alike| alike.get(number)).copied();
    let rows: Vec<_> = (0..).zip(answers).map(|(n, one)| (alike(n), one, &one.envelope)).collect();
    let columns: [table::Shows<'_, (Option<u64>, &QueryResult, &Envelope)>; 10] = [
        (Column::words("TIME"), &|(.., envelope)| text::local_second(envelope.time)),
        (Column::words("ID"), &|(.., envelope)| word(&envelope.id)),
        (Column::words("FALSE"), &|(_, one, _)| chance(one).map(one_in).unwrap_or_default()),
        (Column::numbers("THERE"), &|(_, one, _)| {
            share(one).filter(|_| graded).map(text::percent).unwrap_or_default()
        }),
        (Column::words("IN").spare(3), &|(_, one, _)| {
            within(one).map(within_words).unwrap_or_default()
        }),
        (Column::numbers("ALIKE"), &|(alike, ..)| {
            alike.map(|alike| alike.to_string()).unwrap_or_default()
        }),
        (Column::words("CLIENT").spare(2), &|(.., envelope)| {
            envelope.client.map(|client| client.to_string()).unwrap_or_default()
        }),
        (Column::words("AUTH").spare(1), &|(.., envelope)| word(&envelope.authenticated)),
        (Column::words("SENDER"), &|(.., envelope)| match &*envelope.sender {
            "" => "<>".to_owned(),
            sender => word(sender),
        }),
        (Column::words("RECIPIENTS"), &|(.., envelope)| recipients(envelope)),
    ];
    Ok(table::print(screen, &rows, columns)?)
}

/// The first recipients of a message.
fn recipients(envelope: &Envelope) -> String {
    // Exim lists a recipient twice that a client named twice.
    let mut seen = HashSet::new();
    let different: Vec<&String> =
        envelope.recipients.iter().filter(|address| seen.insert(*address)).collect();
    let first = different.iter().take(RECIPIENTS_SHOWN);
    let mut shown: Vec<String> = first.map(|one| text::printable(one.as_bytes())).collect();
    if let Some(more) = different.len().checked_sub(RECIPIENTS_SHOWN).filter(|more| *more > 0) {
        shown.push(format!("and {more} more"));
    }
    shown.join(" ")
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
