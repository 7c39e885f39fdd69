//! Common properties of all files of the store.

use std::time::Duration;

use crate::versions::Versions;

/// The version of the format.
pub(super) const VERSION: u32 = 5;
/// The versions that this exirate knows. In a store that is there, it goes on writing the one
/// that the file `key` names, so that libraries of two versions can use it side by side.
pub(super) const VERSIONS: Versions = Versions::only(VERSION);
/// The mode of the files, except the key.
pub(super) const FILE_MODE: u32 = 0o640;
/// How long to wait for another process's lock.
pub(super) const LOCK_TIMEOUT: Duration =
    Duration::from_millis(if cfg!(test) { 200 } else { 1000 });
