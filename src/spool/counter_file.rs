//! A file of counters in the directory of the database, which all processes map.
//!
//! Each counter is one atomic addition: nothing is locked, and a process that is killed
//! leaves what it had counted. The file has a fixed size, and is identified by its `magic`, the
//! last byte of which is its version. One of another version is neither counted in nor replaced.
//! A name has the slot that its hash leads to; one that finds no slot is counted in
//! `uncounted`. [`retain`] frees the slots of names that no longer exist.
//!
//! | offset | size | field | content |
//! |---|---|---|---|
//! | 0 | 8 | `magic` | what the file is, see [`CounterKind`] |
//! | 8 | 8 | `superseded` | 1 if another file has replaced this one |
//! | 16 | 8 | `uncounted` | counts of names for which there was no slot |
//! | 24 | 8 | `errors` | what could not be evaluated |
//!
//! Slots of 256 bytes follow from 256 on:
//!
//! | offset | size | field | content |
//! |---|---|---|---|
//! | 0 | 8 | `tag` | hash of the name; 0: the slot is free |
//! | 8 | 96 | `counts` | twelve counters |
//! | 104 | 152 | `name` | the name; zeros after it |
//!
//! A slot belongs to its name from the moment its tag is written. A name that is not the
//! tag's was torn by a kill; the next process that counts there writes it again.

use std::ffi::CStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{FILE_MODE, open_directory};
use crate::sys::files::{self, Access};
use crate::sys::mapping::{Mapping, Watched};
use crate::sys::secure_dir::{DirError, SecureDir};
use crate::versions::{OtherVersion, USE_THE_LATER};

/// Which file it is.
#[derive(Debug)]
pub struct CounterKind {
    /// Its name.
    pub file: &'static CStr,
    /// Its name while it is written again.
    pub new: &'static CStr,
    /// The name of a damaged one that was replaced.
    pub damaged: &'static CStr,
    /// Its first eight bytes.
    pub magic: [u8; 8],
}

/// The counters of a name.
pub const COUNTERS: usize = 12;

const SUPERSEDED: usize = 8;
const UNCOUNTED: usize = 16;
const ERRORS: usize = 24;
/// The size of a slot, and of the header.
const SLOT: usize = 256;
/// The slots of names.
pub(crate) const SLOTS: usize = 511;
/// The size of the file.
pub(crate) const BYTES: usize = (1 + SLOTS) * SLOT;
/// The slots in which a name is searched for.
pub(crate) const PROBES: usize = 64;
const COUNTS: usize = 8;
const NAME: usize = COUNTS + 8 * COUNTERS;
const NAME_WORDS: usize = (SLOT - NAME) / 8;

/// How long [`retain`] waits for the lock of the directory.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// A name, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name([u64; NAME_WORDS]);

impl Name {
    /// Of its parts, one after the other. What is too long is cut off.
    #[must_use]
    pub fn of(parts: &[&str]) -> Self {
        let mut bytes = [0; 8 * NAME_WORDS];
        let mut rest = &mut bytes[..];
        for part in parts {
            let length = part.len().min(rest.len());
            let (to, after) = rest.split_at_mut(length);
            to.copy_from_slice(part.as_bytes().get(..length).unwrap_or_default());
            rest = after;
        }
        let mut words = [0; NAME_WORDS];
        let (eights, _) = bytes.as_chunks();
        for (word, eight) in words.iter_mut().zip(eights) {
            *word = u64::from_le_bytes(*eight);
        }
        Self(words)
    }

    /// Never 0.
    fn tag(&self) -> u64 {
        let mut hash = 0x9e37_79b9_7f4a_7c15_u64;
        for word in self.0.iter().take_while(|word| **word != 0) {
            hash = (hash ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
            hash ^= hash >> 32;
        }
        hash.max(1)
    }

    /// The text; what is not UTF-8 is replaced.
    fn read(&self) -> String {
        let bytes: Vec<u8> = self.0.iter().flat_map(|word| word.to_le_bytes()).collect();
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
    }
}

/// A file of counters, to count in.
#[derive(Debug)]
pub struct CounterFile {
    spool: PathBuf,
    kind: &'static CounterKind,
    state: CounterState,
}

#[derive(Debug)]
enum CounterState {
    /// It is opened when something is counted.
    Closed,
    Open(Mapping, Watched),
    /// It could not be opened: this process counts nothing.
    Unusable,
}

/// Whether something can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// In the same file as before.
    Same,
    /// In another file: its slots are at other offsets.
    Reopened,
    /// No.
    No,
}

