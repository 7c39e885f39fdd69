//! The failed recipients that have been counted, in a file: none is counted twice, however often
//! the log is read.
//!
//! A failure is entered, and on disk, before it is counted. If the follower is killed in between,
//! only the last entry is in doubt: whoever counts looks whether the database has it. If the
//! machine stops, what the database has lost is not counted again.

use std::collections::HashMap;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::path::Path;

use rand::TryRng as _;
use rand::rngs::SysRng;
use siphasher::sip::SipHasher13;

use super::folder::Folder;
use crate::rate::Timestamp;
use crate::sys::files::{append, sync};
use crate::sys::lock;
use crate::versions::{OtherVersion, USE_THE_LATER, Versions};

const NAME: &CStr = c"counted";
const NEW: &CStr = c"counted.new";
/// The key of the hashes, which is made once.
const KEY: &CStr = c"key";
const KEY_NEW: &CStr = c"key.new";
/// The hash of a failure, the time that it was counted with, and a checksum.
const ENTRY: usize = 20;
/// What the file begins with, and the version of all files of the directory: as an entry has a hash
/// and a time, with a checksum like theirs.
const MAGIC: u64 = u64::from_le_bytes(*b"EXIRATEF");
const VERSION: u32 = 1;
/// So long after it was counted, in seconds, a failure is forgotten: no log that is read again is
/// older.
const KEPT: i64 = 10 * 86_400;
/// How often what is older is dropped, in seconds.
const PRUNED_EVERY: i64 = 86_400;
/// A time that is so far ahead, in seconds, is of a clock that was wrong.
const AHEAD: i64 = 60;

/// What has been counted.
#[derive(Debug)]
pub(super) struct Ledger {
    folder: Folder,
    hasher: SipHasher13,
    file: File,
    counted: HashMap<u64, Timestamp>,
    last: Option<(u64, Timestamp)>,
    /// When what is old was dropped, in seconds.
    pruned: i64,
    _lock: File,
}

impl Ledger {
    /// Opens that of a directory, which only one follower uses.
    pub(super) fn open(directory: &Path, now: Timestamp) -> io::Result<Self> {
        let folder = Folder::open(directory)?;
        let lock = folder.file(c"lock")?;
        match lock::try_lock(&lock, lock::LockKind::Exclusive)? {
            Some(guard) => guard.keep(),
            None => return Err(io::Error::other("another follower uses it")),
        }
        let hasher = SipHasher13::new_with_key(&key(&folder)?);
        let bytes = folder.read(NAME)?.unwrap_or_default();
        let (mut counted, mut last) = (HashMap::new(), None);
        let version =
            version(&bytes).map_or(Ok(()), |found| Versions::only(VERSION).known().check(found));
        let other = |other: OtherVersion| other.error(USE_THE_LATER);
        version.map_err(other)?;
        // What is not whole was being written when the machine stopped.
        for (hash, at) in bytes.chunks(ENTRY).filter_map(read).filter(|(hash, _)| *hash != MAGIC) {
            let at = if is_ahead(at, now) { now } else { at };
            counted.insert(hash, at);
            last = Some((hash, at));
        }
        let file = written(&folder, &mut counted, last, now)?;
        Ok(Self { folder, hasher, file, counted, last, pruned: now.seconds, _lock: lock })
    }

    /// What distinguishes a failure from others: the message, when it was received, and the recipient. Ids
    /// are used again, but hardly in the same second of an hour; the zone of a log may change.
    pub(super) fn hash_of(&self, message_id: &str, received: Timestamp, recipient: &str) -> u64 {
        let second = received.seconds.rem_euclid(3600);
        let text = format!("{message_id}\0{second}\0{}", recipient.to_lowercase());
        self.hasher.hash(text.as_bytes())
    }

    /// As [`Self::hash_of`], of the first time that the receiver has put this recipient off.
    pub(super) fn hash_of_throttled(&self, hash: u64) -> u64 {
        self.hasher.hash(format!("{hash}\0throttled").as_bytes())
    }

