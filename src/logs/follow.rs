//! Reads a log as it grows, over its rotation.
//!
//! The older files beside it are read first, then the file itself. Whoever reads must not mind
//! lines that come again: after a rotation all is read again, so that nothing is missed, however
//! the file was replaced.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use super::files::{Growing, LogError, LogFiles, Stamped, directory_of, inside};
use super::journal::{Journal, writers};
use crate::rate::Timestamp;

/// For so long others may write to a file that has been replaced.
const STILL_WRITTEN: Duration = Duration::from_secs(30);
/// So often the journal is read: each time `journalctl` is started.
const JOURNAL_EVERY: Duration = Duration::from_secs(5);

/// A log that is followed.
#[derive(Debug)]
pub enum Follow {
    /// A file.
    File(Box<FollowFile>),
    /// The journal of systemd, after what has been read.
    Journal(Journal, Option<Instant>),
}

/// A file that is followed.
#[derive(Debug)]
pub struct FollowFile {
    path: PathBuf,
    now: Option<Growing>,
    /// The one before, which has been replaced.
    before: Option<(Growing, Instant)>,
}

/// What has become of a log that is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// All that is there has been read.
    UpToDate,
    /// It was rotated: it is to be opened again, and read again.
    Rotated,
}

impl Follow {
    /// Opens the log at `path`, and reads what is there from `since` on: older lines may be
    /// among it.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn file(
        path: &Path,
        since: Timestamp,
        see: &mut impl FnMut(Stamped<'_>) -> bool,
    ) -> Result<Self, LogError> {
        let failed = |error| failed(path, error);
        // It is open before the others are looked for: none is missed if it is replaced now.
        let now = match Growing::open(path) {
            Ok(now) => Some(now),
            // It has just been replaced, or nothing has been logged yet.
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let mut older = Vec::new();
        for one in older_files(path)? {
            let Ok(info) = fs::metadata(&one) else { continue };
            let changed = info.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            // The clock of the file system may lag behind the one that the lines have, so that a line
            // of a second is in a file that was changed in the second before.
            let is_old = changed.is_some_and(|at| (at.as_secs() as i64) < since.seconds - 1);
            let is_now = now.as_ref().is_some_and(|now| now.id == (info.dev(), info.ino()));
            if !is_old && !is_now {
                older.push(one);
            }
        }
        let older = match LogFiles::find(&older) {
            Ok(older) => Some(older),
            // It is being compressed, or deleted: the file that replaces it is found next time.
            Err(LogError::Read { error, .. }) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let Some(older) = older else { return Self::file(path, since, see) };
        older.read_while(&mut *see, |_| {})?;
        let mut follow = FollowFile { path: path.to_owned(), now, before: None };
        follow.poll(see)?;
        Ok(Self::File(Box::new(follow)))
    }

    /// The journal, in this directory or of this machine, from `since` on: what mail servers have
    /// written.
    #[must_use]
    pub fn journal(directory: Option<PathBuf>, since: Timestamp) -> Self {
        let since = Some(since.seconds);
        Self::Journal(Journal { directory, since, after: None, writers: writers() }, None)
    }

    /// Reads what has come since the last time.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn poll(
        &mut self,
        see: &mut impl FnMut(Stamped<'_>) -> bool,
    ) -> Result<Followed, LogError> {
        match self {
            Self::File(file) => file.poll(see),
            Self::Journal(journal, last) => {
                if last.is_none_or(|last| last.elapsed() >= JOURNAL_EVERY) {
                    *last = Some(Instant::now());
                    let read = LogFiles::journal(journal.clone()).read_while(see, |_| {})?;
                    if read.cursor.is_some() {
                        (journal.after, journal.since) = (read.cursor, None);
                    }
                }
                Ok(Followed::UpToDate)
            }
        }
    }
}

impl FollowFile {
    fn poll(&mut self, see: &mut impl FnMut(Stamped<'_>) -> bool) -> Result<Followed, LogError> {
        let Self { path, now, before } = self;
        let failed = |error| failed(path, error);
        if let Some((before, _)) = before {
            before.read(see).map_err(failed)?;
        }
        if let Some(now) = now {
            now.read(see).map_err(failed)?;
        }
        // Only when those who wrote to the old file have had time to notice.
        if before.as_ref().is_some_and(|(_, since)| since.elapsed() > STILL_WRITTEN) {
            return Ok(Followed::Rotated);
        }
        let info = match fs::metadata(&*path) {
            Ok(info) => info,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Followed::UpToDate),
            Err(error) => return Err(failed(error)),
        };
        let is_same = now.as_ref().is_some_and(|now| now.id == (info.dev(), info.ino()));
        if is_same {
            let is_cut = now.as_ref().is_some_and(|now| info.len() < now.offset);
            return Ok(if is_cut { Followed::Rotated } else { Followed::UpToDate });
        }
        if before.is_some() {
            // Again, so soon.
            return Ok(Followed::Rotated);
        }
        let mut new = match Growing::open(path) {
            Ok(new) => new,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Followed::UpToDate),
            Err(error) => return Err(failed(error)),
        };
        new.read(see).map_err(failed)?;
        *before = now.replace(new).map(|old| (old, Instant::now()));
        Ok(Followed::UpToDate)
    }
}

fn failed(path: &Path, error: io::Error) -> LogError {
    LogError::Read { name: path.display().to_string(), error }
}

/// The files beside `path` that rotation makes of it: `mainlog.1`, `mainlog.2.gz`,
/// `mainlog-20261126`.
fn older_files(path: &Path) -> Result<Vec<PathBuf>, LogError> {
    let own = path.file_name().unwrap_or_default().to_string_lossy();
    let is_older =
        |rest: &str| rest.starts_with(['.', '-']) && rest.contains(|c: char| c.is_ascii_digit());
    inside(directory_of(path), |name| name.strip_prefix(&*own).is_some_and(is_older))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// What has been seen, of lines `1`, `2` and so on.
    #[derive(Default)]
    struct Seen(Vec<u32>);

    impl Seen {
        fn add(&mut self, line: &Stamped<'_>) -> bool {
            self.0.push(line.rest.parse().unwrap());
            true
        }

        /// All of them, each once, in their order.
        fn all(&mut self) -> Vec<u32> {
            self.0.dedup();
            std::mem::take(&mut self.0)
        }
    }

    fn write(path: &Path, numbers: std::ops::RangeInclusive<u32>) {
        let mut file = fs::File::options().create(true).append(true).open(path).unwrap();
        for number in numbers {
            writeln!(file, "2026-11-26 10:00:{number:02} {number}").unwrap();
        }
    }

    #[test]
    fn every_line_is_seen_over_each_kind_of_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str| folder.path().join(name);
        let path = of("mainlog");
        let mut seen = Seen::default();
        let open = |seen: &mut Seen| {
            let since = Timestamp::default();
            Follow::file(&path, since, &mut |line| seen.add(&line)).unwrap()
        };
        // Nothing has been logged yet.
        let mut follow = open(&mut seen);
        write(&path, 1..=2);
        assert_eq!(follow.poll(&mut |line| seen.add(&line)).unwrap(), Followed::UpToDate);
        assert_eq!(seen.all(), [1, 2]);
        // A line that is not complete yet.
        let mut file = fs::File::options().append(true).open(&path).unwrap();
        write!(file, "2026-11-26 10:00:03 ").unwrap();
        follow.poll(&mut |line| seen.add(&line)).unwrap();
        assert_eq!(seen.all(), [0; 0]);
        writeln!(file, "3").unwrap();
        // Renamed and created, and the old one is still written to.
        fs::rename(&path, of("mainlog.1")).unwrap();
        assert_eq!(follow.poll(&mut |line| seen.add(&line)).unwrap(), Followed::UpToDate);
        write(&path, 5..=5);
        follow.poll(&mut |line| seen.add(&line)).unwrap();
        writeln!(file, "2026-11-26 10:00:04 4").unwrap();
        follow.poll(&mut |line| seen.add(&line)).unwrap();
        assert_eq!(seen.all(), [3, 5, 4]);
        // Again, before the next look: it is read again.
        write(&path, 6..=6);
        fs::rename(of("mainlog.1"), of("mainlog.2")).unwrap();
        fs::rename(&path, of("mainlog.1")).unwrap();
        write(&path, 7..=7);
        assert_eq!(follow.poll(&mut |line| seen.add(&line)).unwrap(), Followed::Rotated);
        let mut follow = open(&mut seen);
        assert_eq!(seen.all(), [6, 1, 2, 3, 4, 5, 6, 7]);
        // Copied and cut.
        write(&path, 8..=8);
        fs::copy(&path, of("mainlog.0")).unwrap();
        fs::write(&path, "").unwrap();
        assert_eq!(follow.poll(&mut |line| seen.add(&line)).unwrap(), Followed::Rotated);
        write(&path, 9..=9);
        open(&mut seen);
        assert_eq!(seen.all(), (1..=9).collect::<Vec<_>>());
    }
}
