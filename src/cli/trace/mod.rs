//! `exirate trace`: which message carried this text? One file a command of it.
//!
//! What they share: [`open`] finds the store, [`excerpt`] and [`whom`] read what
//! is asked for, [`mailbox`], [`headers`] and [`id`] read mail that passed long
//! ago, [`answers`], [`shown`], [`odds`] and [`length`] show messages, and how sure
//! that is.

mod answers;
mod conclusion;
mod envelope;
mod excerpt;
mod export;
mod filters;
mod headers;
mod id;
mod length;
mod mailbox;
mod open;
mod probability;
mod query;
mod record;
mod recording;
mod repair;
mod scheme;
mod span;
mod stats;
mod tidy;
mod verify;

use clap::{Args, Subcommand};

use super::screen::Screen;
use super::{Failure, Outcome};

/// Find which message contained a text, who sent it, and who received it
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Which message contained this text?
    exirate trace query --text 'the margin of the northern branch'
  Record the mail of an archive:
    exirate trace record --mbox archive.mbox
  How many messages are there, and since when?
    exirate trace stats

The trace store is beside the rate database. For each message that Exim records (by the
function `record` in the ACL for DATA) it keeps the envelope and a digest of its text and
attachments, a small part of their size. No text can be read from it; but with a text at
hand, you can find the messages that may have contained it.

Exit status: see the help of each command, such as exirate trace query --help")]
pub(super) struct TraceCommand {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Query(query::Query),
    Record(record::Record),
    Stats(stats::Stats),
    Verify(verify::Verify),
    Repair(repair::Repair),
    Tidy(tidy::Tidy),
    Export(export::Export),
}

impl TraceCommand {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        match &self.command {
            Command::Query(query) => query.run(screen),
            Command::Record(record) => record.run(screen),
            Command::Stats(stats) => stats.run(screen),
            Command::Verify(verify) => verify.run(screen),
            Command::Repair(repair) => repair.run(screen),
            Command::Tidy(tidy) => tidy.run(screen),
            Command::Export(export) => export.run(screen),
        }
    }
}
