//! The hierarchical Bloom filters of Shanmugasundaram, Brönnimann and Memon,
//! with both readings of `n`; on fewer messages, because queries are slow.

use std::path::Path;
use std::time::Instant;

use exirate::trace::{Counted, HbfSettings, Settings};

use crate::corpus::Corpus;
use crate::excerpts::Excerpts;
use crate::options::{LENGTHS, Options};
use crate::report::{hits, size_head, size_row};
use crate::stores;
use crate::tally::{numbers, tally};
use kit::table::{head, print};

pub(crate) fn run(corpus: &Corpus, excerpts: &Excerpts, options: &Options, folder: &Path) {
    let messages = options.hbf.min(corpus.texts.len());
    let mut sizes = vec![size_head()];
    let mut times = vec![vec!["excerpts of".to_owned()]];
    times[0].extend(LENGTHS.iter().map(|length| format!("{length} bytes")));
    let mut results = Vec::new();
    let mut summary = u64::MAX;
    for (name, counted) in [
        ("hbf, n counts the elements of all levels", Counted::Elements),
        ("hbf, n counts the blocks of the lowest", Counted::Blocks),
    ] {
        let settings = Settings::Hbf(HbfSettings { counted, ..HbfSettings::default() });
        let spool = folder.join("hbf");
        let store = stores::fill(corpus, messages, settings, &spool);
        sizes.push(size_row(corpus, name, settings, &store, messages));
        let trace = stores::reader(&spool);
        let mut tallies = Vec::new();
        let mut row = vec![name.to_owned()];
        for n in 0..LENGTHS.len() {
            let mut of_this = Vec::new();
            // As many of each kind as there is time for.
            let mut count = 1;
            let start = Instant::now();
            let (present, absent) = (&excerpts.present[n], &excerpts.absent[n]);
            let result = loop {
                let result = tally(
                    corpus,
                    messages,
                    &present[..present.len().min(count)],
                    &absent[..absent.len().min(count)],
                    &mut |excerpt| {
                        let start = Instant::now();
                        let results = stores::ask(&trace, excerpt)?;
                        of_this.push(start.elapsed().as_secs_f64());
                        Some(numbers(corpus, results))
                    },
                );
                let used = start.elapsed().as_secs_f64();
                if used * 2.0 > options.hbf_seconds || count >= absent.len().max(present.len()) {
                    break result;
                }
                let each = used / count as f64;
                count = (options.hbf_seconds / each / 2.0).max(count as f64 + 1.0) as usize;
                of_this.clear();
            };
            summary = summary.min(result.pairs / messages as u64).max(1);
            tallies.push(result);
            of_this.sort_by(f64::total_cmp);
            row.push(of_this.get(of_this.len() / 2).map_or("-".to_owned(), |median| {
                let million = median * 1e6 / messages as f64;
                format!("{:.1} ms ({million:.1} s)", median * 1_000.0)
            }));
        }
        times.push(row);
        results.push((name.to_owned(), tallies));
        std::fs::remove_dir_all(&spool).unwrap();
    }
    println!(
        "\nHierarchical Bloom filters, on {messages} messages, with as many excerpts as time allows."
    );
    head("hbf: bytes stored, envelopes included");
    print(&sizes);
    hits(&results);
    head(&format!(
        "hbf: median time of a query over {messages} messages (and over a million, extrapolated)"
    ));
    print(&times);
}
