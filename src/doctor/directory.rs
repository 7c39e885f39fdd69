//! The database's directory, and the owners and modes of the files in it.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::files::{FileRole, Files, is_fit, kind, move_away};
use super::finding::{Findings, quoted};
use crate::alerts::RECEIVERS;
use crate::mta::Account;

/// What the name of a file in the database's directory says that it is.
fn part(name: &str) -> FileRole {
    let shard = |stem: &str| {
        let digit = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        stem.len() == 2 && stem.bytes().all(digit)
    };
    let single = |name: &str| matches!(name, "database" | "overrides");
    let is_cursor = |name: &str| {
        name.strip_prefix("delivery.")
            .is_some_and(|receiver| receiver == "lock" || RECEIVERS.contains(&receiver))
    };
    let whole = |name: &str| single(name) || name.strip_suffix(".shard").is_some_and(shard);
    let counters = |name: &str| matches!(name, "policy.counters" | "shadow.counters");
    let policy = |name: &str| name == "policy.image" || counters(name);
    let is_lock = |name: &str| matches!(name, "callers.lock" | "habits.lock" | "policy.lock");
    let other = |name: &str| matches!(name, "cluster" | "cluster.state") || is_lock(name);
    let unfinished = |stem: &str| {
        shard(stem) || single(stem) || is_cursor(stem) || policy(stem) || stem == "cluster"
    };
    let is_log = |name: &str| matches!(name, "audit.log" | "held.log" | "crossings" | "refusals");
    let is_old_log = name.strip_suffix(".1").is_some_and(is_log);
    if whole(name) || policy(name) || other(name) || is_cursor(name) || is_log(name) || is_old_log {
        FileRole::Ours
    } else if matches!(name, "callers" | "trace") {
        FileRole::Elsewhere
    } else if name.strip_suffix(".new").is_some_and(unfinished) {
        FileRole::Unfinished
    } else if name.split_once(".damaged-").is_some_and(|(stem, number)| {
        (whole(stem) || counters(stem))
            && number.len() == 1
            && number.bytes().all(|b| b.is_ascii_digit())
    }) {
        FileRole::Quarantined
    } else {
        FileRole::Foreign
    }
}

/// Checks the spool directory and the database's. Returns the owner that
/// everything should have, if the database exists and can be read.
pub(super) fn look(
    spool: &Path,
    exim: Option<&Account>,
    findings: &mut Findings,
) -> Option<Account> {
    let facts = match spool.metadata() {
        Ok(facts) if facts.is_dir() => facts,
        Ok(_) => {
            findings.problem(format!(
                "{} should be the spool directory, but is a file",
                spool.display()
            ));
            return None;
        }
        Err(error) => {
            findings.problem(format!("{}, the spool directory: {error}", spool.display()));
            if let (ErrorKind::NotFound, Some(who)) = (error.kind(), exim) {
                findings.fix(format!(
                    "install -d -m 0750 -o {} -g {} {}",
                    who.user,
                    who.group,
                    quoted(spool)
                ));
            }
            return None;
        }
    };
    let who = exim.cloned().unwrap_or_else(|| Account::of(facts.uid(), facts.gid()));
    let before = findings.list.len();
    owner_and_mode(spool, &facts, &who, 0o755, findings);
    let database = spool.join("exirate");
    match database.symlink_metadata() {
        Ok(facts) if facts.is_dir() => owner_and_mode(&database, &facts, &who, 0o750, findings),
        Ok(facts) => {
            findings.problem(format!(
                "{} is a {}: it must be a directory, which Exim creates",
                database.display(),
                kind(&facts)
            ));
            findings.fix(move_away(&database));
            return None;
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            findings.note(format!(
                "no rate database at {} yet: the first check creates it",
                database.display()
            ));
            return None;
        }
        Err(error) => {
            unreadable(&database, &error, findings);
            return None;
        }
    }
    let files = match Files::read(&database, &who, part) {
        Ok(files) => files,
        Err(error) => {
            unreadable(&database, &error, findings);
            return None;
        }
    };
    files.report(&database, &who, findings);
    if findings.list.len() == before {
        findings.ok(format!(
            "{} and its files belong to {}, and no other user can read or change them",
            database.display(),
            who.both()
        ));
    }
    Some(who)
}

