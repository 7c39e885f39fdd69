//! All logs and segments, as they are at one moment.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{CStr, CString};
use std::time::Instant;

use crate::sys::files::Access;
use crate::sys::secure_dir::DirError;
use crate::trace::{Settings, decode, is_past};

use super::error::Problem;
use super::log::{Fault, Log};
use super::names::{self, Kind, Numbered, OPEN};
use super::segment::Segment;
use super::{TraceError, TraceStore, VERSION};

/// How often they are listed where there is something new each time.
const ATTEMPTS: u32 = 10;

/// A file that holds messages.
#[derive(Debug)]
pub(super) enum Source {
    Log(Log),
    Segment(Box<Segment>),
}

impl Source {
    /// The log it is, or was made from.
    fn id(&self) -> u64 {
        match self {
            Self::Log(log) => log.head.id,
            Self::Segment(segment) => segment.head.log,
        }
    }

    /// How its messages were digested.
    pub(super) fn settings(&self) -> Settings {
        match self {
            Self::Log(log) => log.settings,
            Self::Segment(segment) => segment.settings,
        }
    }

    /// Whether its messages were decoded as questions are: only then have they
    /// the same pieces.
    pub(super) fn is_decoded_as_now(&self) -> bool {
        let version = match self {
            Self::Log(log) => log.head.decode,
            Self::Segment(segment) => segment.head.decode,
        };
        version == decode::VERSION
    }

    /// How many messages it has; of a log whose status is damaged, none.
    pub(super) fn messages(&self) -> u64 {
        match self {
            Self::Log(log) => log.status.map_or(0, |status| status.messages.into()),
            Self::Segment(segment) => segment.head.messages.into(),
        }
    }

    /// The bytes of the file.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Log(log) => log.size,
            Self::Segment(segment) => segment.bytes(),
        }
    }
}

/// All files that hold messages.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// Those that can be asked, oldest first.
    pub(super) list: Vec<(CString, Source)>,
    /// What cannot be used at all.
    pub(super) problems: Vec<Problem>,
    /// Files made with another key.
    pub(super) other_key: u64,
    /// The deadline passed before all were opened.
    pub(super) late: bool,
    ids: HashSet<u64>,
}

impl TraceStore {
    /// Opens all logs and segments.
    ///
    /// The open log comes first, so that none is missed that gets its number
    /// meanwhile; a log that is found under two names, or sealed and still
    /// there, is taken once.
    ///
    /// Who lists a directory while a name is taken away and another is given
    /// may see neither of the two: so it is listed again until there is nothing
    /// new in it.
    pub(super) fn sources(&self) -> Result<Sources, TraceError> {
        self.sources_until(None)
    }

    /// The same, but only those that can be opened before the deadline.
    pub(super) fn sources_until(&self, deadline: Option<Instant>) -> Result<Sources, TraceError> {
        let newest = Log::open(&self.dir, &self.key, OPEN, Access::Read);
        let mut opened = BTreeMap::new();
        for _ in 0..ATTEMPTS {
            let before = opened.len();
            for numbered in names::list(&self.dir)? {
                if is_past(deadline) {
                    break;
                }
                opened.entry(numbered).or_insert_with(|| self.open_source(numbered));
            }
            if opened.len() == before {
                break;
            }
        }
        let mut sources = Sources { late: is_past(deadline), ..Sources::default() };
        for (numbered, opened) in opened {
            self.take(&mut sources, &numbered.name(), opened);
        }
        self.take(&mut sources, OPEN, log(newest));
        Ok(sources)
    }

    fn open_source(&self, numbered: Numbered) -> Opened<Source> {
        let name = numbered.name();
        match numbered.kind {
            Kind::Log | Kind::QuarantinedLog => {
                log(Log::open(&self.dir, &self.key, &name, Access::Read))
            }
            Kind::Segment | Kind::QuarantinedSegment => Segment::open(&self.dir, &self.key, &name)
                .map(|found| found.map(|found| found.map(|s| Source::Segment(Box::new(s))))),
        }
    }

    /// Takes in a file, unless there was none any more: then what it has become
    /// was listed after it.
    fn take(&self, sources: &mut Sources, name: &CStr, opened: Opened<Source>) {
        let what = match opened {
            Ok(None) => return,
            Ok(Some(Ok(source))) => {
                if sources.ids.insert(source.id()) {
                    sources.list.push((name.to_owned(), source));
                }
                return;
            }
            Ok(Some(Err(Fault::OtherKey))) => {
                sources.other_key += 1;
                return;
            }
            Ok(Some(Err(fault))) => describe(fault),
            Err(error) => error.to_string(),
        };
        sources.problems.push(Problem { path: self.dir.path_of(name), what });
    }
}

/// What came of opening a file.
type Opened<T> = Result<Option<Result<T, Fault>>, DirError>;

fn log(opened: Opened<Log>) -> Opened<Source> {
    opened.map(|found| found.map(|found| found.map(Source::Log)))
}

/// A sentence on a file that cannot be used.
pub(super) fn describe(fault: Fault) -> String {
    match fault {
        Fault::Damaged => "both copies of its head are damaged".to_owned(),
        Fault::OtherKey => "it was made with another key, and can answer nothing".to_owned(),
        Fault::Version(found) => format!(
            "a later exirate has written it: its format is version {found}, this exirate knows \
             version {VERSION}"
        ),
    }
}
