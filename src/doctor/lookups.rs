//! The files that Exim loads for `${lookup ratelimit …}` and `${lookup policy …}`.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::finding::{Findings, quoted};
use super::library::reinstall;
use super::library::version;
use super::users;
use crate::mta::command::is_only_roots;
use crate::mta::exim::{Form, LOOKUPS, Library, Rule, Rules};

/// The version of this program.
const OURS: &str = env!("CARGO_PKG_VERSION");

/// Checks the files of our lookups for the Exim `program`, whose configuration has
/// these `rules`; `libraries` are those that it calls as dlfunc.
pub(super) fn look(program: &Path, rules: &Rules, libraries: &[PathBuf], findings: &mut Findings) {
    let called = |name: &str| {
        let mut calls = rules.rules.iter().filter(|rule| rule.call.form == Form::Lookup);
        calls.find(|rule| rule.call.function == name)
    };
    let directory = fs::read(program).ok().and_then(|bytes| module_directory(&bytes));
    let Some(directory) = directory else {
        if let Some(rule) = LOOKUPS.into_iter().find_map(called) {
            findings.problem(format!(
                "{}: {} cannot load lookups: Debian's exim4-daemon-mod can; with another Exim, \
                 write ${{dlfunc{{EXIRATE}}{{{}}}…}}",
                rule.position,
                program.display(),
                rule.call.function
            ));
        }
        return;
    };
    files(&directory, &LOOKUPS.map(called), libraries, findings);
}

/// Checks the files in `directory`; `calls` has a call of each lookup that is used.
fn files(
    directory: &Path,
    calls: &[Option<&Rule>; 2],
    libraries: &[PathBuf],
    findings: &mut Findings,
) {
    let paths = LOOKUPS.map(|name| directory.join(format!("{name}_lookup.so")));
    let is_ours = |path: &PathBuf| fs::read(path).is_ok_and(|bytes| version(&bytes) == Some(OURS));
    let present = paths.iter().any(|path| path.exists());
    // What a link should point to.
    let beside = directory.parent().map(|parent| parent.join(Library::Rates.file_name()));
    let mut known = libraries.iter().cloned().chain(beside).chain(paths.clone());
    let target = known.find(is_ours).map(|path| users::real(&path));
    let target = target.filter(|target| is_only_roots(target));
    for ((name, path), call) in LOOKUPS.iter().zip(&paths).zip(calls) {
        let at = call.map_or(String::new(), |rule| format!("{}: ", rule.position));
        let shown = path.display();
        let link = |findings: &mut Findings| match &target {
            Some(target) => {
                findings.fix(format!("ln -sfT {} {}", quoted(target), quoted(path)));
            }
            None => reinstall(&users::real(path), findings),
        };
        match fs::read(path) {
            Ok(bytes) => match version(&bytes) {
                Some(version) if version == OURS => {
                    is_one(path, call.is_some(), libraries, findings)
                }
                found => {
                    let is = match found {
                        Some(version) => format!("is from exirate {version}"),
                        None => "does not say that it is from exirate".to_owned(),
                    };
                    findings.problem(format!(
                        "{at}Exim loads {shown} for the lookup {name}: it {is}; this program is \
                         from exirate {OURS}"
                    ));
                    link(findings);
                }
            },
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                findings.problem(format!("{at}{shown} cannot be read: {error}"));
            }
            Err(_) if call.is_some() => {
                findings.problem(format!(
                    "{at}Exim looks for the lookup {name} in {shown}, which does not exist"
                ));
                link(findings);
            }
            // One of them is there: they were installed by an earlier version.
            Err(_) if present => {
                findings.warning(format!(
                    "{shown} does not exist: Exim would not find the lookup {name}"
                ));
                link(findings);
            }
            Err(_) => {}
        }
    }
}

