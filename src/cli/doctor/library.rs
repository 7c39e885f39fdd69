//! The library: where the configuration says, readable, the right one.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::calls::{Call, Calls, FUNCTIONS};
use super::finding::{Findings, Level, quoted};
use super::image;
use super::mailer::Mailer;
use super::people::{self, Who};
use super::program::Answer;
use crate::spec::Spec;

/// The version of this program.
const OURS: &str = env!("CARGO_PKG_VERSION");
/// Exim takes no longer arguments.
pub(super) const ARGUMENT_MAX: usize = 255;

/// What the configuration says of the library.
#[derive(Debug, Default)]
pub(super) struct Libraries {
    /// The libraries that Exim can use.
    pub(super) usable: Vec<PathBuf>,
    /// Whether a line records messages in the trace store.
    pub(super) record: bool,
}

/// Looks for the lines that call the library, and at each library they name.
pub(super) fn look(mailer: &Mailer, findings: &mut Findings) -> Libraries {
    let Some(setup) = &mailer.setup else { return Libraries::default() };
    let config = setup.config.display();
    let calls = match mailer.exim.ask(&["-bP", "config"]) {
        Ok(answer) if !answer.success || answer.stdout.contains("<value not displayable>") => {
            findings.hidden(format!(
                "only root may see all of {config}: what calls the library was not looked at"
            ));

            return Libraries::default();
        }
        Ok(answer) => Calls::read(&answer.stdout),
        Err(error) => {
            findings.problem(error);
            return Libraries::default();
        }
    };
    natives(&calls, findings);
    let mut written: Vec<&str> = calls.calls.iter().map(|call| &*call.library).collect();
    written.sort_unstable();
    written.dedup();
    let calls_of = |function| calls.calls.iter().any(|call| call.function == function);
    let record = calls_of("record");
    if !calls_of("ratelimit") {
        let text = format!(
            "no line of {config} calls ratelimit in exirate.so, so it limits nothing; the README \
             says under \"Use it\" what to write"
        );
        // The trace store may be all that is wanted.
        if record {
            findings.note(text)
        } else {
            findings.problem(text)
        };
    }
    let mut usable = Vec::new();
    for text in written {
        let calls: Vec<&Call> = calls.calls.iter().filter(|call| call.library == text).collect();
        let Some(path) = expanded(mailer, text, &calls, findings) else { continue };
        let before = findings.list.len();
        called(&path, &calls, findings);
        if is_fit(mailer, &setup.who, &path, &calls, findings) && mailer.dlfunc {
            loads(mailer, &setup.who, &path, findings);
        }
        let well = findings.list.iter().skip(before).all(|f| f.level != Level::Problem);
        if well && mailer.dlfunc {
            usable.push(path);
        }
    }
    Libraries { usable, record }
}

/// Exim's own `ratelimit` beside ours.
fn natives(calls: &Calls, findings: &mut Findings) {
    if let Some(first) = calls.native.first() {
        let times = match calls.native.len() {
            1 => "once".to_owned(),
            count => format!("{count} times"),
        };
        findings.note(format!(
            "Exim's own ratelimit is still used, {times}, such as in `{first}`; it counts apart \
             from exirate"
        ));
    }
}

/// What Exim makes of the library's path.
fn expanded(
    mailer: &Mailer,
    text: &str,
    calls: &[&Call],
    findings: &mut Findings,
) -> Option<PathBuf> {
    let path = if text.contains(['$', '\\']) {
        mailer.exim.expand(&[text]).map(|said| said.concat())
    } else {
        Ok(text.to_owned())
    };
    let file = calls.first().map_or("", |call| &*call.file);
    match path {
        Ok(path) if path.starts_with('/') => Some(PathBuf::from(path)),
        Ok(path) => {
            findings.problem(format!(
                "{file} names the library {path:?}: it must be a whole path, from / on, such as \
                 /usr/lib/exim4/exirate.so"
            ));
            None
        }
        Err(error) => {
            findings.note(format!("{file} names the library {text}, which was not found: {error}"));
            None
        }
    }
}

/// Functions that are not there, and specs that Exim would only complain about
/// when mail comes.
fn called(library: &Path, calls: &[&Call], findings: &mut Findings) {
    for call in calls {
        let file = &call.file;
        if !FUNCTIONS.contains(&&*call.function) {
            findings.problem(format!(
                "{file} calls {} in {}, which has no such function: it has {}",
                call.function,
                library.display(),
                FUNCTIONS.join(", ")
            ));
        }
        if call.function != "ratelimit" {
            continue;
        }
        match Spec::parse(call.argument.as_bytes()) {
            Ok(spec) => {
                for doubt in spec.lints() {
                    findings.note(format!("{file}: in {:?}: {doubt}", call.argument));
                }
            }
            // Only Exim knows what becomes of variables.
            Err(_) if call.argument.contains(['$', '\\']) => {}
            Err(error) => {
                findings.problem(format!("{file}: in {:?}: {error}", call.argument));
            }
        }
    }
}

