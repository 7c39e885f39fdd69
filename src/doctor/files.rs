//! The files of the database's or the trace store's directory: their owners and
//! modes, and files that do not belong there.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::finding::{Findings, quoted};
use crate::mta::account::{self, Account};
use crate::text;
use crate::text::bytes;
use crate::text::counted;

/// A file that is being written is not older than this.
const UNFINISHED_AFTER: Duration = Duration::from_secs(600);
/// How many names a finding lists.
const NAMES_MAX: usize = 3;

/// What a file is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileRole {
    /// A part of the database or of the trace store, or the audit log.
    Ours,
    /// Only Exim's user may read it.
    Secret,
    /// It is checked elsewhere.
    Elsewhere,
    /// It is being written.
    Unfinished,
    /// It was damaged, and quarantined.
    Quarantined,
    /// Not a file of exirate.
    Foreign,
}

/// What was found among the files.
#[derive(Debug, Default)]
pub(super) struct Files {
    wrong_owner: Vec<PathBuf>,
    wrong_mode: Vec<PathBuf>,
    /// Secrets that others could read, or that Exim cannot.
    readable_secrets: Vec<PathBuf>,
    /// Not regular files.
    odd: Vec<PathBuf>,
    foreign: Vec<PathBuf>,
    unfinished: Vec<PathBuf>,
    quarantined: Vec<PathBuf>,
    quarantined_bytes: u64,
    quarantined_oldest: Option<SystemTime>,
}

/// Whether `mode` has all of `least` and nothing beyond `most`.
pub(super) fn is_fit(mode: u32, least: u32, most: u32) -> bool {
    mode & least == least && mode & !most == 0
}

impl Files {
    /// Checks the files of `directory`; `named` returns what a file is by its
    /// name.
    pub(super) fn read(
        directory: &Path,
        who: &Account,
        named: impl Fn(&str) -> FileRole,
    ) -> std::io::Result<Self> {
        let mut files = Self::default();
        for entry in directory.read_dir()? {
            let entry = entry?;
            // It may be gone already: Exim replaces files.
            let Ok(facts) = entry.path().symlink_metadata() else { continue };
            let part = named(&entry.file_name().to_string_lossy());
            files.sort_in(entry.path(), part, &facts, who);
        }
        for list in [
            &mut files.wrong_owner,
            &mut files.wrong_mode,
            &mut files.readable_secrets,
            &mut files.odd,
            &mut files.foreign,
            &mut files.unfinished,
            &mut files.quarantined,
        ] {
            list.sort();
        }
        Ok(files)
    }

    fn sort_in(&mut self, path: PathBuf, part: FileRole, facts: &std::fs::Metadata, who: &Account) {
        let changed = facts.modified().ok();
        match part {
            FileRole::Elsewhere if facts.is_dir() || facts.file_type().is_socket() => return,
            FileRole::Foreign => return self.foreign.push(path),
            _ if !facts.is_file() => return self.odd.push(path),
            FileRole::Unfinished => {
                // A young one belongs to a process that still writes it.
                let age = changed.and_then(|changed| changed.elapsed().ok());
                if age.is_some_and(|age| age > UNFINISHED_AFTER) {
                    self.unfinished.push(path);
                }
                return;
            }
            FileRole::Quarantined => {
                self.quarantined_bytes += facts.blocks() * 512;
                self.quarantined_oldest = self.quarantined_oldest.min(changed).or(changed);
                self.quarantined.push(path.clone());
            }
            FileRole::Ours | FileRole::Secret | FileRole::Elsewhere => {}
        }
        if (facts.uid(), facts.gid()) != (who.uid, who.gid) {
            self.wrong_owner.push(path.clone());
        }
        match (part, facts.mode() & 0o777) {
            (FileRole::Secret, 0o600) => {}
            (FileRole::Secret, _) => self.readable_secrets.push(path),
            (_, mode) if is_fit(mode, 0o600, 0o640) => {}
            _ => self.wrong_mode.push(path),
        }
    }

