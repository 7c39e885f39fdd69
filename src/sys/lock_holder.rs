//! The process that holds a lock, for the error message after a timeout.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{major, minor};

/// How often `/proc/locks` is read.
const TRIES: u32 = 60;

/// A process that holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// Its process id.
    pub process: u32,
    /// Its name, as `ps` shows it; unprintable characters are escaped.
    pub name: String,
    /// It was stopped by `kill -STOP` or a debugger, and keeps the lock until
    /// it is continued.
    pub stopped: bool,
}

/// The process that holds a lock on the whole of `file`, if `/proc` shows it.
/// It may have released the lock since, or be invisible from this process's PID
/// namespace.
#[must_use]
pub fn lock_holder(file: &File) -> Option<LockHolder> {
    let metadata = file.metadata().ok()?;
    let (dev, inode) = (metadata.dev(), metadata.ino());
    // The kernel produces the file in pieces, and may omit a lock if others are
    // taken and released in between: on a busy machine several times in a row.
    let process = (0..TRIES).find_map(|_| {
        let locks = std::fs::read_to_string("/proc/locks").ok()?;
        locks.lines().find_map(|line| process_in(line, (major(dev), minor(dev)), inode))
    });
    let process = process.filter(|&process| process > 0)?;
    let stat = std::fs::read(format!("/proc/{process}/stat")).ok()?;
    let (name, stopped) = name_and_state(&String::from_utf8_lossy(&stat))?;
    Some(LockHolder { process, name, stopped })
}

/// The process in a line of `/proc/locks`, if the line is about a lock on this
/// file: `1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF`. The line of a
/// waiting process has an arrow before the kind.
fn process_in(line: &str, device: (u32, u32), inode: u64) -> Option<u32> {
    let mut words = line.split_whitespace();
    let kind = words.nth(1)?;
    let process = words.nth(2)?;
    let mut file = words.next()?.split(':');
    let found =
        (u32::from_str_radix(file.next()?, 16).ok()?, u32::from_str_radix(file.next()?, 16).ok()?);
    let same = kind == "FLOCK" && found == device && file.next()?.parse() == Ok(inode);
    same.then(|| process.parse().ok())?
}

/// Name and state in `/proc/PID/stat`: `1234 (exim4) T …`. The name may contain
/// spaces and parentheses.
fn name_and_state(stat: &str) -> Option<(String, bool)> {
    let (start, rest) = stat.rsplit_once(") ")?;
    let (_, name) = start.split_once(" (")?;
    Some((name.escape_debug().to_string(), rest.starts_with(['T', 't'])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::lock::{LockKind, try_lock};

    #[test]
    fn the_holder_of_a_lock_is_found() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (one, two) = (file.reopen().unwrap(), file.reopen().unwrap());
        assert_eq!(lock_holder(&two), None);
        for kind in [LockKind::Exclusive, LockKind::Shared] {
            let guard = try_lock(&one, kind).unwrap().unwrap();
            let found = lock_holder(&two).unwrap();
            assert_eq!((found.process, found.stopped), (std::process::id(), false));
            assert!(!found.name.is_empty());
            drop(guard);
            assert_eq!(lock_holder(&two), None);
        }
    }

    #[test]
    fn only_lock_lines_of_the_file_match() {
        let process = |line| process_in(line, (0xfe, 0), 5678);
        assert_eq!(process("1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF"), Some(1234));
        assert_eq!(process("1: FLOCK  ADVISORY  READ  7 fe:00:5678 0 EOF"), Some(7));
        for other in [
            "1: -> FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF",
            "1: POSIX  ADVISORY  WRITE 1234 fe:00:5678 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 1234 fe:00:567 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF",
            "1: FLOCK  ADVISORY  WRITE -1 fe:00:5678 0 EOF",
            "1: FLOCK",
            "",
        ] {
            assert_eq!(process(other), None, "{other}");
        }
    }

    #[test]
    fn process_names_may_contain_any_character() {
        assert_eq!(name_and_state("12 (exim4) S 1 2"), Some(("exim4".to_owned(), false)));
        assert_eq!(name_and_state("12 (a) (T) \n) T 1"), Some(("a) (T) \\n".to_owned(), true)));
        assert_eq!(name_and_state("12 exim4 S"), None);
    }
}
