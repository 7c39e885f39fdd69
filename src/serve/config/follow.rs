//! `[follow]`: the follower of the mail log.

use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::keys::{self, Key};
use super::mail::{self, Mail};
use crate::toml_file::reader::{Reader, Value};

/// Where mail servers write their log: the first that is there is followed.
const LOGS: [&str; 5] = [
    "/var/log/exim4/mainlog",
    "/var/log/exim/mainlog",
    "/var/log/exim/main.log",
    "/var/log/mail.log",
    "/var/log/maillog",
];
/// What the follower remembers.
const STATE: &str = "/var/lib/exirate-follow";

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
    /// The journal of systemd.
    Journal,
}

impl std::fmt::Display for FollowedLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Journal => f.write_str("the journal"),
        }
    }
}

/// Reads the file; what is there for the other daemons is not looked at, but `mail.spool`.
pub(super) fn read(reader: &mut Reader<'_>, table: &DeTable<'_>) -> Option<Follow> {
    let mut mail = Mail::new();
    let found = LOGS.iter().map(Path::new).find(|path| path.exists());
    let log = found.map_or(FollowedLog::Journal, |path| FollowedLog::File(path.to_owned()));
    let mut follow = Follow { log, state: STATE.into(), spool: PathBuf::new() };
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
    Some(Follow { spool: mail.spool, ..follow })
}

/// The keys of `[follow]`.
pub(super) const KEYS: &[Key<Follow>] = &[
    ("log", |reader, value, follow| {
        let Some(text) = reader.string(value, "\"/var/log/mail.log\"") else { return };
        follow.log = match text {
            "journal" => FollowedLog::Journal,
            _ => FollowedLog::File(full_path(reader, value, text)),
        };
    }),
    ("state", |reader, value, follow| {
        let Some(text) = reader.string(value, &format!("{STATE:?}")) else { return };
        follow.state = full_path(reader, value, text);
    }),
];

fn full_path(reader: &mut Reader<'_>, value: Value<'_>, text: &str) -> PathBuf {
    if !text.starts_with('/') {
        let message = format!("{text:?} is not a full path; expected such as {STATE:?}");
        reader.error(value, message);
    }
    text.into()
}
