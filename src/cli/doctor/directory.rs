//! The database's directory and the files in it, from outside.

use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::super::text;
use super::finding::{Findings, counted, quoted, size};
use super::people::{self, Who};

/// A file that is being written is younger than this.
const UNFINISHED_AFTER: Duration = Duration::from_secs(600);
/// How many names a finding lists.
const NAMES_MAX: usize = 3;

/// What the name of a file in the database's directory says that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// A part of the database, or its log.
    Ours,
    /// One that is being written.
    Unfinished,
    /// A damaged one that was set aside.
    Aside,
    /// None of ours.
    Strange,
}

impl Part {
    fn named(name: &str) -> Self {
        let shard = |stem: &str| {
            let digit = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
            stem.len() == 2 && stem.bytes().all(digit)
        };
        let whole =
            |name: &str| name == "database" || name.strip_suffix(".shard").is_some_and(shard);
        if whole(name) || name == "changes.log" || name == "changes.log.1" {
            Self::Ours
        } else if name.strip_suffix(".new").is_some_and(|stem| shard(stem) || stem == "database") {
            Self::Unfinished
        } else if name.split_once(".damaged-").is_some_and(|(stem, number)| {
            whole(stem) && number.len() == 1 && number.bytes().all(|b| b.is_ascii_digit())
        }) {
            Self::Aside
        } else {
            Self::Strange
        }
    }
}

/// What was found among the files.
#[derive(Debug, Default)]
struct Files {
    wrong_owner: Vec<PathBuf>,
    wrong_mode: Vec<PathBuf>,
    /// No regular files.
    odd: Vec<PathBuf>,
    strange: Vec<PathBuf>,
    unfinished: Vec<PathBuf>,
    aside: Vec<PathBuf>,
    aside_bytes: u64,
    aside_oldest: Option<SystemTime>,
}

/// Looks at the spool directory and at the database's. Gives the owner that
/// everything should have, if the database is there and can be looked into.
pub(super) fn look(spool: &Path, exim: Option<&Who>, findings: &mut Findings) -> Option<Who> {
    let facts = match spool.metadata() {
        Ok(facts) if facts.is_dir() => facts,
        Ok(_) => {
            findings.problem(format!(
                "{} should be Exim's spool directory, and is a file",
                spool.display()
            ));
            return None;
        }
        Err(error) => {
            findings.problem(format!("{}, Exim's spool directory: {error}", spool.display()));
            if let (ErrorKind::NotFound, Some(who)) = (error.kind(), exim) {
                findings.mend(format!(
                    "install -d -m 0750 -o {} -g {} {}",
                    who.user,
                    who.group,
                    quoted(spool)
                ));
            }
            return None;
        }
    };
    let who = exim.cloned().unwrap_or_else(|| Who::of(facts.uid(), facts.gid()));
    let before = findings.list.len();
    owner_and_mode(spool, &facts, &who, 0o755, findings);
    let database = spool.join("exirate");
    match database.symlink_metadata() {
        Ok(facts) if facts.is_dir() => owner_and_mode(&database, &facts, &who, 0o750, findings),
        Ok(facts) => {
            findings.problem(format!(
                "{} is a {}: it must be a directory; Exim makes it anew",
                database.display(),
                kind(&facts)
            ));
            findings.mend(aside(&database));
            return None;
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            findings.note(format!(
                "no rate database at {} yet: Exim makes it at the first check",
                database.display()
            ));
            return None;
        }
        Err(error) => {
            unreadable(&database, &error, findings);
            return None;
        }
    }
    let files = match Files::read(&database, &who) {
        Ok(files) => files,
        Err(error) => {
            unreadable(&database, &error, findings);
            return None;
        }
    };
    files.tell(&database, &who, findings);
    if findings.list.len() == before {
        findings.ok(format!(
            "{} and its files belong to {}, and nobody else can read or change them",
            database.display(),
            who.both()
        ));
    }
    Some(who)
}

/// Where this user may not look.
fn unreadable(path: &Path, error: &std::io::Error, findings: &mut Findings) {
    if error.kind() == ErrorKind::PermissionDenied && !rustix::process::geteuid().is_root() {
        findings.hidden(format!("{} was not looked at: {error}", path.display()));
    } else {
        findings.problem(format!("cannot look at {}: {error}", path.display()));
    }
}

/// A directory's owner, and permissions: its owner must have all, others may
/// have those in `most`.
fn owner_and_mode(
    path: &Path,
    facts: &std::fs::Metadata,
    who: &Who,
    most: u32,
    findings: &mut Findings,
) {
    if (facts.uid(), facts.gid()) != (who.uid, who.gid) {
        let found = Who::of(facts.uid(), facts.gid()).both();
        findings.problem(format!(
            "{} belongs to {found}, and should belong to {}",
            path.display(),
            who.both()
        ));
        findings.mend(format!("chown {} {}", who.both(), quoted(path)));
    }
    let mode = facts.mode() & 0o777;
    if !is_fit(mode, 0o700, most) {
        let right = mode & most | 0o700;
        findings.problem(format!(
            "{} has mode {mode:04o}, and should have mode {right:04o}",
            path.display()
        ));
        findings.mend(format!("chmod {right:04o} {}", quoted(path)));
    }
}

/// Whether `mode` has all of `least` and nothing beyond `most`.
fn is_fit(mode: u32, least: u32, most: u32) -> bool {
    mode & least == least && mode & !most == 0
}

