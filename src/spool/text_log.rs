//! Logs of lines in the database's directory: what administrators have changed, and which messages
//! mail servers hold.

use std::ffi::CStr;
use std::fs::File;
use std::io::Write as _;
use std::ops::Range;

use crate::sys::files::{self, Access, FileInfo};

use super::database::Database;
use super::held_note::{HeldNote, HeldUntil};
use super::{Spool, SpoolError};

/// A log: its name, that of the previous one, and its largest size in bytes.
#[derive(Debug)]
pub(super) struct TextLog {
    pub(super) name: &'static CStr,
    pub(super) before: &'static CStr,
    bytes: u64,
}

/// What administrators have changed.
pub(super) const AUDIT: TextLog =
    TextLog { name: c"audit.log", before: c"audit.log.1", bytes: 1 << 20 };
/// The messages that Postfix and Sendmail were told to hold.
pub(super) const HELD: TextLog =
    TextLog { name: c"held.log", before: c"held.log.1", bytes: 16 << 20 };

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedLine {
    /// Where it ends: the number of the file, which it keeps when it becomes the previous one, and
    /// the offset.
    pub place: (u64, u64),
    /// The line.
    pub text: Vec<u8>,
}

/// How far the notes of held messages have been read: the file, which stays open, so that no other one
/// gets its number, and the offset.
#[derive(Debug, Default)]
pub struct NotesRead {
    file: Option<(File, FileInfo)>,
    end: u64,
}

/// What ends the part of a line: a whole one has no such byte.
const PART_END: &[u8] = b"\r\n";

/// A file of a log, and what is in it.
struct ReadLog {
    name: &'static CStr,
    file: File,
    info: FileInfo,
    bytes: Vec<u8>,
}

impl Spool {
    /// Appends a line to `audit.log` in the database's directory, in one write, so that
    /// lines of several processes do not mix. If the log exceeds 1 MiB, it is renamed to
    /// `audit.log.1` first.
    ///
    /// # Errors
    /// It could not be written; nothing else depends on it.
    pub fn log_change(&mut self, line: &str) -> Result<(), SpoolError> {
        self.append(&AUDIT, line.as_bytes())
    }

    /// Notes in `held.log`, in the same way, of messages that a mail server shall hold.
    ///
    /// # Errors
    /// It could not be written.
    pub fn note_held(&mut self, note: &HeldNote) -> Result<(), SpoolError> {
        self.append(&HELD, &note.line())
    }

    /// The notes of held messages, the oldest first.
    ///
    /// # Errors
    /// A log could not be read.
    pub fn held_notes(&mut self) -> Result<Vec<HeldNote>, SpoolError> {
        Ok(self.lines(&HELD)?.iter().filter_map(|line| HeldNote::parse(&line.text)).collect())
    }

    /// The notes of held messages since they were read `before`; whether these are all, as at first
    /// and after the log was begun again.
    ///
    /// # Errors
    /// A log could not be read.
    pub fn held_notes_since(
        &mut self,
        before: &mut NotesRead,
    ) -> Result<(Vec<HeldNote>, bool), SpoolError> {
        let new = self.with_files(|database| {
            let Some((file, info)) = database.open_for(Access::Read, HELD.name)? else {
                return Ok(before.file.is_none().then(Vec::new));
            };
            let is_known = |known: &(File, FileInfo)| known.1.identity == info.identity;
            if !before.file.as_ref().is_some_and(is_known) || info.size < before.end {
                return Ok(None);
            }
            read(database, HELD.name, &file, before.end..info.size).map(Some)
        })?;
        let Some(bytes) = new else {
            let mut all = Vec::new();
            *before = NotesRead::default();
            for ReadLog { name, file, info, bytes } in self.files(&HELD)? {
                let end = whole(&bytes);
                all.extend(notes(bytes.get(..end).unwrap_or_default()));
                if name == HELD.name {
                    *before = NotesRead { file: Some((file, info)), end: end as u64 };
                }
            }
            return Ok((all, true));
        };
        let end = whole(&bytes);
        before.end += end as u64;
        Ok((notes(bytes.get(..end).unwrap_or_default()).collect(), false))
    }

