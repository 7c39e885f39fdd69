//! The journal of systemd, as `journalctl` prints it. Debian 12 and later keep what mail servers
//! log there alone, unless rsyslog is installed.

use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Stdio};

use crate::sys::{child, users};

/// At most so much is kept of what `journalctl` says of an error.
const ERROR_MAX: u64 = 4096;

/// What is to be read of a journal.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    /// Its directory; else that of this machine.
    pub directory: Option<PathBuf>,
    /// Begin after the entry with this cursor.
    pub after: Option<String>,
    /// Begin at this time, in seconds since 1970.
    pub since: Option<i64>,
    /// Only what these users have written; of nobody, all.
    pub writers: Vec<u32>,
}

/// The users as which mail servers run, by the names that distributions give them: any other user
/// can write lines that look like theirs.
const WRITERS: [&str; 8] =
    ["root", "postfix", "Debian-exim", "exim", "mail", "mailnull", "smmta", "smmsp"];

/// The mail server's users of this machine, and the user of this process, who may be Exim's by
/// another name.
#[must_use]
pub fn writers() -> Vec<u32> {
    let known = WRITERS.iter().filter_map(|name| users::id_of(name.as_ref()));
    let own = rustix::process::geteuid().as_raw();
    let mut all: Vec<u32> = known.chain([own]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The output of `journalctl`.
struct Output {
    child: Child,
    output: ChildStdout,
    error: ChildStderr,
}

impl Journal {
    /// The entries of facility `mail` and those of Exim, each a line of JSON.
    pub(super) fn open(&self) -> io::Result<Box<dyn BufRead>> {
        let mut command = child::command("journalctl".as_ref());
        command.args(["--output=json", "--no-pager", "--quiet", "--all"]);
        if let Some(directory) = &self.directory {
            command.arg("--directory").arg(directory);
        }
        if let Some(after) = &self.after {
            command.arg(format!("--after-cursor={after}"));
        }
        if let Some(since) = self.since {
            command.arg(format!("--since=@{since}"));
        }
        let of = ["SYSLOG_FACILITY=2", "SYSLOG_IDENTIFIER=exim", "SYSLOG_IDENTIFIER=exim4"];
        for (what, number) in of.iter().zip(0..) {
            command.args((number > 0).then_some("+")).arg(what);
            // The journal itself says who.
            command.args(self.writers.iter().map(|user| format!("_UID={user}")));
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                io::Error::other("journalctl is not installed here (Debian's package systemd)")
            }
            _ => error,
        })?;
        let missing = || io::Error::other("no output");
        let output = child.stdout.take().ok_or_else(missing)?;
        let error = child.stderr.take().ok_or_else(missing)?;
        Ok(Box::new(BufReader::with_capacity(256 << 10, Output { child, output, error })))
    }
}

impl Read for Output {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.output.read(buffer)?;
        // At the end: whether that was all.
        if read == 0 && !buffer.is_empty() {
            let mut said = String::new();
            let _ = (&mut self.error).take(ERROR_MAX).read_to_string(&mut said);
            if !self.child.wait()?.success() {
                return Err(io::Error::other(format!("journalctl: {}", said.trim())));
            }
        }
        Ok(read)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // Both fail if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