/// The slot of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(usize);

impl Slot {
    /// The offset of a counter; the last one for a number that is too high.
    fn counter(self, n: usize) -> usize {
        self.0 + COUNTS + 8 * n.min(COUNTERS - 1)
    }
}

impl CounterFile {
    /// That of the spool directory `spool`. The file is opened, or created, when something
    /// is counted.
    #[must_use]
    pub fn new(spool: &Path, kind: &'static CounterKind) -> Self {
        Self { spool: spool.to_path_buf(), kind, state: CounterState::Closed }
    }

    /// Opens the file where that is necessary: at first, and if another has replaced it.
    #[inline]
    pub fn ready(&mut self) -> Ready {
        let is_whole = match &mut self.state {
            CounterState::Open(_, file) => file.is_whole(),
            CounterState::Closed | CounterState::Unusable => false,
        };
        match &self.state {
            CounterState::Open(map, _) if is_whole && map.u64(SUPERSEDED) == Some(0) => Ready::Same,
            CounterState::Unusable => Ready::No,
            _ => self.reopen(),
        }
    }

    #[cold]
    fn reopen(&mut self) -> Ready {
        self.state = match open(&self.spool, self.kind) {
            Some((map, file)) => CounterState::Open(map, file),
            None => CounterState::Unusable,
        };
        if matches!(self.state, CounterState::Open(..)) { Ready::Reopened } else { Ready::No }
    }

    /// The slot of a name; writes the name where it is missing or torn. `None` if there is
    /// no room.
    #[cold]
    pub fn slot(&mut self, name: &Name) -> Option<Slot> {
        let CounterState::Open(map, _) = &mut self.state else { return None };
        let offset = find(map, name)?;
        if read_name(map, offset).as_ref() != Some(name) {
            write_name(map, offset, name);
        }
        Some(Slot(offset))
    }

    /// Adds one to a counter of a slot, or where a name has none to the `uncounted`.
    #[inline]
    pub fn add(&self, slot: Option<Slot>, counter: usize) {
        self.add_at(slot.map_or(UNCOUNTED, |slot| slot.counter(counter)));
    }

    /// Counts what could not be evaluated.
    pub fn add_error(&self) {
        self.add_at(ERRORS);
    }

    #[inline]
    fn add_at(&self, offset: usize) {
        if let CounterState::Open(map, _) = &self.state {
            // Every offset is in the file.
            let _ = map.add_u64(offset, 1);
        }
    }

    /// The number in a counter.
    #[must_use]
    pub fn get(&self, slot: Slot, counter: usize) -> u64 {
        match &self.state {
            CounterState::Open(map, _) => map.u64(slot.counter(counter)).unwrap_or(0),
            _ => 0,
        }
    }

    /// Replaces the number in a counter by `more` where that is more.
    pub fn raise(&self, slot: Slot, counter: usize, more: u64) {
        let CounterState::Open(map, _) = &self.state else { return };
        let mut known = self.get(slot, counter);
        while known < more {
            match map.replace_u64(slot.counter(counter), known, more) {
                Some(found) if found != known => known = found,
                _ => return,
            }
        }
    }

    /// Writes a number into a counter that is zero; the number that it then has.
    pub fn begin(&self, slot: Slot, counter: usize, first: u64) -> u64 {
        let CounterState::Open(map, _) = &self.state else { return first };
        match map.replace_u64(slot.counter(counter), 0, first) {
            Some(0) | None => first,
            Some(found) => found,
        }
    }
}

fn read_name(map: &Mapping, offset: usize) -> Option<Name> {
    let mut words = [0; NAME_WORDS];
    for (n, word) in words.iter_mut().enumerate() {
        *word = map.u64(offset + NAME + 8 * n)?;
    }
    Some(Name(words))
}

#[cold]
fn write_name(map: &mut Mapping, offset: usize, name: &Name) {
    for (n, word) in name.0.iter().enumerate() {
        // Every offset is in the file.
        let _ = map.set_u64(offset + NAME + 8 * n, *word);
    }
}

