//! The limits in Exim's configuration, and errors in them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::finding::{Findings, quoted};
use super::installation::Installation;
use super::users;
use crate::mta::exim::debian::include_files;
use crate::mta::exim::{Absent, EximSettings, Rule, Rules, RulesError, names_our_file};
use crate::text::counted;

/// The file that limits the recipients of each user.
const AT_RCPT: &str = "acl_check_rcpt.conf";
/// The file that names the libraries, where the package of the libraries is installed.
const LIBRARIES: &str = "exirate-libraries.conf";

/// Checks what the configuration says about limits; `in_sessions`, also by dry sessions of Exim.
pub(super) fn look(
    installation: &Installation,
    settings: &EximSettings,
    in_sessions: bool,
    findings: &mut Findings,
) -> Option<Rules> {
    let mut rules = match installation.exim.rules(&settings.config) {
        Ok(rules) => rules,
        Err(RulesError::Hidden(text)) => {
            findings.hidden(text);
            return None;
        }
        Err(RulesError::Failed(text)) => {
            findings.problem(text);
            return None;
        }
    };
    if in_sessions {
        rules.try_dry(&installation.exim);
    }
    let rules = rules;
    if rules.source.unplaced {
        findings.note(
            "Exim reads its configuration differently from exirate: what follows is about what \
             Exim reads (`exim -bP config`), and line numbers may be those of nearby lines",
        );
    }
    // An Exim that asks the daemon needs no libraries.
    let asks = rules.limiting().any(|rule| rule.call.socket().is_some());
    let absent = rules.source.absent.iter();
    let absent = absent.filter(|one| !(asks && one.path.ends_with(LIBRARIES)));
    absent_files(absent, findings);
    misspelt_names(&rules, findings);
    for fault in rules.acls.faults() {
        findings.problem(fault);
    }
    for rule in &rules.rules {
        for error in &rule.errors {
            // A call that Exim never reaches does no harm.
            let text = format!("{}: {error}", rule.position);
            if rule.is_used() {
                findings.problem(text);
            } else {
                findings.warning(text);
            }
        }
        for warning in &rule.warnings {
            findings.warning(format!("{}: {warning}", rule.position));
        }
    }
    for error in rules.dry_errors() {
        findings.problem(format!(
            "Exim does not understand its ACLs, and answers 451, in a dry session (`exim -bh`): {error}"
        ));
    }
    lookup_files(&rules, settings, findings);
    natives(&rules, findings);
    for (position, text) in rules.doubts() {
        findings.note(format!("{position}: {text}"));
    }
    limited(&rules, settings, installation.dlfunc, findings);
    Some(rules)
}

/// Files of exirate that `.include_if_exists` did not find: Exim prints nothing
/// then.
fn absent_files<'a>(absent: impl Iterator<Item = &'a Absent>, findings: &mut Findings) {
    for Absent { position, path } in absent {
        if !names_our_file(&path.to_string_lossy()) {
            continue;
        }
        let near = nearest(path).map_or_else(
            || "install it, or remove the line".to_owned(),
            |near| format!("is {} meant?", near.display()),
        );
        findings.problem(format!(
            "{position}: {} does not exist, so .include_if_exists includes nothing: {near}",
            path.display()
        ));
    }
}

/// A file beside `path` whose name is almost the same.
fn nearest(path: &Path) -> Option<std::path::PathBuf> {
    let name = path.file_name()?.to_str()?;
    let entries = path.parent()?.read_dir().ok()?.flatten();
    let named = entries.filter_map(|entry| {
        let distance = strsim::damerau_levenshtein(entry.file_name().to_str()?, name);
        (distance <= 3).then(|| (distance, entry.path()))
    });
    named.min().map(|(_, path)| path)
}

