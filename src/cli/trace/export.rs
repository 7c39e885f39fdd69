//! `exirate trace export`: the envelopes of all messages.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::super::database::{Common, traces_incomplete};
use super::super::screen::{Screen, note, progress};
use super::super::{Failure, Outcome, output_file};
use super::envelope::{EnvelopeJson, JSON_HELP, iso};
use super::span;
use crate::trace::{Envelope, Query, QuerySummary, TraceStore};

/// Permissions of the file: it contains senders and recipients.
const SECRET: u32 = 0o600;

/// Write the envelopes of all messages, as JSON or CSV
#[derive(Debug, Args)]
#[command(after_help = help())]
pub(super) struct Export {
    /// Write to FILE, which only its owner may read; the default is standard
    /// output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Output format
    #[arg(long, value_name = "FORM", default_value = "jsonl")]
    format: Format,

    /// Only messages from this moment on; 7d is seven days ago
    #[arg(long, value_name = "TIME", value_parser = span::since)]
    since: Option<i64>,

    /// Only messages up to this moment; of a date, to its end
    #[arg(long, value_name = "TIME", value_parser = span::until)]
    until: Option<i64>,

    #[command(flatten)]
    common: Common,
}

/// The form of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A line of JSON each
    Jsonl,
    /// Comma-separated values with a line of heads
    Csv,
}

/// The help after the options.
fn help() -> String {
    format!(
        "Examples:
  Senders and recipients, in a spreadsheet:
    exirate trace export --format csv --output mail.csv
  How many messages has each sender sent this week?
    exirate trace export --since 7d | jq -r .sender | sort | uniq -c

No text of any message is stored, so none is written: only times, ids, addresses
and clients. The digests are left out as well, for without the store's key they say
nothing. Messages come in the order in which they were recorded, about. In CSV,
recipients are separated by blanks. Fields are chosen by clients, and a spreadsheet
may take one that begins with = for a formula. Exim may run meanwhile.

Exit status: 0 written; 2 an error, or not everything could be read.

JSON: lines, each an object. {JSON_HELP}"
    )
}

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
            writeln!(out, "time,id,sender,recipients,client,authenticated,partial")?;
        }
        let mut bar = None;
        let (mut written, mut failed) = (0, None);
        let summary = trace.query(
            &Query { since: self.since, until: self.until, ..Query::default() },
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
            let line =
                serde_json::to_string(&EnvelopeJson::of(envelope)).map_err(std::io::Error::from)?;
            return writeln!(out, "{line}");
        }
        let client = envelope.client.map(|client| client.to_string()).unwrap_or_default();
        let (time, recipients) = (iso(envelope.time), envelope.recipients.join(" "));
        let fields = [
            &*time,
            &*envelope.id,
            &*envelope.sender,
            &*recipients,
            &*client,
            &*envelope.authenticated,
            if envelope.partial { "yes" } else { "no" },
        ];
        writeln!(out, "{}", fields.map(csv).join(","))
    }
}

/// A field of CSV (RFC 4180).
fn csv(field: &str) -> String {
    if field.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        for (field, text) in [
            ("alice@example.org", "alice@example.org"),
            ("", ""),
            ("\"a,b\"@c.test", "\"\"\"a,b\"\"@c.test\""),
            ("a\nb", "\"a\nb\""),
        ] {
            assert_eq!(csv(field), text);
        }
    }
}
