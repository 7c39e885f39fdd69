//! Damaged files that were replaced, and kept for a look.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use crate::sys::files;

use super::{Spool, SpoolError};

/// A damaged file that was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    /// Where it is: `3f.shard.damaged-1`.
    pub path: PathBuf,
    /// Bytes of disk that it takes.
    pub disk: u64,
    /// The second (since 1970) in which it was set aside.
    pub since: i64,
}

impl Spool {
    /// The damaged files that were replaced and kept, in order of their names.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn kept_damaged(&self) -> Result<Vec<Quarantined>, SpoolError> {
        let directory = self.database.dir.path();
        let failed = |error| SpoolError::io("read", directory)(error);
        let mut kept = Vec::new();
        for entry in std::fs::read_dir(directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if !is_aside(entry.file_name().as_bytes()) {
                continue;
            }
            // One that is just being replaced is not there any more.
            let Ok(facts) = entry.metadata() else { continue };
            if facts.is_file() {
                // Its contents are older; what was done last is the renaming.
                let disk = facts.blocks().saturating_mul(512);
                kept.push(Quarantined { path: entry.path(), disk, since: facts.ctime() });
            }
        }
        kept.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(kept)
    }

    /// Removes a damaged file that was kept.
    ///
    /// # Errors
    /// It is still there.
    pub fn remove_damaged(&mut self, aside: &Quarantined) -> Result<(), SpoolError> {
        let name = aside.path.file_name().unwrap_or_default().as_bytes();
        let name = CString::new(name).unwrap_or_default();
        let _guard = self.database.lock_directory()?;
        files::remove_at(self.database.dir.directory(), &name)
            .map_err(SpoolError::io("remove", &aside.path))
    }
}

/// Whether a file of this name is one that was set aside.
fn is_aside(name: &[u8]) -> bool {
    let Some((before, [b'1'..=b'9'])) = name.split_last_chunk::<1>() else { return false };
    before.strip_suffix(b".damaged-").is_some_and(|name| {
        name == b"database" || name.strip_suffix(b".shard").is_some_and(|number| number.len() == 2)
    })
}

#[cfg(test)]
mod tests {
    use super::is_aside;

    #[test]
    fn only_what_was_set_aside_is_removed() {
        for name in ["00.shard.damaged-1", "database.damaged-9"] {
            assert!(is_aside(name.as_bytes()), "{name}");
        }
        for name in
            ["00.shard", "database", "audit.log", "x.damaged-1", "00.shard.damaged-0", ".damaged-1"]
        {
            assert!(!is_aside(name.as_bytes()), "{name}");
        }
    }
}
