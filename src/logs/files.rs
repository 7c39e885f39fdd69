//! Finds log files, and reads their lines in the order of time.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::fs;
use std::io::{self, BufRead, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use globset::GlobBuilder;
use jiff::tz::TimeZone;

use super::decompress;
use super::journal::Journal;
use super::json_lines::{self, JsonLine};
use super::leap_day;
use super::night::Night;
use super::stamp::{Stamp, Stamps, Tag};
use super::unused::{Reason, Unused};
use crate::rate::Timestamp;
use crate::text::time::in_zone;

/// A longer line is skipped: Exim writes none.
const LINE_MAX: u64 = 1 << 20;
/// How many lines are read to find the first time of a file.
const FIRST_LINES: usize = 100;

/// Why logs could not be found or read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A file could not be opened or read.
    #[error("cannot read {name}: {error}")]
    Read {
        /// The file, or `standard input`.
        name: String,
        /// Why not.
        error: io::Error,
    },
    /// No file in a directory is named as Exim's main log is.
    #[error(
        "{directory}: no file here has `main` in its name, as Exim's main log has; name the files"
    )]
    NoMainLog {
        /// The directory.
        directory: PathBuf,
    },
    /// No file matches, or it is no pattern.
    #[error("{pattern}: {what}")]
    Pattern {
        /// As it was given.
        pattern: String,
        /// What is wrong.
        what: String,
    },
}

/// Log files, in the order of time.
#[derive(Debug)]
pub struct LogFiles {
    files: Vec<LogFile>,
}

/// Where lines come from.
#[derive(Debug)]
enum LineSource {
    File(PathBuf),
    StandardInput,
    Journal(Journal),
}

/// The lines of a file that grows.
#[derive(Debug)]
pub(super) struct Growing {
    input: fs::File,
    /// Its device and inode.
    pub(super) id: (u64, u64),
    /// How much of it has been read.
    pub(super) offset: u64,
    /// The start of a line whose end is not there yet.
    partial: Vec<u8>,
    number: u64,
    of: LogFile,
    night: Night,
    buffer: Box<[u8]>,
}

impl Growing {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let input = fs::File::open(path)?;
        let info = input.metadata()?;
        let of = LogFile::once(LineSource::File(path.to_owned()), &path.display().to_string());
        Ok(Self {
            input,
            id: (info.dev(), info.ino()),
            offset: 0,
            partial: Vec::new(),
            number: 0,
            of,
            night: Night::default(),
            buffer: vec![0; 256 << 10].into(),
        })
    }

    /// Calls `see` with each line that has come to its end since the last time, as long as it
    /// returns true.
    pub(super) fn read(&mut self, see: &mut impl FnMut(Stamped<'_>) -> bool) -> io::Result<()> {
        // Of a time without a year, the year is the latest that is possible.
        let Self { input, offset, partial, number, of, night, buffer, .. } = self;
        of.stamps = Stamps::new(jiff::Timestamp::now());
        // Nobody looks at what is of no use.
        let mut unused = Read::default();
        loop {
            let count = io::Read::read(input, buffer)?;
            if count == 0 {
                return Ok(());
            }
            *offset += count as u64;
            let mut rest = buffer.get(..count).unwrap_or_default();
            while let Some(end) = memchr::memchr(b'\n', rest) {
                let (line, after) = rest.split_at_checked(end).unwrap_or((rest, &[]));
                rest = after.get(1..).unwrap_or_default();
                keep(partial, line);
                while partial.last() == Some(&b'\r') {
                    partial.pop();
                }
                *number += 1;
                let goes_on = of.line(partial, *number, see, &mut unused, night);
                partial.clear();
                if !goes_on {
                    return Ok(());
                }
            }
            keep(partial, rest);
        }
    }
}

/// Adds a part to a line. Of one that is too long, only the start is kept.
fn keep(line: &mut Vec<u8>, part: &[u8]) {
    let room = (LINE_MAX as usize).saturating_sub(line.len());
    line.extend_from_slice(part.get(..part.len().min(room)).unwrap_or_default());
}

/// A log file, or another source of lines.
#[derive(Debug)]
struct LogFile {
    source: LineSource,
    /// For messages.
    name: String,
    /// Its size as it is stored, in bytes.
    size: u64,
    stamps: Stamps,
    first: Option<Timestamp>,
}

