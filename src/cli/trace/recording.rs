//! Recording the messages of files, mboxes and maildirs, one after the other.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::ProgressBar;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::Failure;
use super::headers::Headers;
use super::id;
use super::mailbox::maildir::{self, Maildir};
use super::mailbox::mbox::Mbox;
use super::mailbox::{self, Hint, from_line};
use crate::cli::shared::input;
use crate::cli::shared::screen::{complain, progress};
use crate::cli::shared::times;
use crate::text;
use crate::text::time::now;
use crate::trace::{Envelope, TraceError, TraceStore};

/// How many messages that cannot be recorded are reported one by one.
const REPORTED: u64 = 20;
/// After so many messages in a row that the store refuses, recording ends.
const IN_A_ROW: u32 = 3;
/// The buffer of an mbox.
const BUFFER: usize = 1 << 20;

/// What to record, and its envelope.
#[derive(Debug, Args)]
pub(super) struct RecordSources {
    /// Record the message in each of these files; - is standard input
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Record all messages of this mbox
    #[arg(long, value_name = "FILE")]
    mbox: Vec<PathBuf>,

    /// Record all messages of this maildir and the folders in it
    #[arg(long, value_name = "DIR")]
    maildir: Vec<PathBuf>,

    /// Record this sender; <> for a bounce
    #[arg(long, value_name = "ADDRESS")]
    from: Option<String>,

    /// Record these recipients: separate several with commas, or repeat the
    /// option
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    to: Vec<String>,

    /// Record this id of the message
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    id: Option<String>,

    /// Record this time of reception
    #[arg(long, value_name = "TIME", value_parser = times::at)]
    time: Option<crate::rate::Timestamp>,

    /// Record this IP address of the client
    #[arg(long, value_name = "IP")]
    client: Option<IpAddr>,

    /// Record this authenticated id of the client
    #[arg(long, value_name = "NAME")]
    auth: Option<String>,
}

impl RecordSources {
    /// Replaces what the message says with the options.
    fn override_envelope(&self, envelope: &mut Envelope) {
        let Self { from, to, id, time, client, auth, .. } = self;
        if let Some(from) = from {
            envelope.sender = bare(from).to_owned();
        }
        if !to.is_empty() {
            envelope.recipients = to.iter().map(|address| bare(address).to_owned()).collect();
        }
        if let Some(id) = id {
            envelope.id = id::read(id).to_owned();
        }
        if let Some(time) = time {
            envelope.time = time.seconds;
        }
        envelope.client = client.or(envelope.client);
        if let Some(auth) = auth {
            envelope.authenticated.clone_from(auth);
        }
    }

    /// Refuses wrong options before anything is recorded.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.files.is_empty() && self.mbox.is_empty() && self.maildir.is_empty() {
            return Err(Failure::new(
                "nothing to record: name files with one message each (- is standard input), or use \
                 --mbox FILE or --maildir DIR",
            ));
        }
        let all = || self.files.iter().chain(&self.mbox);
        if all().filter(|path| path.as_os_str() == "-").count() > 1 {
            return Err(Failure::new("- is given twice: standard input can be read only once"));
        }
        if self.id.is_some()
            && !(self.files.len() == 1 && self.mbox.is_empty() && self.maildir.is_empty())
        {
            return Err(Failure::new(
                "--id needs exactly one FILE, as it is the id of one message",
            ));
        }
        for path in all().chain(&self.maildir).filter(|path| path.as_os_str() != "-") {
            // Before the other files are recorded.
            let facts =
                path.metadata().map_err(|e| input::failed(&path.display().to_string(), &e))?;
            let is_maildir = self.maildir.contains(path);
            if facts.is_dir() && !is_maildir {
                return Err(Failure::new(format!(
                    "{0} is a directory: use --maildir {0}, or name the files in it",
                    path.display()
                )));
            }
            if !facts.is_dir() && is_maildir {
                return Err(Failure::new(format!(
                    "--maildir {0}: it is not a directory; for a file with many messages use --mbox \
                     {0}, for one message just {0}",
                    path.display()
                )));
            }
        }
        Ok(())
    }
}

