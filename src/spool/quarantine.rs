//! Damaged files that were replaced and are kept for examination.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use crate::sys::files;

use super::{Spool, SpoolError};

/// A damaged file that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    /// Its path, which ends in a name such as `3f.shard.damaged-1`.
    pub path: PathBuf,
    /// Bytes of disk that it uses.
    pub disk: u64,
    /// When it was replaced, in seconds since 1970.
    pub since: i64,
}

impl Spool {
    /// The damaged files that are kept, sorted by name.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn kept_damaged(&self) -> Result<Vec<Quarantined>, SpoolError> {
        let directory = self.database.dir.path();
        let failed = |error| SpoolError::io("read", directory)(error);
        let mut kept = Vec::new();
        for entry in std::fs::read_dir(directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if !is_quarantined(entry.file_name().as_bytes()) {
                continue;
            }
            // It was removed since the directory was read.
            let Ok(facts) = entry.metadata() else { continue };
            if facts.is_file() {
                // The time of the renaming, as its contents are older.
                let disk = facts.blocks().saturating_mul(512);
                kept.push(Quarantined { path: entry.path(), disk, since: facts.ctime() });
            }
        }
        kept.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(kept)
    }

    /// Removes a damaged file that is kept.
    ///
    /// # Errors
    /// It could not be removed.
    pub fn remove_damaged(&mut self, aside: &Quarantined) -> Result<(), SpoolError> {
        let name = aside.path.file_name().unwrap_or_default().as_bytes();
        let name = CString::new(name).unwrap_or_default();
        let _guard = self.database.lock_directory()?;
        files::remove_at(self.database.dir.directory(), &name)
            .map_err(SpoolError::io("remove", &aside.path))
    }
}

/// Whether this is the name of a damaged file that is kept.
fn is_quarantined(name: &[u8]) -> bool {
    let Some((before, [b'1'..=b'9'])) = name.split_last_chunk::<1>() else { return false };
    before.strip_suffix(b".damaged-").is_some_and(|name| {
        matches!(name, b"database" | b"overrides" | b"policy.counters" | b"shadow.counters")
            || name.strip_suffix(b".shard").is_some_and(|number| number.len() == 2)
    })
}

#[cfg(test)]
mod tests {
    use super::is_quarantined;

    #[test]
    fn only_quarantined_files_are_removed() {
        for name in [
            "00.shard.damaged-1",
            "database.damaged-9",
            "overrides.damaged-1",
            "policy.counters.damaged-1",
            "shadow.counters.damaged-1",
        ] {
            assert!(is_quarantined(name.as_bytes()), "{name}");
        }
        for name in
            ["00.shard", "database", "audit.log", "x.damaged-1", "00.shard.damaged-0", ".damaged-1"]
        {
            assert!(!is_quarantined(name.as_bytes()), "{name}");
        }
    }
}
