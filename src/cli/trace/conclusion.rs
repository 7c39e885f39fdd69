//! The result of `exirate trace query`: the messages, and how certain they are.

use std::io::Write as _;

use schemars::JsonSchema;
use serde::Serialize;

use super::super::Failure;
use super::answers::{self, AnswerJson};
use super::envelope::{self, CSV_HEAD, Format};
use super::{length, probability};
use crate::cli::shared::screen::{Screen, note};
use crate::text;
use crate::trace::{Part, QueryResult, QuerySummary, Settings, TooShort};

/// The result.
pub(super) struct QueryReply {
    /// What was searched for.
    pub(super) parts: Vec<Part>,
    /// The share of it that was enough, or 0 if it was chosen for each message.
    pub(super) least: f64,
    /// How messages are digested now.
    pub(super) settings: Settings,
    /// Whether only some were to be shown.
    pub(super) limited: bool,
    /// Whether only some envelopes were meant, and nobody has counted them.
    pub(super) narrowed: bool,
    /// The messages to show.
    pub(super) found: Vec<QueryResult>,
    /// If near-identical messages are shown once: how many there are of each of `found`.
    pub(super) alike: Option<Vec<u64>>,
    /// How many were left out as there by chance.
    pub(super) doubtful: u64,
    pub(super) summary: QuerySummary,
}

/// The result, in JSON.
#[derive(Serialize, JsonSchema)]
pub(super) struct ReplyFacts<'a> {
    found: Vec<AnswerJson<'a>>,
    /// How many messages there are without --limit.
    matches: u64,
    /// How many messages were left out as matching by chance.
    doubtful: u64,
    /// How many messages were searched.
    searched: u64,
    /// How many of them could not be searched for contents.
    unanswered: u64,
    unreadable: u64,
    /// How many of the others were not recorded whole, and may have contained it without being in
    /// `found` (at most, if envelopes are searched too).
    partial: u64,
    /// In how many segments these messages are.
    segments: u64,
    /// How many messages are expected in `found` by chance (at most, if envelopes are searched too
    /// or with --at-least); null if nothing was found, for passages, for --at-least auto, and with
    /// the scheme hbf.
    false_expected: Option<f64>,
    /// With how many bytes it would be one in a hundred such queries; null: it is less already, or
    /// is not known.
    enough: Option<u64>,
    /// The length in bytes from which a text is found for certain.
    shortest: usize,
    /// What was searched for.
    parts: Vec<PartJson<'a>>,
    /// What could not be read.
    damaged: Vec<String>,
    /// How many files have another key.
    other_key: u64,
}

/// What was searched for, in JSON.
#[derive(Serialize, JsonSchema)]
struct PartJson<'a> {
    kind: &'static str,
    bytes: usize,
    text: Option<&'a str>,
}

impl QueryReply {
    /// Writes it as JSON.
    pub(super) fn json(&self, screen: &mut Screen<'_>) -> Result<(), Failure> {
        screen.json(&self.facts())
    }

    /// Writes several as a JSON array.
    pub(super) fn json_of_all(
        all: &[Result<Self, Failure>],
        screen: &mut Screen<'_>,
    ) -> Result<(), Failure> {
        let facts = all.iter().map(|reply| reply.as_ref().ok().map(Self::facts));
        screen.json(&facts.collect::<Vec<_>>())
    }

