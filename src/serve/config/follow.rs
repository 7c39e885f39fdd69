//! `[follow]`: the follower of the mail log.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use toml::de::DeTable;

use super::keys::{self, Key};
use super::mail::{self, Mail};
use crate::sys::users;
use crate::toml_file::reader::{Reader, Value};

/// Where mail servers write their log: the first that is there is followed, unless it is old.
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
/// `log`, if it is the journal of this machine.
const JOURNAL: &str = "journal";
/// What the followers remember, each in a directory of its user's name.
pub(in crate::serve) const STATE: &str = "/var/lib/exirate-follow";

/// What the file says to the follower, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follow {
    /// `log`
    pub log: FollowedLog,
    /// The directory of what is remembered.
    pub state: PathBuf,
    /// The directory of the database and the policies.
    pub spool: PathBuf,
}

/// Where the lines come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowedLog {
    /// A file, and the older ones beside it.
    File(PathBuf),
    /// The journal of systemd, in a directory or of this machine.
    Journal(Option<PathBuf>),
}

impl std::fmt::Display for FollowedLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Journal(None) => f.write_str("the journal"),
            Self::Journal(Some(path)) => write!(f, "the journal in {}", path.display()),
        }
    }
}

/// Reads the file; what is there for the other daemons is not looked at, but `mail.spool`.
pub(super) fn read(reader: &mut Reader<'_>, table: &DeTable<'_>) -> Option<Follow> {
    let mut mail = Mail::new();
    let log = of_the_mail_server(&LOGS.map(PathBuf::from));
    let log = log.map_or(FollowedLog::Journal(None), FollowedLog::File);
    let mut follow = Follow { log, state: PathBuf::new(), spool: PathBuf::new() };
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "mail" => {
                if let Some(table) = reader.table(value, "[mail]") {
                    keys::read(reader, table, "[mail]", mail::KEYS, &mut mail);
                }
            }
            "follow" => {
                if let Some(table) = reader.table(value, "[follow]") {
                    keys::read(reader, table, "[follow]", KEYS, &mut follow);
                }
            }
            "listen" | "redis" | "agent" => {}
            _ => reader.unknown_key(key, "at the top of the file", &keys::TOP),
        }
    }
    if follow.state.as_os_str().is_empty() {
        follow.state = Path::new(STATE).join(user_of(&mail.spool));
    }
    Some(Follow { spool: mail.spool, ..follow })
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

/// The user of the follower: the owner of the database, else this one.
fn user_of(spool: &Path) -> OsString {
    let owner = spool.metadata().map(|info| info.uid()).ok().filter(|uid| *uid != 0);
    let user = owner.unwrap_or_else(|| rustix::process::geteuid().as_raw());
    users::name_of(user).unwrap_or_else(|| user.to_string().into())
}

/// The keys of `[follow]`.
pub(super) const KEYS: &[Key<Follow>] = &[
    ("log", |reader, value, follow| {
        let Some(text) = reader.string(value, "\"/var/log/mail.log\"") else { return };
        follow.log = match text {
            JOURNAL => FollowedLog::Journal(None),
            _ => match text.strip_prefix("journal:") {
                Some(path) => {
                    FollowedLog::Journal(Some(full_path(reader, value, path, "/var/log/journal")))
                }
                None => FollowedLog::File(full_path(reader, value, text, "/var/log/mail.log")),
            },
        };
    }),
    ("state", |reader, value, follow| {
        let Some(text) = reader.string(value, &format!("{STATE:?}")) else { return };
        follow.state = full_path(reader, value, text, STATE);
    }),
];

fn full_path(reader: &mut Reader<'_>, value: Value<'_>, text: &str, example: &str) -> PathBuf {
    if !text.starts_with('/') {
        let instead = match text.eq_ignore_ascii_case(JOURNAL) {
            true => format!("did you mean {JOURNAL:?}?"),
            false => format!("expected such as {example:?}"),
        };
        let message = format!("{text:?} is not a full path; {instead}");
        reader.error(value, message);
    }
    text.into()
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
