//! The limits in Exim's configuration, and errors in them.

use std::collections::BTreeMap;
use std::path::Path;

use super::super::exim_config::{Absent, Rule, Rules};
use super::command::Exim;
use super::finding::{Findings, counted, quoted};
use super::installation::{Installation, Setup};
use super::users;

/// Why the configuration could not be read.
#[derive(Debug)]
pub(in crate::cli) enum ConfigurationError {
    /// Only root may read it.
    Hidden(String),
    /// Anything else.
    Failed(String),
}

/// Reads the configuration that `exim` reads, which is in `file`.
pub(super) fn read(exim: &Exim, file: &Path) -> Result<Rules, ConfigurationError> {
    let output = exim.run(&["-bP", "macros"]).map_err(ConfigurationError::Failed)?;
    if !output.success || output.stdout.contains("<value not displayable>") {
        return Err(ConfigurationError::Hidden(format!(
            "only root may read all of {}: its limits were not checked",
            file.display()
        )));
    }
    // Those that are built in; the others are read where they are set.
    let own = output.stdout.lines().filter(|line| line.starts_with('_'));
    let own = own.filter_map(|line| line.split_once('='));
    let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Rules::read(file, own).map_err(|error| {
        let denied = error.error.kind() == std::io::ErrorKind::PermissionDenied;
        if denied && !rustix::process::geteuid().is_root() {
            ConfigurationError::Hidden(format!("the limits were not checked: {error}"))
        } else {
            ConfigurationError::Failed(error.to_string())
        }
    })
}

/// Checks what the configuration says about limits.
pub(super) fn look(
    installation: &Installation,
    setup: &Setup,
    findings: &mut Findings,
) -> Option<Rules> {
    let rules = match read(&installation.exim, &setup.config) {
        Ok(rules) => rules,
        Err(ConfigurationError::Hidden(text)) => {
            findings.hidden(text);
            return None;
        }
        Err(ConfigurationError::Failed(text)) => {
            findings.problem(text);
            return None;
        }
    };
    compare(&installation.exim, &rules, findings);
    absent_files(&rules.source.absent, findings);
    misspelt_names(&rules, findings);
    for rule in &rules.rules {
        for error in &rule.errors {
            // A call that Exim never reaches does no harm.
            let text = format!("{}: {error}", rule.position);
            if rule.used_by.is_empty() {
                findings.warning(text);
            } else {
                findings.problem(text);
            }
        }
        for warning in &rule.warnings {
            findings.warning(format!("{}: {warning}", rule.position));
        }
    }
    lookup_files(&rules, setup, findings);
    natives(&rules, findings);
    limited(&rules, setup, findings);
    Some(rules)
}

/// Whether Exim reads as many calls of libraries as this program does.
fn compare(exim: &Exim, rules: &Rules, findings: &mut Findings) {
    let Ok(output) = exim.run(&["-bP", "config"]) else { return };
    let count = |line: &str| line.matches("${dlfunc").count();
    let definition = |line: &&str| {
        let end = line.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(0);
        let (name, rest) = line.split_at(end);
        name.starts_with(|c: char| c.is_ascii_uppercase()) && rest.trim_start().starts_with('=')
    };
    let lines = output.stdout.lines().map(str::trim).filter(|line| !definition(line));
    let theirs: usize = lines.map(count).sum();
    let ours: usize = rules.source.lines.iter().map(|line| count(&line.text)).sum();
    if output.success && theirs != ours {
        findings.warning(format!(
            "`exim -bP config` has {theirs} calls of libraries, and exirate found {ours}: what \
             follows may be incomplete"
        ));
    }
}

/// Files of exirate that `.include_if_exists` did not find: Exim prints nothing
/// then.
fn absent_files(absent: &[Absent], findings: &mut Findings) {
    for Absent { position, path } in absent {
        if !path.to_string_lossy().contains("exirate") {
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
        findings.problem(format!(
            "{position}: there is no ACL {name:?}, and no file of that name: Exim defers with \
             451 when it needs it"
        ));
    }
}

/// Files that limits are looked up in.
fn lookup_files(rules: &Rules, setup: &Setup, findings: &mut Findings) {
    for file in &rules.lookup_files {
        let path = &file.path;
        if let Some(error) = file.unreadable() {
            findings.problem(format!(
                "limits are looked up in {}, which cannot be read, so Exim defers with \
                 451: {error}",
                path.display()
            ));
        } else if let Some((why, fix)) = users::unreadable_for(&setup.who, path) {
            findings
                .problem(format!(
                    "limits are looked up in {}, but Exim's user {} {why}",
                    path.display(),
                    setup.who.user
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
fn limited(rules: &Rules, setup: &Setup, findings: &mut Findings) {
    let config = setup.config.display();
    let limiting: Vec<&Rule> = rules.limiting().collect();
    let mut unused: BTreeMap<&str, &Rule> = BTreeMap::new();
    for rule in rules.rules.iter().filter(|rule| rule.used_by.is_empty()) {
        unused.entry(rule.acl.as_deref().unwrap_or_default()).or_insert(rule);
    }
    let records = rules.rules.iter().any(|rule| rule.call.function == "record");
    if limiting.is_empty() && unused.is_empty() {
        let text = format!(
            "nothing is limited: no line of {config} calls ratelimit of exirate.so; include a file \
             such as acl_check_rcpt.conf of /etc/exim4/exirate in the ACL that acl_smtp_rcpt names"
        );
        // Perhaps only the trace store is used.
        if records {
            findings.note(text);
        } else {
            findings.problem(text);
        }
        return;
    }
    let nothing = if limiting.is_empty() { "nothing is limited: " } else { "" };
    for (acl, rule) in unused {
        let text = format!(
            "{nothing}{}: the ACL {acl} calls {}, and Exim does not use this ACL",
            rule.position, rule.call.function
        );
        let add = |findings: &mut Findings, how: &str| {
            let text = format!("{text}; {how}");
            if limiting.is_empty() {
                findings.problem(text);
            } else {
                findings.warning(text);
            }
        };
        let debian = "MAIN_ACL_CHECK_RCPT";
        if rules.source.tested.contains(debian) && acl == "acl_exirate_check_rcpt" {
            let line = format!("{debian} = {acl}");
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
    if !limiting.is_empty() {
        let mut options: Vec<&str> =
            limiting.iter().flat_map(|rule| rule.used_by.iter().map(String::as_str)).collect();
        options.sort_unstable();
        options.dedup();
        findings.ok(format!(
            "{} in use, from {}: see `exirate rules`",
            counted(limiting.len(), "limit"),
            options.join(", ")
        ));
    }
}