/// Whether the file is one that Exim can load; everything is looked at without
/// loading it.
fn is_fit(
    mailer: &Mailer,
    who: &Who,
    path: &Path,
    calls: &[&Call],
    findings: &mut Findings,
) -> bool {
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
            findings.problem(format!("{shown} should be a library, and is no regular file"));
            return false;
        }
        Err(error) => {
            let file = calls.first().map_or("the configuration", |call| &*call.file);
            if error.kind() == std::io::ErrorKind::NotFound {
                findings.problem(format!("{file} names the library {shown}, which is not there"));
                reinstall(path, findings);
            } else {
                findings.problem(format!("{file} names the library {shown}: {error}"));
            }
            return false;
        }
    };
    let mode = facts.mode() & 0o7777;
    if mode & 0o022 != 0 || facts.uid() != 0 {
        let owner = people::name("passwd", facts.uid());
        findings.problem(format!(
            "{shown} belongs to {owner} and has mode {mode:04o}: whoever can write to it can run \
             anything as Exim does; it should belong to root, who alone may write to it"
        ));
        findings.mend(format!("chown root:root {}", quoted(path)));
        findings.mend(format!("chmod 0644 {}", quoted(path)));
    }
    if let Some(directory) = people::open_to_strangers(path) {
        findings.problem(format!(
            "everyone may write to {}, and so replace {shown} by anything",
            directory.display()
        ));
        findings.mend(format!("chmod o-w {}", quoted(directory)));
    }
    if let Some((why, mend)) = people::unreadable_for(who, path) {
        findings.problem(format!("Exim's user {} {why}: {shown}", who.user)).mend(mend);
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
    if let Err(why) = image::is_for_this_machine(&bytes, &mailer.exim.program) {
        findings.problem(format!("{shown} {why}"));
        reinstall(path, findings);
        return false;
    }
    match image::version(&bytes) {
        Some(version) if version == OURS => true,
        found => {
            let is = match found {
                Some(version) => format!("is of exirate {version}"),
                None => "does not say that it is exirate's".to_owned(),
            };
            findings.problem(format!("{shown} {is}; this program is of exirate {OURS}"));
            reinstall(path, findings);
            // Exim's panic log is to stay as it is.
            false
        }
    }
}

/// Adds the command that installs the library that is beside this program.
fn reinstall(path: &Path, findings: &mut Findings) {
    let Some(folder) = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.to_owned()))
    else {
        return;
    };
    let new = folder.join("libexirate.so");
    if new.is_file() && people::real(&new) != people::real(path) {
        findings.mend(format!("install -m 644 {} {}", quoted(&new), quoted(path)));
    }
}

/// Lets Exim load the library, and sees whether it can set Exim's variables.
///
/// A spec without a period is wrong, so that nothing is counted and no database
/// is opened or made; all the same, its limit is shown in `$sender_rate_limit`.
fn loads(mailer: &Mailer, who: &Who, path: &Path, findings: &mut Findings) {
    let shown = path.display();
    let call = format!("${{dlfunc{{{shown}}}{{ratelimit}}{{7.5}}}}");
    if call.len() > ARGUMENT_MAX {
        findings.note(format!("{shown} was not loaded to try it: its path is too long for that"));
        return;
    }
    match mailer.exim.ask_as((who.uid, who.gid), &["-be", &call, "|$sender_rate_limit|"]) {
        Ok(Answer { stdout, .. }) if stdout.contains("Failed: dlopen") => {
            let why = stdout.lines().next().unwrap_or_default();
            findings.problem(format!("Exim cannot load {shown}: {why}"));
            reinstall(path, findings);
        }
        Ok(Answer { signal: Some(signal), .. }) => {
            findings.problem(format!(
                "Exim dies as it loads {shown} (signal {signal}): the file is damaged"
            ));
            reinstall(path, findings);
        }
        Ok(answer) if !answer.stdout.contains("error in arguments to \"ratelimit\"") => {
            findings.problem(format!(
                "{shown} does not answer Exim as it should: {}",
                answer.complaint()
            ));
        }
        Ok(answer) if answer.stdout.contains("|7.5|") => findings.ok(format!(
            "{shown} is exirate {OURS}; Exim can load it, and it sets $sender_rate and its \
             companions"
        )),
        Ok(_) => {
            findings.note(format!(
                "{shown} is exirate {OURS}, and Exim can load it, but it cannot set $sender_rate \
                 in this Exim: write ${{dlfunc{{{shown}}}{{ratelimit_info}}{{rate}}}} in its place"
            ));
        }
        Err(error) => {
            findings.problem(error);
        }
    }
}
