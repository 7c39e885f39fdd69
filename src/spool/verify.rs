//! Verifies every byte of the database.

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::path::PathBuf;

use crate::sys::files;

use super::database::{Database, FILE_MODE, shard_name};
use super::events::EVENT_FILES;
use super::format::{
    BUSY, DEAD, DECIDED, DROPPED, EVICTED, FORGOTTEN, HeaderFault, LARGEST, LIVE, LOST, SUPERSEDED,
    TIDIED, WAITS,
};
use super::habits;
use super::hashing::Hashing;
use super::overrides::OVERRIDES;
use super::record::Record;
use super::shard::Body;
use super::superblock::DATABASE;
use super::text_log::{AUDIT, HELD};
use super::{Spool, SpoolError, usage};

/// The result of [`Spool::verify`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// One for each shard that exists, preceded by one for the directory and for each
    /// other file that has a problem.
    pub shards: Vec<ShardReport>,
}

/// The result for one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardReport {
    /// Its file.
    pub path: PathBuf,
    /// Sound records.
    pub records: u64,
    /// Damaged records; each is lost, but affects no other.
    pub damaged: u64,
    /// Bytes of disk.
    pub disk: u64,
    /// Bytes of heap that no record uses.
    pub dead: u64,
    /// The problems found, one sentence each.
    pub problems: Vec<String>,
}

impl Report {
    /// All problems of all files, each with the file's path.
    pub fn problems(&self) -> impl Iterator<Item = String> {
        self.shards.iter().flat_map(|shard| {
            let path = shard.path.display().to_string();
            shard.problems.iter().map(move |problem| match problem.contains(&path) {
                // Errors contain the path themselves.
                true => problem.clone(),
                false => format!("{path}: {problem}"),
            })
        })
    }

    /// Sound records in all shards.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.shards.iter().map(|shard| shard.records).sum()
    }
}

impl Spool {
    /// Checks every byte that can be checked, shard by shard, each locked for
    /// reading, and the owner and mode of every file; repairs nothing.
    ///
    /// What a killed process leaves behind by design is not a problem: a partly written
    /// state next to a sound one, heap that was never used, counts that the next check
    /// corrects.
    ///
    /// # Errors
    /// The database's directory cannot be used; a shard that cannot be read is
    /// a problem in the report.
    pub fn verify(&mut self) -> Result<Report, SpoolError> {
        self.verify_with(|_| {})
    }

    /// As [`Spool::verify`]; `progress` is called after each shard with how many
    /// are done.
    ///
    /// # Errors
    /// As for [`Spool::verify`].
    pub fn verify_with(&mut self, mut progress: impl FnMut(usize)) -> Result<Report, SpoolError> {
        self.after_fork()?;
        let mut report = Report::default();
        // A missing one is written when the database is next opened for writing.
        let present = files::info_at(self.database.dir.directory(), DATABASE).is_ok();
        if present && let Err(fault) = self.with_files(|database| database.read_identity())? {
            let problem = match fault {
                HeaderFault::Version(found) => {
                    self.database.unknown_version(DATABASE, found).to_string()
                }
                HeaderFault::Damaged => {
                    "it is damaged; the shards hold the key that it should hold".to_owned()
                }
            };
            report.shards.push(ShardReport {
                path: self.database.path_of(DATABASE),
                problems: vec![problem],
                ..ShardReport::default()
            });
        }
        report.shards.extend(self.database.directory_fault().map(ShardReport::from));
        let problem = self.with_files(|database| Ok(database.overrides_problem()))?;
        report.shards.extend(
            problem.map(|problem| ShardReport::from((self.database.path_of(OVERRIDES), problem))),
        );
        for name in OTHER_FILES.into_iter().chain(EVENT_FILES) {
            report.shards.extend(self.database.access_fault(name).map(ShardReport::from));
        }
        for number in 0..=u8::MAX {
            let path = self.database.path_of(&shard_name(number));
            let before = report.shards.len();
            let hashing = self.database.hashing.clone();
            let found = self.read_shard(number, |body| body.map(|body| check(body, &hashing)));
            match found {
                Ok(None) => {}
                Ok(Some(shard)) => {
                    report.shards.push(ShardReport { path, disk: self.disk(number), ..shard });
                }
                Err(error) => report.shards.push(ShardReport {
                    path,
                    disk: self.disk(number),
                    problems: vec![error.to_string()],
                    ..ShardReport::default()
                }),
            }
            if let Some((_, fault)) = self.database.access_fault(&shard_name(number))
                && let Some(shard) = report.shards.get_mut(before)
            {
                shard.problems.push(fault);
            }
            progress(usize::from(number) + 1);
        }
        Ok(report)
    }
}

