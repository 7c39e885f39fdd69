//! The messages that were found.

use std::collections::HashSet;

use anstyle::Style;
use clap::ValueEnum;
use serde::Serialize;

use super::super::screen::Screen;
use super::super::table::{Column, Layout};
use super::super::{Failure, text};
use super::envelope::{EnvelopeJson, moment};
use super::probability::one_in;
use crate::trace::{Match, QueryResult};

/// How many recipients of one message a table shows.
const RECIPIENTS_SHOWN: usize = 10;

/// Sort order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Sort {
    /// Largest share first, then lowest probability of being false, then earliest
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
#[derive(Serialize)]
pub(super) struct AnswerJson<'a> {
    #[serde(flatten)]
    envelope: EnvelopeJson<'a>,
    chance: Option<f64>,
    present: Option<u32>,
    of: Option<u32>,
}

impl<'a> From<&'a QueryResult> for AnswerJson<'a> {
    fn from(answer: &'a QueryResult) -> Self {
        Self {
            envelope: EnvelopeJson::of(&answer.envelope),
            chance: chance(answer),
            present: answer.hit.map(|hit| hit.present),
            of: answer.hit.map(|hit| hit.of),
        }
    }
}

/// The columns of [`cells`].
const COLUMNS: [Column; 8] = [
    Column::words("TIME"),
    Column::words("ID"),
    Column::words("FALSE"),
    Column::numbers("THERE"),
    Column::words("CLIENT").spare(2),
    Column::words("AUTH").spare(1),
    Column::words("SENDER"),
    Column::words("RECIPIENTS"),
];

/// Prints results as a table.
pub(super) fn print(
    screen: &mut Screen<'_>,
    answers: &[QueryResult],
    graded: bool,
) -> Result<(), Failure> {
    let rows = || answers.iter().map(|answer| cells(answer, graded));
    let layout = Layout::of(screen, COLUMNS, rows());
    layout.head(screen)?;
    layout.write(screen, Style::new(), rows(), None)?;
    Ok(())
}

fn cells(answer: &QueryResult, graded: bool) -> [String; 8] {
    let envelope = &answer.envelope;
    let word = |text: &str| text::printable(text.as_bytes());
    // Exim lists a recipient twice that a client named twice.
    let mut seen = HashSet::new();
    let different: Vec<&String> =
        envelope.recipients.iter().filter(|address| seen.insert(*address)).collect();
    let mut recipients: Vec<String> =
        different.iter().take(RECIPIENTS_SHOWN).map(|address| word(address)).collect();
    if let Some(more) = different.len().checked_sub(RECIPIENTS_SHOWN).filter(|more| *more > 0) {
        recipients.push(format!("and {more} more"));
    }
    let there = share(answer).filter(|_| graded).map(text::percent);
    [
        moment(envelope.time),
        word(&envelope.id),
        chance(answer).map(one_in).unwrap_or_default(),
        there.unwrap_or_default(),
        envelope.client.map(|client| client.to_string()).unwrap_or_default(),
        word(&envelope.authenticated),
        if envelope.sender.is_empty() { "<>".to_owned() } else { word(&envelope.sender) },
        recipients.join(" "),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Envelope, Match};

    fn answer(time: i64, hit: Option<(u32, u32, f64)>) -> QueryResult {
        let hit = hit.map(|(present, of, chance)| Match { present, of, chance });
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
        assert_eq!(times(Sort::Best, 9, &answers), [3, 4, 6, 2, 5, 1]);
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
