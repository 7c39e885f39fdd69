//! Who changed what: a line in `audit.log` in the database's directory, and one to
//! syslog's mail facility where there is a syslog.

use std::fmt::Display;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use crate::store::{Inspect, InspectError};
use crate::text;
use crate::text::time::now;

/// Where syslog listens.
const SYSLOG: &str = "/dev/log";
/// RFC 3164: facility mail (2), severity notice (5).
const PRIORITY: u8 = 2 * 8 + 5;

/// Logs a change that `who` has made, in one word for each thing that is known of him. What `what`
/// holds of keys must be escaped by [`text::printable`].
///
/// # Errors
/// The log could not be written; syslog has the line all the same.
pub(crate) fn log(
    store: &mut dyn Inspect,
    who: &str,
    what: impl Display,
) -> Result<(), InspectError> {
    let logged = store.log_change(&format!("{} {who} {what}", text::iso(now())));
    to_syslog(who, what);
    logged
}

/// Logs a change to syslog alone.
pub(crate) fn to_syslog(who: &str, what: impl Display) {
    // There is not always a syslog, and nothing depends on it.
    let _ = send_to_syslog(Path::new(SYSLOG), &format!("{what} ({who})"));
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