impl Files {
    fn read(database: &Path, who: &Who) -> std::io::Result<Self> {
        let mut files = Self::default();
        for entry in database.read_dir()? {
            let entry = entry?;
            // It may be gone already: Exim replaces files.
            let Ok(facts) = entry.path().symlink_metadata() else { continue };
            let part = Part::named(&entry.file_name().to_string_lossy());
            files.sort_in(entry.path(), part, &facts, who);
        }
        for list in [
            &mut files.wrong_owner,
            &mut files.wrong_mode,
            &mut files.odd,
            &mut files.strange,
            &mut files.unfinished,
            &mut files.aside,
        ] {
            list.sort();
        }
        Ok(files)
    }

    fn sort_in(&mut self, path: PathBuf, part: Part, facts: &std::fs::Metadata, who: &Who) {
        let changed = facts.modified().ok();
        match part {
            Part::Strange => return self.strange.push(path),
            _ if !facts.is_file() => return self.odd.push(path),
            Part::Unfinished => {
                // A young one belongs to a process that is still at it.
                let age = changed.and_then(|changed| changed.elapsed().ok());
                if age.is_some_and(|age| age > UNFINISHED_AFTER) {
                    self.unfinished.push(path);
                }
                return;
            }
            Part::Aside => {
                self.aside_bytes += facts.blocks() * 512;
                self.aside_oldest = self.aside_oldest.min(changed).or(changed);
                self.aside.push(path.clone());
            }
            Part::Ours => {}
        }
        if (facts.uid(), facts.gid()) != (who.uid, who.gid) {
            self.wrong_owner.push(path.clone());
        }
        if !is_fit(facts.mode() & 0o777, 0o600, 0o640) {
            self.wrong_mode.push(path);
        }
    }

    fn tell(&self, database: &Path, who: &Who, findings: &mut Findings) {
        let at = quoted(database);
        if !self.odd.is_empty() {
            findings.problem(format!(
                "no regular {}: {}; Exim cannot use such",
                if self.odd.len() == 1 { "file" } else { "files" },
                some(&self.odd)
            ));
            for path in &self.odd {
                findings.mend(aside(path));
            }
        }
        if !self.wrong_owner.is_empty() {
            findings.problem(format!(
                "{} in {} should belong to {}: {}",
                counted(self.wrong_owner.len(), "file"),
                database.display(),
                who.both(),
                owners(&self.wrong_owner)
            ));
            findings.mend(format!("chown -h {} {at}/*", who.both()));
        }
        if !self.wrong_mode.is_empty() {
            findings.problem(format!(
                "{} in {} should have mode 0640, for Exim to read and write and for strangers not \
                 to: {}",
                counted(self.wrong_mode.len(), "file"),
                database.display(),
                some(&self.wrong_mode)
            ));
            findings.mend(format!("find {at} -type f ! -perm 0640 -exec chmod 0640 {{}} +"));
        }
        if !self.unfinished.is_empty() {
            findings.note(format!(
                "{} that a killed process has left unfinished: {}; a later one is to write over it",
                counted(self.unfinished.len(), "file"),
                some(&self.unfinished)
            ));
            findings.mend(remove(&self.unfinished));
        }
        if !self.aside.is_empty() {
            let age = self.aside_oldest.and_then(|oldest| oldest.elapsed().ok());
            findings.note(format!(
                "{} kept for you to look at ({}, the oldest since {}): {}",
                counted(self.aside.len(), "damaged file"),
                size(self.aside_bytes),
                text::duration(age.map_or(0.0, |age| age.as_secs_f64())),
                some(&self.aside)
            ));
            findings.mend(remove(&self.aside));
        }
        if !self.strange.is_empty() {
            findings.note(format!(
                "not of exirate, who alone should write there: {}",
                some(&self.strange)
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
            people::name("passwd", facts.uid()),
            people::name("group", facts.gid())
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
    paths.iter().fold("rm".to_owned(), |command, path| format!("{command} {}", quoted(path)))
}

/// The command that moves something out of the way.
fn aside(path: &Path) -> String {
    let mut away = path.as_os_str().to_owned();
    away.push(".aside");
    format!("mv -nT {} {}", quoted(path), quoted(Path::new(&away)))
}

fn kind(facts: &std::fs::Metadata) -> &'static str {
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
    fn files_are_known_by_their_names() {
        for (name, part) in [
            ("database", Part::Ours),
            ("00.shard", Part::Ours),
            ("ff.shard", Part::Ours),
            ("changes.log", Part::Ours),
            ("database.new", Part::Unfinished),
            ("3f.new", Part::Unfinished),
            ("3f.shard.damaged-1", Part::Aside),
            ("database.damaged-9", Part::Aside),
            ("FF.shard", Part::Strange),
            ("100.shard", Part::Strange),
            ("3f.shard.damaged-10", Part::Strange),
            ("core", Part::Strange),
        ] {
            assert_eq!(Part::named(name), part, "{name}");
        }
    }

    #[test]
    fn long_lists_are_cut() {
        let paths: Vec<PathBuf> = (0..5).map(|n| PathBuf::from(format!("/{n}"))).collect();
        assert_eq!(some(&paths), "/0, /1, /2, and 2 more");
        assert_eq!(some(&paths[..3]), "/0, /1, /2");
        assert_eq!(remove(&paths[..2]), "rm /0 /1");
    }
}
