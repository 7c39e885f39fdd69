//! What users may do with files.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::finding::quoted;
use crate::mta::Account;

/// Why `who` may not read `file`, and the command that allows it; `None` if they
/// may. ACLs of the file system and supplementary groups are not considered.
pub(super) fn unreadable_for(who: &Account, file: &Path) -> Option<(String, String)> {
    denied(who, file, 0o4, "may not read it", "0644")
}

/// The same for connecting to a socket.
pub(super) fn out_of_reach_for(who: &Account, socket: &Path) -> Option<(String, String)> {
    denied(who, socket, 0o2, "may not connect to it", "0666")
}

fn denied(
    who: &Account,
    file: &Path,
    what: u32,
    why: &str,
    mode: &str,
) -> Option<(String, String)> {
    let mut above: Vec<&Path> = file.ancestors().skip(1).collect();
    above.reverse();
    for directory in above {
        let facts = directory.metadata().ok()?;
        if !may(who, facts.uid(), facts.gid(), facts.mode(), 0o1) {
            return Some((
                format!("may not enter {} (mode {:04o})", directory.display(), bits(&facts)),
                format!("chmod o+x {}", quoted(directory)),
            ));
        }
    }
    let facts = file.metadata().ok()?;
    let text = format!("{why} (mode {:04o})", bits(&facts));
    (!may(who, facts.uid(), facts.gid(), facts.mode(), what))
        .then(|| (text, format!("chmod {mode} {}", quoted(file))))
}

/// A directory above `file` in which everyone may replace files.
pub(super) fn writable_for_all(file: &Path) -> Option<&Path> {
    // With the sticky bit, as /tmp has it, everyone may only add.
    let open = |facts: std::fs::Metadata| facts.mode() & 0o1002 == 0o0002;
    file.ancestors().skip(1).find(|directory| directory.metadata().is_ok_and(open))
}

fn bits(facts: &std::fs::Metadata) -> u32 {
    facts.mode() & 0o7777
}

/// Whether the permissions let `who` do `what`: 4 reads, 2 writes, 1 passes.
pub(super) fn may(who: &Account, uid: u32, gid: u32, mode: u32, what: u32) -> bool {
    let shift = match () {
        () if who.uid == 0 => return true,
        () if who.uid == uid => 6,
        () if who.gid == gid => 3,
        () => 0,
    };
    mode >> shift & what == what
}

/// The path without symbolic links, or as it is if it does not exist.
pub(super) fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(uid: u32, gid: u32) -> Account {
        Account { uid, gid, user: uid.to_string(), group: gid.to_string() }
    }

    #[test]
    fn the_class_that_fits_first_decides() {
        assert!(may(&who(7, 8), 7, 8, 0o700, 4));
        assert!(!may(&who(7, 8), 7, 8, 0o077, 4));
        assert!(may(&who(7, 8), 1, 8, 0o640, 4));
        assert!(!may(&who(7, 8), 1, 8, 0o640, 2));
        assert!(!may(&who(7, 8), 1, 1, 0o770, 1));
        assert!(may(&who(0, 0), 1, 1, 0, 4));
    }
}
