//! The libraries that the configuration calls: present, readable, the right ones.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::finding::{Findings, Level, quoted};
use super::installation::Installation;
use super::users;
use crate::exim::version::MARK;
use crate::mta::account::{self, Account};
use crate::mta::command::{Output, is_only_roots};
use crate::mta::exim::EximSettings;
use crate::mta::exim::{Form, Library, Rule, Rules};

/// The version of this program.
const OURS: &str = env!("CARGO_PKG_VERSION");
/// Exim refuses longer arguments.
const ARGUMENT_MAX: usize = 255;

/// The libraries that the configuration calls.
#[derive(Debug, Default)]
pub(super) struct Libraries {
    /// Those that Exim can use.
    pub(super) usable: Vec<PathBuf>,
    /// Those of them that limit rates.
    pub(super) limiting: Vec<PathBuf>,
    /// Whether a line records messages in the trace store.
    pub(super) record: bool,
}

/// Checks each library that a line calls.
pub(super) fn look(
    installation: &Installation,
    settings: &EximSettings,
    rules: &Rules,
    findings: &mut Findings,
) -> Libraries {
    let mut found = Libraries {
        record: rules.rules.iter().any(|rule| rule.call.function == "record"),
        ..Libraries::default()
    };
    let mut written: BTreeMap<&str, Vec<&Rule>> = BTreeMap::new();
    for rule in &rules.rules {
        if let Form::Dlfunc { library } = &rule.call.form {
            written.entry(library).or_default().push(rule);
        }
    }
    let mut paths: BTreeMap<PathBuf, (PathBuf, Vec<&Rule>)> = BTreeMap::new();
    for (text, rules) in written {
        let Some(path) = expanded(installation, text, &rules, findings) else { continue };
        let (_, known) = paths.entry(users::real(&path)).or_insert((path, Vec::new()));
        known.extend(rules);
    }
    let limits = |rules: &[&Rule]| rules.iter().any(|rule| is_of_rates(rule));
    let of_rates: Vec<_> = paths.values().filter(|(_, rules)| limits(rules)).collect();
    if let [(first, _), (second, rules), ..] = &of_rates[..] {
        let position = rules.first().map_or(String::new(), |rule| rule.position.to_string());
        findings.problem(format!(
            "{position}: {} is called here, and {} elsewhere: two libraries in one process count \
             some events twice; call one of them everywhere",
            second.display(),
            first.display()
        ));
    }
    for (path, rules) in paths.values() {
        let before = findings.list.len();
        if is_fit(&settings.who, path, rules, findings) && installation.dlfunc && limits(rules) {
            loads(installation, &settings.who, path, findings);
        }
        let well = findings.list.iter().skip(before).all(|f| f.level != Level::Problem);
        if well && installation.dlfunc {
            found.usable.push(path.clone());
            if limits(rules) {
                found.limiting.push(path.clone());
            }
        }
    }
    found
}

/// Whether the call is one for the library of the rates.
fn is_of_rates(rule: &Rule) -> bool {
    rule.call.limits() || rule.call.function == "ratelimit_info"
}

/// The library's path as Exim expands it.
fn expanded(
    installation: &Installation,
    text: &str,
    rules: &[&Rule],
    findings: &mut Findings,
) -> Option<PathBuf> {
    let path = if text.contains(['$', '\\']) {
        installation.exim.expand(&[text]).map(|said| said.concat())
    } else {
        Ok(text.to_owned())
    };
    let at = rules.first().map_or(String::new(), |rule| rule.position.to_string());
    match path {
        Ok(path) if path.starts_with('/') => Some(PathBuf::from(path)),
        Ok(path) => {
            findings.problem(format!(
                "{at}: the library is {path:?}: it must be an absolute path, such as \
                 /usr/lib/exim4/exirate.so"
            ));
            None
        }
        Err(error) => {
            findings.warning(format!(
                "{at}: the path of the library, {text}, could not be expanded: {error}"
            ));
            None
        }
    }
}

/// Makes Exim check `spec`, which must change nothing, as Exim's user if possible.
///
/// Only if there is no problem so far: Exim would repair a damaged database, and
/// the doctor changes nothing.
pub(super) fn check_once(
    installation: &Installation,
    libraries: &Libraries,
    spec: &str,
    findings: &mut Findings,
) {
    let Some(settings) = &installation.settings else { return };
    let problems = findings.count(Level::Problem) > 0;
    let (false, Some(library)) = (problems, libraries.limiting.first()) else { return };
    let call = format!("${{dlfunc{{{}}}{{ratelimit}}{{{spec}}}}}", library.display());
    if call.len() > ARGUMENT_MAX {
        return;
    }
    match installation.exim.run_as((settings.who.uid, settings.who.gid), &["-be", &call]) {
        Ok(output) if output.stdout.trim() == "no" => {
            findings.ok("Exim can use the database: a check that counts nothing succeeded");
        }
        Ok(output) => {
            findings.problem(format!("Exim cannot use the database: {}", output.complaint()));
        }
        Err(error) => {
            findings.problem(error);
        }
    }
}

