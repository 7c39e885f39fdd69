//! The trace store: its files, and their contents.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::directory::{owner_and_mode, unreadable};
use super::files::{FileRole, Files, kind, move_away};
use super::finding::Findings;
use crate::mta::Account;
use crate::rate::Timestamp;
use crate::sys::secure_dir::DirError;
use crate::text;
use crate::text::bytes;
use crate::text::counted;
use crate::text::time::now;
use crate::trace::{Access, Query, TraceError, TraceStore, trace_directory};

/// How many of its problems are listed; `exirate verify` lists all.
const PROBLEMS_MAX: usize = 5;
/// If Exim records, and nothing has been recorded for longer than this, that is
/// noted: a week, in seconds.
const QUIET: i64 = 7 * 86_400;

/// What a file in the store's directory is, by its name.
fn part(name: &str) -> FileRole {
    let numbered = |end: &str| {
        let digits = name.strip_suffix(end).unwrap_or_default();
        digits.len() >= 8 && digits.bytes().all(|b| b.is_ascii_digit())
    };
    match name {
        "key" => FileRole::Secret,
        "key.new" | "settings.new" | "open.new" | "segment.new" => FileRole::Unfinished,
        "settings" | "open.log" | "sealing" => FileRole::Ours,
        _ if numbered(".log") || numbered(".segment") => FileRole::Ours,
        _ => FileRole::Foreign,
    }
}

/// Checks the trace store in `spool`, if there is one; `record` is whether a line
/// of Exim's configuration should have created one.
pub(super) fn look(spool: &Path, exim: Option<&Account>, record: bool, findings: &mut Findings) {
    let directory = trace_directory(spool);
    let facts = match directory.symlink_metadata() {
        Ok(facts) => facts,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if record {
                findings.note(format!(
                    "no trace store at {} yet: the first message creates it",
                    directory.display()
                ));
            }
            return;
        }
        Err(error) => return unreadable(&directory, &error, findings),
    };
    if !facts.is_dir() {
        let kind = kind(&facts);
        findings.problem(format!("{} is a {kind}: it must be a directory", directory.display()));
        findings.fix(move_away(&directory));
        return;
    }
    // Exim's own or, where that is not known, the spool directory's.
    let Ok(above) = spool.metadata() else { return };
    let who = exim.cloned().unwrap_or_else(|| Account::of(above.uid(), above.gid()));
    let before = findings.list.len();
    owner_and_mode(&directory, &facts, &who, 0o750, findings);
    match Files::read(&directory, &who, part) {
        Ok(files) => files.report(&directory, &who, findings),
        Err(error) => return unreadable(&directory, &error, findings),
    }
    if findings.list.len() == before {
        findings.ok(format!(
            "{} and its files belong to {}, and no other user can read the key",
            directory.display(),
            who.both()
        ));
    }
    if let Err(error) = contents(&directory, record, findings) {
        cannot_read(&error, findings);
    }
}

fn cannot_read(error: &TraceError, findings: &mut Findings) {
    match error {
        TraceError::Directory(DirError::Io { source, .. })
            if source.kind() == ErrorKind::PermissionDenied
                && !rustix::process::geteuid().is_root() =>
        {
            findings.hidden(format!("the trace store was not read: {error}"));
        }
        // Reported with the files.
        TraceError::Directory(DirError::Unsafe { .. } | DirError::WrongKind { .. }) => {}
        _ => {
            findings.problem(error.to_string());
        }
    }
}

/// Checks the contents of the store.
fn contents(directory: &Path, record: bool, findings: &mut Findings) -> Result<(), TraceError> {
    let store = TraceStore::open(directory, Access::Read)?;
    let mut problems = Vec::new();
    store.verify(&mut |_, _| {}, &mut |problem| {
        // Wrong modes have been reported, with the fix.
        if !findings.list.iter().any(|found| found.text.contains(&*problem.path.to_string_lossy()))
        {
            problems.push(problem.to_string());
        }
    })?;
    let stats = store.stats()?;
    for problem in problems.iter().take(PROBLEMS_MAX) {
        findings.problem(problem);
    }
    if let Some(more) = problems.len().checked_sub(PROBLEMS_MAX).filter(|&more| more > 0) {
        findings.problem(format!("and {more} more of this kind: see `exirate verify`"));
    }
    if problems.is_empty() {
        findings.ok(format!(
            "the trace store is sound: {} in {}",
            counted(stats.messages, "message", "messages"),
            bytes(stats.bytes)
        ));
    }
    report_age(newest(&store)?, record, now(), findings);
    Ok(())
}

/// When the latest message passed.
fn newest(store: &TraceStore) -> Result<Option<i64>, TraceError> {
    let mut newest = None;
    store.query(&Query { limit: Some(1), ..Query::default() }, &mut |_, _| {}, &mut |answer| {
        newest = Some(answer.envelope.time);
    })?;
    Ok(newest)
}

fn report_age(newest: Option<i64>, record: bool, now: Timestamp, findings: &mut Findings) {
    let Some(newest) = newest else { return };
    let age = text::rough_age(Timestamp { seconds: newest, micros: 0 }, now);
    let latest = format!("the latest message was recorded {age}");
    if record && now.seconds.saturating_sub(newest) > QUIET {
        findings.note(format!(
            "{latest}, although Exim should record: its main log may say why it does not"
        ));
    } else {
        findings.ok(latest);
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn files_are_known_by_their_names() {
        for (name, expected) in [
            ("key", FileRole::Secret),
            ("settings", FileRole::Ours),
            ("open.log", FileRole::Ours),
            ("00000001.log", FileRole::Ours),
            ("123456789.segment", FileRole::Ours),
            ("key.new", FileRole::Unfinished),
            ("1.log", FileRole::Foreign),
            ("core", FileRole::Foreign),
        ] {
            assert_eq!(part(name), expected, "{name}");
        }
    }

    fn reported(report: impl FnOnce(&mut Findings)) -> Vec<(Level, String)> {
        let mut findings = Findings::default();
        report(&mut findings);
        findings.list.into_iter().map(|f| (f.level, f.text + &f.fix.concat())).collect()
    }

    #[test]
    fn a_store_that_records_nothing_is_reported() {
        let now = Timestamp { seconds: 10 * QUIET, micros: 0 };
        let age = |newest, record| reported(|findings| report_age(newest, record, now, findings));
        assert_eq!(age(None, true), []);
        let fresh = age(Some(10 * QUIET - 60), true);
        assert_eq!(fresh, [(Level::Ok, "the latest message was recorded 1m ago".into())]);
        assert_eq!(age(Some(0), false)[0].0, Level::Ok, "an archive that was recorded by hand");
        assert_eq!(age(Some(0), true)[0].0, Level::Note);
    }
}
