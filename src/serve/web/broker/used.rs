//! How many changes each token and person has made on this day: remembered on disk, so that a
//! restart gives nobody more.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use crate::sys::small_file;
use crate::versions::{OtherVersion, USE_THE_LATER, Versions};

/// Seconds of a day, which begins at midnight UTC.
const DAY: i64 = 86_400;
/// The file in the directory of what the broker remembers.
const FILE: &str = "changes";
/// Its first line, before the version of the format. The day follows, and a line for each name.
const HEAD: &str = "exirate changes ";
const VERSION: u32 = 1;
/// The largest file.
const BYTES_MAX: u64 = 1 << 20;

/// The changes of a day.
#[derive(Debug)]
pub struct Used {
    directory: PathBuf,
    day: i64,
    numbers: BTreeMap<String, u32>,
}

impl Used {
    /// Reads what is remembered in `directory`.
    ///
    /// # Errors
    /// It cannot be read, or is of a later version.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let mut used = Self { directory: directory.to_owned(), day: 0, numbers: BTreeMap::new() };
        let path = directory.join(FILE);
        let file = match small_file::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(used),
            file => file?,
        };
        let mut text = String::new();
        file.take(BYTES_MAX).read_to_string(&mut text)?;
        let mut lines = text.lines();
        let version = lines.next().and_then(|line| Versions::read(HEAD, line));
        let other = |other: OtherVersion| other.error(USE_THE_LATER);
        Versions::only(VERSION).known().check(version.unwrap_or(VERSION)).map_err(other)?;
        used.day = lines.next().and_then(|day| day.parse().ok()).unwrap_or(0);
        for line in lines {
            let known = line.rsplit_once(' ');
            if let Some((name, number)) = known.and_then(|(n, c)| Some((n, c.parse().ok()?))) {
                used.numbers.insert(name.to_owned(), number);
            }
        }
        Ok(used)
    }

    /// Counts a change by `name`, unless there were `most`; whether it was counted. It is on disk
    /// before it is made.
    ///
    /// # Errors
    /// It cannot be remembered, and must not be made.
    pub fn count(&mut self, name: &str, most: u32, now: i64) -> io::Result<bool> {
        // A clock that is set back begins no new day.
        let day = now.div_euclid(DAY).max(self.day);
        if day > self.day {
            (self.day, self.numbers) = (day, BTreeMap::new());
        }
        let number = self.numbers.entry(name.to_owned()).or_default();
        if *number >= most {
            return Ok(false);
        }
        *number += 1;
        self.write()?;
        Ok(true)
    }

    fn write(&self) -> io::Result<()> {
        let mut text = format!("{HEAD}{VERSION}\n{}\n", self.day);
        for (name, number) in &self.numbers {
            text += &format!("{name} {number}\n");
        }
        small_file::replace(&self.directory.join(FILE), 0o600, text.as_bytes(), false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_changes_a_day_and_no_more_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let mut used = Used::open(folder.path()).unwrap();
        assert!(used.count("token:desk", 2, DAY).unwrap());
        assert!(used.count("person:alice", 2, DAY).unwrap());
        assert!(used.count("token:desk", 2, DAY + 1).unwrap());
        assert!(!used.count("token:desk", 2, DAY + 2).unwrap());
        let mut used = Used::open(folder.path()).unwrap();
        assert!(!used.count("token:desk", 2, 2 * DAY - 1).unwrap());
        assert!(!used.count("token:desk", 2, 0).unwrap(), "the clock was set back");
        assert!(used.count("token:desk", 2, 2 * DAY).unwrap());
        assert!(!used.count("token:desk", 0, 2 * DAY).unwrap());
    }

    #[test]
    fn what_0_2_0_has_written_is_read() {
        let (made, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        if kit::formats::is_written("0.2.0") {
            let mut used = Used::open(made.path()).unwrap();
            for name in ["token:desk", "token:desk", "person:alice"] {
                assert!(used.count(name, 9, DAY).unwrap());
            }
        }
        let from = |name: &str| std::fs::read(made.path().join(name)).unwrap();
        kit::formats::kept_files("0.2.0", "broker.", &[FILE], folder.path(), from);
        let mut used = Used::open(folder.path()).unwrap();
        assert!(!used.count("token:desk", 2, DAY).unwrap());
        assert!(used.count("person:alice", 2, DAY).unwrap());
        assert!(!used.count("person:alice", 2, DAY).unwrap());
    }

    #[test]
    fn a_file_of_a_later_version_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let text = "exirate changes 2\nwhatever\n";
        std::fs::write(folder.path().join(FILE), text).unwrap();
        let why = Used::open(folder.path()).unwrap_err().to_string();
        assert!(why.contains("is of format version 2, and this exirate knows no"), "{why}");
        assert_eq!(std::fs::read_to_string(folder.path().join(FILE)).unwrap(), text);
    }

    #[test]
    fn what_cannot_be_remembered_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let mut used = Used::open(folder.path()).unwrap();
        std::fs::remove_dir(folder.path()).unwrap();
        assert!(used.count("token:desk", 2, DAY).is_err());
    }
}