/// Whether Exim can load the file, as far as can be checked without loading it.
fn is_fit(who: &Account, path: &Path, rules: &[&Rule], findings: &mut Findings) -> bool {
    let shown = path.display();
    let mut bytes = Vec::new();
    let facts = match File::open(path).and_then(|mut file| {
        let facts = file.metadata()?;
        if facts.is_file() {
            file.read_to_end(&mut bytes)?;
        }
        Ok(facts)
    }) {
        Ok(facts) if facts.is_file() => facts,
        Ok(_) => {
            findings.problem(format!("{shown} should be a library, but is not a regular file"));
            return false;
        }
        Err(error) => {
            let at = rules.first().map_or(String::new(), |rule| rule.position.to_string());
            if error.kind() == std::io::ErrorKind::NotFound {
                findings.problem(format!("{at}: the library {shown} does not exist"));
                reinstall(path, findings);
            } else {
                findings.problem(format!("{at}: the library {shown} cannot be read: {error}"));
            }
            return false;
        }
    };
    let mode = facts.mode() & 0o7777;
    if mode & 0o022 != 0 || facts.uid() != 0 {
        let owner = account::name("passwd", facts.uid());
        findings.problem(format!(
            "{shown} belongs to {owner} and has mode {mode:04o}: users who can write to it can run \
             any code as Exim; it should belong to root, and only root should be able to write \
             to it"
        ));
        findings.fix(format!("chown root:root {}", quoted(path)));
        findings.fix(format!("chmod 0644 {}", quoted(path)));
    }
    if let Some(directory) = users::writable_for_all(path) {
        findings.problem(format!(
            "everyone may write to {}, and so replace {shown}",
            directory.display()
        ));
        findings.fix(format!("chmod o-w {}", quoted(directory)));
    }
    if let Some((why, fix)) = users::unreadable_for(who, path) {
        findings.problem(format!("Exim's user {} {why}: {shown}", who.user)).fix(fix);
    }
    if let Ok(about) = rustix::fs::statvfs(path)
        && about.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC)
    {
        findings.problem(format!(
            "{shown} is on a file system that is mounted noexec, from which nothing can be \
             loaded: install it elsewhere, such as in /usr/lib/exim4"
        ));
        return false;
    }
    match version(&bytes) {
        Some(version) if version == OURS => true,
        found => {
            let is = match found {
                Some(version) => format!("is from exirate {version}"),
                None => "does not say that it is from exirate".to_owned(),
            };
            findings.problem(format!("{shown} {is}; this program is from exirate {OURS}"));
            reinstall(path, findings);
            // Trying it could write to Exim's panic log.
            false
        }
    }
}

/// The version that a library of ours has in its file.
pub(super) fn version(bytes: &[u8]) -> Option<&str> {
    let mark = MARK.as_bytes();
    bytes.windows(mark.len()).enumerate().find_map(|(at, window)| {
        if window != mark {
            return None;
        }
        let text = bytes.get(at + mark.len()..)?;
        let end = text.iter().take(40).position(|&b| b == 0)?;
        let version = std::str::from_utf8(text.get(..end)?).ok()?;
        version.starts_with(|c: char| c.is_ascii_digit()).then_some(version)
    })
}

/// Adds the command that installs the library that was built with this program.
pub(super) fn reinstall(path: &Path, findings: &mut Findings) {
    let Some(folder) = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.to_owned()))
    else {
        return;
    };
    let built = match Library::at(&path.to_string_lossy()) {
        Some(Library::Trace) => "exim-trace",
        Some(Library::Rates) | None => "exim-rates",
    };
    let Some(new) = folder.parent().map(|target| target.join(built).join("release/libexirate.so"))
    else {
        return;
    };
    if is_only_roots(&new) && users::real(&new) != users::real(path) {
        findings.fix(format!("install -m 644 {} {}", quoted(&new), quoted(path)));
    }
}

/// Makes Exim load the library, and checks that it can set Exim's variables.
///
/// A spec without a period is wrong, so that nothing is counted and no database
/// is opened or created; its limit is still set in `$sender_rate_limit`.
fn loads(installation: &Installation, who: &Account, path: &Path, findings: &mut Findings) {
    let shown = path.display();
    let call = format!("${{dlfunc{{{shown}}}{{ratelimit}}{{7.5}}}}");
    if call.len() > ARGUMENT_MAX {
        findings.warning(format!("{shown} was not loaded for a test: its path is too long"));
        return;
    }
    match installation.exim.run_as((who.uid, who.gid), &["-be", &call, "|$sender_rate_limit|"]) {
        Ok(Output { stdout, .. }) if stdout.contains("Failed: dlopen") => {
            let why = stdout.lines().next().unwrap_or_default();
            findings.problem(format!("Exim cannot load {shown}: {why}"));
            reinstall(path, findings);
        }
        Ok(Output { signal: Some(signal), .. }) => {
            findings.problem(format!(
                "Exim crashes when it loads {shown} (signal {signal}): the file is damaged"
            ));
            reinstall(path, findings);
        }
        Ok(output) if !output.stdout.contains("error in arguments to \"ratelimit\"") => {
            findings
                .problem(format!("{shown} does not return what it should: {}", output.complaint()));
        }
        Ok(output) if output.stdout.contains("|7.5|") => findings.ok(format!(
            "{shown} is exirate {OURS}; Exim can load it, and it sets $sender_rate, \
             $sender_rate_limit and $sender_rate_period"
        )),
        Ok(_) => {
            findings.note(format!(
                "{shown} is exirate {OURS}, and Exim can load it, but it cannot set $sender_rate \
                 in this Exim: use ${{dlfunc{{{shown}}}{{ratelimit_info}}{{rate}}}} instead"
            ));
        }
        Err(error) => {
            findings.problem(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_one_with_a_number() {
        assert_eq!(version(b"x@(#)exirate @(#)exirate 0.1.0\0y"), Some("0.1.0"));
        assert_eq!(version(b"@(#)exirate is not here"), None);
        assert_eq!(version(b""), None);
    }
}
