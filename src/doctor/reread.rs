//! When Exim's daemon has read its configuration last: its main log has a line for each time, also
//! for those after HUP, at which the Exims of Debian write no new process number.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::installation::Installation;
use crate::logs::stamp::Stamps;

/// How much of the end of the log is read.
const TAIL: u64 = 16 << 20;

/// Exim's main log, if it is a file whose name does not change.
pub(super) fn main_log(installation: &Installation) -> Option<PathBuf> {
    let output = installation.exim.run(&["-bP", "log_file_path"]).ok()?;
    let named = output.stdout.trim().strip_prefix("log_file_path =").map(str::trim)?;
    let file = named.split(':').map(str::trim).find(|part| part.starts_with('/'));
    match file.map(|file| file.replace("%slog", "mainlog")) {
        Some(file) => Some(PathBuf::from(file)).filter(|_| !named.contains("%D")),
        None if named.is_empty() => Some(installation.settings.as_ref()?.spool.join("log/mainlog")),
        None => None,
    }
}

/// Whether process `id` has read its configuration at `changed` or later; `None` if the log does not say.
pub(super) fn has_read(log: &Path, id: u32, changed: SystemTime) -> Option<bool> {
    let (text, from_start) = tail(log)?;
    let stamps = Stamps::new(Timestamp::try_from(log.metadata().ok()?.modified().ok()?).ok()?);
    let wanted = format!("daemon started: pid={id},");
    let mut lines = text.lines().skip(usize::from(!from_start));
    if let Some(line) = text.lines().rev().find(|line| line.contains(&wanted)) {
        return Some(time_of(line, &stamps)? >= changed);
    }
    // It was before the first line.
    let first = lines.find_map(|line| time_of(line, &stamps))?;
    (first <= changed).then_some(false)
}

/// The end of a file, and whether that is all of it.
fn tail(path: &Path) -> Option<(String, bool)> {
    let mut file = File::open(path).ok()?;
    let skipped = file.metadata().ok()?.len().saturating_sub(TAIL);
    file.seek(SeekFrom::Start(skipped)).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes).ok()?;
    Some((String::from_utf8_lossy(&bytes).into_owned(), skipped == 0))
}

/// When a line was written, by the clock of this machine unless it says of which.
fn time_of(line: &str, stamps: &Stamps) -> Option<SystemTime> {
    let stamp = stamps.read(line)?;
    let at = Timestamp::from_second(stamp.at.seconds).ok()?;
    let at = if stamp.has_zone {
        at
    } else {
        let wall = at.to_zoned(TimeZone::UTC).datetime();
        wall.to_zoned(TimeZone::system()).ok()?.timestamp()
    };
    let seconds = u64::try_from(at.as_second()).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_says_when_the_daemon_read_its_configuration() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let at = |text: &str| SystemTime::from(text.parse::<Timestamp>().unwrap());
        let started = "exim 4.98.2 daemon started: pid=7";
        let lines = format!(
            "2026-11-27 02:00:00 +0000 {started}, -q30m\n2026-11-27 02:58:51 +0000 {started}, -q30m\n\
             2026-11-27 02:59:00 +0000 {started}1, -q30m\n2026-11-27 02:59:01 +0000 [9] other\n"
        );
        std::fs::write(file.path(), lines).unwrap();
        let read = |id, text| has_read(file.path(), id, at(text));
        assert_eq!(read(7, "2026-11-27T02:58:51Z"), Some(true));
        assert_eq!(read(7, "2026-11-27T02:58:52Z"), Some(false));
        assert_eq!(read(71, "2026-11-27T02:58:52Z"), Some(true));
        // It has said nothing since; before the first line it may have.
        assert_eq!(read(8, "2026-11-27T02:10:00Z"), Some(false));
        assert_eq!(read(8, "2026-11-27T01:10:00Z"), None);
        assert_eq!(has_read(Path::new("/nonexistent"), 7, at("2026-11-27T02:10:00Z")), None);
    }
}