/// A line that has a time.
#[derive(Clone, Copy, Debug)]
pub struct Stamped<'a> {
    /// The whole line.
    pub line: &'a str,
    /// Its time.
    pub at: Timestamp,
    /// Whether the log has its zone; without one it is taken as UTC.
    pub has_zone: bool,
    /// By how many seconds it is later than the clock showed, as summer time has ended since the
    /// first line.
    pub ahead: i64,
    /// The program, as syslog names it.
    pub tag: Option<Tag<'a>>,
    /// What follows the time.
    pub rest: &'a str,
    /// The file, and the number of the line in it, from 1 on.
    pub place: (&'a str, u64),
}

impl Stamped<'_> {
    /// This line with its real time, if the clock of a log that has no zone is of this one.
    #[must_use]
    pub fn in_zone(&self, zone: &TimeZone) -> Self {
        let Self { at, ahead, .. } = *self;
        if self.has_zone {
            return *self;
        }
        let wall = Timestamp { seconds: at.seconds - ahead, ..at };
        Self { at: in_zone(wall, zone, ahead > 0), has_zone: true, ahead: 0, ..*self }
    }
}

/// What was read of logs.
#[derive(Debug, Default)]
pub struct Read {
    /// How many lines.
    pub lines: u64,
    /// Those that have no time.
    pub unused: Unused,
    /// Where the clock of a log went back by an hour, as summer time ends: `FILE:LINE`. Times
    /// after that are taken as an hour later.
    pub nights: Vec<String>,
    /// The cursor of the last entry of the journal.
    pub cursor: Option<String>,
}

impl LogFiles {
    /// Finds the files that arguments name: a file (`-` is standard input); of a directory,
    /// the files with `main` in their name, as all of Exim's main logs have; or those that
    /// match a pattern (`mainlog*`). A file that is named twice is read once.
    ///
    /// They are put in the order of their first times, so that rotated logs may come in any
    /// order.
    ///
    /// # Errors
    /// There is no such file, or it cannot be read.
    pub fn find(arguments: &[PathBuf]) -> Result<Self, LogError> {
        let mut paths = Vec::new();
        for argument in arguments {
            paths.extend(expand(argument)?);
        }
        let mut known = HashSet::new();
        let mut files = Vec::new();
        for path in paths {
            let file = match path.as_os_str() == "-" {
                true => LogFile::standard_input(),
                false => {
                    let name = path.display().to_string();
                    let read = |error| LogError::Read { name: name.clone(), error };
                    let info = fs::metadata(&path).map_err(read)?;
                    if !known.insert((info.dev(), info.ino())) {
                        continue;
                    }
                    LogFile::open(path, &info).map_err(read)?
                }
            };
            files.push(file);
        }
        agree_on_years(&mut files)?;
        files.sort_by_key(|file| (file.first.is_none(), file.first));
        Ok(Self { files })
    }

    /// The journal, after what has been read of it before.
    #[must_use]
    pub fn journal(journal: Journal) -> Self {
        Self { files: vec![LogFile::once(LineSource::Journal(journal), "journal")] }
    }

    /// Their size as they are stored, in bytes; 0 for standard input.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    /// Whether standard input is among them.
    #[must_use]
    pub fn has_standard_input(&self) -> bool {
        self.files.iter().any(|file| matches!(file.source, LineSource::StandardInput))
    }

    /// Calls `see` with each line that has a time, and now and then `progress` with how many
    /// bytes of the files have been read.
    ///
    /// # Errors
    /// A file could not be read to its end.
    pub fn read(
        &self,
        mut see: impl FnMut(Stamped<'_>),
        progress: impl FnMut(u64),
    ) -> Result<Read, LogError> {
        let see = |line: Stamped<'_>| {
            see(line);
            true
        };
        self.read_while(see, progress)
    }

