//! Stores on disk, filled with mail.

use std::path::{Path, PathBuf};
use std::time::Duration;

use exirate::trace::{
    Access, ContentQuery, Options, Part, Query, QueryResult, Sealed, Settings, TraceStore,
    trace_directory,
};

use crate::corpus::{Corpus, digest};

/// A store, and its size.
pub(crate) struct Store {
    pub(crate) spool: PathBuf,
    /// The size of all its files except the fixed ones: key, settings, locks.
    pub(crate) bytes: u64,
    /// The same, as it was after the last message: not tidied.
    pub(crate) as_recorded: u64,
}

/// The processor time of this thread, which other load hardly affects.
pub(crate) fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A time after all messages: 2033.
const LATER: i64 = 2_000_000_000;

/// Without limits of size or time.
pub(crate) fn options(settings: Settings) -> Options {
    Options { settings, keep: None, max_bytes: u64::MAX }
}

/// Opens a store for writing, which creates it.
pub(crate) fn open(spool: &Path, settings: Settings) -> TraceStore {
    std::fs::create_dir_all(spool).unwrap();
    let mut trace = TraceStore::open(&trace_directory(spool), Access::Write).unwrap();
    trace.set_options(options(settings)).unwrap();
    trace
}

/// Records the first messages of the corpus, on both cores.
pub(crate) fn fill(corpus: &Corpus, messages: usize, settings: Settings, spool: &Path) -> Store {
    const THREADS: usize = 2;
    drop(open(spool, settings));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let mut trace = open(spool, settings);
                for n in (thread..messages).step_by(THREADS) {
                    corpus.source.with(n, &mut |envelope, raw| {
                        trace.record(envelope, raw).unwrap();
                    });
                }
            });
        }
    });
    filled(messages, settings, spool)
}

/// A store that is filled: its logs are sealed, and its segments merged.
pub(crate) fn filled(messages: usize, settings: Settings, spool: &Path) -> Store {
    let mut trace = open(spool, settings);
    let as_recorded = trace.stats().unwrap().bytes;
    trace.seal().unwrap();
    trace.tidy(LATER).unwrap();
    let stats = trace.stats().unwrap();
    assert_eq!(stats.messages, messages as u64, "messages are missing: {stats:?}");
    Store { spool: spool.to_path_buf(), bytes: stats.bytes, as_recorded }
}

/// From so many messages on, a store is measured at any moment.
const MOMENTS_FROM: usize = 1_000;
/// The last moment, and the number of messages between two.
const MOMENTS_TO: usize = 12_000;
const MOMENTS_EVERY: usize = 15;

/// Of a store to which messages are added one by one, the least that it has of shown text for
/// a byte stored, and after how many messages that is; `None` if there are too few.
pub(crate) fn fullest(corpus: &Corpus, spool: &Path) -> (Option<usize>, f64) {
    let mut trace = open(spool, Settings::default());
    let mut least = (None, f64::INFINITY);
    for n in 0..corpus.texts.len().min(MOMENTS_TO) {
        corpus.source.with(n, &mut |envelope, raw| {
            trace.record(envelope, raw).unwrap();
        });
        let messages = n + 1;
        if messages >= MOMENTS_FROM && messages % MOMENTS_EVERY == 0 {
            let bytes = trace.stats().unwrap().bytes as f64;
            let ratio = corpus.volume_of(messages).shown as f64 / bytes;
            if ratio < least.1 {
                least = (Some(messages), ratio);
            }
        }
    }
    drop(trace);
    std::fs::remove_dir_all(spool).unwrap();
    least
}

/// Opens it for queries.
pub(crate) fn reader(spool: &Path) -> TraceStore {
    TraceStore::open(&trace_directory(spool), Access::Read).unwrap()
}

pub(crate) fn query(excerpt: &str) -> Query<'static> {
    let question = ContentQuery { parts: vec![Part::Text(excerpt.to_owned())], min_share: 1.0 };
    Query { content: Some(question), ..Query::default() }
}

/// Queries an excerpt; `None` if it is too short.
pub(crate) fn ask(trace: &TraceStore, excerpt: &str) -> Option<Vec<QueryResult>> {
    let mut results = Vec::new();
    let summary = trace.query(&query(excerpt), &mut |_, _| {}, &mut |a| results.push(a)).ok()?;
    assert!(summary.damaged.is_empty(), "{:?}", summary.damaged);
    (summary.unanswered == 0).then_some(results)
}

/// A key for digests that are not in a store.
pub(crate) const KEY: [u8; 32] = [7; 32];

/// The digests of the first messages, sealed.
pub(crate) fn sealed(corpus: &Corpus, settings: Settings, messages: usize) -> Sealed {
    let scheme = settings.scheme(&KEY);
    let mut digests = Vec::new();
    for n in 0..messages {
        corpus.source.with(n, &mut |_, raw| {
            digests.push(digest(scheme.as_ref(), raw));
        });
    }
    let digests: Vec<&[u8]> = digests.iter().map(Vec::as_slice).collect();
    scheme.seal(&digests)
}