    /// The latest note of each message, the oldest first; each with whether it is in the log before, which
    /// is dropped next.
    ///
    /// # Errors
    /// A log could not be read.
    pub fn latest_held_notes(&mut self) -> Result<Vec<(HeldNote, bool)>, SpoolError> {
        let lines = self.lines(&HELD)?;
        let file = lines.last().map(|line| line.place.0);
        let mut latest = std::collections::HashMap::new();
        for (number, line) in lines.iter().enumerate() {
            let Some(note) = HeldNote::parse(&line.text) else { continue };
            latest.insert(note.id.clone(), (number, note, Some(line.place.0) != file));
        }
        let mut latest: Vec<_> = latest.into_values().collect();
        latest.sort_unstable_by_key(|(number, ..)| *number);
        Ok(latest.into_iter().map(|(_, note, is_before)| (note, is_before)).collect())
    }

    /// Notes that a message was released or deleted, where held messages are noted.
    ///
    /// # Errors
    /// It could not be written.
    pub fn note_left(&mut self, id: &str, at: i64) -> Result<(), SpoolError> {
        let is_noted =
            self.with_files(|database| Ok(database.open_for(Access::Read, HELD.name)?.is_some()))?;
        let note =
            HeldNote { at, id: id.to_owned(), until: HeldUntil::Left, ..HeldNote::default() };
        if is_noted { self.note_held(&note) } else { Ok(()) }
    }

    /// The lines of `audit.log` and of the one before, the oldest first.
    ///
    /// # Errors
    /// A log could not be read.
    pub fn changes_logged(&mut self) -> Result<Vec<LoggedLine>, SpoolError> {
        self.lines(&AUDIT)
    }

    /// Whether `audit.log` was begun again: older lines than it has may be gone.
    #[must_use]
    pub fn changes_begun_again(&self) -> bool {
        files::info_at(self.database.dir.directory(), AUDIT.before).is_ok()
    }

    /// The files of a log that there are, the oldest first, and what is in them.
    fn files(&mut self, log: &TextLog) -> Result<Vec<ReadLog>, SpoolError> {
        self.with_files(|database| {
            let mut opened = Vec::new();
            {
                // No log is renamed meanwhile; nobody waits until they are read.
                let _guard = database.lock_directory()?;
                for name in [log.before, log.name] {
                    if let Some((file, info)) = database.open_for(Access::Read, name)? {
                        opened.push((name, file, info));
                    }
                }
            }
            let mut all = Vec::new();
            for (name, file, info) in opened {
                let bytes = read(database, name, &file, 0..info.size)?;
                all.push(ReadLog { name, file, info, bytes });
            }
            Ok(all)
        })
    }

    /// The whole lines of a log, the oldest first.
    fn lines(&mut self, log: &TextLog) -> Result<Vec<LoggedLine>, SpoolError> {
        let mut lines = Vec::new();
        for ReadLog { info, bytes, .. } in self.files(log)? {
            let mut end = 0;
            for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                end += line.len() as u64;
                if let Some(text) = text_of(line) {
                    let place = (info.identity.1, end);
                    lines.push(LoggedLine { place, text: text.to_vec() });
                }
            }
        }
        Ok(lines)
    }

    fn append(&mut self, log: &TextLog, line: &[u8]) -> Result<(), SpoolError> {
        let (mut file, is_cut) = self.with_files(|database| {
            let file = open_log(database, log)?;
            Ok((file, is_cut(database, log)?))
        })?;
        let begin: &[u8] = if is_cut { PART_END } else { b"" };
        let line = [begin, line, b"\n"].concat();
        file.write_all(&line).map_err(SpoolError::io("write", &self.database.path_of(log.name)))
    }

    /// Calls `find` with each line of the audit log and of the previous one, and counts those in
    /// which it finds something. With `overwrite`, the bytes that it finds are replaced by
    /// `*`, so that lines keep their places while other processes append.
    ///
    /// # Errors
    /// A log could not be read or written.
    pub fn find_in_audit_log(
        &mut self,
        find: &dyn Fn(&[u8]) -> Vec<Range<usize>>,
        overwrite: bool,
    ) -> Result<u64, SpoolError> {
        self.find_in(&AUDIT, find, overwrite)
    }

    /// The same with the notes of held messages.
    ///
    /// # Errors
    /// A log could not be read or written.
    pub fn find_in_held_notes(
        &mut self,
        find: &dyn Fn(&[u8]) -> Vec<Range<usize>>,
        overwrite: bool,
    ) -> Result<u64, SpoolError> {
        self.find_in(&HELD, find, overwrite)
    }

    fn find_in(
        &mut self,
        log: &TextLog,
        find: &dyn Fn(&[u8]) -> Vec<Range<usize>>,
        overwrite: bool,
    ) -> Result<u64, SpoolError> {
        self.with_files(|database| {
            if overwrite {
                database.require_writable()?;
            }
            // No log is renamed meanwhile.
            let _guard = database.lock_directory()?;
            let access = if overwrite { Access::Write } else { Access::Read };
            let mut lines = 0;
            for name in [log.before, log.name] {
                let Some((file, info)) = database.open_for(access, name)? else { continue };
                let bytes = read(database, name, &file, 0..info.size)?;
                let mut start = 0;
                for line in bytes.split_inclusive(|b| *b == b'\n') {
                    let found = find(line);
                    lines += u64::from(!found.is_empty());
                    for place in found.into_iter().filter(|_| overwrite) {
                        let stars = vec![b'*'; place.len()];
                        files::write_at(&file, (start + place.start) as u64, &stars)
                            .map_err(SpoolError::io("write", &database.path_of(name)))?;
                    }
                    start += line.len();
                }
            }
            Ok(lines)
        })
    }
}

