//! Printed envelopes.

use clap::ValueEnum;
use serde::Serialize;

use crate::csv;
use crate::standing::key_state::second;
use crate::text;
use crate::trace::Envelope;

/// An envelope, in JSON.
#[derive(Serialize)]
pub(super) struct EnvelopeJson<'a> {
    time: String,
    id: &'a str,
    sender: &'a str,
    recipients: &'a [String],
    client: Option<String>,
    authenticated: Option<&'a str>,
    partial: bool,
}

impl<'a> EnvelopeJson<'a> {
    pub(super) fn of(envelope: &'a Envelope) -> Self {
        Self {
            time: iso(envelope.time),
            id: &envelope.id,
            sender: &envelope.sender,
            recipients: &envelope.recipients,
            client: envelope.client.map(|client| client.to_string()),
            authenticated: Some(&*envelope.authenticated).filter(|name| !name.is_empty()),
            partial: envelope.partial,
        }
    }
}

/// What [`EnvelopeJson`] means, for the help of commands that print it.
pub(super) const JSON_HELP: &str = "\
`sender` is empty for a bounce, `client` and `authenticated`
are null if there was none, `partial` is whether a message was too large to be
recorded whole.";

/// Seconds since 1970 as ISO 8601 in UTC.
pub(super) fn iso(seconds: i64) -> String {
    text::iso(second(seconds))
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
    csv::line(fields)
}
