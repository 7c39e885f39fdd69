//! Printed envelopes.

use clap::ValueEnum;

use crate::csv;
use crate::text;
use crate::trace::Envelope;

/// What the fields of an envelope in JSON mean, for the help of commands that print it.
pub(super) const JSON_HELP: &str = "\
`sender` is empty for a bounce, `client` and `authenticated`
are null if there was none, `partial` is whether a message was too large to be
recorded whole.";

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