/// How many of these bytes are whole lines.
fn whole(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
}

/// The notes in these lines.
fn notes(lines: &[u8]) -> impl Iterator<Item = HeldNote> {
    let lines = lines.split_inclusive(|byte| *byte == b'\n');
    lines.filter_map(text_of).filter_map(HeldNote::parse)
}

/// The text of a line, if it is whole.
fn text_of(line: &[u8]) -> Option<&[u8]> {
    line.strip_suffix(b"\n").filter(|_| !line.ends_with(PART_END))
}

/// The bytes of a part of a log.
fn read(
    database: &Database,
    name: &CStr,
    file: &File,
    part: Range<u64>,
) -> Result<Vec<u8>, SpoolError> {
    let length = part.end.saturating_sub(part.start);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    let read = files::read_at(file, part.start, &mut bytes);
    bytes.truncate(read.map_err(SpoolError::io("read", &database.path_of(name)))?);
    Ok(bytes)
}

/// Whether a log ends in a part of a line, as it was written to a full disk.
fn is_cut(database: &Database, log: &TextLog) -> Result<bool, SpoolError> {
    let Some((file, info)) = database.open_for(Access::Read, log.name)? else { return Ok(false) };
    let last = read(database, log.name, &file, info.size.saturating_sub(1)..info.size)?;
    Ok(last.iter().any(|byte| *byte != b'\n'))
}

/// Opens the log, after renaming it if it is full.
fn open_log(database: &Database, log: &TextLog) -> Result<File, SpoolError> {
    database.require_writable()?;
    if let Some(file) = log_with_room(database, log)? {
        return Ok(file);
    }
    let _guard = database.lock_directory()?;
    // Another process may have been faster.
    if let Some(file) = log_with_room(database, log)? {
        return Ok(file);
    }
    let path = database.path_of(log.name);
    if files::info_at(database.dir.directory(), log.name).is_ok() {
        files::rename_at(database.dir.directory(), log.name, log.before)
            .map_err(SpoolError::io("rename", &path))?;
    }
    database.create_file(log.name)
}

