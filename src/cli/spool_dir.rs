//! Finding Exim's spool directory.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Failure;

/// Exim under the names it is installed as; Debian's has both.
const PROGRAMS: [&str; 4] = ["exim4", "exim", "/usr/sbin/exim4", "/usr/sbin/exim"];
/// The usual spool directories, for a machine without Exim.
const USUAL: [&str; 2] = ["/var/spool/exim4", "/var/spool/exim"];

/// The spool directory `given`, or else that of the Exim on this machine.
pub(super) fn find(given: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(dir) = given {
        return if dir.is_dir() {
            Ok(dir.to_owned())
        } else {
            Err(Failure::new(format!(
                "--spool {}: no such directory; expected Exim's spool directory \
                 (exim -bP spool_directory)",
                dir.display()
            )))
        };
    }
    PROGRAMS
        .iter()
        .find_map(|program| of_exim(program))
        .or_else(|| USUAL.iter().map(PathBuf::from).find(|dir| dir.is_dir()))
        .ok_or_else(|| {
            Failure::new(
                "cannot find Exim's spool directory: `exim -bP spool_directory` prints \
                 none, and neither /var/spool/exim4 nor /var/spool/exim exists; use --spool DIR",
            )
        })
}

/// The directory that `program -bP spool_directory` prints.
fn of_exim(program: &str) -> Option<PathBuf> {
    let output = Command::new(program)
        .args(["-bP", "spool_directory"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    parse(&output.stdout).filter(|dir| dir.is_dir())
}

/// The value in `spool_directory = /var/spool/exim4`.
fn parse(line: &[u8]) -> Option<PathBuf> {
    let value = line.trim_ascii().strip_prefix(b"spool_directory = ")?;
    Some(PathBuf::from(OsStr::from_bytes(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exims_answer_is_understood() {
        assert_eq!(parse(b"spool_directory = /a b\n"), Some(PathBuf::from("/a b")));
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"exim: permission denied\n"), None);
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error() {
        assert!(find(Some(Path::new("/nonexistent/spool"))).is_err());
    }
}
