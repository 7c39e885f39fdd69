//! `exirate trace record`: remembers mail that did not pass through Exim's
//! ACLs, or did so long ago.

use std::io::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;

use super::super::figures::bytes;
use super::super::screen::{Screen, complain, note};
use super::super::{Failure, Outcome, input, moment};
use super::id;
use super::mailbox::MESSAGE_MAX;
use super::open::{Common, tell_incidents};
use super::recorder::{Counts, Recorder};
use super::scheme::{self, Scheme};
use super::span::{self, Keep};
use super::tidy;
use crate::trace::{Envelope, Options};

/// Records messages from files, mboxes and maildirs
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  The mail of an archive, so that one can ask for it:
    exirate trace record --mbox archive.mbox
  One that is compressed, and two maildirs with all their folders:
    zcat archive.mbox.gz | exirate trace record --mbox -
    exirate trace record --maildir /var/mail/alice --maildir /var/mail/bob
  A message with what is known of it:
    exirate trace record --from alice@example.org --to bob@example.net message.eml
  An archive of many years, and from now on nothing is forgotten for its age:
    exirate trace record --keep forever --mbox archive.mbox
  Try the other scheme:
    exirate trace record --scheme hbf --mbox archive.mbox

Exim itself records what passes by the function `record` of exirate.so; this is for what
has passed before. What is recorded twice is found twice.

What no option says is taken from the message. The sender: from Return-Path, the line
`From ` of an mbox, Sender or From. The recipients: from Envelope-To, Delivered-To and
X-Original-To, or else from To, Cc and Bcc. The time: from the first Received, the line
`From `, Date, or the file's own. The id: from the first Received if it is one of Exim's,
or else the Message-ID. The client: from the first Received.

In an mbox, a message begins with a line `From ` that follows an empty one and has a date;
`>From ` in a message is `From `. Of a maildir, cur and new are read, and those of all
folders in it. - is standard input. A message that cannot be recorded is told, and the
others are recorded. A message that is older than the store keeps messages, for 90 days
if nobody has said anything else, is not recorded: say --keep.

--keep and the digests' options are kept with the store and go for what is recorded from
now on, by Exim too, unless a line of its configuration says otherwise. What was recorded before can be asked all the same.

Exit status: 0 all was recorded; 2 an error, or a message could not be recorded.

JSON: an object. `recorded` is how many messages were, and `bytes` their size; of
`not_recorded`, `too_old` are older than the store keeps messages; `cut` are those of
which only the beginning was recorded, for they are larger than any message, and
`nameless` those that tell neither an id nor a sender nor a recipient.")]
pub(super) struct Record {
    /// Files with one message each
    #[arg(value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,

    /// Records all messages of this mbox
    #[arg(long, value_name = "FILE")]
    pub(super) mbox: Vec<PathBuf>,

    /// Records all messages of this maildir and the folders in it
    #[arg(long, value_name = "DIR")]
    pub(super) maildir: Vec<PathBuf>,

    /// The sender; <> for a bounce
    #[arg(long, value_name = "ADDRESS")]
    from: Option<String>,

    /// The recipients: more than one with commas between them, or the option
    /// again
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    to: Vec<String>,

    /// The message's id
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    id: Option<String>,

    /// When it passed
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    time: Option<crate::rate::Timestamp>,

    /// From which IP address it came
    #[arg(long, value_name = "IP")]
    client: Option<IpAddr>,

    /// As whom the client was authenticated
    #[arg(long, value_name = "NAME")]
    auth: Option<String>,

    /// From now on, for how long messages are kept: 90d, 52w, or `forever`
    #[arg(long, value_name = "TIME", value_parser = span::keep)]
    keep: Option<Keep>,

    #[command(flatten)]
    scheme: Scheme,

    #[command(flatten)]
    common: Common,
}

impl Record {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        self.check()?;
        let mut trace = self.common.open_or_make()?;
        let before = *trace.options();
        let settings = self.scheme.settings(before.settings)?;
        let keep = self.keep.map_or(before.keep, |Keep(seconds)| seconds);
        let after = Options { settings, keep, ..before };
        if after != before {
            trace.set_options(after)?;
        }
        if settings != before.settings {
            note(format_args!("from now on: {}", scheme::described(settings)));
        }
        if keep != before.keep {
            note(format_args!("from now on messages are kept {}", tidy::kept(keep)));
            note(tidy::REMINDER);
        }
        let mut recorder = Recorder::new(self, trace);
        let done = recorder.all();
        tell_incidents(&mut recorder.trace);
        let counts = recorder.counts;
        if self.common.json {
            screen.json(&counts)?;
        } else {
            tell(screen, &counts)?;
        }
        screen.flush()?;
        done?;
        if counts.nameless > 0 {
            note(format_args!(
                "{} message(s) tell neither who sent them nor who got them, and have no id; if \
                 they are messages, --from, --to and --id say it",
                counts.nameless
            ));
        }
        if counts.too_old > 0 {
            complain(format_args!(
                "{} message(s) are older than this store keeps messages, {}: say --keep, such as \
                 --keep forever",
                counts.too_old,
                tidy::kept(keep)
            ));
        }
        match counts.not_recorded {
            0 => Ok(Outcome::Fine),
            lost => Err(Failure::new(format!(
                "{lost} message(s) could not be recorded; all others are"
            ))),
        }
    }

    /// What can be seen to be wrong before anything is done.
    fn check(&self) -> Result<(), Failure> {
        tidy::check_keep(self.keep)?;
        if self.files.is_empty() && self.mbox.is_empty() && self.maildir.is_empty() {
            return Err(Failure::new(
                "nothing to record: name files with a message each (- is standard input), or say \
                 --mbox FILE or --maildir DIR",
            ));
        }
        let all = || self.files.iter().chain(&self.mbox);
        if all().filter(|path| path.as_os_str() == "-").count() > 1 {
            return Err(Failure::new("- is named twice: standard input can be read only once"));
        }
        if self.id.is_some()
            && !(self.files.len() == 1 && self.mbox.is_empty() && self.maildir.is_empty())
        {
            return Err(Failure::new("--id is that of one message: it takes one FILE and no more"));
        }
        for path in all().chain(&self.maildir).filter(|path| path.as_os_str() != "-") {
            // Before all that comes before is recorded.
            let facts =
                path.metadata().map_err(|e| input::failed(&path.display().to_string(), &e))?;
            let is_maildir = self.maildir.contains(path);
            if facts.is_dir() && !is_maildir {
                return Err(Failure::new(format!(
                    "{0} is a directory: say --maildir {0}, or name the files in it",
                    path.display()
                )));
            }
            if !facts.is_dir() && is_maildir {
                return Err(Failure::new(format!(
                    "--maildir {0}: it is no directory; for a file with many messages say --mbox \
                     {0}, for one message only {0}",
                    path.display()
                )));
            }
        }
        Ok(())
    }
}

impl Record {
    /// Puts what the options say in the place of what a message tells.
    pub(super) fn overrule(&self, envelope: &mut Envelope) {
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
}

/// An address without the brackets around it.
fn bare(address: &str) -> &str {
    let address = address.trim();
    address.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')).unwrap_or(address)
}

fn tell(screen: &mut Screen<'_>, counts: &Counts) -> Result<(), Failure> {
    writeln!(screen, "recorded {} message(s), {}", counts.recorded, bytes(counts.bytes))?;
    if counts.cut > 0 {
        writeln!(screen, "of {} of them only the first {} MiB", counts.cut, MESSAGE_MAX >> 20)?;
    }
    Ok(())
}