fn log_with_room(database: &Database, log: &TextLog) -> Result<Option<File>, SpoolError> {
    let file = database.open_for(Access::Append, log.name)?;
    Ok(file.filter(|(_, facts)| facts.size < log.bytes).map(|(file, _)| file))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use crate::spool::Options;

    use super::*;
    use crate::sys::secure_dir::DirError;

    #[test]
    fn a_long_log_is_started_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(folder.path(), Options::default()).unwrap();
        let path = spool.directory().join("audit.log");
        spool.log_change("one").unwrap();
        spool.log_change("two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
        spool.log_change(&"x".repeat(AUDIT.bytes as usize)).unwrap();
        spool.log_change("three").unwrap();
        spool.log_change("four").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "three\nfour\n");
        let before = std::fs::read_to_string(path.with_extension("log.1")).unwrap();
        assert!(before.starts_with("one\ntwo\nxxx"));
    }

    #[test]
    fn notes_are_read_from_where_reading_ended() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(folder.path(), Options::default()).unwrap();
        let mut read = NotesRead::default();
        let note = |id: &str, until| HeldNote { id: id.to_owned(), until, ..HeldNote::default() };
        let room = || HeldUntil::Room("{}".to_owned());
        let mut news = |spool: &mut Spool| {
            let (notes, all) = spool.held_notes_since(&mut read).unwrap();
            (notes.into_iter().map(|note| note.id).collect::<Vec<_>>().concat(), all)
        };
        assert_eq!(news(&mut spool), (String::new(), false));
        for (id, until) in [("a", room()), ("b", room()), ("a", HeldUntil::Now), ("c", room())] {
            spool.note_held(&note(id, until)).unwrap();
        }
        assert_eq!(news(&mut spool), ("abac".to_owned(), true));
        assert_eq!(news(&mut spool), (String::new(), false));
        let latest = |spool: &mut Spool| {
            let all = spool.latest_held_notes().unwrap().into_iter();
            all.map(|(note, is_before)| (note.id, is_before)).collect::<Vec<_>>()
        };
        let of = |all: &[(&str, bool)]| {
            all.iter().map(|(id, is_before)| ((*id).to_owned(), *is_before)).collect::<Vec<_>>()
        };
        assert_eq!(latest(&mut spool), of(&[("b", false), ("a", false), ("c", false)]));
        let why = "x".repeat(HELD.bytes as usize);
        spool.note_held(&HeldNote { why, ..note("d", room()) }).unwrap();
        assert_eq!(news(&mut spool), ("d".to_owned(), false));
        spool.note_held(&note("b", room())).unwrap();
        assert_eq!(news(&mut spool), ("abacdb".to_owned(), true));
        let expected = of(&[("a", true), ("c", true), ("d", true), ("b", false)]);
        assert_eq!(latest(&mut spool), expected);
    }

    /// A full disk takes a part of a line, which is none, wherever it is cut.
    #[test]
    fn a_line_after_a_part_of_one_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(folder.path(), Options::default()).unwrap();
        spool.note_left("nothing is noted", 7).unwrap();
        let path = spool.directory().join("held.log");
        assert!(!path.exists());
        let room = HeldUntil::Room("{\"auth\":\"a%\"}".to_owned());
        let note = HeldNote { id: "a".to_owned(), until: room, ..HeldNote::default() };
        spool.note_held(&note).unwrap();
        for until in [note.until.clone(), HeldUntil::Now, HeldUntil::Left] {
            let line = HeldNote { until, ..note.clone() }.line();
            for end in 1..=line.len() {
                let mut file = File::options().append(true).open(&path).unwrap();
                file.write_all(&line[..end]).unwrap();
                spool.note_left("b", 7).unwrap();
            }
        }
        let latest = spool.latest_held_notes().unwrap();
        assert_eq!((latest.len(), &latest[0].0), (2, &note));
        let (all, _) = spool.held_notes_since(&mut NotesRead::default()).unwrap();
        assert_eq!(all, spool.held_notes().unwrap());
    }

    #[test]
    fn nothing_is_written_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(folder.path(), Options::default()).unwrap();
        let other = folder.path().join("other");
        std::fs::write(&other, "mine").unwrap();
        symlink(&other, spool.directory().join("audit.log")).unwrap();
        assert!(matches!(
            spool.log_change("x"),
            Err(SpoolError::Directory(DirError::WrongKind { .. }))
        ));
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "mine");
        let mut reader = Spool::open_existing(folder.path(), Options::default()).unwrap();
        assert!(matches!(reader.log_change("x"), Err(SpoolError::ReadOnly { .. })));
    }

    #[test]
    fn what_is_found_in_both_logs_is_overwritten_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(folder.path(), Options::default()).unwrap();
        spool.log_change(&format!("one secret{}", "x".repeat(AUDIT.bytes as usize))).unwrap();
        spool.log_change("two secret, secret").unwrap();
        spool.log_change("three").unwrap();
        let find = |line: &[u8]| {
            let at = line.windows(6).enumerate().filter(|(_, part)| part == b"secret");
            at.map(|(at, _)| at..at + 6).collect::<Vec<_>>()
        };
        assert_eq!(spool.find_in_audit_log(&find, false).unwrap(), 2);
        assert_eq!(spool.find_in_audit_log(&find, true).unwrap(), 2);
        assert_eq!(spool.find_in_audit_log(&find, true).unwrap(), 0);
        let path = spool.directory().join("audit.log");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two ******, ******\nthree\n");
        let before = std::fs::read_to_string(path.with_extension("log.1")).unwrap();
        assert!(before.starts_with("one ******x"));
        let mut reader = Spool::open_existing(folder.path(), Options::default()).unwrap();
        assert!(matches!(reader.find_in_audit_log(&find, true), Err(SpoolError::ReadOnly { .. })));
    }
}
