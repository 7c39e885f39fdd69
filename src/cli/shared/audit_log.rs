//! Who changed what: a line in `audit.log` in the database's directory, and one to
//! syslog's mail facility where there is a syslog.

use std::fmt::Display;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use super::screen::note;
use crate::store::Inspect;
use crate::text;
use crate::text::time::now;

/// Where syslog listens.
const SYSLOG: &str = "/dev/log";
/// RFC 3164: facility mail (2), severity notice (5).
const PRIORITY: u8 = 2 * 8 + 5;

/// The logs of one command.
pub(in crate::cli) struct AuditLog {
    who: String,
    /// Whether a failure to write the log has been reported.
    failed: bool,
}

impl AuditLog {
    pub(in crate::cli) fn new() -> Self {
        Self { who: who(), failed: false }
    }

    /// Logs a change that has been made. What `what` holds of keys must be
    /// escaped by [`text::printable`]. A failure to write the log is reported
    /// once; the change stands.
    pub(in crate::cli) fn add(&mut self, store: &mut dyn Inspect, what: impl Display) {
        let who = &self.who;
        let line = format!("{} {who} {what}", text::iso(now()));
        if let Err(error) = store.log_change(&line)
            && !self.failed
        {
            note(format_args!("the change is not logged: {error}"));
            self.failed = true;
        }
        self.add_without_store(what);
    }

    /// Logs a change to syslog alone.
    pub(in crate::cli) fn add_without_store(&self, what: impl Display) {
        // There is not always a syslog, and nothing depends on it.
        let _ = send_to_syslog(Path::new(SYSLOG), &format!("{what} ({})", self.who));
    }
}

/// Sends a line to the syslog that listens at `socket`.
fn send_to_syslog(socket: &Path, what: &str) -> std::io::Result<()> {
    let datagram = UnixDatagram::unbound()?;
    // A syslog that hangs must not hang us.
    datagram.set_nonblocking(true)?;
    let time = jiff::Zoned::now().strftime("%b %e %H:%M:%S").to_string();
    let line = format!("<{PRIORITY}>{time} exirate[{}]: {what}", std::process::id());
    datagram.send_to(line.as_bytes(), socket)?;
    Ok(())
}

/// Who runs this, in one word for each thing that is known of it.
pub(in crate::cli) fn who() -> String {
    let mut who = format!("uid={}", rustix::process::geteuid().as_raw());
    // The user who has logged in, whatever he has become since.
    let login = std::fs::read_to_string("/proc/self/loginuid").unwrap_or_default();
    if let Ok(login) = login.trim().parse::<u32>()
        && login != u32::MAX
    {
        who += &format!(" login={login}");
    }
    if let Some(user) = std::env::var_os("SUDO_USER") {
        who += &format!(" sudo={}", text::printable(user.as_encoded_bytes()).replace(' ', "_"));
    }
    who
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syslog_gets_a_line_of_its_form() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("log");
        assert!(send_to_syslog(&socket, "x").is_err(), "nobody listens");
        let syslog = UnixDatagram::bind(&socket).unwrap();
        send_to_syslog(&socket, "reset key=alice").unwrap();
        let mut line = [0; 200];
        let length = syslog.recv(&mut line).unwrap();
        let line = std::str::from_utf8(&line[..length]).unwrap();
        let rest = line.strip_prefix("<21>").unwrap();
        let (time, rest) = rest.split_at("Nov 20 11:50:37".len());
        assert_eq!(time.as_bytes()[6], b' ', "{time}");
        assert_eq!(rest, format!(" exirate[{}]: reset key=alice", std::process::id()));
    }
}
