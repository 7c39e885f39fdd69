//! A list of all logs and segments at one moment.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString};
use std::ops::Range;
use std::time::Instant;

use crate::sys::files::{self, Access};
use crate::sys::secure_dir::DirError;
use crate::trace::{Settings, decode, is_past};
use crate::versions::USE_THE_LATER;

use super::error::Problem;
use super::log::{Log, LogFault};
use super::names::{self, FileKind, Numbered, OPEN};
use super::segment::Segment;
use super::{TraceError, TraceStore};

/// How often the directory is listed if there are new files each time.
const ATTEMPTS: u32 = 10;
/// So many files stay open to be searched faster: a process can have only some.
const OPEN_MAX: usize = 64;

/// A file with messages.
#[derive(Debug)]
pub(super) enum Source {
    Log(Log),
    Segment(Box<Segment>),
}

impl Source {
    /// The id of the log, or of the log that the segment was made from.
    fn id(&self) -> u64 {
        match self {
            Self::Log(log) => log.head.id,
            Self::Segment(segment) => segment.head.log,
        }
    }

    /// Whether its status belongs to its head. A segment has none.
    fn has_status(&self) -> bool {
        match self {
            Self::Log(log) => log.status.is_some(),
            Self::Segment(_) => true,
        }
    }

    /// The digest settings of its messages.
    pub(super) fn settings(&self) -> Settings {
        match self {
            Self::Log(log) => log.settings,
            Self::Segment(segment) => segment.settings,
        }
    }

    /// Whether its messages were decoded by the same version as queries are:
    /// only then do they have the same fragments.
    pub(super) fn has_current_decoder(&self) -> bool {
        let version = match self {
            Self::Log(log) => log.head.decode,
            Self::Segment(segment) => segment.head.decode,
        };
        version == decode::VERSION
    }

    /// The number of messages; 0 for a log whose status is damaged.
    pub(super) fn messages(&self) -> u64 {
        match self {
            Self::Log(log) => log.status.map_or(0, |status| status.messages.into()),
            Self::Segment(segment) => segment.head.messages.into(),
        }
    }

    /// The size of the file.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Log(log) => log.size,
            Self::Segment(segment) => segment.bytes(),
        }
    }
}

/// All files with messages.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// Those that can be queried, oldest first.
    pub(super) list: Vec<(CString, Source)>,
    /// Files that cannot be used.
    pub(super) problems: Vec<Problem>,
    /// The number of files written with another key.
    pub(super) other_key: u64,
    /// Whether the deadline passed before all were opened.
    pub(super) late: bool,
    /// Where in the list the file with each id is.
    ids: HashMap<u64, usize>,
}

impl TraceStore {
    /// Opens all logs and segments.
    ///
    /// The open log is opened first, so that it is not missed if it is renamed to its number in
    /// the meantime. A log that is found under two names, or that is sealed but not removed
    /// yet, is used once; so is what is merged into another segment but not removed yet.
    ///
    /// A listing made while files are renamed, sealed or merged may contain neither the old nor
    /// the new name, so the directory is listed again until all files are those that were
    /// opened.
    pub(super) fn sources(&self) -> Result<Sources, TraceError> {
        self.sources_until(None)
    }

