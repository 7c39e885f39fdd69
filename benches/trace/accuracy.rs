//! Results and false results.

use std::path::Path;

use exirate::trace::Settings;

use crate::corpus::Corpus;
use crate::excerpts::Excerpts;
use crate::goals::Goals;
use crate::options::{LENGTHS, Options};
use crate::report::{calibration, exact_size, hits, size_head, size_row};
use crate::schemes::winnows;
use crate::stores::{self, Store};
use crate::tally::{Tally, numbers, tally};
use kit::table::{head, print};

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
