//! Recording the messages of files, mboxes and maildirs, one after the other.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

use super::headers::Headers;
use super::maildir::{self, Maildir};
use super::mbox::Mbox;
use super::{Hint, from_line, read as read_message};
use crate::rate::Timestamp;
use crate::text::time::now;
use crate::text::{self, Voice, input};
use crate::trace::{Envelope, TraceError, TraceStore};

/// How many messages that cannot be recorded are reported one by one.
const REPORTED: u64 = 20;
/// After so many messages in a row that the store refuses, recording ends.
const IN_A_ROW: u32 = 3;
/// The buffer of an mbox.
const BUFFER: usize = 1 << 20;

/// What is to be recorded.
#[derive(Clone, Copy)]
pub(crate) struct Archives<'a> {
    /// Files with one message each.
    pub(crate) files: &'a [PathBuf],
    pub(crate) mboxes: &'a [PathBuf],
    pub(crate) maildirs: &'a [PathBuf],
    /// What is recorded in place of what a message says.
    pub(crate) given: &'a GivenEnvelope,
}

/// What is recorded in place of what a message says.
pub(crate) struct GivenEnvelope {
    pub(crate) from: Option<String>,
    pub(crate) to: Vec<String>,
    pub(crate) id: Option<String>,
    pub(crate) time: Option<Timestamp>,
    pub(crate) client: Option<IpAddr>,
    pub(crate) auth: Option<String>,
}

impl GivenEnvelope {
    /// Replaces what a message says.
    fn replace(&self, envelope: &mut Envelope) {
        let Self { from, to, id, time, client, auth } = self;
        if let Some(from) = from {
            envelope.sender = bare(from).to_owned();
        }
        if !to.is_empty() {
            envelope.recipients = to.iter().map(|address| bare(address).to_owned()).collect();
        }
        if let Some(id) = id {
            envelope.id = text::exim_id(id).to_owned();
        }
        if let Some(time) = time {
            envelope.time = time.seconds;
        }
        envelope.client = client.or(envelope.client);
        if let Some(auth) = auth {
            envelope.authenticated.clone_from(auth);
        }
    }
}

/// An address without the brackets around it.
fn bare(address: &str) -> &str {
    let address = address.trim();
    address.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')).unwrap_or(address)
}

/// How many messages were recorded, and how many bytes.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct RecordCounts {
    pub(crate) recorded: u64,
    /// Their size.
    pub(crate) bytes: u64,
    pub(crate) not_recorded: u64,
    /// How many of these are older than trace.keep.
    pub(crate) too_old: u64,
    /// Those of which only the beginning was recorded because they are too large.
    pub(crate) cut: u64,
    /// Those without an id, a sender and a recipient.
    pub(crate) nameless: u64,
}

/// A recording.
pub(crate) struct Recording<'a> {
    archives: Archives<'a>,
    voice: &'a dyn Voice,
    headers: Headers,
    pub(crate) trace: TraceStore,
    pub(crate) counts: RecordCounts,
    /// How many messages in a row the store has refused.
    in_a_row: u32,
}

impl<'a> Recording<'a> {
    pub(crate) fn new(archives: Archives<'a>, trace: TraceStore, voice: &'a dyn Voice) -> Self {
        let (headers, counts) = (Headers::new(), RecordCounts::default());
        Self { archives, voice, headers, trace, counts, in_a_row: 0 }
    }

    /// Records everything.
    ///
    /// # Errors
    /// Recording had to end; what was recorded before stays.
    pub(crate) fn all(&mut self) -> Result<(), String> {
        let done = self.files().and_then(|()| self.mboxes()).and_then(|()| self.maildirs());
        if let Some(more) = self.failed().checked_sub(REPORTED).filter(|more| *more > 0) {
            self.voice.complain(format_args!("and {more} more messages could not be recorded"));
        }
        done
    }

    fn files(&mut self) -> Result<(), String> {
        let (files, mut progress) = (self.archives.files, self.voice.progress("files"));
        for (path, done) in files.iter().zip(1..) {
            self.file(path)?;
            progress(done, files.len() as u64);
        }
        Ok(())
    }