fn misspelt_names(rules: &Rules, findings: &mut Findings) {
    for found in rules.misspelt() {
        let meant = found.meant.map_or(String::new(), |meant| format!("; is {meant} meant?"));
        let text = if found.defined {
            format!("{}: nothing uses the macro {}{meant}", found.position, found.name)
        } else {
            format!(
                "{}: {} is not a macro, so Exim takes it as text{meant}",
                found.position, found.name
            )
        };
        if found.serious {
            findings.problem(text);
        } else {
            findings.warning(text);
        }
    }
    for (position, name) in &rules.acls.unknown {
        let why = match name {
            _ if name.contains('#') => {
                ", as it has no comments behind a value: give the comment a line of its own"
            }
            _ if name.starts_with("${") => {
                ", as it ends the value at the first blank: put the value in double quotes"
            }
            _ if name.contains(char::is_whitespace) => ", as blanks are a part of a name",
            _ => "",
        };
        findings.problem(format!(
            "{position}: there is no ACL {name:?}, and no file of that name: Exim defers with \
             451 when it needs it{why}"
        ));
    }
}

/// Files that limits are looked up in.
fn lookup_files(rules: &Rules, settings: &EximSettings, findings: &mut Findings) {
    for file in &rules.lookup_files {
        let path = &file.path;
        if let Some(error) = file.unreadable() {
            findings.problem(format!(
                "limits are looked up in {}, which cannot be read, so Exim defers with \
                 451: {error}",
                path.display()
            ));
        } else if let Some((why, fix)) = users::unreadable_for(&settings.who, path) {
            findings
                .problem(format!(
                    "limits are looked up in {}, but Exim's user {} {why}",
                    path.display(),
                    settings.who.user
                ))
                .fix(fix);
        }
        for fault in file.faults() {
            findings.warning(fault);
        }
    }
}

/// Exim's own `ratelimit` used together with ours.
fn natives(rules: &Rules, findings: &mut Findings) {
    if let Some((position, first)) = rules.native.first() {
        let times = match rules.native.len() {
            1 => "once".to_owned(),
            count => format!("{count} times"),
        };
        findings.note(format!(
            "Exim's own ratelimit is still used, {times}, such as in `{first}` ({position}); it \
             has its own counts"
        ));
    }
}

/// Whether Exim reaches a call that limits something.
fn limited(rules: &Rules, settings: &EximSettings, loads: bool, findings: &mut Findings) {
    let limiting: Vec<&Rule> = rules.limiting().collect();
    let mut unused: BTreeMap<&str, &Rule> = BTreeMap::new();
    for rule in rules.rules.iter().filter(|rule| !rule.is_used()) {
        unused.entry(rule.acl.as_deref().unwrap_or_default()).or_insert(rule);
    }
    ended_shadows(rules, &mut unused, findings);
    let is_ended = rules.rules.iter().any(|rule| rule.ending.is_some());
    if limiting.is_empty() && unused.is_empty() && !is_ended {
        nothing_calls(rules, settings, loads, findings);
        return;
    }
    not_reached(rules, &unused, limiting.is_empty(), findings);
    if !limiting.is_empty() {
        reached(rules, limiting, findings);
    }
}

/// What compares with Exim's own counts, limits nothing, and is not reached any more.
fn ended_shadows(rules: &Rules, unused: &mut BTreeMap<&str, &Rule>, findings: &mut Findings) {
    unused.retain(|acl, rule| {
        let mut all = rules.rules.iter().filter(|one| one.acl == rule.acl);
        let is_shadow = all.all(|one| one.call.function == "shadow");
        if is_shadow {
            findings.note(format!(
                "{}: nothing compares with Exim's own counts by the ACL {acl} any more: delete its \
                 lines, and its name",
                rule.position
            ));
        }
        !is_shadow
    });
}

