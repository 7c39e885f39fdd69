//! The result of `exirate trace query`, as people and programs get it.

use std::collections::HashSet;
use std::io::Write as _;

use super::super::Failure;
use super::export::{self, CSV_HEAD, Format};
use crate::cli::shared::screen::{Screen, note};
use crate::cli::shared::table::{self, Column};
use crate::text;
use crate::trace::answer::{
    self, PassageJson, QueryReply, RARE, chance, csv_line, distinctive_share, passage, probability,
    share, within, within_words,
};
use crate::trace::{Envelope, Part, QueryResult, QuerySummary};

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

    /// Writes the messages as lines.
    pub(super) fn lines(&self, format: Format, screen: &mut Screen<'_>) -> Result<(), Failure> {
        if format == Format::Jsonl {
            for answer in self.answers() {
                screen.json(&answer)?;
            }
            return Ok(());
        }
        writeln!(screen, "{CSV_HEAD},{}", answer::CSV_HEAD)?;
        for answer in &self.found {
            let evidence = csv_line(answer, &self.parts);
            writeln!(screen, "{},{evidence}", export::csv_line(&answer.envelope))?;
        }
        Ok(())
    }

    /// Writes it for people.
    pub(super) fn print(&self, screen: &mut Screen<'_>) -> Result<(), Failure> {
        if !self.found.is_empty() {
            let graded = self.least < 1.0 || self.asks_passages();
            print_answers(screen, &self.found, graded, self.alike.as_deref())?;
            print_passages(screen, &self.found, &self.parts)?;
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

    fn print_left_out(&self) {
        let is_file = |part: &Part| matches!(part, Part::File(_) | Part::FileHash(_));
        let is_bytes = |part: &Part| matches!(part, Part::Bytes(_));
        if self.summary.expected.is_some_and(|expected| expected > RARE)
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
        let distinctive = settings.and_then(|settings| distinctive_share(self.bytes(), settings));
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

/// How many recipients of one message a table shows.
const RECIPIENTS_SHOWN: usize = 10;

/// Of a longer passage, so many letters of its beginning and its end are printed.
const PASSAGE_SHOWN: usize = 40;

/// Prints which passages of the texts the messages may have contained, the longest of each.
fn print_passages(
    screen: &mut Screen<'_>,
    answers: &[QueryResult],
    parts: &[Part],
) -> Result<(), Failure> {
    let found = || answers.iter().filter_map(|answer| Some((answer, passage(answer, parts)?)));
    if found().next().is_none() {
        return Ok(());
    }
    writeln!(screen, "\nThe longest passage in each:")?;
    for (answer, PassageJson { start, bytes, text, .. }) in found() {
        let id = text::printable(answer.envelope.id.as_bytes());
        writeln!(screen, "{id}: {bytes} bytes from byte {start}: {}", shortened(text))?;
    }
    writeln!(screen)?;
    Ok(())
}

/// The beginning and the end of a text.
fn shortened(text: &str) -> String {
    let letters = text.chars().count();
    if letters <= 2 * PASSAGE_SHOWN + 5 {
        return text::printable(text.as_bytes());
    }
    let first: String = text.chars().take(PASSAGE_SHOWN).collect();
    let last: String = text.chars().skip(letters - PASSAGE_SHOWN).collect();
    let [first, last] = [first, last].map(|text| text::printable(text.trim().as_bytes()));
    format!("{first} … {last}")
}

/// Prints results as a table; `alike` is how many near-identical messages each stands for.
fn print_answers(
    screen: &mut Screen<'_>,
    answers: &[QueryResult],
    graded: bool,
    alike: Option<&[u64]>,
) -> Result<(), Failure> {
    let word = |text: &str| text::printable(text.as_bytes());
    let alike = |number: usize| alike.and_then(|alike| alike.get(number)).copied();
    let rows: Vec<_> = (0..).zip(answers).map(|(n, one)| (alike(n), one, &one.envelope)).collect();
    let columns: [table::Shows<'_, (Option<u64>, &QueryResult, &Envelope)>; 10] = [
        (Column::words("TIME"), &|(.., envelope)| text::local_second(envelope.time)),
        (Column::words("ID"), &|(.., envelope)| word(&envelope.id)),
        (Column::words("FALSE"), &|(_, one, _)| {
            chance(one).map(probability::one_in).unwrap_or_default()
        }),
        (Column::numbers("THERE"), &|(_, one, _)| {
            share(one).filter(|_| graded).map(text::percent).unwrap_or_default()
        }),
        (Column::words("IN").spare(3), &|(_, one, _)| {
            within(one).map(within_words).unwrap_or_default()
        }),
        (Column::numbers("ALIKE"), &|(alike, ..)| {
            alike.map(|alike| alike.to_string()).unwrap_or_default()
        }),
        (Column::words("CLIENT").spare(2), &|(.., envelope)| {
            envelope.client.map(|client| client.to_string()).unwrap_or_default()
        }),
        (Column::words("AUTH").spare(1), &|(.., envelope)| word(&envelope.authenticated)),
        (Column::words("SENDER"), &|(.., envelope)| match &*envelope.sender {
            "" => "<>".to_owned(),
            sender => word(sender),
        }),
        (Column::words("RECIPIENTS"), &|(.., envelope)| recipients(envelope)),
    ];
    Ok(table::print(screen, &rows, columns)?)
}

/// The first recipients of a message.
fn recipients(envelope: &Envelope) -> String {
    // Exim lists a recipient twice that a client named twice.
    let mut seen = HashSet::new();
    let different: Vec<&String> =
        envelope.recipients.iter().filter(|address| seen.insert(*address)).collect();
    let first = different.iter().take(RECIPIENTS_SHOWN);
    let mut shown: Vec<String> = first.map(|one| text::printable(one.as_bytes())).collect();
    if let Some(more) = different.len().checked_sub(RECIPIENTS_SHOWN).filter(|more| *more > 0) {
        shown.push(format!("and {more} more"));
    }
    shown.join(" ")
}