/// An address without the brackets around it.
fn bare(address: &str) -> &str {
    let address = address.trim();
    address.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')).unwrap_or(address)
}

/// How many messages were recorded, and how many bytes.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(super) struct RecordCounts {
    pub(super) recorded: u64,
    /// Their size.
    pub(super) bytes: u64,
    pub(super) not_recorded: u64,
    /// How many of these are older than trace.keep.
    pub(super) too_old: u64,
    /// Those of which only the beginning was recorded because they are too large.
    pub(super) cut: u64,
    /// Those without an id, a sender and a recipient.
    pub(super) nameless: u64,
}

/// A recording.
pub(super) struct Recording<'a> {
    sources: &'a RecordSources,
    headers: Headers,
    pub(super) trace: TraceStore,
    pub(super) counts: RecordCounts,
    /// How many messages in a row the store has refused.
    in_a_row: u32,
}

impl<'a> Recording<'a> {
    pub(super) fn new(sources: &'a RecordSources, trace: TraceStore) -> Self {
        let (headers, counts) = (Headers::new(), RecordCounts::default());
        Self { sources, headers, trace, counts, in_a_row: 0 }
    }

    /// Records everything in the sources.
    ///
    /// # Errors
    /// Recording had to end; what was recorded before stays.
    pub(super) fn all(&mut self) -> Result<(), Failure> {
        let done = self.files().and_then(|()| self.mboxes()).and_then(|()| self.maildirs());
        if let Some(more) = self.failed().checked_sub(REPORTED).filter(|more| *more > 0) {
            complain(format_args!("and {more} more messages could not be recorded"));
        }
        done
    }

    fn files(&mut self) -> Result<(), Failure> {
        let bar = progress(self.sources.files.len() as u64, "files");
        for path in &self.sources.files {
            self.file(path)?;
            bar.inc(1);
        }
        Ok(())
    }

    /// Records a file that is one message, or an mbox: it is called so if a mail program has
    /// saved one message with a line `From `.
    fn file(&mut self, path: &Path) -> Result<(), Failure> {
        let name = text::printable(path.as_os_str().as_encoded_bytes());
        let opened: io::Result<Box<dyn BufRead>> = match path.as_os_str() == "-" {
            true => Ok(Box::new(std::io::stdin().lock())),
            false => {
                File::open(path).map(|file| Box::new(BufReader::new(file)) as Box<dyn BufRead>)
            }
        };
        let mut message = Vec::new();
        let read = opened.and_then(|mut reader| {
            if is_mbox(reader.fill_buf()?) {
                return Ok(Err(reader));
            }
            mailbox::read(reader, &mut message).map(Ok)
        });
        match read {
            Err(error) => self.lost(format!("cannot read {name}: {error}")),
            Ok(Err(_)) if self.sources.id.is_some() => {
                self.lost(format!("{name} is an mbox, and --id is the id of one message"));
            }
            Ok(Err(mbox)) => self.mbox(mbox, &name)?,
            Ok(Ok(_)) if message.is_empty() => self.lost(format!("{name} is empty")),
            Ok(Ok(cut)) => {
                let time = path.metadata().ok().map(|facts| seconds(&facts));
                self.message(&name, &message, Hint::default(), time, cut)?;
            }
        }
        Ok(())
    }

    fn mboxes(&mut self) -> Result<(), Failure> {
        for path in &self.sources.mbox {
            let (reader, name): (Box<dyn BufRead>, String) = if path.as_os_str() == "-" {
                input::open(path)?
            } else {
                let name = path.display().to_string();
                let file = File::open(path).map_err(|error| input::failed(&name, &error))?;
                // A pipe has no length.
                let length = file.metadata().map_or(0, |facts| facts.len());
                let bar = progress(length, "bytes").wrap_read(file);
                (Box::new(BufReader::with_capacity(BUFFER, bar)), name)
            };
            self.mbox(reader, &name)?;
        }
        Ok(())
    }

