//! The trace store: its files, and what is in them.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::super::database::now;
use super::super::size::bytes;
use super::super::text;
use super::directory::{owner_and_mode, unreadable};
use super::files::{Files, Part, aside, kind};
use super::finding::{Findings, counted, quoted};
use super::users::Account;
use crate::rate::Timestamp;
use crate::sys::secure_dir::DirError;
use crate::trace::{Access, Query, TraceError, TraceStats, TraceStore, trace_directory};

/// How many of its problems are told; `exirate verify` tells all.
const PROBLEMS_MAX: usize = 5;
/// Where Exim records, and nothing has been recorded for longer than this, it
/// is told: a week, in seconds.
const QUIET: i64 = 7 * 86_400;

/// What the name of a file in the store's directory says that it is.
fn part(name: &str) -> Part {
    let numbered = |end: &str| {
        let digits = name.strip_suffix(end).unwrap_or_default();
        digits.len() >= 8 && digits.bytes().all(|b| b.is_ascii_digit())
    };
    match name {
        "key" => Part::Secret,
        "key.new" | "settings.new" | "open.new" | "segment.new" => Part::Unfinished,
        "settings" | "open.log" | "sealing" => Part::Ours,
        _ if numbered(".log") || numbered(".segment") => Part::Ours,
        _ => Part::Strange,
    }
}

/// Looks at the trace store in `spool`, if there is one; `record` tells whether
/// a line of Exim's configuration should have made one.
pub(super) fn look(spool: &Path, exim: Option<&Account>, record: bool, findings: &mut Findings) {
    let directory = trace_directory(spool);
    let facts = match directory.symlink_metadata() {
        Ok(facts) => facts,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if record {
                findings.note(format!(
                    "no trace store at {} yet: Exim makes it with the first message",
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
        findings.fix(aside(&directory));
        return;
    }
    // Exim's own or, where that is not known, the spool directory's.
    let Ok(above) = spool.metadata() else { return };
    let who = exim.cloned().unwrap_or_else(|| Account::of(above.uid(), above.gid()));
    let before = findings.list.len();
    owner_and_mode(&directory, &facts, &who, 0o750, findings);
    match Files::read(&directory, &who, part) {
        Ok(files) => files.tell(&directory, &who, findings),
        Err(error) => return unreadable(&directory, &error, findings),
    }
    if findings.list.len() == before {
        findings.ok(format!(
            "{} and its files belong to {}, and nobody else can read the key",
            directory.display(),
            who.both()
        ));
    }
    if let Err(error) = contents(spool, &directory, record, findings) {
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
        // Whoever looked at the files from outside has told it.
        TraceError::Directory(DirError::Unsafe { .. } | DirError::WrongKind { .. }) => {}
        _ => {
            findings.problem(error.to_string());
        }
    }
}

/// Looks into the store.
fn contents(
    spool: &Path,
    directory: &Path,
    record: bool,
    findings: &mut Findings,
) -> Result<(), TraceError> {
    let store = TraceStore::open(directory, Access::Read)?;
    let mut problems = Vec::new();
    store.verify(&mut |_, _| {}, &mut |problem| {
        // Whose mode is wrong has been told, with what mends it.
        if !findings.list.iter().any(|told| told.text.contains(&*problem.path.to_string_lossy())) {
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
            counted(usize::try_from(stats.messages).unwrap_or(usize::MAX), "message"),
            bytes(stats.bytes)
        ));
    }
    tell_age(newest(&store)?, record, now(), findings);
    tell_bounds(&stats, store.options().max_bytes, spool, findings);
    Ok(())
}

/// When the message passed that was recorded last.
fn newest(store: &TraceStore) -> Result<Option<i64>, TraceError> {
    let mut newest = None;
    store.query(&Query { limit: Some(1), ..Query::default() }, &mut |_, _| {}, &mut |answer| {
        newest = Some(answer.envelope.time);
    })?;
    Ok(newest)
}

fn tell_age(newest: Option<i64>, record: bool, now: Timestamp, findings: &mut Findings) {
    let Some(newest) = newest else { return };
    let age = text::rough_age(Timestamp { seconds: newest, micros: 0 }, now);
    let told = format!("the message that was recorded last is from {age}");
    if record && now.seconds.saturating_sub(newest) > QUIET {
        findings.note(format!(
            "{told}, though Exim is to record: its main log may say why it does not"
        ));
    } else {
        findings.ok(told);
    }
}

/// What of the store cannot be answered any more, or not as well.
fn tell_bounds(stats: &TraceStats, max_bytes: u64, spool: &Path, findings: &mut Findings) {
    if stats.folded > 0 {
        findings.note(format!(
            "{} were folded to keep to the {} that the store may take: of what is oldest, more false \
             messages are found",
            counted(usize::try_from(stats.folded).unwrap_or(usize::MAX), "segment"),
            bytes(max_bytes)
        ));
        findings.fix(format!(
            "exirate config set --spool {} trace.max_size={}M",
            quoted(spool),
            max_bytes.saturating_mul(2) >> 20
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn files_are_known_by_their_names() {
        for (name, expected) in [
            ("key", Part::Secret),
            ("settings", Part::Ours),
            ("open.log", Part::Ours),
            ("00000001.log", Part::Ours),
            ("123456789.segment", Part::Ours),
            ("key.new", Part::Unfinished),
            ("1.log", Part::Strange),
            ("core", Part::Strange),
        ] {
            assert_eq!(part(name), expected, "{name}");
        }
    }

    fn told(tell: impl FnOnce(&mut Findings)) -> Vec<(Level, String)> {
        let mut findings = Findings::default();
        tell(&mut findings);
        findings.list.into_iter().map(|f| (f.level, f.text + &f.fix.concat())).collect()
    }

    #[test]
    fn a_store_that_nothing_comes_to_is_told() {
        let now = Timestamp { seconds: 10 * QUIET, micros: 0 };
        let age = |newest, record| told(|findings| tell_age(newest, record, now, findings));
        assert_eq!(age(None, true), []);
        let fresh = age(Some(10 * QUIET - 60), true);
        assert_eq!(
            fresh,
            [(Level::Ok, "the message that was recorded last is from 1 min ago".into())]
        );
        assert_eq!(age(Some(0), false)[0].0, Level::Ok, "an archive that was recorded by hand");
        assert_eq!(age(Some(0), true)[0].0, Level::Note);
    }

    #[test]
    fn what_was_folded_can_be_kept_from_it() {
        let stats = TraceStats { folded: 2, ..TraceStats::default() };
        let notes = told(|f| tell_bounds(&stats, 1 << 30, Path::new("/spool"), f));
        assert!(notes[0].1.starts_with("2 segments were folded"), "{notes:?}");
        let (_, mend) = notes[0].1.split_once("exirate ").unwrap();
        assert_eq!(mend, "config set --spool /spool trace.max_size=2048M");
        assert_eq!(told(|f| tell_bounds(&TraceStats::default(), 1, Path::new("/"), f)), []);
    }
}