impl Database {
    /// The problem with the owner or mode of the directory, if any, and its path.
    fn directory_fault(&self) -> Option<(PathBuf, String)> {
        Some((self.dir.path().to_path_buf(), self.dir.directory_fault()?))
    }

    /// The problem with the owner or mode of a file, if any, and its path.
    fn access_fault(&self, name: &CStr) -> Option<(PathBuf, String)> {
        let facts = files::info_at(self.dir.directory(), name).ok()?;
        Some((self.path_of(name), self.dir.access_fault(&facts, FILE_MODE)?))
    }

    /// Corrects the owner and mode of the directory and of all files. [`Spool::verify`]
    /// reports what could not be corrected.
    pub(super) fn repair_access(&mut self) {
        let directory = self.directory_fault();
        if directory.is_some() && self.dir.adopt_directory().is_ok() {
            self.note_access(directory);
        }
        let names = (0..=u8::MAX).map(shard_name);
        let others = OTHER_FILES.into_iter().chain(EVENT_FILES).map(CStr::to_owned);
        for name in names.chain(others) {
            let fault = self.access_fault(&name);
            if fault.is_some() && self.dir.adopt_file(&name, FILE_MODE).is_ok() {
                self.note_access(fault);
            }
        }
    }

    fn note_access(&mut self, fault: Option<(PathBuf, String)>) {
        if let Some((path, fault)) = fault {
            self.report(format!("{}: {fault}; this has been corrected", path.display()));
        }
    }
}

impl From<(PathBuf, String)> for ShardReport {
    fn from((path, problem): (PathBuf, String)) -> Self {
        Self { path, problems: vec![problem], ..Self::default() }
    }
}

/// The files that are neither shards nor lists of events.
const OTHER_FILES: [&CStr; 6] =
    [DATABASE, OVERRIDES, AUDIT.name, AUDIT.before, HELD.name, HELD.before];

/// The most problems that are reported for one shard.
const PROBLEMS_MAX: usize = 100;

impl ShardReport {
    /// Adds a problem.
    fn problem(&mut self, problem: impl FnOnce() -> String) {
        match self.problems.len() {
            ..PROBLEMS_MAX => self.problems.push(problem()),
            PROBLEMS_MAX => self.problems.push("there are more problems".to_owned()),
            _ => {}
        }
    }
}

