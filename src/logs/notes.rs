//! What a reader should know of the lines of logs that were not used.

use schemars::JsonSchema;
use serde::Serialize;

use super::files::Read;
use super::unused::{Reason, Unused, UnusedLines};
use crate::text::{counted_or_no, printable};

/// What a reader should know of the lines of which these were not used.
pub fn notes(read: &Read, unused: &Unused) -> Vec<String> {
    const SAID: [Reason; 4] =
        [Reason::WithoutTime, Reason::NotUnderstood, Reason::OtherProgram, Reason::TooManyServers];
    let of = counted_or_no(read.lines as usize, "line", "lines");
    let mut notes = Vec::new();
    for (reason, text) in SAID.map(|reason| (reason, reason.text())) {
        let lines = unused.of(reason);
        let Some((place, line)) = lines.examples.first() else { continue };
        let count = counted_or_no(lines.count as usize, "line", "lines");
        let first = match reason {
            Reason::WithoutTime | Reason::NotUnderstood => {
                format!("; the first is {place}: {}", printable(line.as_bytes()))
            }
            _ => String::new(),
        };
        notes.push(format!("{count} {text}, of {of}, skipped{first}"));
    }
    for place in &read.nights {
        notes.push(format!(
            "{place}: the clock goes back by an hour here, as summer time ends; times after that \
             are taken, and shown, as an hour later"
        ));
    }
    notes
}

/// What a reader should know of messages that the log does not show from their arrival on.
pub fn notes_of_origin(without_origin: u64, ambiguous: u64, before: u64) -> Vec<String> {
    let messages = |count: u64| counted_or_no(count as usize, "message", "messages");
    let mut notes = Vec::new();
    if without_origin > 0 {
        notes.push(format!(
            "for {}, the log does not show the arrival: clients and logins are not known",
            messages(without_origin)
        ));
    }
    if ambiguous > 0 {
        notes.push(format!(
            "for {}, a client wrote what looks like another login (in U=, DN= or SNI=): the \
             logins are not known",
            messages(ambiguous)
        ));
    }
    if before > 0 {
        notes.push(format!("{} received before the log begins: not counted", messages(before)));
    }
    notes
}

/// The lines that were not used for one reason.
#[derive(Serialize, JsonSchema)]
pub struct LineCounts<'a> {
    reason: &'a str,
    /// What the reason means.
    pub(crate) text: &'a str,
    pub(crate) count: u64,
    /// Some of them, each with its place.
    pub(crate) examples: Vec<[&'a str; 2]>,
}

impl<'a> LineCounts<'a> {
    /// Those of each reason that has any.
    pub(crate) fn of(unused: &'a Unused) -> Vec<Self> {
        let some = unused.all().filter(|(.., lines)| lines.count > 0);
        let of_reason = |(reason, text, lines): (&'static str, &'static str, &'a UnusedLines)| {
            let examples = lines.examples.iter().map(|(place, line)| [&**place, &**line]);
            Self { reason, text, count: lines.count, examples: examples.collect() }
        };
        some.map(of_reason).collect()
    }
}
