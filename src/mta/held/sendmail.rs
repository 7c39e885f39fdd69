//! Sendmail's quarantine: messages that the milter has quarantined, in files `hfID`, with a reason
//! that begins as only the milter writes it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::mta::command;
use crate::mta::sendmail::Sendmail;
use crate::spool::{HELD_BY, HeldNote};
use crate::standing::held::{Details, Held, HeldMessage, HoldQueue};
use crate::sys::lock::{self, LockKind};

/// So many messages are delivered by a process each; more by a queue run.
const DELIVERED_APART: usize = 20;
/// The longest file that is read.
const FILE_MAX: u64 = 64 << 20;

/// Sendmail's queue.
pub(crate) struct SendmailQueue {
    program: PathBuf,
    /// The directories of the queue, each with that of the data.
    directories: Vec<(PathBuf, PathBuf)>,
    /// The latest note of each queue id.
    notes: HashMap<String, HeldNote>,
}

/// What is used of a file of the queue.
#[derive(Debug, Default, PartialEq, Eq)]
struct QueueFile {
    reason: String,
    sender: String,
    recipients: Vec<String>,
    headers: Vec<String>,
}

impl SendmailQueue {
    /// With what was noted, the oldest first.
    ///
    /// # Errors
    /// Sendmail's configuration cannot be read.
    pub(crate) fn new(program: PathBuf, notes: Vec<HeldNote>) -> Result<Self, String> {
        let sendmail = Sendmail::of_this_machine().ok_or("cannot read sendmail.cf")?;
        let mut directories = Vec::new();
        for path in below(&sendmail.queue_directory)? {
            let part = |name: &str| Some(path.join(name)).filter(|path| path.is_dir());
            directories.push((
                part("qf").unwrap_or_else(|| path.clone()),
                part("df").unwrap_or_else(|| path.clone()),
            ));
        }
        let notes = notes.into_iter().map(|note| (note.id.clone(), note)).collect();
        Ok(Self { program, directories, notes })
    }

    /// Calls `visit` with each quarantined message: its id, its file and its data.
    fn each(&self, mut visit: impl FnMut(&str, &Path, &Path)) -> Result<(), String> {
        for (queue, data) in &self.directories {
            let failed = |error: io::Error| format!("cannot read {}: {error}", queue.display());
            for entry in queue.read_dir().map_err(failed)? {
                let name = entry.map_err(failed)?.file_name();
                let Some(id) = name.to_str().and_then(|name| name.strip_prefix("hf")) else {
                    continue;
                };
                visit(id, &queue.join(&name), &data.join(format!("df{id}")));
            }
        }
        Ok(())
    }

    /// The file of a message that a policy holds, and its data.
    fn find(&self, id: &str) -> Result<(PathBuf, PathBuf), String> {
        let mut found = None;
        self.each(|one, file, data| {
            if one == id {
                found = Some((file.to_owned(), data.to_owned()));
            }
        })?;
        found.ok_or_else(|| "it is gone".to_owned())
    }

    /// Runs Sendmail, as the daemon's configuration has it, for one message.
    fn command(&self, arguments: &[&str], id: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("-Am").args(arguments).arg(format!("-qI{id}")).current_dir("/");
        command
    }

    fn release_one(&self, id: &str) -> Result<(), String> {
        let output = command::run(self.command(&["-v", "-qQ", "-Q"], id))?;
        let done = format!("{id}: Removed quarantine");
        if !output.stdout.lines().any(|line| line.starts_with(&done)) {
            return Err(output.complaint());
        }
        Ok(())
    }

    /// Has Sendmail deliver these messages now; else the next queue run does.
    fn deliver(&self, ids: &[&str]) {
        // Each process reads the whole queue, and lasts as long as the slowest receiver.
        if ids.len() > DELIVERED_APART {
            let mut command = Command::new(&self.program);
            command.args(["-Am", "-q"]).current_dir("/");
            let _ = command::start(command);
            return;
        }
        for id in ids {
            let _ = command::start(self.command(&[], id));
        }
    }

    fn delete_one(&self, id: &str) -> Result<(), String> {
        let (path, data) = self.find(id)?;
        let failed = |error: io::Error| error.to_string();
        // As Sendmail locks it while it works on a message.
        let file = open(&path).map_err(failed)?;
        let _guard = lock::try_lock(&file, LockKind::Exclusive)
            .map_err(failed)?
            .ok_or("Sendmail works on it now")?;
        std::fs::remove_file(&path).map_err(failed)?;
        match std::fs::remove_file(&data) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        }
    }
}