/// Reports a directory that cannot be read.
pub(super) fn unreadable(path: &Path, error: &std::io::Error, findings: &mut Findings) {
    if error.kind() == ErrorKind::PermissionDenied && !rustix::process::geteuid().is_root() {
        findings.hidden(format!("{} was not checked: {error}", path.display()));
    } else {
        findings.problem(format!("cannot check {}: {error}", path.display()));
    }
}

/// A directory's owner, and permissions: its owner must have all, others may
/// have those in `most`.
pub(super) fn owner_and_mode(
    path: &Path,
    facts: &std::fs::Metadata,
    who: &Account,
    most: u32,
    findings: &mut Findings,
) {
    if (facts.uid(), facts.gid()) != (who.uid, who.gid) {
        let found = Account::of(facts.uid(), facts.gid()).both();
        findings.problem(format!(
            "{} belongs to {found}, and should belong to {}",
            path.display(),
            who.both()
        ));
        findings.fix(format!("chown {} {}", who.both(), quoted(path)));
    }
    let mode = facts.mode() & 0o777;
    if !is_fit(mode, 0o700, most) {
        let right = mode & most | 0o700;
        findings.problem(format!(
            "{} has mode {mode:04o}, and should have mode {right:04o}",
            path.display()
        ));
        findings.fix(format!("chmod {right:04o} {}", quoted(path)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_their_names() {
        for (name, expected) in [
            ("database", FileRole::Ours),
            ("overrides", FileRole::Ours),
            ("00.shard", FileRole::Ours),
            ("ff.shard", FileRole::Ours),
            ("audit.log", FileRole::Ours),
            ("held.log.1", FileRole::Ours),
            ("overrides", FileRole::Ours),
            ("crossings", FileRole::Ours),
            ("refusals.1", FileRole::Ours),
            ("delivery.run", FileRole::Ours),
            ("delivery.run.new", FileRole::Unfinished),
            ("delivery.shared", FileRole::Ours),
            ("delivery.shared.new", FileRole::Unfinished),
            ("delivery.lock", FileRole::Ours),
            ("habits.lock", FileRole::Ours),
            ("callers.lock", FileRole::Ours),
            ("callers", FileRole::Elsewhere),
            ("policy.lock", FileRole::Ours),
            ("delivery.else", FileRole::Foreign),
            ("database.1", FileRole::Foreign),
            ("overrides.new", FileRole::Unfinished),
            ("overrides.damaged-1", FileRole::Quarantined),
            ("database.new", FileRole::Unfinished),
            ("policy.image", FileRole::Ours),
            ("policy.image.new", FileRole::Unfinished),
            ("policy.counters", FileRole::Ours),
            ("policy.counters.new", FileRole::Unfinished),
            ("policy.counters.damaged-1", FileRole::Quarantined),
            ("shadow.counters", FileRole::Ours),
            ("shadow.counters.new", FileRole::Unfinished),
            ("shadow.counters.damaged-1", FileRole::Quarantined),
            ("cluster", FileRole::Ours),
            ("cluster.state", FileRole::Ours),
            ("cluster.new", FileRole::Unfinished),
            ("cluster.old", FileRole::Foreign),
            ("3f.new", FileRole::Unfinished),
            ("3f.shard.damaged-1", FileRole::Quarantined),
            ("database.damaged-9", FileRole::Quarantined),
            ("overrides.damaged-1", FileRole::Quarantined),
            ("FF.shard", FileRole::Foreign),
            ("100.shard", FileRole::Foreign),
            ("3f.shard.damaged-10", FileRole::Foreign),
            ("trace", FileRole::Elsewhere),
            ("core", FileRole::Foreign),
        ] {
            assert_eq!(part(name), expected, "{name}");
        }
    }
}