/// Verifies one shard, in time proportional to the file's size even if the index is
/// damaged or malicious.
pub(super) fn check(body: &Body, hashing: &Hashing) -> ShardReport {
    let mut report = ShardReport::default();
    let (mut spans, mut keys) = (HashMap::new(), HashSet::new());
    let (mut entries, mut used) = (0, 0);
    // How many entries before this one are occupied without a gap, across the end.
    let mut run = (0..body.capacity).rev().take_while(|&slot| body.entry(slot).is_some()).count();
    for slot in 0..body.capacity {
        let Some((tag, offset)) = body.entry(slot) else {
            run = 0;
            continue;
        };
        let before = run;
        run += 1;
        entries += 1;
        if !body.in_heap(offset) {
            report.problem(|| format!("index entry {slot} points outside of the heap"));
            continue;
        }
        if spans.contains_key(&offset) {
            report.problem(|| format!("two index entries point at the record at {offset}"));
            continue;
        }
        let Some(record) = Record::read(&body.map, offset, body.seed) else {
            report.damaged += 1;
            report.problem(|| format!("the record at {offset} is damaged"));
            continue;
        };
        used += record.bytes as u64;
        spans.insert(offset, record.bytes);
        let Some((place, key)) = record.slot(&body.map, hashing).zip(record.distinct(&body.map))
        else {
            continue;
        };
        if record.is_of_habits()
            && let Some(what) = habits::fault(&record, body, place)
        {
            report.problem(|| format!("the record at {offset} {what}"));
        }
        if record.is_of_usage()
            && let Some(what) = usage::fault(&record, body, place)
        {
            report.problem(|| format!("the record at {offset} {what}"));
        }
        let way = (slot + body.capacity - place.start(body.capacity)) % body.capacity;
        if place.shard != body.number || place.tag != tag {
            report.problem(|| format!("the record at {offset} is not where its key belongs"));
        } else if way > before {
            report.problem(|| format!("the record at {offset} is not found by its key"));
        }
        if !keys.insert(key) {
            report.problem(|| format!("the record at {offset} is not the only one of its key"));
        }
        if record.current.is_none() {
            report.damaged += 1;
            report.problem(|| format!("the record at {offset} has no sound state"));
        } else {
            report.records += 1;
        }
    }
    check_heap(body, &mut report, entries, used, spans);
    report
}

/// Verifies the header's numbers, and that the records fill the heap without gaps and
/// without overlapping.
fn check_heap(
    body: &Body,
    report: &mut ShardReport,
    entries: u64,
    used: u64,
    mut spans: HashMap<usize, usize>,
) {
    let Some(end) = body.heap_end() else {
        report.problem(|| "the end of the heap is damaged".to_owned());
        return;
    };
    if end > body.map.len() {
        report.problem(|| format!("the file ends at {}, its heap at {end}", body.map.len()));
        return;
    }
    let mut offset = body.heap_start;
    while offset < end {
        spans.remove(&offset);
        match Record::read(&body.map, offset, body.seed) {
            Some(record) => offset += record.bytes,
            None => {
                report.problem(|| format!("there is no sound record at {offset}"));
                break;
            }
        }
    }
    if offset > end {
        report.problem(|| format!("the last record ends at {offset}, the heap at {end}"));
    }
    // A record within another one, or beyond the heap's end. After damage, the starts of
    // records are not known.
    if offset >= end {
        for at in spans.into_keys() {
            report.problem(|| format!("the record at {at} is not one of the heap's"));
        }
    }
    report.dead = ((end - body.heap_start) as u64).saturating_sub(used);
    if body.flags() & !(BUSY | SUPERSEDED) != 0 {
        report.problem(|| format!("unknown flags {:#x}", body.flags()));
    }
    for (what, offset) in [
        ("the second in which it was tidied", TIDIED),
        ("the count of forgotten records", FORGOTTEN),
        ("the count of evicted records", EVICTED),
        ("the count of damaged records", DROPPED),
        ("the count of waits for the lock", WAITS),
        ("the size of the largest record", LARGEST),
        ("the count of events that were not written", LOST),
        ("the count of decisions", DECIDED),
    ] {
        // Earlier versions have not counted those.
        let is_absent = [LOST, DECIDED].contains(&offset) && body.map.u64(offset) == Some(0);
        if body.sealed(offset).is_none() && !is_absent {
            report.problem(|| format!("{what} is damaged"));
        }
    }
    if body.flags() & BUSY == 0 {
        for (what, offset, right) in
            [("live records", LIVE, entries), ("dead bytes", DEAD, report.dead)]
        {
            match body.sealed(offset) {
                None => report.problem(|| format!("the number of {what} is damaged")),
                Some(stored) if stored != right => report
                    .problem(|| format!("the header counts {stored} {what}, there are {right}")),
                Some(_) => {}
            }
        }
    }
}