    fn mbox(&mut self, reader: impl BufRead, name: &str) -> Result<(), Failure> {
        let failed = |error| input::failed(name, &error);
        let Some(mut mbox) = Mbox::new(reader).map_err(failed)? else {
            return Err(Failure::new(format!(
                "{name} is not an mbox: its first line does not begin with `From `"
            )));
        };
        let mut message = Vec::new();
        for number in 1_u64.. {
            let Some(found) = mbox.next(&mut message).map_err(failed)? else { break };
            let name = format!("{name}, message {number}");
            self.message(&name, &message, found.hint, None, found.cut)?;
        }
        Ok(())
    }

    fn maildirs(&mut self) -> Result<(), Failure> {
        for path in &self.sources.maildir {
            let maildir = Maildir::find(path);
            for (place, error) in &maildir.unread {
                self.lost(format!("cannot read {}: {error}", place.display()));
            }
            if maildir.places.is_empty() {
                return Err(Failure::new(format!(
                    "{} is not a maildir: neither it nor a folder in it has a directory cur or new",
                    path.display()
                )));
            }
            let total = maildir.places.iter().map(|place| maildir::count(place)).sum();
            let bar = progress(total, "messages");
            for place in &maildir.places {
                self.place(place, &bar)?;
            }
        }
        Ok(())
    }

    fn place(&mut self, place: &Path, bar: &ProgressBar) -> Result<(), Failure> {
        let paths = match maildir::messages(place) {
            Ok(paths) => paths,
            Err(error) => {
                self.lost(format!("cannot read {}: {error}", place.display()));
                return Ok(());
            }
        };
        for path in &paths {
            self.file(path)?;
            bar.inc(1);
        }
        Ok(())
    }
}

impl Recording<'_> {
    /// Records one message; `time` is for a message without one.
    ///
    /// # Errors
    /// The store takes no more messages.
    fn message(
        &mut self,
        name: &str,
        message: &[u8],
        hint: Hint,
        time: Option<i64>,
        cut: bool,
    ) -> Result<(), Failure> {
        let (mut envelope, own_time) = self.headers.envelope(message, &hint);
        envelope.time = own_time.or(time).unwrap_or_else(|| now().seconds);
        envelope.partial = cut;
        self.sources.override_envelope(&mut envelope);
        match self.trace.record(&envelope, message) {
            Ok(()) => {
                self.in_a_row = 0;
                self.counts.recorded += 1;
                self.counts.bytes += message.len() as u64;
                self.counts.cut += u64::from(cut);
                let Envelope { id, sender, recipients, .. } = &envelope;
                let nameless = id.is_empty() && sender.is_empty() && recipients.is_empty();
                self.counts.nameless += u64::from(nameless);
                Ok(())
            }
            // An archive has thousands of them: they are reported together.
            Err(TraceError::TooOld { .. }) => {
                self.counts.not_recorded += 1;
                self.counts.too_old += 1;
                Ok(())
            }
            Err(error) => {
                let is_its_own = matches!(error, TraceError::TooLarge { .. });
                self.lost(format!("{name}: {error}"));
                self.in_a_row = if is_its_own { 0 } else { self.in_a_row + 1 };
                if self.in_a_row < IN_A_ROW {
                    return Ok(());
                }
                Err(Failure::new(format!(
                    "{IN_A_ROW} messages in a row could not be recorded, so the rest was not tried"
                )))
            }
        }
    }

    /// Reports a message that could not be recorded.
    fn lost(&mut self, what: impl std::fmt::Display) {
        self.counts.not_recorded += 1;
        if self.failed() <= REPORTED {
            complain(what);
        }
    }

    /// How many messages could not be recorded, apart from those that are too old.
    fn failed(&self) -> u64 {
        self.counts.not_recorded - self.counts.too_old
    }
}

/// Whether a file is an mbox.
fn is_mbox(file: &[u8]) -> bool {
    file.split_inclusive(|&b| b == b'\n').next().is_some_and(from_line::begins_message)
}

/// When a file was changed last, in seconds since 1970.
fn seconds(facts: &std::fs::Metadata) -> i64 {
    std::os::unix::fs::MetadataExt::mtime(facts)
}
