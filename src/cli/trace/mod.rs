//! `exirate trace`: which message carried this text? One file a command of it.
//!
//! What they share: [`open`] finds the store, [`excerpt`] and [`whom`] read what
//! is asked for, [`mailbox`], [`headers`] and [`id`] read mail that passed long
//! ago, [`answers`], [`shown`], [`odds`] and [`length`] show messages, and how sure
//! that is.

mod answers;
mod conclusion;
mod excerpt;
mod export;
mod headers;
mod id;
mod length;
mod mailbox;
mod odds;
mod open;
mod query;
mod record;
mod recording;
mod repair;
mod scheme;
mod shown;
mod span;
mod stats;
mod tidy;
mod verify;
mod whom;

use clap::{Args, Subcommand};

use super::screen::Screen;
use super::{Failure, Outcome};

/// Which message carried this text? Who sent it, and who got it?
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Which message carried this text?
    exirate trace query --text 'the margin of the northern branch'
  Remember the mail of an archive:
    exirate trace record --mbox archive.mbox
  How much is remembered, and since when?
    exirate trace stats

The trace store is beside the rate database. Of each message that Exim records there
(the function `record` of exirate.so, in the ACL for DATA) it keeps the envelope and a
digest of its text and attachments, a small part of their size. No text can be read
from it; but whoever has a text can ask which messages may have carried it.

Exit status: that of each command: exirate trace query --help")]
pub(super) struct Trace {
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

impl Trace {
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
