//! Results and false results.

use std::path::Path;

use exirate::trace::{QueryResult, Settings};

use crate::corpus::Corpus;
use crate::exact;
use crate::excerpts::{Excerpt, Excerpts};
use crate::goals::Goals;
use crate::options::{LENGTHS, Options};
use crate::report::{calibration, exact_size, hits, size_head, size_row};
use crate::schemes::winnows;
use crate::stores::{self, Store};
use kit::table::{head, print};

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

    fn add(&mut self, other: Self) {
        self.pairs += other.pairs;
        self.unrelated += other.unrelated;
        self.near += other.near;
        self.there += other.there;
        self.found += other.found;
        self.refused += other.refused;
        self.chances.extend(other.chances);
    }
}

/// Queries a store for all excerpts, on both cores; returns a tally for each
/// length.
fn ask_store(corpus: &Corpus, excerpts: &Excerpts, store: &Store) -> Vec<Tally> {
    let messages = corpus.texts.len();
    let one = |length: usize| {
        let (present, absent) = (&excerpts.present[length], &excerpts.absent[length]);
        let halves = |half: usize| {
            let trace = stores::reader(&store.spool);
            let cut = |len: usize| len / 2 * half..if half == 0 { len / 2 } else { len };
            let mut ask = |excerpt: &str| Some(numbers(corpus, stores::ask(&trace, excerpt)?));
            let (p, a) = (&present[cut(present.len())], &absent[cut(absent.len())]);
            tally(corpus, messages, p, a, &mut ask)
        };
        let (mut tally, other) = std::thread::scope(|scope| {
            let other = scope.spawn(|| halves(1));
            (halves(0), other.join().unwrap())
        });
        tally.add(other);
        tally
    };
    (0..LENGTHS.len()).map(one).collect()
}

/// The numbers of the messages in results.
pub(crate) fn numbers(corpus: &Corpus, results: Vec<QueryResult>) -> Vec<Reported> {
    let number = |result: QueryResult| {
        (corpus.numbers[&result.envelope.id], result.hit.map_or(1.0, |hit| hit.chance))
    };
    results.into_iter().map(number).collect()
}

/// The settings of winnow, each with its own store.
pub(crate) fn run(
    corpus: &Corpus,
    excerpts: &Excerpts,
    options: &Options,
    goals: &mut Goals,
    folder: &Path,
) {
    let mut sizes = vec![size_head()];
    let mut results = Vec::new();
    sizes.push(exact_size(corpus));
    for (n, (name, settings)) in winnows(&options.settings).into_iter().enumerate() {
        let spool = folder.join(format!("winnow{n}"));
        let store = stores::fill(corpus, corpus.texts.len(), settings, &spool);
        sizes.push(size_row(corpus, &name, settings, &store, corpus.texts.len()));
        if settings == Settings::default() {
            let sealed = corpus.volume.shown as f64 / store.bytes as f64;
            goals.at_least("shown text : stored, sealed", 28.0, sealed, " : 1");
        }
        if options.wanted("hits") {
            results.push((name, ask_store(corpus, excerpts, &store)));
        }
        std::fs::remove_dir_all(&spool).unwrap();
    }
    let (after, least) = stores::fullest(corpus, &folder.join("moments"));
    if let Some(after) = after {
        goals.at_least("shown text : stored, at any moment", 15.0, least, " : 1");
        println!("\n(at any moment: least after {after} messages, of those after the first 1,000)");
    }
    head("Bytes stored, envelopes included");
    println!("(winnow: gram/window of text, of attachments' bytes, bits of filter a kept gram)");
    print(&sizes);
    if !results.is_empty() {
        hits(&results);
        if let Some((_, tallies)) = results.first() {
            calibration(tallies);
            let (found, there) =
                tallies.iter().fold((0, 0), |sum, t| (sum.0 + t.found, sum.1 + t.there));
            let share = found as f64 / there.max(1) as f64 * 100.0;
            goals.at_least("recall, by the digest", 100.0, share, " %");
        }
    }
}