/// The offset of the slot of `name`, claimed if it had none. `None` if all slots in which
/// it may be are taken.
fn find(map: &Mapping, name: &Name) -> Option<usize> {
    let tag = name.tag();
    // Less than SLOTS.
    let first = (tag % SLOTS as u64) as usize;
    for probe in 0..PROBES {
        let slot = (first + probe) % SLOTS;
        let offset = (1 + slot) * SLOT;
        let mut found = map.u64(offset)?;
        if found == 0 {
            found = map.replace_u64(offset, 0, tag)?;
            if found == 0 {
                return Some(offset);
            }
        }
        if found == tag {
            return Some(offset);
        }
    }
    None
}

/// Opens the file for counting; creates it if it is missing, and replaces it if it is
/// damaged.
fn open(spool: &Path, kind: &CounterKind) -> Option<(Mapping, Watched)> {
    let dir = open_directory(spool, false).ok()?;
    let right = u64::from_le_bytes(kind.magic);
    for _ in 0..2 {
        let file = dir.open_or_create(kind.file, FILE_MODE).ok()?;
        let size = files::info(&file).ok()?.size;
        let mut magic = [0; 8];
        let _ = files::read_start(&file, &mut magic).ok()?;
        match u64::from_le_bytes(magic) {
            magic if magic == right && size == BYTES as u64 => {
                let map = Mapping::of(&file, true).ok()?;
                let file = Watched::of(file, map.len());
                return Some((map, file));
            }
            // New, or a process was killed while it created it.
            0 if size <= BYTES as u64 => {
                files::reserve(&file, 0, BYTES as u64).ok()?;
                let mut map = Mapping::of(&file, true).ok().filter(|map| map.len() == BYTES)?;
                map.set_u64(0, right)?;
                let file = Watched::of(file, map.len());
                return Some((map, file));
            }
            magic if OtherVersion::of_magic(magic, kind.magic).is_some() => return None,
            _ => quarantine(&dir, &file, kind)?,
        }
    }
    None
}

/// Renames the damaged `file`, unless another process has done so.
#[cold]
fn quarantine(dir: &SecureDir, file: &File, kind: &CounterKind) -> Option<()> {
    let _guard = dir.lock_directory(Duration::ZERO).ok()?;
    let named = files::info_at(dir.directory(), kind.file).ok()?.identity;
    if files::info(file).ok()?.identity == named {
        files::rename_at(dir.directory(), kind.file, kind.damaged).ok()?;
    }
    Some(())
}

/// What a file of counters holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The names and their counters, in any order.
    pub names: Vec<(String, [u64; COUNTERS])>,
    /// Counts of names for which there was no room.
    pub uncounted: u64,
    /// What could not be evaluated.
    pub errors: u64,
}

/// Reads the counters of the spool directory `spool`. `None` if there is no file, or it is
/// damaged: the next process that counts replaces it.
///
/// # Errors
/// The directory or the file cannot be read.
pub fn read(spool: &Path, kind: &CounterKind) -> Result<Option<Contents>, DirError> {
    let dir = match open_directory(spool, false) {
        Err(DirError::Absent { .. }) => return Ok(None),
        result => result?,
    };
    Ok(map_of(&dir, Access::Read, kind)?.map(|map| contents(&map)))
}

/// The file, mapped, if it is there and sound.
fn map_of(
    dir: &SecureDir,
    access: Access,
    kind: &CounterKind,
) -> Result<Option<Mapping>, DirError> {
    let Some((file, info)) = dir.open_file(access, kind.file)? else { return Ok(None) };
    let mut magic = [0; 8];
    let _ = files::read_start(&file, &mut magic).map_err(dir.failed("read", kind.file))?;
    if let Some(version) = OtherVersion::of_magic(u64::from_le_bytes(magic), kind.magic) {
        return Err(dir.failed("read", kind.file)(version.error(USE_THE_LATER)));
    }
    if info.size != BYTES as u64 {
        return Ok(None);
    }
    let map = Mapping::of(&file, access != Access::Read).map_err(dir.failed("map", kind.file))?;
    Ok(Some(map).filter(|map| map.u64(0) == Some(u64::from_le_bytes(kind.magic))))
}