    fn facts(&self) -> ReplyFacts<'_> {
        ReplyFacts {
            found: self.answers().collect(),
            matches: self.summary.matches,
            doubtful: self.doubtful,
            searched: self.summary.messages,
            unanswered: self.summary.unanswered,
            unreadable: self.summary.unreadable,
            partial: self.summary.partial,
            segments: self.summary.segments,
            false_expected: self.summary.expected,
            enough: self.enough(),
            shortest: self.summary.shortest,
            parts: self.parts.iter().map(PartJson::from).collect(),
            damaged: self.summary.damaged.iter().map(ToString::to_string).collect(),
            other_key: self.summary.other_key,
        }
    }

    /// Whether all messages that match are there.
    pub(super) fn is_whole(&self) -> bool {
        self.found.len() as u64 == self.summary.matches
    }

    /// This result, of a search for bytes, with that of a search for the same as text: at most
    /// `limit` messages of both. `matches` is how many there are of both together, if it is known.
    pub(super) fn or_as_text(
        mut self,
        other: Self,
        matches: Option<u64>,
        limit: Option<usize>,
    ) -> Self {
        let (as_bytes, as_text) = (self.summary.matches, other.summary.matches);
        note(format_args!(
            "the excerpt of an attachment is text: {} it as text, and {as_bytes} as bytes",
            text::counted(as_text, "message matches", "messages match")
        ));
        if as_bytes == 0 {
            return other;
        }
        let has =
            |answer: &QueryResult| self.found.iter().any(|one| one.envelope == answer.envelope);
        let (both, new): (Vec<_>, Vec<_>) = other.found.into_iter().partition(has);
        self.found.extend(new);
        self.found.truncate(limit.unwrap_or(usize::MAX));
        let sum = as_bytes + as_text.saturating_sub(both.len() as u64);
        self.summary.matches = matches.unwrap_or(sum);
        let sum = |(one, other): (f64, f64)| one + other;
        self.summary.expected = match as_text {
            0 => self.summary.expected,
            _ => self.summary.expected.zip(other.summary.expected).map(sum),
        };
        self
    }

    /// Writes the messages as lines.
    pub(super) fn lines(&self, format: Format, screen: &mut Screen<'_>) -> Result<(), Failure> {
        if format == Format::Jsonl {
            for answer in self.answers() {
                let line = serde_json::to_string(&answer).map_err(std::io::Error::from)?;
                writeln!(screen, "{line}")?;
            }
            return Ok(());
        }
        writeln!(screen, "{CSV_HEAD},{}", answers::CSV_HEAD)?;
        for answer in &self.found {
            let evidence = answers::csv_line(answer, &self.parts);
            writeln!(screen, "{},{evidence}", envelope::csv_line(&answer.envelope))?;
        }
        Ok(())
    }

    /// The messages found, in JSON.
    pub(super) fn answers(&self) -> impl Iterator<Item = AnswerJson<'_>> {
        (0..).zip(&self.found).map(|(number, answer)| {
            let alike = self.alike.as_ref().and_then(|alike: &Vec<u64>| alike.get(number));
            AnswerJson::of(answer, &self.parts, alike.copied())
        })
    }

    /// Whether messages were searched for passages.
    fn asks_passages(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Passage(_)))
    }

    /// Writes it for people.
    pub(super) fn print(&self, screen: &mut Screen<'_>) -> Result<(), Failure> {
        if !self.found.is_empty() {
            let graded = self.least < 1.0 || self.asks_passages();
            answers::print(screen, &self.found, graded, self.alike.as_deref())?;
            answers::print_passages(screen, &self.found, &self.parts)?;
        }
        let shown = match &self.alike {
            Some(alike) => alike.iter().sum(),
            None => self.found.len() as u64,
        };
        let (matches, messages) = (self.summary.matches, self.summary.messages);
        if matches > shown {
            let more = matches - shown;
            match self.limited {
                true => writeln!(screen, "and {more} more, without --limit")?,
                false => writeln!(screen, "and {more} more, with --limit {matches}")?,
            }
        }
        let messages = text::counted(messages, "message", "messages");
        match self.summary.expected {
            _ if matches == 0 => writeln!(screen, "none of {messages}")?,
            None if self.asks_passages() => writeln!(
                screen,
                "{matches} of {messages} may have contained it, or a passage of it; FALSE is the \
                 probability for a message that shares nothing with it"
            )?,
            None if self.least <= 0.0 => writeln!(
                screen,
                "{matches} of {messages} may have contained it, or an edited version of it; FALSE is \
                 the probability for a message that is not related to it"
            )?,
            None if !self.parts.is_empty() => writeln!(
                screen,
                "{matches} of {messages} may have contained it; how many of these are false \
                 results is not known with the scheme hbf"
            )?,
            None => writeln!(screen, "{matches} of {messages}")?,
            Some(expected) => writeln!(
                screen,
                "{matches} of {messages} may have contained it; expected false results: {}{}",
                if self.narrowed || self.least < 1.0 { "at most " } else { "" },
                probability::expected(expected)
            )?,
        }
        self.print_length(screen)?;
        self.print_left_out();
        Ok(())
    }

    /// Prints how long the text is, how long it must be, and how long it should be.
    fn print_length(&self, screen: &mut Screen<'_>) -> Result<(), Failure> {
        let is_text =
            self.parts.iter().all(|part| matches!(part, Part::Text(_) | Part::Passage(_)));
        if self.parts.is_empty() || !is_text || self.summary.messages == 0 {
            return Ok(());
        }
        let shortest = self.summary.shortest;
        write!(screen, "searched for {} bytes of text; the minimum is {shortest}", self.bytes())?;
        if let Some(enough) = self.enough() {
            write!(screen, ", and with about {enough} one query in 100 has a false result")?;
        }
        writeln!(screen)?;
        Ok(())
    }

    /// How many bytes were searched for.
    fn bytes(&self) -> usize {
        self.parts.iter().map(length::of).sum()
    }

    /// With how many bytes one such query in a hundred would have a false result,
    /// roughly; `None` if these are enough, or it is not known.
    fn enough(&self) -> Option<u64> {
        let is_file = |part: &Part| matches!(part, Part::File(_) | Part::FileHash(_));
        let QuerySummary { expected, messages, .. } = self.summary;
        let expected = expected.filter(|expected| *expected > length::RARE)?;
        let chance = expected / messages as f64;
        if self.parts.iter().any(is_file) || chance >= 0.999 {
            return None;
        }
        length::enough(self.bytes(), chance, messages)
    }

    fn print_left_out(&self) {
        let is_file = |part: &Part| matches!(part, Part::File(_) | Part::FileHash(_));
        let is_bytes = |part: &Part| matches!(part, Part::Bytes(_));
        if self.summary.expected.is_some_and(|expected| expected > length::RARE)
            && self.parts.iter().any(is_file)
            && !self.parts.iter().any(is_bytes)
        {
            note(
                "only a few bits of a whole attachment are kept; if it is not text, add --bytes with \
                 the same file for fewer false results",
            );
        }
        if self.doubtful > 0 {
            note(format_args!(
                "{} that may match by chance left out; --doubtful shows them",
                text::counted(self.doubtful, "message was", "messages were")
            ));
        }
        self.print_needed_length();
        self.print_unsearched();
        self.print_partial();
    }

    /// That a text is too short for the share that is asked for.
    fn print_needed_length(&self) {
        let is_text = self.parts.iter().all(|part| matches!(part, Part::Text(_)));
        let settings = Some(self.settings).filter(|_| is_text && !self.parts.is_empty());
        let distinctive =
            settings.and_then(|settings| length::distinctive_share(self.bytes(), settings));
        if let Some(distinctive) =
            distinctive.filter(|share| self.least > 0.0 && self.least < *share)
            && self.summary.matches == 0
            && self.summary.messages > 0
        {
            note(format_args!(
                "for a text of {} bytes, a share below about {} may match by chance and is not shown: \
                 use a longer text, or parts that were not edited",
                self.bytes(),
                text::percent(distinctive)
            ));
        }
    }

    /// Which messages were not searched.
    fn print_unsearched(&self) {
        let QuerySummary { unanswered, unreadable, decoded_otherwise, other_key, shortest, .. } =
            self.summary;
        if unreadable > 0 {
            note(format_args!(
                "{} not searched, because of damage",
                text::counted(unreadable, "message was", "messages were")
            ));
        }
        let too_short = unanswered.saturating_sub(decoded_otherwise);
        if too_short > 0 {
            note(format_args!(
                "{} not searched: with the settings they were digested with, a text needs {shortest} \
                 bytes",
                text::counted(too_short, "message was", "messages were")
            ));
        }
        if decoded_otherwise > 0 {
            note(format_args!(
                "{} not searched for content: another version of exirate decoded them, perhaps \
                 differently",
                text::counted(decoded_otherwise, "message was", "messages were")
            ));
        }
        if other_key > 0 {
            let files =
                text::counted(other_key, "file of another key was", "files of another key were");
            note(format_args!("{files} not searched"));
        }
    }

    /// Which messages are not known whole.
    fn print_partial(&self) {
        let shown = self.found.iter().filter(|answer| answer.envelope.partial).count() as u64;
        if shown > 0 {
            let were = if shown == 1 { "was" } else { "were" };
            note(format_args!("{shown} of these messages {were} not recorded whole"));
        }
        let others = self.summary.partial.saturating_sub(shown);
        if others > 0 {
            let most = if self.narrowed { "at most " } else { "" };
            note(format_args!(
                "{most}{} not recorded whole, and may have contained it too",
                text::counted(
                    others,
                    "message that is not listed was",
                    "messages that are not listed were"
                )
            ));
        }
        let damaged = self.found.iter().filter(|answer| answer.damaged).count();
        if damaged > 0 {
            let have = if damaged == 1 { "has" } else { "have" };
            note(format_args!("{damaged} of these messages {have} a damaged envelope"));
        }
    }
}

