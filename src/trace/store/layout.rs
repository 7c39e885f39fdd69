//! Common properties of all files of the store.

use std::time::Duration;

/// The version of the format.
pub(super) const VERSION: u32 = 5;
/// The mode of the files, except the key.
pub(super) const FILE_MODE: u32 = 0o640;
/// How long to wait for another process's lock.
pub(super) const LOCK_TIMEOUT: Duration =
    Duration::from_millis(if cfg!(test) { 200 } else { 1000 });
