//! The file `cluster` in the directory of the database: it makes a library share its
//! limits with other servers.
//!
//! Each line is a name and a value. `exirate cluster join` writes the file.
//!
//! ```text
//! # exirate: the limits of this server are shared.
//! socket /run/exirate/agent.sock
//! agent_user 997
//! servers 4
//! deadline 100ms
//! away local
//! config /etc/exirate/exirate.toml
//! ```

use std::ffi::CStr;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::spool::FILE_MODE;
#[cfg(feature = "cli")]
use crate::spool::open_directory;
use crate::sys::files::{self, Access};
use crate::sys::secure_dir::{DirError, SecureDir};

/// The file.
pub const CLUSTER: &CStr = c"cluster";
/// The file while it is written.
const CLUSTER_NEW: &CStr = c"cluster.new";
/// How long to wait for another process that changes files in the directory.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// The socket of the agent, where the file names none.
pub const SOCKET_DEFAULT: &str = "/run/exirate/agent.sock";
/// The configuration of the agent, where the file names none.
pub const CONFIG_DEFAULT: &str = "/etc/exirate/exirate.toml";
/// How long a process waits for the agent, where the file does not say.
pub const DEADLINE_DEFAULT: Duration = Duration::from_millis(100);
/// The longest deadline: an SMTP client waits for it at each command.
pub const DEADLINE_MAX: Duration = Duration::from_secs(5);
/// The most servers that share limits.
pub const SERVERS_MAX: u32 = 10_000;
/// The largest file that is read.
const BYTES_MAX: usize = 4096;

/// How the limits of this server are shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// The socket of the agent.
    pub socket: PathBuf,
    /// The user as which the agent runs. A process of another user that listens on the
    /// socket is not asked; root always is.
    pub agent_user: u32,
    /// How many servers share the limits.
    pub servers: u32,
    /// How long a process waits for the agent.
    pub deadline: Duration,
    /// What happens while the agent, or the store behind it, cannot be reached.
    pub away: Away,
    /// The configuration of the agent, which the program reads to connect to the shared
    /// store. The library does not use it.
    pub config: PathBuf,
}

/// What happens to checks while the shared store cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Away {
    /// This server admits its share of what is left of each limit.
    #[default]
    Local,
    /// No limit refuses anything.
    Open,
    /// Checks fail, as they do without a database: Exim defers.
    Closed,
}

impl Away {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Local, Self::Open, Self::Closed];

    /// Its name in the file.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// It cannot be read.
    #[error("{0}")]
    Directory(#[source] DirError),
    /// A line is wrong.
    #[error("{path}:{line}: {fault}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Its number, from 1.
        line: usize,
        /// What is wrong, and what would be right.
        fault: String,
    },
}

impl ClusterSettings {
    /// Those of the database of the spool directory `spool`, with its directory.
    ///
    /// # Errors
    /// As of [`Self::read`].
    #[cfg(feature = "cli")]
    pub fn of(spool: &Path) -> Result<(SecureDir, Option<Self>), SettingsError> {
        let directory = open_directory(spool, false).map_err(SettingsError::Directory)?;
        let settings = Self::read(&directory)?;
        Ok((directory, settings))
    }

    /// Those of the database in `directory`; `None` if its limits are its own.
    ///
    /// # Errors
    /// The file cannot be read, or a line is wrong.
    pub fn read(directory: &SecureDir) -> Result<Option<Self>, SettingsError> {
        let file = directory.open_file(Access::Read, CLUSTER);
        let Some((file, _)) = file.map_err(SettingsError::Directory)? else { return Ok(None) };
        let mut bytes = vec![0; BYTES_MAX];
        let read = files::read_start(&file, &mut bytes)
            .map_err(directory.failed("read", CLUSTER))
            .map_err(SettingsError::Directory)?;
        bytes.truncate(read);
        let path = directory.path_of(CLUSTER);
        if read == BYTES_MAX {
            let fault = format!("the file is larger than {BYTES_MAX} bytes");
            return Err(SettingsError::Line { path, line: 1, fault });
        }
        Self::parse(&bytes).map(Some).map_err(|(line, fault)| SettingsError::Line {
            path,
            line,
            fault,
        })
    }

