//! The time of a query over a million messages.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use exirate::trace::{Address, Envelope, Fragment, Query, Settings};

use crate::corpus::{Corpus, Source, pieces};
use crate::goals::Goals;
use crate::options::{LENGTHS, Options};
use crate::stores::{self, processor_time};
use kit::Random;
use kit::table::{head, middle, print};

/// The number of best results that are returned; the others are only counted.
const BEST: usize = 100;

/// `plain` is the time of a plain search for one byte of text, in seconds, by length.
pub(crate) fn run(
    corpus: &Corpus,
    absent: &[Vec<String>],
    plain: &[f64],
    options: &Options,
    goals: &mut Goals,
    folder: &Path,
) {
    let messages = match &corpus.source {
        Source::Made(_) => options.million,
        Source::Real(_) => corpus.volume.messages,
    };
    let spool = options.store.clone().unwrap_or_else(|| folder.join("million"));
    let start = Instant::now();
    let store = if spool.exists() {
        stores::filled(messages, Settings::default(), &spool)
    } else {
        stores::fill(corpus, messages, Settings::default(), &spool)
    };
    let filling = start.elapsed();
    let text = corpus.volume.text as f64 / corpus.volume.messages as f64 * messages as f64;
    let mut random = Random::new(5);
    let mut rows = vec![
        [
            "excerpts of",
            "present: median",
            "worst",
            "absent: median",
            "worst",
            "median of results",
            "as a process: median",
            "worst",
            "plain search",
            "query : plain search",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for (n, &length) in LENGTHS.iter().enumerate() {
        let present: Vec<String> =
            (0..options.timed).filter_map(|_| cut(corpus, messages, length, &mut random)).collect();
        let absent = &absent[n][..options.timed.min(absent[n].len())];
        let mut row = vec![format!("{length} bytes")];
        let (mut all, mut counts) = (Vec::new(), Vec::new());
        for (excerpts, expected) in [(&present[..], true), (absent, false)] {
            let mut times = Vec::new();
            for excerpt in excerpts {
                let start = processor_time();
                let matches = matches(&spool, excerpt);
                times.push(processor_time() - start);
                counts.push(matches);
                assert!(!expected || matches > 0, "{excerpt:?} is not found");
            }
            all.extend(times.iter().copied());
            row.extend(cells(times));
        }
        counts.sort_unstable();
        row.push(counts.get(counts.len() / 2).map_or("-".to_owned(), u64::to_string));
        let excerpts = present.iter().chain(absent).step_by(2);
        row.extend(cells(excerpts.filter_map(|excerpt| process(&spool, excerpt)).collect()));
        if !all.is_empty() {
            let plain = plain[n] * text;
            let query = middle(all).as_secs_f64();
            row.push(format!("{:.0} ms", plain * 1_000.0));
            row.push(format!("1 : {:.1}", plain / query));
            let goal = match length {
                ..32 => None,
                32..64 => Some(4.0),
                _ => Some(12.0),
            };
            if let Some(goal) = goal {
                let what = format!("plain search : query of {length} bytes");
                goals.at_least(&what, goal, plain / query, "");
            }
        }
        rows.push(row);
    }
    head(&format!(
        "A query over {messages} messages, on one core, opening the store and returning the best \
         {BEST}, and by the program. The store, of {:.0} MB, was filled in {:.0} s on two",
        store.bytes as f64 / 1e6,
        filling.as_secs_f64(),
    ));
    print(&rows);
    println!(
        "(plain search: through all {:.1} GB of decoded text in memory, extrapolated from {:.0} MB)",
        text / 1e9,
        corpus.volume.text as f64 / 1e6,
    );
    envelopes(corpus, messages, &spool, options, goals);
    if options.store.is_none() {
        std::fs::remove_dir_all(&spool).unwrap();
    }
}

/// The time of queries about envelopes only, which print no more than [`BEST`] results.
fn envelopes(corpus: &Corpus, messages: usize, spool: &Path, options: &Options, goals: &mut Goals) {
    type Ask = fn(&Envelope) -> Query<'static>;
    let since: Ask = |of| Query {
        since: Some(of.time - 1_800),
        until: Some(of.time + 1_800),
        ..Query::default()
    };
    // Of all messages, so that all segments are read, as for an address.
    let all: Ask = |_| Query { since: Some(0), ..Query::default() };
    let from: Ask = |of| Query { from: Some(Address::Is(of.sender.clone())), ..Query::default() };
    let auth: Ask =
        |of| Query { auth: Some(Address::Is(of.authenticated.clone())), ..Query::default() };
    let mut rows = vec![["", "median", "worst", "median of results"].map(str::to_owned).to_vec()];
    let mut medians = Vec::new();
    let kinds = [
        ("--since, --until: an hour", since),
        ("--since: all", all),
        ("--from", from),
        ("--auth", auth),
    ];
    for (name, ask) in kinds {
        let mut random = Random::new(6);
        let (mut times, mut counts) = (Vec::new(), Vec::new());
        for _ in 0..options.timed * 40 {
            let n = random.below(messages);
            corpus.source.with(n, &mut |envelope, _| {
                let is_known = !envelope.sender.is_empty() && !envelope.authenticated.is_empty();
                if times.len() < options.timed && is_known {
                    let query = Query { best: Some(BEST), ..ask(envelope) };
                    let start = processor_time();
                    let summary =
                        stores::reader(spool).query(&query, &mut |_, _| {}, &mut |_| {}).unwrap();
                    times.push(processor_time() - start);
                    counts.push(summary.matches);
                    assert!(summary.matches > 0, "{query:?}");
                }
            });
        }
        if times.is_empty() {
            return;
        }
        counts.sort_unstable();
        medians.push(middle(times.clone()).as_secs_f64());
        let mut row = vec![name.to_owned()];
        row.extend(cells(times));
        row.push(counts[counts.len() / 2].to_string());
        rows.push(row);
    }
    head("Queries about envelopes only, opening the store and returning the best results");
    print(&rows);
    let [hour, all, from, auth] = medians[..] else { return };
    goals.at_most("--from : --since of an hour, which reads few segments", 1.0, from / hour, "");
    goals.at_most("--auth : --since of an hour", 1.0, auth / hour, "");
    goals.at_most("--from : --since of all messages", 1.0, from / all, "");
    goals.at_most("--auth : --since of all messages", 1.0, auth / all, "");
}

/// Opens the store and queries it: the number of messages that may contain an
/// excerpt.
fn matches(spool: &Path, excerpt: &str) -> u64 {
    let query = Query { best: Some(BEST), ..stores::query(excerpt) };
    let trace = stores::reader(spool);
    let mut results = Vec::new();
    let summary = trace.query(&query, &mut |_, _| {}, &mut |result| results.push(result)).unwrap();
    assert!(summary.damaged.is_empty() && results.len() == BEST.min(summary.matches as usize));
    summary.matches
}

/// An excerpt of some message.
fn cut(corpus: &Corpus, messages: usize, length: usize, random: &mut Random) -> Option<String> {
    for _ in 0..1_000 {
        let mut excerpt = None;
        corpus.source.with(random.below(messages), &mut |_, raw| {
            pieces(raw, &mut |piece| {
                if let Fragment::Text(text) = piece
                    && text.len() > length
                {
                    let start = random.below(text.len() - length);
                    let found = text.get(start..start + length).filter(|t| t.trim() == *t);
                    excerpt = found.map(str::to_owned).or(excerpt.take());
                }
            });
        });
        if excerpt.is_some() {
            return excerpt;
        }
    }
    None
}

/// The time that the program takes for a query; `None` if only the library was built.
fn process(spool: &Path, excerpt: &str) -> Option<Duration> {
    let program = Path::new(env!("CARGO_BIN_EXE_exirate"));
    if !program.exists() {
        return None;
    }
    // In a file, an asterisk is literal.
    let file = spool.join("excerpt.txt");
    std::fs::write(&file, excerpt).unwrap();
    let mut command = Command::new(program);
    command.args(["trace", "query", "--file"]).arg(file).arg("--spool").arg(spool).env_clear();
    let start = Instant::now();
    let output = command.output().unwrap();
    let taken = start.elapsed();
    let said = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code();
    assert!(matches!(code, Some(0 | 1)), "{code:?}: {said}");
    Some(taken)
}

/// Median and maximum.
fn cells(mut times: Vec<Duration>) -> Vec<String> {
    times.sort_unstable();
    let cell = |time: Option<&Duration>| {
        time.map_or("-".to_owned(), |time| format!("{:.1} ms", time.as_secs_f64() * 1_000.0))
    };
    vec![cell(times.get(times.len() / 2)), cell(times.last())]
}