    /// Whether a failure has been entered.
    pub(super) fn has(&self, hash: u64) -> bool {
        self.counted.contains_key(&hash)
    }

    /// The last entry: whether it was counted as well is not known after a restart.
    pub(super) fn last(&self) -> Option<(u64, Timestamp)> {
        self.last
    }

    /// The time to count with: that of the event if it is later than all before, so that each
    /// has its own; or if the clock was ahead before.
    pub(super) fn time(&self, at: Timestamp, now: Timestamp) -> Timestamp {
        let next = |last: Timestamp| Timestamp::from_micros(last.as_micros().saturating_add(1));
        let last = self.last.map(|(_, last)| next(last));
        last.filter(|last| !is_ahead(*last, now)).map_or(at, |last| last.max(at))
    }

    /// Enters a failure that is about to be counted.
    pub(super) fn enter(&mut self, hash: u64, at: Timestamp) -> io::Result<()> {
        let before = self.file.metadata()?.len();
        let entered = append(&self.file, before, &entry(hash, at)).and_then(|()| sync(&self.file));
        if let Err(error) = entered {
            // A part of an entry would make all after it unreadable.
            self.file.set_len(before)?;
            return Err(error);
        }
        self.counted.insert(hash, at);
        self.last = Some((hash, at));
        Ok(())
    }

    /// Drops what is old, now and then.
    pub(super) fn prune(&mut self, now: Timestamp) -> io::Result<()> {
        if now.seconds.saturating_sub(self.pruned) < PRUNED_EVERY {
            return Ok(());
        }
        self.pruned = now.seconds;
        self.file = written(&self.folder, &mut self.counted, self.last, now)?;
        Ok(())
    }

    /// How many are remembered.
    pub(super) fn len(&self) -> usize {
        self.counted.len()
    }

    /// How many were counted since.
    pub(super) fn since(&self, seconds: i64) -> usize {
        self.counted.values().filter(|at| at.seconds >= seconds).count()
    }
}

/// Whether a time is of a clock that was ahead.
fn is_ahead(at: Timestamp, now: Timestamp) -> bool {
    at.seconds.saturating_sub(now.seconds) > AHEAD
}

/// Drops what is old, and writes the others to a file that replaces the one before.
fn written(
    folder: &Folder,
    counted: &mut HashMap<u64, Timestamp>,
    last: Option<(u64, Timestamp)>,
    now: Timestamp,
) -> io::Result<File> {
    counted.retain(|_, at| now.seconds.saturating_sub(at.seconds) < KEPT);
    let mut all: Vec<_> = counted.iter().map(|(hash, at)| (*at, *hash)).collect();
    all.sort_unstable_by_key(|one| (last.is_some_and(|(last, _)| last == one.1), *one));
    let head = entry(MAGIC, Timestamp::from_micros(VERSION.into()));
    let entries = all.into_iter().flat_map(|(at, hash)| entry(hash, at));
    let bytes: Vec<u8> = head.into_iter().chain(entries).collect();
    folder.replace(NAME, NEW, &bytes, true)?;
    folder.appended(NAME)
}

/// The key of a directory's hashes; the first time, a random one.
fn key(folder: &Folder) -> io::Result<[u8; 16]> {
    let known = folder.read(KEY)?.and_then(|bytes| bytes.try_into().ok());
    if let Some(key) = known {
        return Ok(key);
    }
    let mut key = [0; 16];
    SysRng.try_fill_bytes(&mut key).map_err(io::Error::other)?;
    folder.replace(KEY, KEY_NEW, &key, true)?;
    Ok(key)
}

/// The version of a file, where its head is sound.
fn version(bytes: &[u8]) -> Option<u32> {
    let (magic, at) = read(bytes.get(..ENTRY)?)?;
    let version = u32::try_from(at.as_micros()).ok();
    version.filter(|version| magic == MAGIC && *version > 0)
}

