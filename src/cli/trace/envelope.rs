//! Printed envelopes.

use clap::ValueEnum;

use crate::csv;
use crate::text;
use crate::trace::Envelope;

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
