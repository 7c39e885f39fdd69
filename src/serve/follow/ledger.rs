//! The failed recipients that have been counted, in a file: none is counted twice, however often
//! the log is read.
//!
//! A failure is entered before it is counted. If the follower is killed in between, only the last
//! entry is in doubt: whoever counts looks whether the database has it.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use siphasher::sip::SipHasher13;

use crate::rate::Timestamp;
use crate::sys::lock;

const NAME: &str = "counted";
/// The hash of a failure, the time that it was counted with, and a checksum.
const ENTRY: usize = 20;
/// So long after it was counted, in seconds, a failure is forgotten: no log that is read again is
/// older.
const KEPT: i64 = 10 * 86_400;

/// What has been counted.
#[derive(Debug)]
pub(super) struct Ledger {
    file: File,
    counted: HashMap<u64, Timestamp>,
    last: Option<(u64, Timestamp)>,
    _lock: File,
}

impl Ledger {
    /// Opens that of a directory, which only one follower uses.
    pub(super) fn open(directory: &Path, now: Timestamp) -> io::Result<Self> {
        let lock = options().open(directory.join("lock"))?;
        match lock::try_lock(&lock, lock::Kind::Exclusive)? {
            Some(guard) => guard.keep(),
            None => return Err(io::Error::other("another follower uses it")),
        }
        let path = directory.join(NAME);
        let bytes = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        let (mut counted, mut last) = (HashMap::new(), None);
        // What is not whole was being written when the machine stopped.
        for (hash, at) in bytes.chunks(ENTRY).filter_map(read) {
            if now.seconds.saturating_sub(at.seconds) < KEPT {
                counted.insert(hash, at);
                last = Some((hash, at));
            }
        }
        Ok(Self { file: rewritten(&counted, &path)?, counted, last, _lock: lock })
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
    /// has its own.
    pub(super) fn time(&self, at: Timestamp) -> Timestamp {
        let next = |last: Timestamp| Timestamp::from_micros(last.as_micros().saturating_add(1));
        self.last.map_or(at, |(_, last)| next(last).max(at))
    }

    /// Enters a failure that is about to be counted.
    pub(super) fn enter(&mut self, hash: u64, at: Timestamp) -> io::Result<()> {
        let before = self.file.metadata()?.len();
        if let Err(error) = self.file.write_all(&entry(hash, at)) {
            // A part of an entry would make all after it unreadable.
            self.file.set_len(before)?;
            return Err(error);
        }
        self.counted.insert(hash, at);
        self.last = Some((hash, at));
        Ok(())
    }

    /// How many are remembered.
    pub(super) fn len(&self) -> usize {
        self.counted.len()
    }
}

/// Writes the entries that are kept to a file that replaces the one before.
fn rewritten(counted: &HashMap<u64, Timestamp>, path: &Path) -> io::Result<File> {
    let new = path.with_extension("new");
    let mut file = options().truncate(true).open(&new)?;
    let mut all: Vec<_> = counted.iter().map(|(hash, at)| (*at, *hash)).collect();
    all.sort_unstable();
    let bytes: Vec<u8> = all.into_iter().flat_map(|(at, hash)| entry(hash, at)).collect();
    file.write_all(&bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    OpenOptions::new().append(true).open(path)
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

/// What tells a failure from others: the message, when it was received, and the recipient. Ids
/// are used again, but hardly in the same second of an hour; the zone of a log may change.
pub(super) fn hash_of(message_id: &str, received: Timestamp, recipient: &str) -> u64 {
    let second = received.seconds.rem_euclid(3600);
    let text = format!("{message_id}\0{second}\0{}", recipient.to_lowercase());
    SipHasher13::new().hash(text.as_bytes())
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
    use super::*;

    #[test]
    fn what_was_entered_is_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let at = |seconds| Timestamp { seconds, micros: 7 };
        let now = at(1_800_000_000);
        let mut ledger = Ledger::open(folder.path(), now).unwrap();
        assert!(Ledger::open(folder.path(), now).is_err(), "it is in use");
        ledger.enter(1, at(now.seconds - KEPT)).unwrap();
        ledger.enter(2, ledger.time(now)).unwrap();
        ledger.enter(3, ledger.time(at(now.seconds - 9))).unwrap();
        assert_eq!(ledger.last(), Some((3, Timestamp { micros: 8, ..now })));
        drop(ledger);
        // The machine stopped while an entry was being written, or another is damaged.
        for damage in [&b"torn"[..], &[9; ENTRY]] {
            let path = folder.path().join(NAME);
            let mut file = OpenOptions::new().append(true).open(path).unwrap();
            file.write_all(damage).unwrap();
            drop(file);
            let ledger = Ledger::open(folder.path(), now).unwrap();
            assert_eq!([1, 2, 3, 4].map(|hash| ledger.has(hash)), [false, true, true, false]);
            assert_eq!(ledger.last(), Some((3, Timestamp { micros: 8, ..now })));
        }
    }

    #[test]
    fn failures_are_told_apart() {
        let at = |seconds| Timestamp { seconds, micros: 0 };
        let one = hash_of("id", at(7), "a@x.test");
        assert_eq!(one, hash_of("id", at(7 + 7200), "A@X.test"));
        for other in [
            hash_of("id2", at(7), "a@x.test"),
            hash_of("id", at(8), "a@x.test"),
            hash_of("id", at(7), "b@x.test"),
        ] {
            assert_ne!(one, other);
        }
    }
}
