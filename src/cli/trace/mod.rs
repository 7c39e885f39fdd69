//! `exirate trace`: which message carried this text? One file a command of it.
//!
//! What they share: [`options`] has what is searched for, and [`conclusion`] shows messages, and how
//! sure that is.

mod conclusion;
mod export;
mod options;
mod query;
mod record;
mod scheme;

use clap::Args;

use super::shared::commands::commands;
use super::shared::screen::Screen;
use super::{Failure, Outcome};
pub(super) use scheme::described as scheme_options;

/// Find which message contained a text, who sent it, and who received it
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Which message contained this text?
    exirate trace query --text 'the margin of the northern branch'
  Record the mail of an archive:
    exirate trace record --mbox archive.mbox
  How many messages are there, and since when?
    exirate stats

The trace store keeps the envelope and a digest of each message that is recorded. No text can
be read from it, but with a text at hand you can find the messages that may have contained it.

Exit status: see the help of each command, such as exirate trace query --help

The trace store is in the spool directory, as the rate database is. For each message that Exim (by
the function `record` in the ACL for DATA) or `exirate serve mail` records, it keeps the envelope
and a digest of the text and attachments, a small part of their size. No text can be read from it,
but with a text at hand you can find the messages that may have contained it. `exirate stats`,
`verify`, `repair`, `copy` and `config` are for the trace store as well.")]
pub(super) struct TraceCommand {
    #[command(subcommand)]
    command: TraceAction,
}

commands! {
    enum TraceAction {
        Query(query::Query),
        Record(record::TraceRecord),
        Export(export::Export),
    }
}

impl TraceCommand {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        self.command.run(screen)
    }
}