    /// Writes them for the database in `directory`. Processes that are started from now on
    /// follow them; those that run keep what they have read.
    ///
    /// # Errors
    /// They could not be written; the file, if there was one, is unchanged.
    pub fn write(&self, directory: &SecureDir) -> Result<(), DirError> {
        let _guard = directory.lock_directory(LOCK_TIMEOUT)?;
        let file = directory.create_file(CLUSTER_NEW, FILE_MODE)?;
        let written = files::write_start(&file, self.to_string().as_bytes())
            .and_then(|()| files::sync(&file))
            .and_then(|()| files::rename_at(directory.directory(), CLUSTER_NEW, CLUSTER));
        if let Err(error) = written {
            let _ = files::remove_at(directory.directory(), CLUSTER_NEW);
            return Err(directory.failed("write", CLUSTER)(error));
        }
        // It has the name in any case.
        let _ = files::sync(directory.directory());
        Ok(())
    }

    /// Removes the file, so that the limits of the database in `directory` are its own.
    /// Whether there was one.
    ///
    /// # Errors
    /// It could not be removed.
    pub fn remove(directory: &SecureDir) -> Result<bool, DirError> {
        let _guard = directory.lock_directory(LOCK_TIMEOUT)?;
        let was_there = directory.open_file(Access::Read, CLUSTER)?.is_some();
        files::remove_at(directory.directory(), CLUSTER)
            .map_err(directory.failed("remove", CLUSTER))?;
        Ok(was_there)
    }

    /// Reads the text of the file.
    ///
    /// # Errors
    /// The number of the line that is wrong, and what is wrong.
    pub fn parse(text: &[u8]) -> Result<Self, (usize, String)> {
        let [mut socket, mut user, mut servers, mut deadline, mut away, mut config] = [None; 6];
        let mut lines = 0;
        for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            lines = number + 1;
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
            let (name, value) = line.split_at(end);
            let value = value.trim_ascii();
            let place = match name {
                b"socket" => &mut socket,
                b"agent_user" => &mut user,
                b"servers" => &mut servers,
                b"deadline" => &mut deadline,
                b"away" => &mut away,
                b"config" => &mut config,
                _ => {
                    let name = name.escape_ascii();
                    return Err((
                        lines,
                        format!(
                            "unknown name \"{name}\": the names are socket, agent_user, servers, \
                             deadline, away and config"
                        ),
                    ));
                }
            };
            let name = name.escape_ascii();
            if value.is_empty() {
                return Err((lines, format!("'{name}' has no value")));
            }
            if place.replace((lines, value)).is_some() {
                return Err((lines, format!("'{name}' is there twice")));
            }
        }
        let missing = |name| (lines, format!("'{name}' is missing"));
        let path = |name, found: Option<(usize, &[u8])>, default: &str| match found {
            None => Ok(PathBuf::from(default)),
            Some((_, path)) if path.starts_with(b"/") => Ok(OsStr::from_bytes(path).into()),
            Some((line, _)) => Err((line, format!("'{name}' must be an absolute path"))),
        };
        Ok(Self {
            socket: path("socket", socket, SOCKET_DEFAULT)?,
            config: path("config", config, CONFIG_DEFAULT)?,
            agent_user: {
                let (line, text) = user.ok_or_else(|| missing("agent_user"))?;
                number(text)
                    .ok_or_else(|| (line, "'agent_user' must be the number of a user".to_owned()))?
            },
            servers: {
                let (line, text) = servers.ok_or_else(|| missing("servers"))?;
                let known = number(text).filter(|servers| (1..=SERVERS_MAX).contains(servers));
                known.ok_or_else(|| {
                    (line, format!("'servers' must be a number from 1 to {SERVERS_MAX}"))
                })?
            },
            deadline: match deadline {
                None => DEADLINE_DEFAULT,
                Some((line, text)) => {
                    let micros = milliseconds(text);
                    let known = micros
                        .filter(|one| (Duration::from_millis(1)..=DEADLINE_MAX).contains(one));
                    known.ok_or_else(|| {
                        (line, "'deadline' must be from 1ms to 5000ms, such as 100ms".to_owned())
                    })?
                }
            },
            away: match away {
                None => Away::default(),
                Some((line, text)) => {
                    let known = Away::ALL.into_iter().find(|away| away.word().as_bytes() == text);
                    known
                        .ok_or_else(|| (line, "'away' must be local, open or closed".to_owned()))?
                }
            },
        })
    }
}