/// Whether the lookup in `path` is in the library that is called as dlfunc.
fn is_one(path: &Path, used: bool, libraries: &[PathBuf], findings: &mut Findings) {
    let real = users::real(path);
    let other = libraries.iter().find(|library| users::real(library) != real);
    match other.filter(|_| used) {
        None => findings.ok(format!("{} is exirate {OURS}", path.display())),
        Some(other) => {
            findings.problem(format!(
                "{} and {} are two libraries: in one process they count some events twice, \
                 and policy_info and ratelimit_info do not see the lookup's decisions",
                path.display(),
                other.display()
            ));
            if is_only_roots(other) {
                findings.fix(format!("ln -sfT {} {}", quoted(other), quoted(path)));
            }
        }
    }
}

/// The directory in which an Exim of these `bytes` looks for lookups: its path is only
/// in the program's text.
fn module_directory(bytes: &[u8]) -> Option<PathBuf> {
    let is_path = |byte: &u8| byte.is_ascii_alphanumeric() || b"/_.+~-".contains(byte);
    let texts = bytes.split(|byte| !is_path(byte));
    let with = texts.filter(|text| text.len() < 4096 && has_lookups(text));
    with.map(|text| Path::new(std::ffi::OsStr::from_bytes(text)))
        .find(|path| path.is_absolute() && path.is_dir())
        // Without the slashes that Exim puts at the end.
        .map(|path| path.components().collect())
}

fn has_lookups(text: &[u8]) -> bool {
    text.windows(8).any(|part| part == b"/lookups")
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;
    use std::os::unix::fs::symlink;

    /// A file that says that it is this version of the library.
    fn library(path: &Path, version: &str) {
        let mark = crate::exim::version::MARK;
        fs::write(path, format!("\u{7f}ELF {mark}{version}\0")).unwrap();
    }

    /// What is found, as level and text, and the commands that fix it.
    fn found(directory: &Path, libraries: &[PathBuf]) -> Vec<(Level, String, Vec<String>)> {
        let mut findings = Findings::default();
        files(directory, &[None, None], libraries, &mut findings);
        findings.list.into_iter().map(|one| (one.level, one.text, one.fix)).collect()
    }

    #[test]
    fn the_directory_is_in_the_text_of_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().join("lookups-4.100-1");
        fs::create_dir(&real).unwrap();
        let text = format!("\0/nowhere/lookups\0%s/lookups\0lookups\0{}///\0", real.display());
        let found = module_directory(text.as_bytes()).unwrap();
        assert_eq!(found.as_os_str(), real.as_os_str());
        fs::remove_dir(&real).unwrap();
        assert_eq!(module_directory(text.as_bytes()), None);
        assert_eq!(module_directory(b""), None);
    }

    #[test]
    fn missing_and_old_links_are_reported_with_their_fix() {
        let folder = tempfile::tempdir().unwrap();
        let ours = folder.path().canonicalize().unwrap().join("exirate.so");
        let directory = folder.path().join("lookups");
        fs::create_dir(&directory).unwrap();
        let [ratelimit, policy] = LOOKUPS.map(|name| directory.join(format!("{name}_lookup.so")));
        library(&ours, OURS);
        assert_eq!(found(&directory, &[]), [], "nobody uses the lookups");

        symlink("../exirate.so", &ratelimit).unwrap();
        let [(Level::Ok, ..), (level, text, fix)] = &found(&directory, &[])[..] else { panic!() };
        assert_eq!(*level, Level::Warning);
        assert!(text.ends_with("does not exist: Exim would not find the lookup policy"), "{text}");
        assert_eq!(fix, &[format!("ln -sfT {} {}", ours.display(), policy.display())]);

        library(&policy, "0.0.1");
        let [_, (level, text, fix)] = &found(&directory, &[])[..] else { panic!() };
        assert_eq!(*level, Level::Problem);
        assert!(text.contains("it is from exirate 0.0.1; this program is from exirate"), "{text}");
        assert_eq!(fix, &[format!("ln -sfT {} {}", ours.display(), policy.display())]);

        fs::remove_file(&policy).unwrap();
        symlink(&ours, &policy).unwrap();
        let [(Level::Ok, ..), (Level::Ok, ..)] = &found(&directory, &[])[..] else { panic!() };
    }
}
