//! Everything that this thread writes, in order, for tests that make images of
//! a disk from it.

use std::cell::RefCell;
use std::ffi::CString;
use std::fs::File;
use std::os::unix::fs::MetadataExt;

/// A file or directory, whatever its name: device and inode.
pub(crate) type Id = (u64, u64);

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// Bytes of a file have new values.
    Bytes { file: Id, offset: usize, bytes: Vec<u8> },
    /// A file is at least so long now.
    Length { file: Id, bytes: usize },
    /// A file is empty again.
    Emptied { file: Id },
    /// What was written to a file so far is on disk.
    Synced { file: Id },
    /// A new and empty file.
    File { directory: Id, name: CString, file: Id },
    /// A new and empty directory.
    Directory { directory: Id, name: CString, made: Id },
    /// A file or directory has another name.
    Renamed { directory: Id, from: CString, to: CString },
    /// A file has one more name.
    Linked { directory: Id, from: CString, to: CString },
    /// A name is gone.
    Removed { directory: Id, name: CString },
}

thread_local! {
    static JOURNAL: RefCell<Option<Vec<Write>>> = const { RefCell::new(None) };
}

/// What `work` writes, and its result.
pub(crate) fn of<T>(work: impl FnOnce() -> T) -> (T, Vec<Write>) {
    JOURNAL.set(Some(Vec::new()));
    let result = work();
    (result, JOURNAL.take().unwrap())
}

/// Notes a write, where this thread's are wanted.
pub(crate) fn note(write: impl FnOnce() -> Write) {
    JOURNAL.with_borrow_mut(|journal| {
        if let Some(journal) = journal {
            journal.push(write());
        }
    });
}

/// Notes bytes that were written.
pub(crate) fn bytes(file: Id, offset: usize, bytes: &[u8]) {
    note(|| Write::Bytes { file, offset, bytes: bytes.to_vec() });
}

/// Notes what has changed between `before` and `after`, as far as it has.
pub(crate) fn difference(file: Id, offset: usize, before: &[u8], after: &[u8]) {
    let changed = |at: &usize| before.get(*at) != after.get(*at);
    let mut at = 0;
    while let Some(start) = (at..after.len()).find(changed) {
        at = (start..after.len()).find(|n| !changed(n)).unwrap_or(after.len());
        bytes(file, offset + start, &after[start..at]);
    }
}

/// Which file this is.
pub(crate) fn id(file: &File) -> Id {
    let facts = file.metadata().unwrap();
    (facts.dev(), facts.ino())
}
