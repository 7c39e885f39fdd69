//! `[follow]`: the follower of the mail log.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::keys::{self, Key, keys};
use super::kinds;
use super::mail::{self, Mail};
use crate::logs::usual;
use crate::sys::users;
use crate::toml_file::reader::Reader;

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

impl FollowedLog {
    /// The mail server's, where nobody says.
    pub(super) fn usual() -> Self {
        usual::log().map_or(Self::Journal(None), Self::File)
    }
}

impl Follow {
    /// As without a file.
    pub(super) fn new() -> Self {
        Self { log: FollowedLog::usual(), state: PathBuf::new(), spool: PathBuf::new() }
    }
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
    let (mut mail, mut follow) = (Mail::new(), Follow::new());
    keys::sections(reader, table, |reader, name, value| match name {
        "mail" => _ = keys::read(reader, value, "[mail]", mail::KEYS, &mut mail),
        "follow" => _ = keys::read(reader, value, "[follow]", KEYS, &mut follow),
        _ => {}
    });
    if follow.state.as_os_str().is_empty() {
        follow.state = Path::new(STATE).join(user_of(&mail.spool));
    }
    Some(Follow { spool: mail.spool, ..follow })
}

/// The user of the follower: the owner of the database, else this one.
pub(super) fn user_of(spool: &Path) -> OsString {
    let owner = spool.metadata().map(|info| info.uid()).ok().filter(|uid| *uid != 0);
    let user = owner.unwrap_or_else(|| rustix::process::geteuid().as_raw());
    users::name_of(user).unwrap_or_else(|| user.to_string().into())
}

/// The keys of `[follow]`.
pub(super) const KEYS: &[Key<Follow>] = keys! {
    /// The log: a file, `"journal"`, or `"journal:/DIR"` for that in a directory
    log => log = ("the first that exists, and was written in the two days before the newest of them, of `/var/log/exim4/mainlog`, `/var/log/exim/mainlog`, `/var/log/exim/main.log`, `/var/log/mail.log` and `/var/log/maillog`, else `\"journal\"`"),
        kinds::text("/var/log/mail.log", followed);
    /// The directory of what was counted
    state => state = ("`\"/var/lib/exirate-follow/USER\"`, with the user of the database"),
        kinds::path(STATE);
};

fn followed(text: &str) -> Result<FollowedLog, String> {
    let (text, example) = match text.strip_prefix("journal:") {
        Some(path) => (path, "/var/log/journal"),
        None if text == JOURNAL => return Ok(FollowedLog::Journal(None)),
        None => (text, "/var/log/mail.log"),
    };
    let instead = match text.eq_ignore_ascii_case(JOURNAL) {
        true => format!("did you mean {JOURNAL:?}?"),
        false => format!("expected such as {example:?}"),
    };
    let path = kinds::full_path(text, &instead)?;
    Ok(match example {
        "/var/log/journal" => FollowedLog::Journal(Some(path)),
        _ => FollowedLog::File(path),
    })
}
