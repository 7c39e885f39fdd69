//! `exirate trace export`: the envelopes of all messages.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::super::{Failure, Json, Outcome};
use super::options::Filters;
use crate::cli::shared::database::{Common, traces_incomplete};
use crate::cli::shared::output_file;
use crate::cli::shared::screen::{Screen, note, progress};
use crate::csv;
use crate::text::{self, json};
use crate::trace::{Envelope, QuerySummary, TraceStore};

/// Permissions of the file: it contains senders and recipients.
const SECRET: u32 = 0o600;

/// Write the envelopes of all messages, as JSON or CSV
#[derive(Debug, Args)]
#[command(after_help = HELP, add = Json::when::<Envelope>("For each message"))]
pub(super) struct Export {
    /// Write to FILE, which only its owner may read; the default is standard
    /// output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Output format
    #[arg(long, value_name = "FORM", default_value = "jsonl")]
    format: Format,

    #[command(flatten)]
    filters: Filters,

    #[command(flatten)]
    common: Common,
}

/// The help after the options.
const HELP: &str = "Examples:
  Senders and recipients, in a spreadsheet:
    exirate trace export --format csv --output mail.csv
  How many messages has each sender sent this week?
    exirate trace export --since 7d | jq -r .sender | sort | uniq -c

Times, ids, addresses and clients are written, and no text: none is stored.

Exit status: 0 written; 2 an error, or not everything could be read.

No text of any message is stored, so none is written: only times, ids, addresses and clients. The
digests are left out as well: without the store's key they reveal nothing. Messages come roughly
in the order in which they were recorded. In CSV, recipients are separated by blanks. Fields are
chosen by clients, and a spreadsheet would take one that begins with =, +, -, @, a tab or a
carriage return for a formula: an apostrophe is written before it, numbers excepted. Exim may run
meanwhile.";

impl Export {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        if self.common.json && self.format == Format::Csv {
            return Err(Failure::new("--json and --format csv contradict each other: use one"));
        }
        let trace = self.common.open_traces()?;
        let (mut written, mut damaged) = (0, Vec::new());
        let mut write = |out: &mut dyn Write| {
            let (count, summary) = self.write(&trace, out)?;
            (written, damaged) = (count, summary.damaged);
            Ok(())
        };
        match &self.output {
            Some(path) => {
                output_file::replace(path, SECRET, write)?;
                writeln!(screen, "wrote {written} messages to {}", path.display())?;
            }
            None => write(screen)?,
        }
        screen.flush()?;
        traces_incomplete(&damaged)?;
        if written == 0 {
            note("there is nothing to write");
        }
        Ok(Outcome::Fine)
    }

    /// Writes the envelopes, and gives how many.
    fn write(
        &self,
        trace: &TraceStore,
        out: &mut dyn Write,
    ) -> Result<(u64, QuerySummary), Failure> {
        if self.format == Format::Csv {
            writeln!(out, "{CSV_HEAD}")?;
        }
        let mut bar = None;
        let (mut written, mut failed) = (0, None);
        let summary = trace.query(
            &self.filters.query(),
            &mut |done, of| {
                // The lines would be drawn over on a terminal.
                if self.output.is_some() {
                    bar.get_or_insert_with(|| progress(of, "messages")).set_position(done);
                }
            },
            &mut |answer| {
                if failed.is_some() {
                    return;
                }
                match self.line(&answer.envelope, out) {
                    Ok(()) => written += 1,
                    Err(error) => failed = Some(error),
                }
            },
        )?;
        match failed {
            Some(error) => Err(error.into()),
            None => Ok((written, summary)),
        }
    }

    fn line(&self, envelope: &Envelope, out: &mut dyn Write) -> std::io::Result<()> {
        if self.format == Format::Jsonl {
            let line = json(envelope).map_err(std::io::Error::from)?;
            return writeln!(out, "{line}");
        }
        writeln!(out, "{}", csv_line(envelope))
    }
}

/// The form of lines for other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// A line of JSON each
    Jsonl,
    /// Comma-separated values with a line of heads
    Csv,
}

/// The heads of [`csv_line`].
pub(super) const CSV_HEAD: &str = "time,id,sender,recipients,client,authenticated,partial";

/// An envelope as comma-separated values.
pub(super) fn csv_line(envelope: &Envelope) -> String {
    let client = envelope.client.map(|client| client.to_string()).unwrap_or_default();
    let (time, recipients) = (text::iso_second(envelope.time), envelope.recipients.join(" "));
    let fields = [
        &*time,
        &*envelope.id,
        &*envelope.sender,
        &*recipients,
        &*client,
        &*envelope.authenticated,
        if envelope.partial { "yes" } else { "no" },
    ];
    csv::line(fields)
}
