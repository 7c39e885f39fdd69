//! How many of the messages that are reported contain the excerpt.

use exirate::trace::QueryResult;

use crate::corpus::Corpus;
use crate::exact;
use crate::excerpts::Excerpt;

/// The share of its grams from which a message is a near-duplicate of one that
/// contains the excerpt.
const NEAR: f64 = 0.5;

/// The results of queries for excerpts of one length.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Pairs of an absent excerpt and a message.
    pub(crate) pairs: u64,
    /// Of those, how many were reported although the message has few of its
    /// grams.
    pub(crate) unrelated: u64,
    /// Of those, how many were reported for a message with more than half of
    /// its grams.
    pub(crate) near: u64,
    /// Pairs of a present excerpt and a message with it.
    pub(crate) there: u64,
    /// Of those, how many were reported.
    pub(crate) found: u64,
    /// The total number of wrong results.
    wrong: u64,
    /// Excerpts that are too short to be queried.
    pub(crate) refused: u64,
    /// For each present excerpt: the computed chance, the number of messages
    /// without it, and how many unrelated and near ones of these were reported.
    pub(crate) chances: Vec<(f64, u64, u64, u64)>,
}

/// A reported message, by its number, and its computed chance.
pub(crate) type Reported = (u32, f64);

/// Queries excerpts of one length, present and absent ones, until there are no
/// more or `ask` returns `None`.
pub(crate) fn tally(
    corpus: &Corpus,
    messages: usize,
    present: &[Excerpt],
    absent: &[Excerpt],
    ask: &mut dyn FnMut(&str) -> Option<Vec<Reported>>,
) -> Tally {
    let mut tally = Tally::default();
    for excerpt in absent {
        let Some(reported) = ask(&excerpt.text) else {
            tally.refused += 1;
            continue;
        };
        tally.pairs += messages as u64;
        for (message, _) in reported {
            tally.wrong(corpus, message, &excerpt.text);
        }
    }
    for excerpt in present {
        let there: Vec<u32> =
            excerpt.messages.iter().copied().filter(|&m| (m as usize) < messages).collect();
        if there.is_empty() {
            continue;
        }
        let Some(reported) = ask(&excerpt.text) else {
            tally.refused += 1;
            continue;
        };
        tally.there += there.len() as u64;
        let (mut sum, mut found) = (0.0, 0);
        let mut wrong = Tally::default();
        for (message, chance) in reported {
            if there.binary_search(&message).is_ok() {
                found += 1;
                sum += chance;
            } else {
                wrong.wrong(corpus, message, &excerpt.text);
            }
        }
        tally.found += found;
        if found > 0 {
            let other = (messages - there.len()) as u64;
            tally.chances.push((sum / found as f64, other, wrong.unrelated, wrong.near));
        }
    }
    tally
}

impl Tally {
    /// Counts a reported message that does not contain the excerpt. If there
    /// are many, every 16th is examined, and counts for 16.
    fn wrong(&mut self, corpus: &Corpus, message: u32, excerpt: &str) {
        self.wrong += 1;
        let counts_for = match self.wrong {
            0..=2_000 => 1,
            n if n % 16 == 0 => 16,
            _ => return,
        };
        let share = exact::share(corpus.texts.message(message as usize), excerpt);
        *(if share > NEAR { &mut self.near } else { &mut self.unrelated }) += counts_for;
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.pairs += other.pairs;
        self.unrelated += other.unrelated;
        self.near += other.near;
        self.there += other.there;
        self.found += other.found;
        self.refused += other.refused;
        self.chances.extend(other.chances);
    }
}

/// The numbers of the messages in results.
pub(crate) fn numbers(corpus: &Corpus, results: Vec<QueryResult>) -> Vec<Reported> {
    let number = |result: QueryResult| {
        (corpus.numbers[&result.envelope.id], result.hit.map_or(1.0, |hit| hit.chance))
    };
    results.into_iter().map(number).collect()
}