/// No line calls a function that limits something, of an Exim that `loads` libraries or asks the daemon.
fn nothing_calls(rules: &Rules, settings: &EximSettings, loads: bool, findings: &mut Findings) {
    let config = settings.config.display();
    let own = if rules.native.is_empty() { "nothing is limited" } else { "exirate limits nothing" };
    let calls = if loads { "calls ratelimit of exirate.so" } else { "asks the daemon" };
    let text = format!("{own}: no line of {config} {calls}");
    // What Exim would not understand there is reported.
    let text = match rules.acls.faults().next() {
        None => {
            let files = include_files();
            // The program alone has none for a library.
            let or = match Path::new(&files).join(AT_RCPT).exists() {
                true => format!(
                    ", or include a file such as {AT_RCPT} of {files} in the ACL that \
                     acl_smtp_rcpt names, in the section of ACLs"
                ),
                false => format!(", or says where those go that include the files of {files}"),
            };
            format!("{text}; `exirate setup` adds the lines{or}")
        }
        Some(_) => text,
    };
    // Perhaps only the trace store is used.
    if rules.rules.iter().any(|rule| rule.call.function == "record") {
        findings.note(text);
    } else {
        findings.problem(text);
    }
}

/// The calls in ACLs that Exim does not use; `is_all` where it uses no other.
fn not_reached(
    rules: &Rules,
    unused: &BTreeMap<&str, &Rule>,
    is_all: bool,
    findings: &mut Findings,
) {
    let nothing = if is_all { "nothing is limited: " } else { "" };
    for (acl, rule) in unused {
        let text = format!(
            "{nothing}{}: the ACL {acl} calls {}, and Exim does not use this ACL",
            rule.position, rule.call.function
        );
        let add = |findings: &mut Findings, how: &str| {
            if is_all {
                findings.problem(format!("{text}; `exirate setup` has it ask policies, or {how}"));
            } else {
                findings.warning(format!("{text}; {how}"));
            }
        };
        let debian = "MAIN_ACL_CHECK_RCPT";
        if rules.source.tested.contains(debian) && *acl == "acl_exirate_check_rcpt" {
            // It leaves an ACL of their own in use, and Exim does without it once it is removed.
            let line = "RATELIMIT_CHECK_RCPT = yes";
            add(
                findings,
                &format!("this line in /etc/exim4/conf.d/main/000_local uses it: {line}"),
            );
            let local = Path::new("/etc/exim4/conf.d/main/000_local");
            findings.fix(format!("echo '{line}' >> {}", quoted(local)));
            findings.fix("update-exim4.conf && systemctl reload exim4");
        } else {
            add(findings, &format!("name it in an option, such as `acl_smtp_rcpt = {acl}`"));
        }
    }
}

/// The calls that limit something, and whether mail comes to them.
fn reached(rules: &Rules, limiting: Vec<&Rule>, findings: &mut Findings) {
    let options = |rules: &[&Rule], of: fn(&Rule) -> &[String]| {
        let options: BTreeSet<&str> =
            rules.iter().flat_map(|rule| of(rule)).map(String::as_str).collect();
        options.into_iter().collect::<Vec<_>>().join(", ")
    };
    let (doubtful, limiting): (Vec<&Rule>, Vec<&Rule>) =
        limiting.into_iter().partition(|rule| rule.is_doubtful);
    if let (Some(first), Some(dry)) = (doubtful.first(), &rules.dry) {
        findings.note(format!(
            "{}: whether mail comes to this line cannot be known: {} of Exim (`exim -bh`) show \
             otherwise than what was read ({} of this kind)",
            first.position,
            counted(dry.sessions, "dry session", "dry sessions"),
            counted(doubtful.len(), "limit", "limits")
        ));
    }
    let (surely, perhaps): (Vec<&Rule>, _) =
        limiting.iter().copied().partition(|rule| !rule.used_by.is_empty());
    if !surely.is_empty() {
        findings.ok(format!(
            "{} in use, from {}: see `exirate rules`",
            counted(surely.len(), "limit", "limits"),
            options(&surely, |rule| &rule.used_by)
        ));
    }
    if let Some(first) = perhaps.first() {
        findings.note(format!(
            "{}: whether Exim reaches the ACL {} cannot be known: only Exim knows the name that \
             {} expands to ({} of this kind)",
            first.position,
            first.acl.as_deref().unwrap_or_default(),
            options(&perhaps, |rule| &rule.perhaps_used_by),
            counted(perhaps.len(), "limit", "limits")
        ));
    }
}
