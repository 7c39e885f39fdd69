//! Runs a program for a receiver, never by a shell. The only part of exirate that runs
//! commands for events.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::sys::child;
use crate::text;

/// How long a program may take for an alert.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
/// How often to see whether it has ended.
const POLL: Duration = Duration::from_millis(10);
/// The most bytes of its standard error that are read.
const SAID_MAX: usize = 4096;

/// The user and group that programs run as; `None`: those of this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account(Option<(u32, u32)>);

impl Account {
    /// The owner of the spool directory, if this is root: whoever can write there decides
    /// which programs run, and must not decide what root does.
    pub(super) fn owner(uid: u32, gid: u32) -> Self {
        let is_root = rustix::process::geteuid().is_root();
        Self((is_root && uid != 0).then_some((uid, gid)))
    }
}

/// Runs `program` with `input`; `prepare` adds arguments and variables
/// to its command, which has an environment and a session of its own. It and what it has
/// started are killed when it takes too long. The error is the first line that it wrote on
/// standard error, if it wrote one.
pub(super) fn run(
    program: &str,
    prepare: impl FnOnce(&mut Command),
    account: Account,
    input: String,
) -> Result<(), String> {
    let begun = Instant::now();
    let mut command = child::command(program.as_ref());
    child::own_session(&mut command);
    prepare(&mut command);
    // What it prints must not mix with our alerts.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    if let Account(Some((uid, gid))) = account {
        // No other group remains.
        command.gid(gid).uid(uid);
    }
    let mut child = command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!("cannot run {program}: it is not installed"),
        _ => format!("cannot run {program}: {error}"),
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program need not read it, and it may be more than a pipe holds. This ends with the
        // program.
        thread::spawn(move || stdin.write_all(input.as_bytes()));
    }
    let said = Said::by(&mut child);
    let fault = loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => break failed(status),
            Ok(None) if begun.elapsed() < TIMEOUT => thread::sleep(POLL),
            Ok(None) => {
                kill(&mut child);
                return Err(format!("{program} did not end within {}s", TIMEOUT.as_secs()));
            }
            Err(error) => {
                kill(&mut child);
                return Err(format!("cannot wait for {program}: {error}"));
            }
        }
    };
    Err(match said.and_then(|said| said.first_line()) {
        Some(line) => format!("{program} failed ({fault}): {line}"),
        None => format!("{program} failed ({fault})"),
    })
}

/// How it ended.
fn failed(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// What a program writes on standard error.
struct Said {
    text: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Said {
    /// Reads all of it, and keeps the beginning.
    fn by(child: &mut Child) -> Option<Self> {
        let mut stderr = child.stderr.take()?;
        let text = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&text);
        let reader = thread::spawn(move || {
            let mut part = [0; 1024];
            while let Ok(read @ 1..) = stderr.read(&mut part) {
                let Ok(mut kept) = kept.lock() else { return };
                let room = SAID_MAX.saturating_sub(kept.len());
                kept.extend(part.iter().take(read.min(room)));
            }
        });
        Some(Self { text, reader })
    }

    /// The first line with a text, after the program has ended.
    fn first_line(&self) -> Option<String> {
        // What it has started may still have its standard error open.
        let begun = Instant::now();
        while !self.reader.is_finished() && begun.elapsed() < POLL * 10 {
            thread::sleep(POLL);
        }
        let said = self.text.lock().ok()?;
        let mut lines = said.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        lines.find(|line| !line.is_empty()).map(text::printable)
    }
}

fn kill(child: &mut Child) {
    use rustix::process::{Pid, Signal, kill_process_group};
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}
