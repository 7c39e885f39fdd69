//! A small store with every kind of file, and queries on it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use exirate::trace::{
    Access, ContentQuery, Envelope, Options, Part, Query, QueryResult, QuerySummary, TraceError,
    TraceStore, trace_directory,
};

/// The number of messages; each file has some.
pub(crate) const MESSAGES: u32 = 14;
/// The messages in each file.
pub(crate) const FILES: [(&str, std::ops::Range<u32>); 4] = [
    ("00000001.segment", 0..5),
    ("00000002.segment", 5..8),
    ("00000003.log", 8..11),
    ("open.log", 11..MESSAGES),
];

/// An empty directory, in memory if possible.
pub(crate) fn memory_folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

/// The contents of all files of a store, which can be written to a directory.
#[derive(Clone)]
pub(crate) struct Image {
    pub(crate) files: Vec<(String, Vec<u8>)>,
}

impl Image {
    /// The image of a sound store.
    pub(crate) fn sound() -> Self {
        let folder = memory_folder();
        let mut trace = open(folder.path()).unwrap();
        let options = Options { keep: None, ..Options::default() };
        // Written twice, as the defaults are not written.
        trace.set_options(options).unwrap();
        for n in 0..MESSAGES {
            record(&mut trace, n).unwrap();
            if [4, 7].contains(&n) {
                trace.seal().unwrap();
            } else if n == 10 {
                // A full log of a killed process.
                let open = trace.directory().join("open.log");
                std::fs::rename(open, trace.directory().join("00000003.log")).unwrap();
            }
        }
        Self::of(folder.path())
    }

    pub(crate) fn of(folder: &Path) -> Self {
        let mut files: Vec<_> = std::fs::read_dir(trace_directory(folder))
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                let name = entry.file_name().into_string().unwrap();
                (name, std::fs::read(entry.path()).unwrap())
            })
            .collect();
        files.sort();
        Self { files }
    }

    pub(crate) fn get(&self, name: &str) -> &[u8] {
        &self.files.iter().find(|file| file.0 == name).unwrap().1
    }

    /// The same, except for one file.
    pub(crate) fn with(&self, name: &str, bytes: Vec<u8>) -> Self {
        let mut image = self.clone();
        image.files.iter_mut().find(|file| file.0 == name).unwrap().1 = bytes;
        image
    }

    /// Writes it to a directory that may contain another one.
    pub(crate) fn lay_out(&self, folder: &Path) {
        use std::os::unix::fs::OpenOptionsExt;
        let directory = trace_directory(folder);
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        for (name, bytes) in &self.files {
            let mode = if name == "key" { 0o600 } else { 0o640 };
            let mut options = std::fs::File::options();
            let file = options.write(true).create_new(true).mode(mode);
            std::io::Write::write_all(&mut file.open(directory.join(name)).unwrap(), bytes)
                .unwrap();
        }
    }
}

pub(crate) fn open(folder: &Path) -> Result<TraceStore, TraceError> {
    TraceStore::open(&trace_directory(folder), Access::Write)
}

pub(crate) fn read(folder: &Path) -> Result<TraceStore, TraceError> {
    TraceStore::open(&trace_directory(folder), Access::Read)
}

pub(crate) fn path(folder: &Path, name: &str) -> PathBuf {
    trace_directory(folder).join(name)
}

pub(crate) fn envelope(n: u32) -> Envelope {
    Envelope {
        time: 1_700_000_000 + i64::from(n),
        id: if n.is_multiple_of(3) {
            format!("id-{n}")
        } else {
            format!("1rABCD-0000000{n:04}-3YzQ")
        },
        sender: format!("sender{}@example.org", n % 3),
        recipients: (0..=n % 2).map(|one| format!("r{one}.{n}@example.net")).collect(),
        client: n.is_multiple_of(2).then_some(std::net::IpAddr::from([192, 0, 2, n as u8])),
        authenticated: if n.is_multiple_of(2) { String::new() } else { format!("sender{}", n % 3) },
        partial: false,
    }
}

/// A text that only message `n` contains.
pub(crate) fn secret(n: u32) -> String {
    let word = |k: u32| {
        (n + 1).wrapping_mul(2_654_435_761).rotate_left(k * 5) ^ k.wrapping_mul(0x9E37_79B9)
    };
    (0..8).map(|k| format!("w{:07x}.", word(k) >> 4)).collect()
}

pub(crate) fn text(n: u32) -> String {
    format!("Subject: {n}\n\nAll of them begin with this line.\n{}\n", secret(n))
}

pub(crate) fn record(trace: &mut TraceStore, n: u32) -> Result<(), TraceError> {
    trace.record(&envelope(n), text(n).as_bytes())
}

pub(crate) fn question(n: u32) -> Query<'static> {
    let text = exirate::trace::decode::normalise(&secret(n));
    let question = ContentQuery { parts: vec![Part::Text(text)], min_share: 1.0 };
    Query { content: Some(question), ..Query::default() }
}

pub(crate) fn ask(trace: &TraceStore, query: &Query<'_>) -> (Vec<QueryResult>, QuerySummary) {
    let mut results = Vec::new();
    let summary = trace.query(query, &mut |_, _| {}, &mut |result| results.push(result)).unwrap();
    (results, summary)
}

/// The observable state of a store.
pub(crate) struct Observed {
    /// Messages that are listed, each once and as it was recorded.
    pub(crate) listed: BTreeSet<u32>,
    /// Messages that are found by their text.
    pub(crate) found: BTreeSet<u32>,
    /// Problems reported by queries.
    pub(crate) reported: Vec<String>,
    /// Problems reported by `verify`.
    pub(crate) verified: Vec<String>,
    /// Results marked as damaged.
    pub(crate) damaged: usize,
}

impl Observed {
    /// Queries everything, and each of `some` by its text. Panics if a result
    /// is wrong and no problem is reported.
    pub(crate) fn of(trace: &TraceStore, some: impl Iterator<Item = u32>, what: &str) -> Self {
        let (results, summary) = ask(trace, &Query::default());
        let mut reported: BTreeSet<String> =
            summary.damaged.iter().map(ToString::to_string).collect();
        if summary.other_key > 0 {
            reported.insert(format!("{} of another key", summary.other_key));
        }
        let (mut listed, mut damaged) = (BTreeSet::new(), 0);
        for result in results {
            if result.damaged {
                damaged += 1;
                continue;
            }
            let time = result.envelope.time - 1_700_000_000;
            let n = u32::try_from(time).unwrap_or_else(|_| panic!("{what}: {result:?}"));
            assert_eq!(result.envelope, envelope(n), "{what}");
            assert!(listed.insert(n), "{what}: {n} twice");
        }
        let mut found = BTreeSet::new();
        for n in some {
            let (results, summary) = ask(trace, &question(n));
            reported.extend(summary.damaged.iter().map(ToString::to_string));
            damaged += results.iter().filter(|result| result.damaged).count();
            for result in results.iter().filter(|result| !result.damaged) {
                assert!(result.envelope.time - 1_700_000_000 < 2000, "{what}: {result:?}");
            }
            if results.iter().any(|result| result.envelope == envelope(n)) {
                found.insert(n);
            }
        }
        let mut verified = Vec::new();
        trace.verify(&mut |_, _| {}, &mut |one| verified.push(one.to_string())).unwrap();
        Self { listed, found, reported: reported.into_iter().collect(), verified, damaged }
    }
}
