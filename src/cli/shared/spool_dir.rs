//! Finding the directory that holds the database: that of `exirate serve mail` where its
//! configuration names one, else Exim's spool directory, or exirate's own beside another mail
//! server.
//!
//! The first is before Exim's: an Exim that loads no library asks the daemon, whose user may not
//! write in Exim's spool directory; and one that loads it has no use for the daemon.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::bypass_state;
use crate::cli::Failure;
use crate::serve::config;
use crate::sys::child;

/// Exim under the names it is installed as; Debian's has both.
const PROGRAMS: [&str; 4] = ["exim4", "exim", "/usr/sbin/exim4", "/usr/sbin/exim"];
/// Where it is on a machine without Exim: Exim's usual spool directories, and exirate's own,
/// for `exirate serve mail` beside Postfix or Sendmail.
const USUAL: [&str; 3] = ["/var/spool/exim4", "/var/spool/exim", config::OWN_SPOOL];

/// The spool directory `given`, or else that of this machine's mail server. Where nothing is
/// refused now, that is shown.
pub(in crate::cli) fn find(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let found = find_silently(given)?;
    bypass_state::announce(&found);
    Ok(found)
}

/// As above, for shells that complete a line.
pub(in crate::cli) fn find_silently(given: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(dir) = given {
        return if dir.is_dir() {
            Ok(dir.to_owned())
        } else {
            Err(Failure::new(format!(
                "--spool {}: no such directory; expected Exim's spool directory \
                 (exim -bP spool_directory), or /var/lib/exirate beside another mail server",
                dir.display()
            )))
        };
    }
    of_daemon(Path::new(config::FILE))
        .or_else(|| PROGRAMS.iter().find_map(|program| of_exim(program)))
        .or_else(|| usual(&USUAL.map(Path::new)))
        .ok_or_else(|| {
            Failure::new(format!(
                "cannot find the database: `exim -bP spool_directory` prints no directory, and \
                 none of {} exists; use --spool DIR",
                USUAL.join(", ")
            ))
        })
}

/// The first of these directories with a database, or else the first that exists: a removed
/// Exim leaves its own behind.
fn usual(directories: &[&Path]) -> Option<PathBuf> {
    let has_database = |dir: &&&Path| dir.join("exirate").is_dir();
    let mut existing = directories.iter().filter(|dir| dir.is_dir());
    existing.clone().find(has_database).or_else(|| existing.next()).map(|dir| dir.to_path_buf())
}

/// The directory that the configuration at `path` names for the mail front ends, if they have a
/// socket.
fn of_daemon(path: &Path) -> Option<PathBuf> {
    let mail = config::read_mail(path).ok()?.config?;
    Some(mail.spool).filter(|spool| mail.names_spool && spool.is_dir())
}

/// The directory that `program -bP spool_directory` prints.
fn of_exim(program: &str) -> Option<PathBuf> {
    let output = child::command(program.as_ref())
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
    fn a_directory_with_a_database_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["one", "two", "three"].map(|name| folder.path().join(name));
        let found = || usual(&[&*paths[0], &*paths[1], &*paths[2]]);
        assert_eq!(found(), None);
        std::fs::create_dir_all(&paths[1]).unwrap();
        std::fs::create_dir_all(&paths[2]).unwrap();
        assert_eq!(found(), Some(paths[1].clone()));
        std::fs::create_dir(paths[2].join("exirate")).unwrap();
        assert_eq!(found(), Some(paths[2].clone()));
    }

    #[test]
    fn the_daemon_of_an_exim_without_the_library_names_its_directory() {
        let folder = tempfile::tempdir().unwrap();
        let [file, spool] = ["exirate.toml", "spool"].map(|name| folder.path().join(name));
        let of = |text: &str| {
            std::fs::write(&file, text).unwrap();
            of_daemon(&file)
        };
        let (listen, named) = ("[listen]\npolicy = \"unix:/a/policy\"\n", spool.display());
        let named = format!("[mail]\nspool = \"{named}\"\n");
        assert_eq!(of(&format!("{listen}{named}")), None, "it does not exist");
        std::fs::create_dir(&spool).unwrap();
        assert_eq!(of(&format!("{listen}{named}")), Some(spool));
        // Without mail front ends, or a directory of their own, it is Exim's.
        assert_eq!(of(&named), None);
        assert_eq!(of(listen), None);
        assert_eq!(of("[mail"), None);
        assert_eq!(of_daemon(Path::new("/nonexistent/file")), None);
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error() {
        assert!(find_silently(Some(Path::new("/nonexistent/spool"))).is_err());
    }
}
