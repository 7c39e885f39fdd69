//! Where the database of this machine is, and whose: the one place that says so. Units, commands,
//! advice and documents ask it, by [`find`] or by `exirate where`.
//!
//! It is in a spool directory: the one that `[mail] spool` of [`FILE`] names, as an Exim that loads
//! no library asks the daemon, whose user may not write in Exim's own; else Exim's; and beside
//! another mail server [`OWN`]. Whoever owns that directory owns the database.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use toml::de::DeTable;

/// The configuration of the daemons.
pub use crate::cluster::CONFIG_DEFAULT as FILE;
use crate::sys::{child, files, users};
use crate::toml_file::text::load;

/// exirate's own spool directory, for mail servers that load no library.
pub const OWN: &str = "/var/lib/exirate";
/// Its user.
pub const OWN_USER: &str = "exirate-mail";
/// Exim's usual spool directories.
pub const EXIM: [&str; 2] = ["/var/spool/exim4", "/var/spool/exim"];
/// Exim under the names it is installed as; Debian's has both.
const PROGRAMS: [&str; 4] = ["exim4", "exim", "/usr/sbin/exim4", "/usr/sbin/exim"];

/// What says where the database is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatedBy {
    /// `[mail] spool` of [`FILE`].
    Configuration,
    /// `exim -bP spool_directory`.
    Exim,
    /// A usual directory is there.
    Usual,
}

impl fmt::Display for StatedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration => write!(f, "[mail] spool of {FILE}"),
            Self::Exim => f.write_str("exim -bP spool_directory"),
            Self::Usual => f.write_str("it is a usual directory"),
        }
    }
}

/// The spool directory of this machine.
#[must_use]
pub fn find() -> Option<(PathBuf, StatedBy)> {
    let configured = || Some((configured(Path::new(FILE))?, StatedBy::Configuration));
    let exim = || PROGRAMS.iter().find_map(|program| of_exim(program));
    configured()
        .or_else(|| Some((exim()?, StatedBy::Exim)))
        .or_else(|| Some((usual()?, StatedBy::Usual)))
}

/// As [`find`], where no configuration names one, and Exim cannot be asked: by a daemon that may
/// start no program.
#[must_use]
pub fn unless_configured() -> PathBuf {
    usual().unwrap_or_else(|| OWN.into())
}

/// The user and group that own a spool directory, and so the database in it.
///
/// # Errors
/// It cannot be looked at, in words.
pub fn owner(spool: &Path) -> Result<(u32, u32), String> {
    let info = files::info_of(spool);
    let info = info.map_err(|error| format!("cannot look at {}: {error}", spool.display()))?;
    Ok((info.uid, info.gid))
}

/// The name of the user who owns a spool directory, or the number; where that cannot be said, the
/// user of exirate's own.
#[must_use]
pub fn owner_name(spool: &Path) -> String {
    let Ok((uid, _)) = owner(spool) else { return OWN_USER.to_owned() };
    users::name_of(uid).map_or_else(|| uid.to_string(), |name| name.display().to_string())
}

/// What units may use of the usual directories: Exim's own have the queue as well.
#[must_use]
pub fn confined() -> Vec<PathBuf> {
    let of_exim = EXIM.iter().map(|spool| Path::new(spool).join("exirate"));
    of_exim.chain([PathBuf::from(OWN)]).collect()
}

/// What is said where none is found.
#[must_use]
pub fn missing() -> String {
    let all = EXIM.iter().chain([&OWN]).copied().collect::<Vec<_>>().join(", ");
    format!(
        "cannot find the database: `exim -bP spool_directory` prints no directory, and none of \
         {all} exists; use --spool DIR"
    )
}

/// The first usual directory with a database, or else the first that exists: a removed Exim
/// leaves its own behind.
fn usual() -> Option<PathBuf> {
    first(EXIM.iter().chain([&OWN]).map(Path::new))
}

fn first<'a>(directories: impl Iterator<Item = &'a Path> + Clone) -> Option<PathBuf> {
    let mut existing = directories.filter(|dir| dir.is_dir());
    let with = existing.clone().find(|dir| dir.join("exirate").is_dir());
    with.or_else(|| existing.next()).map(Path::to_owned)
}

/// The directory that the configuration at `path` names, if it exists.
fn configured(path: &Path) -> Option<PathBuf> {
    let text = load(path).ok()?;
    let (document, _) = DeTable::parse_recoverable(&text);
    let mail = document.get_ref().get("mail")?.get_ref().as_table()?;
    let spool = PathBuf::from(mail.get("spool")?.get_ref().as_str()?);
    Some(spool).filter(|spool| spool.is_absolute() && spool.is_dir())
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

/// Another directory than `spool` with a database: what counted there was undone.
pub fn elsewhere(spool: &Path) -> Option<PathBuf> {
    let usual = EXIM.into_iter().chain([OWN]).map(Path::new);
    let mut others = usual.filter(|dir| *dir != spool);
    others.find(|dir| dir.join("exirate").is_dir()).map(Path::to_owned)
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
        let found = || first(paths.iter().map(PathBuf::as_path));
        assert_eq!(found(), None);
        std::fs::create_dir_all(&paths[1]).unwrap();
        std::fs::create_dir_all(&paths[2]).unwrap();
        assert_eq!(found(), Some(paths[1].clone()));
        std::fs::create_dir(paths[2].join("exirate")).unwrap();
        assert_eq!(found(), Some(paths[2].clone()));
    }

    #[test]
    fn the_configuration_of_the_daemons_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let [file, spool] = ["exirate.toml", "spool"].map(|name| folder.path().join(name));
        let of = |text: &str| {
            std::fs::write(&file, text).unwrap();
            configured(&file)
        };
        let named = format!("[mail]\nspool = \"{}\"\n", spool.display());
        assert_eq!(of(&named), None, "it does not exist");
        std::fs::create_dir(&spool).unwrap();
        assert_eq!(of(&named), Some(spool.clone()));
        // What else is in the file, also what is wrong with it, does not matter.
        assert_eq!(of(&format!("[listen]\nno = 1\n{named}x = y\n")), Some(spool));
        assert_eq!(of("[mail]\nspool = 1\n"), None);
        assert_eq!(of("[listen]\npolicy = \"unix:/a/policy\"\n"), None);
        assert_eq!(of("[mail"), None);
        assert_eq!(configured(Path::new("/nonexistent/file")), None);
    }
}