/// An entry, which has [`ENTRY`] bytes.
fn entry(hash: u64, at: Timestamp) -> Vec<u8> {
    let mut bytes = [hash.to_le_bytes(), at.as_micros().to_le_bytes()].concat();
    let sum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

fn read(bytes: &[u8]) -> Option<(u64, Timestamp)> {
    let (hash, rest) = bytes.split_first_chunk()?;
    let (at, _) = rest.split_first_chunk()?;
    let (hash, at) = (u64::from_le_bytes(*hash), Timestamp::from_micros(i64::from_le_bytes(*at)));
    (entry(hash, at) == bytes).then_some((hash, at))
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write as _;

    use super::super::state::Position;
    use super::*;
    use crate::versions::as_the_next;

    #[test]
    fn what_was_entered_is_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let at = |seconds| Timestamp { seconds, micros: 7 };
        let now = at(1_800_000_000);
        let mut ledger = Ledger::open(folder.path(), now).unwrap();
        assert!(Ledger::open(folder.path(), now).is_err(), "it is in use");
        ledger.enter(1, at(now.seconds - KEPT)).unwrap();
        ledger.enter(2, ledger.time(now, now)).unwrap();
        ledger.enter(3, ledger.time(at(now.seconds - 9), now)).unwrap();
        assert_eq!(ledger.last(), Some((3, Timestamp { micros: 8, ..now })));
        drop(ledger);
        // The machine stopped while an entry was being written, or another is damaged.
        for damage in [&b"torn"[..], &[9; ENTRY]] {
            let path = folder.path().join("counted");
            let mut file = OpenOptions::new().append(true).open(path).unwrap();
            file.write_all(damage).unwrap();
            drop(file);
            let ledger = Ledger::open(folder.path(), now).unwrap();
            assert_eq!([1, 2, 3, 4].map(|hash| ledger.has(hash)), [false, true, true, false]);
            assert_eq!(ledger.last(), Some((3, Timestamp { micros: 8, ..now })));
        }
    }

    #[test]
    fn a_clock_that_was_ahead_makes_nothing_late() {
        let folder = tempfile::tempdir().unwrap();
        let at = |seconds| Timestamp { seconds, micros: 0 };
        let now = at(1_800_000_000);
        let ahead = at(now.seconds + 100 * 86_400);
        let mut ledger = Ledger::open(folder.path(), ahead).unwrap();
        ledger.enter(1, ledger.time(ahead, ahead)).unwrap();
        assert_eq!(ledger.time(now, now), now);
        ledger.enter(2, now).unwrap();
        drop(ledger);
        let ledger = Ledger::open(folder.path(), now).unwrap();
        assert_eq!((ledger.last(), ledger.has(1)), (Some((2, now)), true));
        // It is forgotten in its time, also while the follower runs.
        drop(ledger);
        let mut ledger = Ledger::open(folder.path(), at(now.seconds + 5)).unwrap();
        ledger.enter(3, at(now.seconds + 5)).unwrap();
        ledger.prune(at(now.seconds + 5 + KEPT - 1)).unwrap();
        assert_eq!((ledger.len(), ledger.since(now.seconds + 5)), (1, 1));
        ledger.enter(4, at(now.seconds + 9)).unwrap();
        drop(ledger);
        let ledger = Ledger::open(folder.path(), at(now.seconds + 9)).unwrap();
        assert_eq!([1, 2, 3, 4].map(|hash| ledger.has(hash)), [false, false, true, true]);
    }

    #[test]
    fn a_later_version_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let now = Timestamp { seconds: 1_800_000_000, micros: 0 };
        let mut ledger = Ledger::open(folder.path(), now).unwrap();
        ledger.enter(7, now).unwrap();
        drop(ledger);
        let path = folder.path().join("counted");
        let mut bytes = std::fs::read(&path).unwrap();
        assert_eq!((bytes.len(), version(&bytes)), (2 * ENTRY, Some(1)));
        // The later one reads what this one has entered.
        as_the_next(|| assert!(Ledger::open(folder.path(), now).unwrap().has(7)));
        for later in [2, u32::MAX] {
            bytes.splice(..ENTRY, entry(MAGIC, Timestamp::from_micros(later.into())));
            std::fs::write(&path, &bytes).unwrap();
            let why = Ledger::open(folder.path(), now).unwrap_err().to_string();
            assert!(why.contains("version above 1: use the later exirate"), "{why}");
            assert_eq!(std::fs::read(&path).unwrap(), bytes);
        }
        // A damaged head is as a damaged entry.
        bytes[8] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let ledger = Ledger::open(folder.path(), now).unwrap();
        assert_eq!((ledger.len(), ledger.has(7)), (1, true));
        assert_eq!(version(&std::fs::read(&path).unwrap()), Some(1));
    }

    #[test]
    fn what_each_release_has_written_is_read() {
        let at = Timestamp { seconds: 1_795_175_430, micros: 250_000 };
        for release in kit::formats::RELEASES {
            let (made, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            if kit::formats::is_written(release) {
                std::fs::write(made.path().join("key"), b"a key of follow.").unwrap();
                let mut ledger = Ledger::open(made.path(), at).unwrap();
                let hash = ledger.hash_of("1vM1aB-000000001Ab-1aBc", at, "r1@example.net");
                ledger.enter(hash, at).unwrap();
                ledger.enter(7, Timestamp { micros: 8, ..at }).unwrap();
                Position { began: 1, from: 2 }.write(made.path()).unwrap();
            }
            let from = |name: &str| std::fs::read(made.path().join(name)).unwrap();
            let names = ["key", "counted", "position.json"];
            kit::formats::kept_files(release, "follow.", &names, folder.path(), from);
            let ledger = Ledger::open(folder.path(), at).unwrap();
            assert!(ledger.has(ledger.hash_of("1vM1aB-000000001Ab-1aBc", at, "r1@example.net")));
            let last = (7, Timestamp { micros: 8, ..at });
            assert_eq!((ledger.len(), ledger.last()), (2, Some(last)));
            let position = Position { began: 1, from: 2 };
            assert_eq!(Position::read(folder.path()).unwrap(), Some(position));
        }
    }

    #[test]
    fn no_link_is_followed() {
        let other = tempfile::tempdir().unwrap();
        let victim = other.path().join("victim");
        std::fs::write(&victim, "x").unwrap();
        // What was left behind is replaced.
        for (name, can) in
            [("counted", false), ("lock", false), ("key", false), ("counted.new", true)]
        {
            let folder = tempfile::tempdir().unwrap();
            std::os::unix::fs::symlink(&victim, folder.path().join(name)).unwrap();
            let opened = Ledger::open(folder.path(), Timestamp::default());
            assert_eq!(opened.is_ok(), can, "{name}");
        }
        assert_eq!(std::fs::read(&victim).unwrap(), b"x");
    }

    #[test]
    fn failures_are_distinguished() {
        let at = |seconds| Timestamp { seconds, micros: 0 };
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [ledger, another] =
            folders.each_ref().map(|folder| Ledger::open(folder.path(), at(9)).unwrap());
        let one = ledger.hash_of("id", at(7), "a@x.test");
        for other in [
            ledger.hash_of("id2", at(7), "a@x.test"),
            ledger.hash_of("id", at(8), "a@x.test"),
            ledger.hash_of("id", at(7), "b@x.test"),
            another.hash_of("id", at(7), "a@x.test"),
        ] {
            assert_ne!(one, other);
        }
        // Also after a restart.
        drop(ledger);
        let ledger = Ledger::open(folders[0].path(), at(9)).unwrap();
        assert_eq!(one, ledger.hash_of("id", at(7 + 7200), "A@X.test"));
    }
}
