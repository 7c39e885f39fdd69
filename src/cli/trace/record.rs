//! `exirate trace record`: records archived mail.

use std::io::Write as _;

use clap::Args;

use super::super::{Failure, Json, Outcome};
use super::mailbox::MESSAGE_MAX;
use super::recording::{RecordCounts, RecordSources, Recording};
use super::scheme::{self, Scheme};
use crate::cli::shared::database::{Common, require_owner};
use crate::cli::shared::screen::{Screen, complain, note};
use crate::text;
use crate::text::bytes;
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
        let mut recording = Recording::new(&self.sources, trace);
        let done = recording.all();
        recording.trace.take_incidents().iter().for_each(note);
        let counts = recording.counts;
        if self.common.json {
            screen.json(&counts)?;
        } else {
            print(screen, &counts)?;
        }
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