    /// Reports what is wrong with those of `directory`.
    pub(super) fn report(&self, directory: &Path, who: &Account, findings: &mut Findings) {
        let at = quoted(directory);
        if !self.odd.is_empty() {
            findings.problem(format!(
                "{} not regular, so Exim cannot use them: {}",
                counted(self.odd.len(), "file", "files"),
                some(&self.odd)
            ));
            for path in &self.odd {
                findings.fix(move_away(path));
            }
        }
        if !self.wrong_owner.is_empty() {
            findings.problem(format!(
                "{} in {} should belong to {}: {}",
                counted(self.wrong_owner.len(), "file", "files"),
                directory.display(),
                who.both(),
                owners(&self.wrong_owner)
            ));
            findings.fix(format!("chown -h {} {at}/*", who.both()));
        }
        if !self.wrong_mode.is_empty() {
            findings.problem(format!(
                "{} in {} should have mode 0640, so that Exim can read and write them and other \
                 users cannot: {}",
                counted(self.wrong_mode.len(), "file", "files"),
                directory.display(),
                some(&self.wrong_mode)
            ));
            findings.fix(with_each("chmod 0640", &self.wrong_mode));
        }
        if !self.readable_secrets.is_empty() {
            findings.problem(format!(
                "{} should have mode 0600: users who can read it can search the recorded mail",
                some(&self.readable_secrets)
            ));
            findings.fix(with_each("chmod 0600", &self.readable_secrets));
        }
        if !self.unfinished.is_empty() {
            findings.note(format!(
                "{} left unfinished by a killed process: {}; a later one will overwrite it",
                counted(self.unfinished.len(), "file", "files"),
                some(&self.unfinished)
            ));
            findings.fix(remove(&self.unfinished));
        }
        if !self.quarantined.is_empty() {
            let age = self.quarantined_oldest.and_then(|oldest| oldest.elapsed().ok());
            findings.note(format!(
                "{} quarantined ({}, the oldest for {}): {}",
                counted(self.quarantined.len(), "damaged file", "damaged files"),
                bytes(self.quarantined_bytes),
                text::duration(age.map_or(0.0, |age| age.as_secs_f64())),
                some(&self.quarantined)
            ));
            findings.fix(remove(&self.quarantined));
        }
        if !self.foreign.is_empty() {
            findings.note(format!(
                "not exirate's, and only exirate should write there: {}",
                some(&self.foreign)
            ));
        }
    }
}

/// The first of `paths`, and how many more there are.
fn some(paths: &[PathBuf]) -> String {
    listed(paths, |path| path.display().to_string())
}

/// As [`some`], with the owner of each.
fn owners(paths: &[PathBuf]) -> String {
    listed(paths, |path| match path.symlink_metadata() {
        Ok(facts) => format!(
            "{} ({}:{})",
            path.display(),
            account::name("passwd", facts.uid()),
            account::name("group", facts.gid())
        ),
        Err(_) => path.display().to_string(),
    })
}

fn listed(paths: &[PathBuf], show: impl Fn(&Path) -> String) -> String {
    let mut names: Vec<String> = paths.iter().take(NAMES_MAX).map(|path| show(path)).collect();
    if let Some(more) = paths.len().checked_sub(NAMES_MAX).filter(|&more| more > 0) {
        names.push(format!("and {more} more"));
    }
    names.join(", ")
}

/// The command that removes files.
fn remove(paths: &[PathBuf]) -> String {
    with_each("rm", paths)
}

/// A command with these files as its arguments.
fn with_each(command: &str, paths: &[PathBuf]) -> String {
    paths.iter().fold(command.to_owned(), |command, path| format!("{command} {}", quoted(path)))
}

/// The command that moves something out of the way.
pub(super) fn move_away(path: &Path) -> String {
    let mut away = path.as_os_str().to_owned();
    away.push(".aside");
    format!("mv -nT {} {}", quoted(path), quoted(Path::new(&away)))
}

/// What something is that is not a directory.
pub(super) fn kind(facts: &std::fs::Metadata) -> &'static str {
    let kind = facts.file_type();
    match () {
        () if kind.is_symlink() => "symbolic link",
        () if kind.is_fifo() => "FIFO",
        () if kind.is_socket() => "socket",
        () if kind.is_file() => "file",
        () => "device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut() {
        let paths: Vec<PathBuf> = (0..5).map(|n| PathBuf::from(format!("/{n}"))).collect();
        assert_eq!(some(&paths), "/0, /1, /2, and 2 more");
        assert_eq!(some(&paths[..3]), "/0, /1, /2");
        assert_eq!(remove(&paths[..2]), "rm /0 /1");
    }
}