fn contents(map: &Mapping) -> Contents {
    let names = slots(map).filter_map(|(offset, name)| {
        let mut counters = [0; COUNTERS];
        for (n, count) in counters.iter_mut().enumerate() {
            *count = map.u64(offset + COUNTS + 8 * n)?;
        }
        Some((name.read(), counters))
    });
    let counter_at = |offset| map.u64(offset).unwrap_or(0);
    Contents {
        names: names.collect(),
        uncounted: counter_at(UNCOUNTED),
        errors: counter_at(ERRORS),
    }
}

/// The slots in use and their names, without those whose name is not the tag's.
fn slots(map: &Mapping) -> impl Iterator<Item = (usize, Name)> {
    (1..=SLOTS).map(|slot| slot * SLOT).filter_map(|offset| {
        let tag = map.u64(offset).filter(|tag| *tag != 0)?;
        let name = read_name(map, offset)?;
        (name.tag() == tag).then_some((offset, name))
    })
}

/// Frees the slots of the names that `is_known` does not know; returns how many. Processes
/// that count meanwhile may lose a few counts of the others.
///
/// # Errors
/// The file could not be written; the old one is still in use.
pub fn retain(
    spool: &Path,
    kind: &CounterKind,
    is_known: impl Fn(&str) -> bool,
) -> Result<usize, DirError> {
    let dir = match open_directory(spool, false) {
        Err(DirError::Absent { .. }) => return Ok(0),
        result => result?,
    };
    let _guard = dir.lock_directory(LOCK_TIMEOUT)?;
    let Some(mut old) = map_of(&dir, Access::Write, kind)? else { return Ok(0) };
    let is_kept = |name: &Name| is_known(&name.read());
    let kept: Vec<_> = slots(&old).filter(|(_, name)| is_kept(name)).collect();
    let used = (1..=SLOTS).filter(|slot| old.u64(slot * SLOT).is_some_and(|tag| tag != 0)).count();
    let freed = used - kept.len();
    if freed == 0 {
        return Ok(0);
    }
    let failed = |error| dir.failed("write", kind.file)(error);
    let file = dir.create_file(kind.new, FILE_MODE)?;
    let written = files::reserve(&file, 0, BYTES as u64).and_then(|()| {
        let mut new = Mapping::of(&file, true)?;
        copy(&old, &mut new, &kept, kind).ok_or(std::io::ErrorKind::UnexpectedEof)?;
        files::rename_at(dir.directory(), kind.new, kind.file)
    });
    if let Err(error) = written {
        let _ = files::remove_at(dir.directory(), kind.new);
        return Err(failed(error));
    }
    // Running processes open the new one.
    let _ = old.set_u64(SUPERSEDED, 1);
    Ok(freed)
}

/// Copies the counters of the `kept` slots, and the others of the header.
fn copy(
    old: &Mapping,
    new: &mut Mapping,
    kept: &[(usize, Name)],
    kind: &CounterKind,
) -> Option<()> {
    for (from, name) in kept {
        let to = find(new, name)?;
        write_name(new, to, name);
        for at in (COUNTS..NAME).step_by(8) {
            new.set_u64(to + at, old.u64(from + at)?)?;
        }
    }
    for at in [UNCOUNTED, ERRORS] {
        new.set_u64(at, old.u64(at)?)?;
    }
    new.set_u64(0, u64::from_le_bytes(kind.magic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::clock;

    const FILE: CounterKind = CounterKind {
        file: c"test.counters",
        new: c"test.counters.new",
        damaged: c"test.counters.damaged",
        magic: *b"EXIRATT\x01",
    };

    /// Else the session that has mapped it would end by SIGBUS.
    #[test]
    fn a_file_that_is_cut_off_while_it_is_mapped_is_replaced_a_second_later() {
        let spool = tempfile::tempdir().unwrap();
        drop(open_directory(spool.path(), true).unwrap());
        let mut counters = CounterFile::new(spool.path(), &FILE);
        assert_eq!(counters.ready(), Ready::Reopened);
        counters.add_error();
        let path = spool.path().join("exirate/test.counters");
        for length in [0, 4096] {
            assert_eq!(counters.ready(), Ready::Same);
            File::options().write(true).open(&path).unwrap().set_len(length).unwrap();
            kit::until("a second has passed", {
                let second = clock::coarse_seconds();
                move || clock::coarse_seconds() != second
            });
            assert_eq!(counters.ready(), Ready::Reopened);
            counters.add_error();
            assert_eq!(read(spool.path(), &FILE).unwrap().unwrap().errors, 1);
        }
    }
}
