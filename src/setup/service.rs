//! A daemon of exirate's, started by systemd or by an init script.

use std::ffi::{CString, OsStr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::error::SetupError;
use crate::serve::socket::lock_of;
use crate::sys::child;
use crate::sys::files::{open_real_directory, remove_at};

/// How long a daemon may take to listen.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How long to wait before looking again.
const PAUSE: Duration = Duration::from_millis(50);

/// A daemon, and how it was before setup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Service {
    /// Its name without `.service`.
    name: String,
    /// The socket on which it listens; empty if it listens on none.
    socket: PathBuf,
    was_enabled: bool,
    was_active: bool,
}

impl Service {
    /// Looks at the daemon of this name.
    pub(crate) fn look(name: &str, socket: &Path) -> Self {
        let (was_enabled, was_active) = if has_systemd() {
            let says = |what: &str| run("systemctl", &["--quiet", what, name]).is_ok();
            (says("is-enabled"), says("is-active"))
        } else {
            (is_in_runlevels(name), run("invoke-rc.d", &[name, "status"]).is_ok())
        };
        Self { name: name.to_owned(), socket: socket.to_owned(), was_enabled, was_active }
    }

    /// Whether it runs and starts at each boot.
    pub(crate) fn is_up(&self) -> bool {
        self.was_enabled && self.was_active && self.listens()
    }

    /// Whether somebody listens on the socket, if it has one.
    fn listens(&self) -> bool {
        self.socket.as_os_str().is_empty() || UnixStream::connect(&self.socket).is_ok()
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Starts it with the configuration as it is now, and waits until it listens.
    pub(super) fn start(&self) -> Result<(), SetupError> {
        let name = &*self.name;
        if has_systemd() {
            run("systemctl", &["--quiet", "enable", name])?;
            run("systemctl", &["restart", name])?;
        } else {
            run("update-rc.d", &[name, "defaults"])?;
            run("update-rc.d", &[name, "enable"])?;
            run("invoke-rc.d", &[name, "restart"])?;
        }
        let end = Instant::now() + TIMEOUT;
        while !self.listens() {
            if Instant::now() > end {
                return Err(SetupError::Unfit(format!(
                    "{name} does not listen on {}: see its log, such as `journalctl -u {name}`",
                    self.socket.display()
                )));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Leaves it as it was before.
    pub(super) fn stop(&self) -> Result<(), SetupError> {
        let name = &*self.name;
        let verb = if self.was_active { "restart" } else { "stop" };
        if has_systemd() {
            if !self.was_enabled {
                run("systemctl", &["--quiet", "disable", name])?;
            }
            run("systemctl", &[verb, name])?;
        } else {
            run("invoke-rc.d", &[name, verb])?;
            if !self.was_enabled {
                run("update-rc.d", &[name, "disable"])?;
            }
        }
        if !self.was_active {
            self.remove_socket();
        }
        Ok(())
    }

    /// Removes the socket, which a daemon that was killed leaves, and the file beside it that it
    /// locks. The directory may belong to the daemon's user: no link is followed.
    fn remove_socket(&self) {
        let Some(Ok(directory)) = self.socket.parent().map(open_real_directory) else { return };
        for path in [self.socket.clone(), lock_of(&self.socket)] {
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            if let Ok(name) = CString::new(name) {
                let _ = remove_at(&directory, &name);
            }
        }
    }
}

/// Has a daemon of the mail server's read its configuration again.
///
/// # Errors
/// It does not.
pub(super) fn reload(name: &str) -> Result<(), SetupError> {
    match has_systemd() {
        // Debian's unit for Sendmail cannot reload.
        true => run("systemctl", &["reload-or-restart", name]),
        false => run("invoke-rc.d", &[name, "reload"]),
    }
}

/// Whether systemd runs this machine.
pub(super) fn has_systemd() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// Whether an init script is started at boot.
pub(crate) fn is_in_runlevels(name: &str) -> bool {
    let directory = Path::new("/etc/rc3.d").read_dir();
    let names = directory.into_iter().flatten().flatten().map(|entry| entry.file_name());
    names
        .filter_map(|found| found.into_string().ok())
        .any(|found| found.strip_prefix('S').is_some_and(|rest| rest.get(2..) == Some(name)))
}

/// Runs a program of the system's to its end.
///
/// # Errors
/// It fails: with what it prints.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<(), SetupError> {
    let mut command: Command = child::command(OsStr::new(program));
    let output = command.args(arguments).stdin(Stdio::null()).output();
    let line = || format!("{program} {}", arguments.join(" "));
    match output {
        Err(error) => Err(SetupError::Unfit(format!("cannot run {program}: {error}"))),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            let said = if said.is_empty() { output.status.to_string() } else { said };
            Err(SetupError::Unfit(format!("`{}` fails: {said}", line())))
        }
    }
}
