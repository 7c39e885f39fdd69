//! The size, accuracy and cost of the trace store: `scripts/bench trace`.
//!
//! `cargo bench --bench trace -- [OPTION]... [PART]...` with the parts `size`,
//! `hits`, `curves`, `read`, `fold`, `hbf`, `record`, `million` and `exim`; all of them by
//! default. Options: `--corpus DIR` for real mail instead of generated mail,
//! `--messages N` for the number of messages that are searched for excerpts,
//! `--million N` for the number of messages of the timed queries, `--store DIR`
//! to keep the store of these, or to use the one that is there, `--settings
//! G,W,G,W,C` (repeatable) to compare the default with these settings of
//! winnow, `--quick` for a run of less than a minute. Run as a test, it
//! measures next to nothing and only checks that it works.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod accuracy;
mod corpus;
mod curves;
mod directory;
mod exact;
mod excerpts;
mod exim;
mod fold;
mod goals;
mod hbf;
mod million;
mod options;
mod reader;
mod recording;
mod report;
mod schemes;
mod segment;
mod shown;
mod stores;
mod tally;

use corpus::Corpus;
use excerpts::Excerpts;
use goals::Goals;

fn main() {
    let options = options::Options::parse(std::env::args().skip(1)).unwrap_or_else(|problem| {
        eprintln!("bench: {problem}");
        std::process::exit(2);
    });
    let folder = tempfile::tempdir().unwrap();
    let mut corpus = Corpus::load(&options);
    corpus.describe(&options);
    let mut goals = Goals::default();
    let excerpts = Excerpts::cut(&corpus, &options);
    excerpts.describe(&corpus);
    if options.wanted("size") || options.wanted("hits") {
        accuracy::run(&corpus, &excerpts, &options, &mut goals, folder.path());
    }
    if options.wanted("curves") {
        curves::run(&corpus, &excerpts);
    }
    if options.wanted("read") {
        shown::run(&corpus, &options, &mut goals);
    }
    if options.wanted("fold") {
        fold::run(&corpus, &excerpts);
    }
    if options.wanted("hbf") {
        hbf::run(&corpus, &excerpts, &options, folder.path());
    }
    if options.wanted("record") {
        recording::run(&corpus, &options, &mut goals, folder.path());
    }
    if options.wanted("million") {
        // The reference data is no longer needed, and large.
        let absent = excerpts.absent_texts();
        let plain: Vec<f64> =
            absent.iter().map(|absent| exact::plain_search(&corpus.texts, absent)).collect();
        corpus.forget();
        million::run(&corpus, &absent, &plain, &options, &mut goals, folder.path());
    }
    if options.wanted("exim") {
        exim::run(&options, &mut goals);
    }
    goals.print();
}
