//! Running other programs, above all those of mail servers.

use std::borrow::Cow;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal};

/// How long a program may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// More links on the way to one file are too many for the system, too.
const LINKS_MAX: usize = 40;

/// What a program printed, and how it ended.
#[derive(Debug)]
pub(crate) struct Output {
    /// It ended with status 0.
    pub(crate) success: bool,
    /// The signal that ended it.
    pub(crate) signal: Option<i32>,
    /// On standard output.
    pub(crate) stdout: String,
    /// On standard error.
    pub(crate) stderr: String,
}

impl Output {
    /// Its error message, in one line.
    pub(crate) fn complaint(&self) -> String {
        let text = if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr };
        let words: Vec<&str> = text.split_whitespace().collect();
        if words.is_empty() { "it prints nothing".to_owned() } else { words.join(" ") }
    }
}

/// Runs a program to its end, with a timeout, and with an empty environment: Exim
/// would log that it has dropped variables. As root, only a program that nobody else can
/// change.
pub(crate) fn run(command: Command) -> Result<Output, String> {
    run_for(command, TIMEOUT, Vec::new())
}

/// Runs a program as [`run`] does, with `input` on standard input.
pub(crate) fn run_with(command: Command, input: Vec<u8>) -> Result<Output, String> {
    run_for(command, TIMEOUT, input)
}

/// Starts a program as [`run`] does, and neither waits for its end nor reads what it prints.
pub(crate) fn start(command: Command) -> Result<(), String> {
    spawn(command, Stdio::null, Stdio::null()).map(drop)
}

/// Starts a program in a process group with its children, so that all can be killed.
fn spawn(mut command: Command, output: fn() -> Stdio, input: Stdio) -> Result<Child, String> {
    let name = command.get_program().display().to_string();
    if rustix::process::geteuid().is_root() && !is_only_roots(Path::new(command.get_program())) {
        return Err(format!(
            "{name} is not run as root: it, or a directory above it, belongs to another user or \
             can be changed by one"
        ));
    }
    command.env_clear().stdin(input).stdout(output()).stderr(output());
    command.process_group(0).spawn().map_err(|error| format!("cannot run {name}: {error}"))
}

fn run_for(command: Command, timeout: Duration, input: Vec<u8>) -> Result<Output, String> {
    let name = command.get_program().display().to_string();
    let failed = |error: io::Error| format!("cannot run {name}: {error}");
    let stdin = if input.is_empty() { Stdio::null() } else { Stdio::piped() };
    let mut child = spawn(command, Stdio::piped, stdin)?;
    if let Some(mut to) = child.stdin.take() {
        // It may end before it has read all.
        std::thread::spawn(move || to.write_all(&input));
    }
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    match receiver.recv_timeout(timeout) {
        Ok(output) => {
            let output = output.map_err(failed)?;
            Ok(Output {
                success: output.status.success(),
                signal: output.status.signal(),
                stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
                stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            })
        }
        Err(_) => {
            if let Some(group) = group {
                let _ = rustix::process::kill_process_group(group, Signal::KILL);
            }
            Err(format!("{name} did not end within {}s and was killed", timeout.as_secs()))
        }
    }
}

/// Whether nobody but root can change what is at `path`: it, all links on the way to it, and
/// the directories above belong to root, and only root may write to them.
pub(crate) fn is_only_roots(path: &Path) -> bool {
    let is_roots = |part: &Path| {
        part.symlink_metadata().is_ok_and(|facts| {
            let mode = facts.mode();
            let shared = mode & 0o002 != 0 || mode & 0o020 != 0 && facts.gid() != 0;
            // In a directory with the sticky bit, others cannot replace what is root's.
            let is_safe = !shared || facts.is_symlink() || facts.is_dir() && mode & 0o1000 != 0;
            facts.uid() == 0 && is_safe
        })
    };
    let Ok(real) = path.canonicalize() else { return false };
    let mut step = path.to_owned();
    for _ in 0..LINKS_MAX {
        let parts = step.ancestors().filter(|part| !part.as_os_str().is_empty());
        if !step.is_absolute() || !parts.into_iter().all(is_roots) {
            return false;
        }
        match step.read_link() {
            Ok(target) => step = step.parent().unwrap_or(Path::new("/")).join(target),
            Err(_) => return real.ancestors().all(is_roots),
        }
    }
    false
}

/// The program that `given` names, as a shell would find it.
pub(crate) fn named(given: &Path, path: &std::ffi::OsStr) -> Option<PathBuf> {
    if given.as_os_str().as_encoded_bytes().contains(&b'/') {
        let absolute = std::path::absolute(given).ok()?;
        return is_program(&absolute).then_some(absolute);
    }
    std::env::split_paths(path).map(|place| place.join(given)).find(|program| is_program(program))
}

/// Whether it is a file that can be run.
pub(crate) fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
}

/// A path as a shell reads it back.
pub(crate) fn quoted(path: &Path) -> String {
    // Only a NUL byte cannot be quoted, which no path contains.
    let text = path.display().to_string();
    shlex::try_quote(&text).map_or_else(|_| text.clone(), Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_runs_nothing_that_others_can_change() {
        use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
        let folder = tempfile::tempdir().unwrap();
        let (exim, link) = (folder.path().join("exim"), folder.path().join("link"));
        std::fs::copy("/bin/true", &exim).unwrap();
        symlink("exim", &link).unwrap();
        let set = |path: &Path, mode: u32| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        assert!(
            is_only_roots(&exim) && is_only_roots(&link) && is_only_roots(Path::new("/bin/sh"))
        );
        assert!(run(Command::new(&link)).unwrap().success);
        let refused = |case: &str| {
            for path in [&exim, &link] {
                assert!(!is_only_roots(path), "{case}");
            }
            let said = run(Command::new(&exim)).unwrap_err();
            assert!(said.contains("is not run as root"), "{said}");
        };
        set(&exim, 0o757);
        refused("everyone may write to it");
        set(&exim, 0o755);
        set(folder.path(), 0o777);
        refused("everyone may replace it");
        set(folder.path(), 0o755);
        chown(&exim, Some(7), None).unwrap();
        refused("it is another user's");
        chown(&exim, Some(0), None).unwrap();
        chown(folder.path(), Some(7), None).unwrap();
        refused("its directory is another user's");
        assert!(!is_only_roots(Path::new("relative")) && !is_only_roots(Path::new("/nonexistent")));
    }

    #[test]
    fn a_program_that_cannot_run_is_an_error() {
        assert!(run(Command::new("/nonexistent")).unwrap_err().contains("/nonexistent"));
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "echo a; echo b >&2; exit 3"]);
        let output = run(shell).unwrap();
        assert_eq!((output.success, &*output.stdout, &*output.complaint()), (false, "a\n", "b"));
    }

    #[test]
    fn a_program_that_does_not_end_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let pid = |timeout| {
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", "echo $$ >pid; sleep 1000; true"]).current_dir(folder.path());
            let said = run_for(shell, Duration::from_secs(timeout), Vec::new()).unwrap_err();
            assert_eq!(said, format!("/bin/sh did not end within {timeout}s and was killed"));
            std::fs::read_to_string(folder.path().join("pid")).ok().filter(|pid| !pid.is_empty())
        };
        // A busy machine may not come to its first command at once.
        let pid = [1, 4, 16, 64].into_iter().find_map(pid).unwrap();
        let proc = PathBuf::from(format!("/proc/{}", pid.trim()));
        // The thread that waits for it takes a moment.
        for _ in 0..6000 {
            if !proc.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!proc.exists(), "it still runs");
    }
}
