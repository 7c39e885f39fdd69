//! All writes of this thread, in order, for tests that simulate a disk.

use std::cell::RefCell;
use std::ffi::CString;
use std::fs::File;
use std::os::unix::fs::MetadataExt;

/// Identifies a file or directory: device and inode.
pub(crate) type Id = (u64, u64);

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// Bytes of a file were written.
    Bytes { file: Id, offset: usize, bytes: Vec<u8> },
    /// A file was extended to at least this length.
    Length { file: Id, bytes: usize },
    /// A file was truncated to zero bytes.
    Emptied { file: Id },
    /// All data written to a file so far is on disk.
    Synced { file: Id },
    /// A new, empty file was created.
    File { directory: Id, name: CString, file: Id },
    /// A new, empty directory was created.
    Directory { directory: Id, name: CString, made: Id },
    /// A file or directory was renamed.
    Renamed { directory: Id, from: CString, to: CString },
    /// A file got a second name.
    Linked { directory: Id, from: CString, to: CString },
    /// A name was removed.
    Removed { directory: Id, name: CString },
}

thread_local! {
    static WRITES: RefCell<Option<Vec<Write>>> = const { RefCell::new(None) };
}

/// The result of `work`, and what it wrote.
pub(crate) fn capture<T>(work: impl FnOnce() -> T) -> (T, Vec<Write>) {
    WRITES.set(Some(Vec::new()));
    let result = work();
    (result, WRITES.take().unwrap())
}

/// Records a write, if this thread's writes are being captured.
pub(crate) fn note(write: impl FnOnce() -> Write) {
    WRITES.with_borrow_mut(|writes| {
        if let Some(writes) = writes {
            writes.push(write());
        }
    });
}

/// Records bytes that were written.
pub(crate) fn bytes(file: Id, offset: usize, bytes: &[u8]) {
    note(|| Write::Bytes { file, offset, bytes: bytes.to_vec() });
}

/// Records the bytes that differ between `before` and `after`.
pub(crate) fn difference(file: Id, offset: usize, before: &[u8], after: &[u8]) {
    let changed = |at: &usize| before.get(*at) != after.get(*at);
    let mut at = 0;
    while let Some(start) = (at..after.len()).find(changed) {
        at = (start..after.len()).find(|n| !changed(n)).unwrap_or(after.len());
        bytes(file, offset + start, &after[start..at]);
    }
}

/// The id of a file.
pub(crate) fn id(file: &File) -> Id {
    let metadata = file.metadata().unwrap();
    (metadata.dev(), metadata.ino())
}