    /// The same, but only those that can be opened before the deadline.
    pub(super) fn sources_until(&self, deadline: Option<Instant>) -> Result<Sources, TraceError> {
        let identity =
            |name: &CStr| files::info_at(self.dir.directory(), name).ok().map(|info| info.identity);
        let mut opened = BTreeMap::new();
        let mut newest = Ok(None);
        let mut is_full = false;
        for _ in 0..ATTEMPTS {
            let open_log = identity(OPEN);
            newest = Log::open(&self.dir, &self.key, OPEN, Access::Read);
            let listed = names::list(&self.dir)?;
            let known = opened.len();
            opened.retain(|numbered, _| listed.binary_search(numbered).is_ok());
            let mut same = opened.len() == known;
            for numbered in listed {
                if is_past(deadline) {
                    break;
                }
                let found = identity(&numbered.name());
                if opened.get(&numbered).is_none_or(|(known, _)| *known != found) {
                    let stays_open = !is_full && opened.len() < OPEN_MAX;
                    let mut source = self.open_source(numbered, stays_open);
                    if source.is_err() && !is_full {
                        // Perhaps there are too many.
                        is_full = true;
                        opened.values_mut().for_each(|(_, source)| close(source));
                        source = self.open_source(numbered, false);
                    }
                    opened.insert(numbered, (found, source));
                    same = false;
                }
            }
            if same && open_log == identity(OPEN) || is_past(deadline) {
                break;
            }
        }
        let replaced: Vec<Range<u64>> = opened
            .iter()
            .filter_map(|(&numbered, (_, opened))| match opened {
                Ok(Some(Ok(Source::Segment(segment)))) => segment.replaces(numbered),
                _ => None,
            })
            .collect();
        let mut sources = Sources { late: is_past(deadline), ..Sources::default() };
        for (numbered, (_, opened)) in opened {
            if !replaced.iter().any(|range| range.contains(&numbered.number)) {
                self.add_source(&mut sources, &numbered.name(), opened);
            }
        }
        self.add_source(&mut sources, OPEN, log(newest));
        Ok(sources)
    }

    fn open_source(&self, numbered: Numbered, stays_open: bool) -> Opened<Source> {
        let name = numbered.name();
        match numbered.kind {
            FileKind::Log | FileKind::QuarantinedLog => {
                log(Log::open(&self.dir, &self.key, &name, Access::Read))
            }
            FileKind::Segment | FileKind::QuarantinedSegment => {
                let open = if stays_open { Segment::open_to_search } else { Segment::open };
                open(&self.dir, &self.key, &name)
                    .map(|found| found.map(|found| found.map(|s| Source::Segment(Box::new(s)))))
            }
        }
    }

    /// What is wrong with a log that has the id of a file, but not the status that belongs to it.
    fn with_head_of(&self, name: &CStr) -> String {
        format!(
            "it has the head of {}, and what follows is damaged or of another log: it was not \
             searched",
            self.dir.path_of(name).display()
        )
    }

    /// Adds a file. A file that no longer exists is skipped: its successor was
    /// listed after it.
    fn add_source(&self, sources: &mut Sources, name: &CStr, opened: Opened<Source>) {
        let what = match opened {
            Ok(None) => return,
            Ok(Some(Ok(source))) => {
                let Some(&before) = sources.ids.get(&source.id()) else {
                    sources.ids.insert(source.id(), sources.list.len());
                    sources.list.push((name.to_owned(), source));
                    return;
                };
                let Some((known, first)) = sources.list.get_mut(before) else { return };
                if source.has_status() {
                    if first.has_status() {
                        return;
                    }
                    // The one found before has the head of this one.
                    let wrong = std::mem::replace(known, name.to_owned());
                    *first = source;
                    let (path, what) = (self.dir.path_of(&wrong), self.with_head_of(name));
                    sources.problems.push(Problem { path, what });
                    return;
                }
                self.with_head_of(&known.clone())
            }
            Ok(Some(Err(LogFault::OtherKey))) => {
                sources.other_key += 1;
                return;
            }
            Ok(Some(Err(fault))) => describe(fault),
            Err(error) => error.to_string(),
        };
        sources.problems.push(Problem { path: self.dir.path_of(name), what });
    }
}

/// The result of opening a file.
type Opened<T> = Result<Option<Result<T, LogFault>>, DirError>;

/// Closes the file of a segment that stayed open to be searched faster.
fn close(opened: &mut Opened<Source>) {
    if let Ok(Some(Ok(Source::Segment(segment)))) = opened {
        segment.close();
    }
}

fn log(opened: Opened<Log>) -> Opened<Source> {
    opened.map(|found| found.map(|found| found.map(Source::Log)))
}

/// A message about a file that cannot be used.
pub(super) fn describe(fault: LogFault) -> String {
    match fault {
        LogFault::Damaged => "both copies of its head are damaged".to_owned(),
        LogFault::OtherKey => "it was written with another key, and cannot be queried".to_owned(),
        LogFault::Version(version) => format!("it {version}: {USE_THE_LATER}"),
    }
}