    /// As [`Self::read`], as long as `see` returns `true`.
    ///
    /// # Errors
    /// A file could not be read.
    pub fn read_while(
        &self,
        mut see: impl FnMut(Stamped<'_>) -> bool,
        mut progress: impl FnMut(u64),
    ) -> Result<Read, LogError> {
        let (mut read, mut night) = (Read::default(), Night::default());
        let mut before = 0;
        for file in &self.files {
            let mut within = |bytes: u64| progress(before + bytes.min(file.size));
            let goes_on = file.read(&mut see, &mut within, &mut read, &mut night);
            let failed = |error| LogError::Read { name: file.name.clone(), error };
            if !goes_on.map_err(failed)? {
                break;
            }
            before += file.size;
            progress(before);
        }
        read.nights = night.found;
        Ok(read)
    }
}

impl LogFile {
    fn standard_input() -> Self {
        Self::once(LineSource::StandardInput, "standard input")
    }

    /// What can be read once only.
    fn once(source: LineSource, name: &str) -> Self {
        let stamps = Stamps::new(jiff::Timestamp::now());
        Self { source, name: name.to_owned(), size: 0, stamps, first: None }
    }

    fn open(path: PathBuf, info: &fs::Metadata) -> io::Result<Self> {
        let changed = info.modified().ok().and_then(|time| jiff::Timestamp::try_from(time).ok());
        let name = path.display().to_string();
        let stamps = Stamps::new(changed.unwrap_or_else(jiff::Timestamp::now));
        let mut file =
            Self { source: LineSource::File(path), name, size: info.len(), stamps, first: None };
        // What is not regular, such as a pipe, can be read once only.
        if info.is_file() {
            file.first = file.first_time()?;
        }
        Ok(file)
    }

    fn input(&self, bytes: &Rc<Cell<u64>>) -> io::Result<Box<dyn BufRead>> {
        match &self.source {
            LineSource::File(path) => decompress::open(path, bytes),
            LineSource::StandardInput => Ok(Box::new(io::stdin().lock())),
            LineSource::Journal(journal) => journal.open(),
        }
    }

    fn first_time(&self) -> io::Result<Option<Timestamp>> {
        let mut first = None;
        self.stamps(FIRST_LINES, |stamp| {
            first = Some(stamp.at);
            false
        })?;
        Ok(first)
    }

    /// When the log ends, if it has no years, and 29 February says another than its last change.
    fn end_by_leap_day(&self) -> io::Result<Option<jiff::Timestamp>> {
        let (Some(_), mut days, mut is_first) = (self.first, leap_day::Days::default(), true)
        else {
            return Ok(None);
        };
        let latest = self.stamps.latest();
        self.stamps(usize::MAX, |stamp| {
            days.add(&stamp);
            let can_be = !stamp.has_year && leap_day::is_possible(stamp.at, latest);
            !std::mem::take(&mut is_first) || can_be
        })?;
        Ok(days.end())
    }