    /// Records a file that is one message, or an mbox: it is called so if a mail program has
    /// saved one message with a line `From `.
    fn file(&mut self, path: &Path) -> Result<(), String> {
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
            read_message(reader, &mut message).map(Ok)
        });
        match read {
            Err(error) => self.lost(format!("cannot read {name}: {error}")),
            Ok(Err(_)) if self.archives.given.id.is_some() => {
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

    fn mboxes(&mut self) -> Result<(), String> {
        let archives = self.archives;
        for path in archives.mboxes {
            let (reader, name): (Box<dyn BufRead>, String) = if path.as_os_str() == "-" {
                input::open(path, self.voice)?
            } else {
                let name = path.display().to_string();
                let file = File::open(path).map_err(|error| input::failed(&name, &error))?;
                // A pipe has no length.
                let length = file.metadata().map_or(0, |facts| facts.len());
                let progress = self.voice.progress("bytes");
                let file = Watched { file, done: 0, length, progress };
                (Box::new(BufReader::with_capacity(BUFFER, file)), name)
            };
            self.mbox(reader, &name)?;
        }
        Ok(())
    }

    fn mbox(&mut self, reader: impl BufRead, name: &str) -> Result<(), String> {
        let failed = |error| input::failed(name, &error);
        let Some(mut mbox) = Mbox::new(reader).map_err(failed)? else {
            return Err(format!(
                "{name} is not an mbox: its first line does not begin with `From `"
            ));
        };
        let mut message = Vec::new();
        for number in 1_u64.. {
            let Some(found) = mbox.next(&mut message).map_err(failed)? else { break };
            let name = format!("{name}, message {number}");
            self.message(&name, &message, found.hint, None, found.cut)?;
        }
        Ok(())
    }

    fn maildirs(&mut self) -> Result<(), String> {
        let archives = self.archives;
        for path in archives.maildirs {
            let maildir = Maildir::find(path);
            for (place, error) in &maildir.unread {
                self.lost(format!("cannot read {}: {error}", place.display()));
            }
            if maildir.places.is_empty() {
                return Err(format!(
                    "{} is not a maildir: neither it nor a folder in it has a directory cur or new",
                    path.display()
                ));
            }
            let total = maildir.places.iter().map(|place| maildir::count(place)).sum();
            let (mut progress, mut done) = (self.voice.progress("messages"), 0);
            let mut one_more = || {
                done += 1;
                progress(done, total);
            };
            for place in &maildir.places {
                self.place(place, &mut one_more)?;
            }
        }
        Ok(())
    }

    fn place(&mut self, place: &Path, one_more: &mut dyn FnMut()) -> Result<(), String> {
        let paths = match maildir::messages(place) {
            Ok(paths) => paths,
            Err(error) => {
                self.lost(format!("cannot read {}: {error}", place.display()));
                return Ok(());
            }
        };
        for path in &paths {
            self.file(path)?;
            one_more();
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
    ) -> Result<(), String> {
        let (mut envelope, own_time) = self.headers.envelope(message, &hint);
        envelope.time = own_time.or(time).unwrap_or_else(|| now().seconds);
        envelope.partial = cut;
        self.archives.given.replace(&mut envelope);
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
                Err(format!(
                    "{IN_A_ROW} messages in a row could not be recorded, so the rest was not tried"
                ))
            }
        }
    }

    /// Reports a message that could not be recorded.
    fn lost(&mut self, what: impl std::fmt::Display) {
        self.counts.not_recorded += 1;
        if self.failed() <= REPORTED {
            self.voice.complain(format_args!("{what}"));
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

/// A file of which it is shown how much has been read.
struct Watched {
    file: File,
    done: u64,
    length: u64,
    progress: Box<dyn FnMut(u64, u64)>,
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.done += read as u64;
        (self.progress)(self.done, self.length);
        Ok(read)
    }
}