/// Shows what is looked for.
pub(super) fn explain(screen: &mut Screen<'_>, parts: &[Part]) -> Result<(), Failure> {
    for (number, part) in (1..).zip(parts) {
        match part {
            Part::Text(text) => {
                let shown = text::printable(text.as_bytes());
                writeln!(screen, "part {number}, {} bytes of text: {shown}", text.len())?;
            }
            Part::Passage(text) => {
                let shown = text::printable(text.as_bytes());
                let bytes = text.len();
                writeln!(screen, "part {number}, any passage of {bytes} bytes of text: {shown}")?;
            }
            Part::File(bytes) => {
                writeln!(screen, "part {number}: an attachment of {} bytes", bytes.len())?;
            }
            Part::FileHash(_) => writeln!(screen, "part {number}: an attachment's SHA-256")?,
            Part::Bytes(bytes) => {
                writeln!(screen, "part {number}: {} bytes of an attachment", bytes.len())?;
            }
        }
    }
    writeln!(screen)?;
    Ok(())
}

/// Says which part is too short, and what it would take.
pub(super) fn too_short(short: TooShort, parts: &[Part]) -> Failure {
    let TooShort { part, bytes, needed } = short;
    let which = if parts.len() > 1 { format!("part {} is", part + 1) } else { "it is".to_owned() };
    let what = match parts.get(part) {
        Some(Part::Text(text) | Part::Passage(text)) => {
            let text: String = text.chars().take(60).collect();
            format!(
                "{which} {bytes} bytes as text is compared (\"{}\")",
                text::printable(text.as_bytes())
            )
        }
        _ => format!("{which} {bytes} bytes"),
    };
    Failure::new(format!("{what}, and the minimum is {needed}: use a longer excerpt"))
}

impl<'a> From<&'a Part> for PartJson<'a> {
    fn from(part: &'a Part) -> Self {
        let (kind, text) = match part {
            Part::Text(text) => ("text", Some(text.as_str())),
            Part::Passage(text) => ("passage", Some(text.as_str())),
            Part::File(_) | Part::FileHash(_) => ("attachment", None),
            Part::Bytes(_) => ("bytes", None),
        };
        Self { kind, bytes: length::of(part), text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_too_short_is_shown_as_it_is_compared() {
        let parts = [Part::Text("long enough".to_owned()), Part::Text("ab\u{200b}".to_owned())];
        let short = TooShort { part: 1, bytes: 2, needed: 15 };
        let Failure::Said(why) = too_short(short, &parts) else { panic!() };
        assert_eq!(
            why,
            "part 2 is 2 bytes as text is compared (\"ab\\u{200b}\"), and the minimum is 15: use a \
             longer excerpt"
        );
    }
}