    /// Calls `see` with what the first `most` lines begin with, as long as it returns true.
    fn stamps(&self, most: usize, mut see: impl FnMut(Stamp<'_>) -> bool) -> io::Result<()> {
        let mut input = self.input(&Rc::default())?;
        let mut line = Vec::new();
        for _ in 0..most {
            if !next_line(&mut *input, &mut line)? {
                break;
            }
            let text = text(&line);
            let json = json(&text);
            let text = json.as_ref().map_or(&*text, |json| &*json.text);
            if self.stamps.read(text).is_some_and(|stamp| !see(stamp)) {
                break;
            }
        }
        Ok(())
    }

    fn read(
        &self,
        see: &mut impl FnMut(Stamped<'_>) -> bool,
        progress: &mut impl FnMut(u64),
        read: &mut Read,
        night: &mut Night,
    ) -> io::Result<bool> {
        let bytes = Rc::default();
        let mut input = self.input(&bytes)?;
        let mut line = Vec::new();
        let mut number = 0_u64;
        while next_line(&mut *input, &mut line)? {
            number += 1;
            if number.is_multiple_of(65_536) {
                progress(bytes.get());
            }
            if !self.line(&line, number, see, read, night) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Considers the line of this number; returns whether to go on.
    fn line(
        &self,
        line: &[u8],
        number: u64,
        see: &mut impl FnMut(Stamped<'_>) -> bool,
        read: &mut Read,
        night: &mut Night,
    ) -> bool {
        read.lines += 1;
        let text = text(line);
        let mut json = json(&text);
        let text = match &mut json {
            Some(json) => {
                read.cursor = json.cursor.take().or_else(|| read.cursor.take());
                &*json.text
            }
            None => &*text,
        };
        let place = (&*self.name, number);
        match self.stamps.read(text) {
            Some(Stamp { at, has_zone, tag, rest, .. }) => {
                let (wall, at) = match has_zone {
                    true => (at, at),
                    false => (at, night.time(at, || format!("{}:{number}", self.name))),
                };
                let ahead = at.seconds - wall.seconds;
                return see(Stamped { line: text, at, has_zone, ahead, tag, rest, place });
            }
            None if text.trim().is_empty() => {}
            None => read.unused.add(Reason::WithoutTime, place, text),
        }
        true
    }
}

/// A line that is JSON.
fn json(text: &str) -> Option<JsonLine> {
    if text.starts_with('{') { json_lines::read(text) } else { None }
}

/// A line as text. Nearly all are UTF-8, which is seen faster than repaired.
fn text(line: &[u8]) -> Cow<'_, str> {
    str::from_utf8(line).map_or_else(|_| String::from_utf8_lossy(line), Cow::Borrowed)
}

/// Reads a line, without its end; `false` at the end of the input. Of a line that is too
/// long, only the start is kept.
fn next_line(input: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let mut limited = input.take(LINE_MAX);
    if limited.read_until(b'\n', line)? == 0 {
        return Ok(false);
    }
    if line.last() != Some(&b'\n') && line.len() as u64 == LINE_MAX {
        input.skip_until(b'\n')?;
    }
    while line.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
        line.pop();
    }
    Ok(true)
}

/// Files of which the lines have no year are all of the one that 29 February says, if one of them
/// has such a day that does not fit the others.
fn agree_on_years(files: &mut [LogFile]) -> Result<(), LogError> {
    let (mut found, mut changed) = (None, jiff::Timestamp::MAX);
    for file in files.iter_mut() {
        let failed = |error| LogError::Read { name: file.name.clone(), error };
        if let Some(end) = file.end_by_leap_day().map_err(failed)? {
            changed = changed.min(file.stamps.latest());
            file.stamps = file.stamps.no_later_than(end);
            found = found.max(Some(end));
        }
    }
    let Some(end) = found else { return Ok(()) };
    // Those that were copied later or with it.
    for file in files.iter_mut() {
        let is_copy =
            changed.duration_since(file.stamps.latest()) < jiff::SignedDuration::from_hours(48);
        if is_copy {
            file.stamps = leap_day::near(end, file.stamps);
        }
        if file.first.is_some() {
            let failed = |error| LogError::Read { name: file.name.clone(), error };
            file.first = file.first_time().map_err(failed)?;
        }
    }
    Ok(())
}

/// The files that an argument names.
fn expand(argument: &Path) -> Result<Vec<PathBuf>, LogError> {
    if argument.is_dir() {
        let is_main = |name: &str| name.to_ascii_lowercase().contains("main");
        let found = inside(argument, is_main)?;
        return match found.is_empty() {
            true => Err(LogError::NoMainLog { directory: argument.to_path_buf() }),
            false => Ok(found),
        };
    }
    let name = argument.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if argument.exists() || !name.contains(['*', '?', '[', '{']) {
        return Ok(vec![argument.to_path_buf()]);
    }
    let failed = |what: String| LogError::Pattern { pattern: argument.display().to_string(), what };
    let glob = GlobBuilder::new(name).build().map_err(|error| failed(error.kind().to_string()))?;
    let glob = glob.compile_matcher();
    let found = inside(directory_of(argument), |name| glob.is_match(name))?;
    match found.is_empty() {
        true => Err(failed("no file matches".to_owned())),
        false => Ok(found),
    }
}

/// The directory that a file is in.
pub(super) fn directory_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// The files in a directory with such names, sorted by name.
pub(super) fn inside(
    directory: &Path,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Vec<PathBuf>, LogError> {
    let read = |error| LogError::Read { name: directory.display().to_string(), error };
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(read)? {
        let entry = entry.map_err(read)?;
        let path = entry.path();
        if is_wanted(&entry.file_name().to_string_lossy()) && path.is_file() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