impl HoldQueue for SendmailQueue {
    fn held(&self) -> Result<Held, String> {
        let (mut messages, mut unread) = (Vec::new(), Vec::new());
        self.each(|id, path, data| match read(path) {
            Ok(file) if file.reason.starts_with(HELD_BY) => {
                // What nobody has noted, as the note has been dropped: then it is not known who was
                // counted.
                let Some(noted) = self.notes.get(id).and_then(HeldMessage::noted) else { return };
                let body = data.metadata().map_or(0, |facts| facts.len());
                let headers: usize = file.headers.iter().map(|line| line.len() + 1).sum();
                messages.push(HeldMessage {
                    sender: file.sender,
                    recipients: file.recipients.len() as u64,
                    size: body + headers as u64,
                    ..noted
                });
            }
            Ok(_) => {}
            // It was released meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => unread.push(format!("message {id}: {error}")),
        })?;
        Ok(Held::of(messages, unread))
    }

    fn details(&self, id: &str) -> Result<Details, String> {
        let file = read(&self.find(id)?.0).map_err(|error| error.to_string())?;
        Ok(Details { recipients: file.recipients, headers: file.headers })
    }

    fn release(&self, ids: &[&str]) -> Vec<Result<(), String>> {
        let results: Vec<_> = ids.iter().map(|id| self.release_one(id)).collect();
        let released = ids.iter().zip(&results).filter(|(_, result)| result.is_ok());
        self.deliver(&released.map(|(id, _)| *id).collect::<Vec<_>>());
        results
    }

    fn delete(&self, ids: &[&str]) -> Vec<Result<(), String>> {
        ids.iter().map(|id| self.delete_one(id)).collect()
    }
}

/// The directories that `QueueDirectory` names: its last part may end in `*`.
fn below(written: &str) -> Result<Vec<PathBuf>, String> {
    let Some(start) = written.strip_suffix('*') else { return Ok(vec![written.into()]) };
    let (parent, start) = start.rsplit_once('/').unwrap_or((".", start));
    let failed = |error: io::Error| format!("cannot read {parent}: {error}");
    let mut found = Vec::new();
    for entry in Path::new(parent).read_dir().map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let is_one = entry.file_name().to_string_lossy().starts_with(start);
        if is_one && entry.path().is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = File::options().read(true).write(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file")),
    }
}

fn read(path: &Path) -> io::Result<QueueFile> {
    let mut bytes = Vec::new();
    open(path)?.take(FILE_MAX).read_to_end(&mut bytes)?;
    Ok(QueueFile::parse(&String::from_utf8_lossy(&bytes)))
}

impl QueueFile {
    /// Reads a file: a letter before each value; a line that begins with a blank continues the one
    /// before.
    fn parse(text: &str) -> Self {
        let mut file = Self::default();
        let mut in_header = false;
        for line in text.lines().take_while(|line| *line != ".") {
            let Some((letter, value)) = line.split_at_checked(1) else { continue };
            match letter {
                " " | "\t" if in_header => file.headers.push(line.to_owned()),
                " " | "\t" => {}
                "q" => value.clone_into(&mut file.reason),
                "S" => bare(value).clone_into(&mut file.sender),
                // With flags before it: `PFD:bob@example.net`.
                "R" => {
                    let address = value.split_once(':').map_or(value, |(_, address)| address);
                    file.recipients.push(bare(address).to_owned());
                }
                // With conditions before it: `?P?Return-Path: …`.
                "H" => {
                    let header = value.strip_prefix('?').and_then(|rest| rest.split_once('?'));
                    file.headers.push(header.map_or(value, |(_, header)| header).to_owned());
                }
                _ => {}
            }
            in_header = letter == "H" || in_header && matches!(letter, " " | "\t");
        }
        file
    }
}

/// An address without brackets.
fn bare(address: &str) -> &str {
    let inner = address.strip_prefix('<').and_then(|rest| rest.strip_suffix('>'));
    inner.unwrap_or(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_sendmail_writes_it() {
        let file = QueueFile::parse(
            "V8\nT1795719876\nK0\n$_root@localhost\nqexirate: policy out: over\nS<a@b.test>\n\
             Aa@b.test\nrRFC822; bob@x.test\nRPFD:bob@x.test\nRPFD:<cd@x.test>\n\
             H??Received: from x\n\tby mail.test\nH?P?Return-Path: <g>\nHX: y\n.\nqlater\n",
        );
        assert_eq!(file.reason, "exirate: policy out: over");
        assert_eq!(
            (&*file.sender, &file.recipients[..]),
            ("a@b.test", &["bob@x.test".to_owned(), "cd@x.test".to_owned()][..])
        );
        assert_eq!(
            file.headers,
            ["Received: from x", "\tby mail.test", "Return-Path: <g>", "X: y"]
        );
        for text in ["", "q", "é\nR\nH?\nH?x\n \n", "R:\nS<\n"] {
            let _ = QueueFile::parse(text);
        }
    }
}
