//! `exirate trace record`: records archived mail.

use std::io::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;

use super::super::{Failure, Json, Outcome};
use super::scheme::{self, Scheme};
use crate::cli::shared::database::Common;
use crate::cli::shared::screen::{Screen, Terminal, complain, note};
use crate::cli::shared::times;
use crate::standing::databases::require_owner;
use crate::text::{self, bytes, input};
use crate::trace::archive::MESSAGE_MAX;
use crate::trace::archive::recording::{Archives, GivenEnvelope, RecordCounts, Recording};
use crate::trace::{Access, Options, TraceError, TraceStore, trace_directory};

/// Record messages from files, mboxes and maildirs
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  The mail of an archive:
    exirate trace record --mbox archive.mbox
  One that is compressed, and two maildirs with all their folders:
    zcat archive.mbox.gz | exirate trace record --mbox -
    exirate trace record --maildir /var/mail/alice --maildir /var/mail/bob
  One message, with its sender and recipient:
    exirate trace record --from alice@example.org --to bob@example.net message.eml
  An archive of many years, all of which is kept:
    exirate config set trace.keep=forever
    exirate trace record --mbox archive.mbox
  Try the other scheme:
    exirate trace record --scheme hbf --mbox archive.mbox

Exim (by the function `record`) and `exirate serve mail` record new messages; this command is for
earlier ones. Sender, recipients, time and id are taken from the headers, unless options set them.
Messages older than trace.keep are not recorded: exirate config set trace.keep=forever

Exit status: 0 all was recorded; 2 an error, or a message could not be recorded.

Exim (by the function `record`) and `exirate serve mail` record new messages; this command is for
earlier ones. A message that is recorded twice is found twice.

What is not set by an option is taken from the message. The sender: from Return-Path, the line
`From ` of an mbox, Sender or From. The recipients: from Envelope-To, Delivered-To and
X-Original-To, or else from To, Cc and Bcc. The time: from the first Received, the line
`From `, Date, or the file's own. The id: from the first Received if it is one of Exim's,
or else the Message-ID. The client: from the first Received.

In an mbox, a message begins with a line `From ` that follows an empty one and has a date; `>From
` in a message is `From `. A FILE that begins with such a line is read as one. Of a maildir, cur
and new are read, and those of all folders in it. - is standard input. A message that cannot be
recorded is reported, and the others are recorded. A message older than trace.keep (90 days unless
set by `exirate config set trace.keep=`) is not recorded.

The options for digests are stored in the trace store and apply to all later messages, also to
those that Exim records, unless a line of its configuration sets them again. Earlier messages can
still be queried.", add = Json::of::<RecordCounts>())]
pub(super) struct TraceRecord {
    #[command(flatten)]
    sources: RecordSources,

    #[command(flatten)]
    scheme: Scheme,

    #[command(flatten)]
    common: Common,
}

impl TraceRecord {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        self.sources.check()?;
        let mut trace = self.open()?;
        let before = *trace.options();
        let settings = self.scheme.settings(before.settings)?;
        if settings != before.settings {
            trace.set_options(Options { settings, ..before })?;
            note(format_args!("from now on: {}", scheme::described(settings)));
        }
        let given = self.sources.given();
        let mut recording = Recording::new(self.sources.archives(&given), trace, &Terminal);
        let done = recording.all().map_err(Failure::new);
        recording.trace.take_incidents().iter().for_each(note);
        let counts = recording.counts;
        screen.show(self.common.json, &counts, print)?;
        screen.flush()?;
        done?;
        if counts.nameless > 0 {
            note(format_args!(
                "{} no sender, no recipient and no id; if they are messages, set --from, --to and \
                 --id",
                text::counted(counts.nameless, "message has", "messages have")
            ));
        }
        if counts.too_old > 0 {
            complain(format_args!(
                "{} older than trace.keep ({}), and not recorded: keep messages for longer, such as \
                 with `exirate config set trace.keep=forever`",
                text::counted(counts.too_old, "message is", "messages are"),
                text::kept(before.keep)
            ));
        }
        match counts.not_recorded {
            0 => Ok(Outcome::Fine),
            lost => Err(Failure::new(format!(
                "{} could not be recorded; all others are",
                text::counted(lost, "message", "messages")
            ))),
        }
    }

    /// Opens the store for recording; creates it if it does not exist.
    fn open(&self) -> Result<TraceStore, Failure> {
        let spool = self.common.directory()?;
        require_owner(&spool)?;
        let directory = trace_directory(&spool);
        if let Err(TraceError::NoKey { path }) = TraceStore::open(&directory, Access::Read) {
            note(format_args!(
                "{} is missing, and a new key is created: earlier messages cannot be queried unless \
                 that file is put back",
                path.display()
            ));
        }
        Ok(TraceStore::open(&directory, Access::Write)?)
    }
}

fn print(screen: &mut Screen<'_>, counts: &RecordCounts) -> Result<(), Failure> {
    let messages = text::counted(counts.recorded, "message", "messages");
    writeln!(screen, "recorded {messages}, {}", bytes(counts.bytes))?;
    if counts.cut > 0 {
        writeln!(screen, "of {} of them, only the first {} MiB", counts.cut, MESSAGE_MAX >> 20)?;
    }
    Ok(())
}

/// What to record, and its envelope.
#[derive(Clone, Debug, Args)]
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
    /// What is recorded in place of what a message says.
    pub(super) fn given(&self) -> GivenEnvelope {
        let Self { from, to, id, time, client, auth, .. } = self.clone();
        GivenEnvelope { from, to, id, time, client, auth }
    }

    /// What is to be recorded.
    pub(super) fn archives<'a>(&'a self, given: &'a GivenEnvelope) -> Archives<'a> {
        Archives { files: &self.files, mboxes: &self.mbox, maildirs: &self.maildir, given }
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
                path.metadata().map_err(|error| input::failed(&path.display().to_string(), &error));
            let facts = facts.map_err(Failure::new)?;
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