impl fmt::Display for ClusterSettings {
    /// The text of the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { socket, agent_user, servers, deadline, away, config } = self;
        writeln!(f, "# exirate: the limits of this server are shared.")?;
        writeln!(f, "socket {}", Path::display(socket))?;
        writeln!(f, "agent_user {agent_user}")?;
        writeln!(f, "servers {servers}")?;
        writeln!(f, "deadline {}ms", deadline.as_millis())?;
        writeln!(f, "away {}", away.word())?;
        writeln!(f, "config {}", Path::display(config))
    }
}

fn number(text: &[u8]) -> Option<u32> {
    let digits = text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

/// A time such as `100ms`.
fn milliseconds(text: &[u8]) -> Option<Duration> {
    number(text.strip_suffix(b"ms")?).map(|number| Duration::from_millis(number.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "# exirate: the limits of this server are shared.\n\
                         socket /run/other/agent.sock\nagent_user 997\nservers 4\n\
                         deadline 50ms\naway closed\nconfig /etc/other.toml\n";

    #[test]
    fn the_text_is_read_and_written() {
        let settings = ClusterSettings::parse(WHOLE.as_bytes()).unwrap();
        let expected = ClusterSettings {
            socket: "/run/other/agent.sock".into(),
            agent_user: 997,
            servers: 4,
            deadline: Duration::from_millis(50),
            away: Away::Closed,
            config: "/etc/other.toml".into(),
        };
        assert_eq!(settings, expected);
        assert_eq!(settings.to_string(), WHOLE);
    }

    #[test]
    fn the_file_is_written_and_removed() {
        let spool = tempfile::tempdir().unwrap();
        let directory = crate::spool::open_directory(spool.path(), true).unwrap();
        assert_eq!(ClusterSettings::read(&directory).unwrap(), None);
        let settings = ClusterSettings::parse(WHOLE.as_bytes()).unwrap();
        settings.write(&directory).unwrap();
        assert_eq!(ClusterSettings::read(&directory).unwrap(), Some(settings.clone()));
        let other = ClusterSettings { servers: 9, ..settings };
        other.write(&directory).unwrap();
        assert_eq!(ClusterSettings::read(&directory).unwrap(), Some(other));
        let names = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(names, 1, "nothing else is left");
        assert!(ClusterSettings::remove(&directory).unwrap());
        assert!(!ClusterSettings::remove(&directory).unwrap());
        assert_eq!(ClusterSettings::read(&directory).unwrap(), None);
    }

    #[test]
    fn most_have_defaults() {
        let settings = ClusterSettings::parse(b"\n agent_user\t0 \r\n\nservers 2").unwrap();
        let expected = ClusterSettings {
            socket: SOCKET_DEFAULT.into(),
            agent_user: 0,
            servers: 2,
            deadline: DEADLINE_DEFAULT,
            away: Away::Local,
            config: CONFIG_DEFAULT.into(),
        };
        assert_eq!(settings, expected);
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, line, fault) in [
            ("", 1, "'agent_user' is missing"),
            ("agent_user 1\n", 2, "'servers' is missing"),
            ("servers 1\nserver 4\n", 2, "unknown name \"server\": the names are"),
            ("servers\n", 1, "'servers' has no value"),
            ("servers 1\nservers 1\n", 2, "'servers' is there twice"),
            ("agent_user root\nservers 1", 1, "'agent_user' must be the number of a user"),
            ("agent_user 1\nservers 0", 2, "'servers' must be a number from 1 to 10000"),
            ("agent_user 1\nservers +1", 2, "'servers' must be a number from 1 to 10000"),
            ("agent_user 1\nservers 1\nsocket a.sock", 3, "'socket' must be an absolute path"),
            ("agent_user 1\nservers 1\nconfig a.toml", 3, "'config' must be an absolute path"),
            ("agent_user 1\nservers 1\ndeadline 20", 3, "'deadline' must be from 1ms to 5000ms"),
            ("agent_user 1\nservers 1\ndeadline 6000ms", 3, "'deadline' must be from 1ms"),
            ("agent_user 1\nservers 1\naway maybe", 3, "'away' must be local, open or closed"),
        ] {
            let (found, message) = ClusterSettings::parse(text.as_bytes()).unwrap_err();
            assert!(found == line && message.starts_with(fault), "{text}: {found}: {message}");
        }
    }
}
