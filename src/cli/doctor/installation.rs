//! Which Exim this is, and what it can do.

use std::path::{Path, PathBuf};

use super::super::Failure;
use super::command::{self, Exim};
use super::finding::Findings;
use super::users::{Account, real};

/// What Exim says of itself and of its configuration.
#[derive(Debug)]
pub(super) struct Installation {
    pub(super) exim: Exim,
    /// It can load libraries.
    pub(super) dlfunc: bool,
    /// What it says once it has read its configuration; `None` where it cannot
    /// read that.
    pub(super) setup: Option<Setup>,
}

/// What Exim's configuration sets.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) config: PathBuf,
    pub(super) spool: PathBuf,
    /// The user that Exim becomes.
    pub(super) who: Account,
}

/// Finds the Exim that is meant. An error where there is none.
pub(super) fn find(
    given: Option<&Path>,
    config: Option<&Path>,
    findings: &mut Findings,
) -> Result<Exim, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let others = command::installed(&path);
    let program = match given {
        Some(given) => command::named(given, &path).ok_or_else(|| {
            Failure::new(format!(
                "--exim {}: there is no such program; it takes the path of Exim, such as \
                 /usr/sbin/exim4",
                given.display()
            ))
        })?,
        None => others.first().cloned().ok_or_else(|| {
            Failure::new(
                "cannot find Exim: neither exim4 nor exim is in PATH or in /usr/sbin; \
                 say --exim PROGRAM",
            )
        })?,
    };
    let config = match config {
        None => None,
        Some(config) => Some(
            config
                .canonicalize()
                .map_err(|e| Failure::new(format!("--config {}: {e}", config.display())))?,
        ),
    };
    if given.is_none() && others.len() > 1 {
        let others: Vec<_> = others.iter().skip(1).map(|p| p.display().to_string()).collect();
        findings.note(format!(
            "this is about {}; there is also {} (name another one with --exim)",
            program.display(),
            others.join(", ")
        ));
    }
    Ok(Exim { program, config })
}

/// Asks Exim for its version, what it was built with, and its configuration.
pub(super) fn look(exim: Exim, findings: &mut Findings) -> Result<Installation, Failure> {
    let program = exim.program.display().to_string();
    let version = exim.ask(&["-bV"]).map_err(Failure::new)?;
    let Some(name) = version.stdout.lines().next().filter(|l| l.starts_with("Exim version "))
    else {
        return Err(Failure::new(format!(
            "{program} -bV does not answer as Exim does: {}",
            version.complaint()
        )));
    };
    let dlfunc = supports_dlfunc(&version.stdout);
    if dlfunc {
        findings.ok(format!("{program} is {name}; it can load libraries (dlfunc)"));
    } else {
        let text = format!("{program} is {name}, and cannot load libraries: it lacks dlfunc");
        if Path::new("/etc/debian_version").exists() {
            findings.problem(format!("{text}; Debian's exim4-daemon-heavy has it"));
            findings.fix("apt-get install exim4-daemon-heavy");
        } else {
            findings.problem(format!("{text}: build it with EXPAND_DLFUNC=yes in Local/Makefile"));
        }
    }
    let setup = match setup(&exim) {
        Ok(setup) => {
            findings.ok(format!(
                "it reads {}, runs as {}, and its spool directory is {}",
                setup.config.display(),
                setup.who.both(),
                setup.spool.display()
            ));
            Some(setup)
        }
        Err(_) if !version.success => {
            let complaint = version.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
            findings.problem(format!("Exim cannot read its configuration: {complaint}"));
            None
        }
        Err(error) => {
            findings.problem(error);
            None
        }
    };
    if let Some(setup) = &setup {
        is_generated_anew(setup, Path::new("/etc/exim4"), findings);
    }
    Ok(Installation { exim, dlfunc, setup })
}

/// What `exim -bV` says of dlfunc.
fn supports_dlfunc(version: &str) -> bool {
    let support = version.lines().filter_map(|line| line.strip_prefix("Support for:"));
    support.flat_map(str::split_whitespace).any(|word| word == "Expand_dlfunc")
}

/// What Exim's configuration sets.
pub(super) fn setup(exim: &Exim) -> Result<Setup, String> {
    let asked = ["$config_file", "$spool_directory", "$exim_uid", "$exim_gid"];
    let said = exim.expand(&asked)?;
    let [config, spool, uid, gid] = &said[..] else {
        return Err("Exim does not tell its spool directory and user".to_owned());
    };
    let id = |text: &str| text.parse::<u32>().map_err(|_| format!("Exim has no user {text:?}"));
    Ok(Setup { config: config.into(), spool: spool.into(), who: Account::of(id(uid)?, id(gid)?) })
}

/// Debian's Exim reads a file that `update-exim4.conf` makes: changes to what it
/// is made from count from then on only.
fn is_generated_anew(setup: &Setup, source: &Path, findings: &mut Findings) {
    if !setup.config.ends_with("config.autogenerated") {
        return;
    }
    let Ok(made) = setup.config.metadata().and_then(|facts| facts.modified()) else { return };
    if let Some(newer) = newer_than(source, made) {
        findings.problem(format!(
            "{} was changed after {} was made from it, so Exim does not know the change yet",
            newer.display(),
            setup.config.display()
        ));
        findings.fix("update-exim4.conf && systemctl reload exim4");
    }
}

/// A file of Debian's configuration that was changed after `made`.
fn newer_than(source: &Path, made: std::time::SystemTime) -> Option<PathBuf> {
    let mut waiting = vec![source.join("conf.d")];
    let single = ["update-exim4.conf.conf", "exim4.conf.template", "exim4.conf.localmacros"];
    let mut files: Vec<PathBuf> = single.iter().map(|name| source.join(name)).collect();
    while let Some(directory) = waiting.pop() {
        for entry in directory.read_dir().into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() { waiting.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    files.into_iter().find(|path| {
        path.metadata().and_then(|facts| facts.modified()).is_ok_and(|changed| changed > made)
    })
}

/// Whether `path` is the program of this Exim.
pub(super) fn is_same_program(exim: &Exim, path: &Path) -> bool {
    real(&exim.program) == real(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn dlfunc_is_a_word_of_its_own() {
        assert!(supports_dlfunc("Exim version 4.96\nSupport for: IPv6 Expand_dlfunc PAM\n"));
        assert!(!supports_dlfunc("Exim version 4.96\nSupport for: IPv6 PAM\n"));
        assert!(!supports_dlfunc("Exim version 4.96\nRouters: Expand_dlfunc\n"));
    }

    #[test]
    fn a_changed_source_is_found() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("conf.d/acl")).unwrap();
        let changed = folder.path().join("conf.d/acl/30_rcpt");
        std::fs::write(&changed, "").unwrap();
        let made = |seconds: u64| {
            let then = changed.metadata().unwrap().modified().unwrap();
            newer_than(folder.path(), then - Duration::from_secs(seconds))
        };
        assert_eq!(made(0), None);
        assert_eq!(made(60), Some(changed.clone()));
        assert_eq!(newer_than(folder.path(), SystemTime::now() + Duration::from_secs(9)), None);
    }
}
