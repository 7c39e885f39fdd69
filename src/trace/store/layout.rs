//! What all files of the store have in common.

use std::time::Duration;

/// The version of the format.
pub(super) const VERSION: u32 = 1;
/// Permissions of the files, but for the key.
pub(super) const FILE_MODE: u32 = 0o640;
/// How long to wait for another process's lock before giving up.
pub(super) const LOCK_TIMEOUT: Duration =
    Duration::from_millis(if cfg!(test) { 200 } else { 1000 });
