//! Which log is the mail server's, where nobody says.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

/// Where mail servers write their log: the first that is there is read, unless it is old.
const LOGS: [&str; 5] = [
    "/var/log/exim4/mainlog",
    "/var/log/exim/mainlog",
    "/var/log/exim/main.log",
    "/var/log/mail.log",
    "/var/log/maillog",
];
/// A log that was written so much earlier than another, in seconds, is of a mail server that was
/// here before.
const OLD: u64 = 2 * 86_400;
/// The mail server's log; `None` if it has no file: then it is in the journal of systemd, if anywhere.
#[must_use]
pub fn log() -> Option<PathBuf> {
    of_the_mail_server(&LOGS.map(PathBuf::from))
}

/// A log that may be there, in a directory that this user may not look into.
#[must_use]
pub fn hidden() -> Option<PathBuf> {
    LOGS.map(PathBuf::from).into_iter().find(|path| {
        path.metadata().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    })
}

/// The first of these logs that is there and not old.
fn of_the_mail_server(logs: &[PathBuf]) -> Option<PathBuf> {
    let written = |path: &PathBuf| {
        let at = path.metadata().and_then(|info| info.modified()).ok()?;
        Some((at.duration_since(UNIX_EPOCH).ok()?.as_secs(), path.clone()))
    };
    let found: Vec<_> = logs.iter().filter_map(written).collect();
    let newest = found.iter().map(|(at, _)| *at).max()?;
    found.into_iter().find(|(at, _)| at.saturating_add(OLD) >= newest).map(|(_, path)| path)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn a_log_that_nobody_writes_any_more_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let logs = ["mainlog", "main.log", "mail.log"].map(|name| folder.path().join(name));
        assert_eq!(of_the_mail_server(&logs), None);
        let write = |at: usize, days: u64| {
            let file = std::fs::File::create(&logs[at]).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_hours(24 * days)).unwrap();
        };
        write(2, 0);
        assert_eq!(of_the_mail_server(&logs).as_ref(), Some(&logs[2]));
        write(0, 1);
        assert_eq!(of_the_mail_server(&logs).as_ref(), Some(&logs[0]));
        write(0, 30);
        assert_eq!(of_the_mail_server(&logs).as_ref(), Some(&logs[2]));
        write(2, 29);
        assert_eq!(of_the_mail_server(&logs).as_ref(), Some(&logs[0]));
    }
}
