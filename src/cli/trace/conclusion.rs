//! The answer of `exirate trace query`: the messages, and how sure it is.

use std::io::Write as _;

use serde::Serialize;

use super::super::screen::{Screen, note};
use super::super::{Failure, text};
use super::answers::{self, AnswerFacts};
use super::odds;
use crate::trace::{Answer, Asked, Part, TooShort};

/// The answer.
pub(super) struct Reply {
    /// What was asked for.
    pub(super) parts: Vec<Part>,
    /// Whether some of it was enough.
    pub(super) graded: bool,
    /// The messages to show.
    pub(super) found: Vec<Answer>,
    /// How many there are, shown or not.
    pub(super) matches: u64,
    /// How many were left out as there by chance.
    pub(super) doubtful: u64,
    /// How many false ones are to be expected among these.
    pub(super) expected: Option<f64>,
    pub(super) asked: Asked,
}

/// The answer, as JSON has it.
#[derive(Serialize)]
struct ReplyFacts<'a> {
    found: Vec<AnswerFacts<'a>>,
    matches: u64,
    doubtful: u64,
    asked: u64,
    not_asked: u64,
    segments: u64,
    false_expected: Option<f64>,
    shortest: usize,
    parts: Vec<PartFacts<'a>>,
    damaged: Vec<String>,
    other_key: u64,
}

/// What was asked for, as JSON has it.
#[derive(Serialize)]
struct PartFacts<'a> {
    kind: &'static str,
    bytes: usize,
    text: Option<&'a str>,
}

impl Reply {
    /// Writes it as JSON.
    pub(super) fn json(&self, screen: &mut Screen<'_>) -> Result<(), Failure> {
        screen.json(&ReplyFacts {
            found: self.found.iter().map(AnswerFacts::from).collect(),
            matches: self.matches,
            doubtful: self.doubtful,
            asked: self.asked.messages,
            not_asked: self.asked.unanswered,
            segments: self.asked.segments,
            false_expected: self.expected,
            shortest: self.asked.shortest,
            parts: self.parts.iter().map(PartFacts::from).collect(),
            damaged: self.asked.damaged.iter().map(ToString::to_string).collect(),
            other_key: self.asked.other_key,
        })
    }

    /// Writes it for people.
    pub(super) fn tell(&self, screen: &mut Screen<'_>) -> Result<(), Failure> {
        if !self.found.is_empty() {
            answers::tell(screen, &self.found, self.graded)?;
        }
        let shown = self.found.len() as u64;
        if self.matches > shown {
            writeln!(screen, "and {} more, without --limit", self.matches - shown)?;
        }
        let (matches, messages) = (self.matches, self.asked.messages);
        match self.expected {
            _ if matches == 0 => writeln!(screen, "none of {messages} message(s)")?,
            None => writeln!(screen, "{matches} of {messages} message(s)")?,
            Some(expected) => writeln!(
                screen,
                "{matches} of {messages} message(s) may have carried it; false ones to be \
                 expected: {}",
                odds::expected(expected)
            )?,
        }
        self.tell_what_is_left_out();
        Ok(())
    }

    fn tell_what_is_left_out(&self) {
        if self.doubtful > 0 {
            note(format_args!(
                "{} message(s) of which so much may be there by chance were left out; --doubtful \
                 shows them",
                self.doubtful
            ));
        }
        let Asked { unanswered, other_key, shortest, .. } = self.asked;
        if unanswered > 0 {
            note(format_args!(
                "{unanswered} message(s) were not asked: as they were digested, {shortest} bytes \
                 is the shortest text that they can answer"
            ));
        }
        if other_key > 0 {
            note(format_args!("{other_key} file(s) of another key were not asked"));
        }
        let partial = self.found.iter().filter(|answer| answer.envelope.partial).count();
        if partial > 0 {
            note(format_args!("{partial} of these message(s) were too large to be recorded whole"));
        }
        let damaged = self.found.iter().filter(|answer| answer.damaged).count();
        if damaged > 0 {
            note(format_args!("of {damaged} of these message(s) not all of the envelope is left"));
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
            Part::File(bytes) => {
                writeln!(screen, "part {number}: an attachment of {} bytes", bytes.len())?;
            }
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
    let TooShort { part, bytes, least } = short;
    let which = if parts.len() > 1 { format!("part {} is", part + 1) } else { "it is".to_owned() };
    let what = match parts.get(part) {
        Some(Part::Text(text)) => {
            let text: String = text.chars().take(60).collect();
            format!(
                "{which} {bytes} bytes as text is compared (\"{}\")",
                text::printable(text.as_bytes())
            )
        }
        _ => format!("{which} {bytes} bytes"),
    };
    Failure::new(format!(
        "{what}, and the shortest that can be asked for has {least}: take more of it"
    ))
}

impl<'a> From<&'a Part> for PartFacts<'a> {
    fn from(part: &'a Part) -> Self {
        let (kind, bytes, text) = match part {
            Part::Text(text) => ("text", text.len(), Some(text.as_str())),
            Part::File(bytes) => ("attachment", bytes.len(), None),
            Part::Bytes(bytes) => ("bytes", bytes.len(), None),
        };
        Self { kind, bytes, text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_too_short_is_shown_as_it_is_compared() {
        let parts = [Part::Text("long enough".to_owned()), Part::Text("ab\u{200b}".to_owned())];
        let short = TooShort { part: 1, bytes: 2, least: 15 };
        let Failure::Said(why) = too_short(short, &parts) else { panic!() };
        assert_eq!(
            why,
            "part 2 is 2 bytes as text is compared (\"ab\\u{200b}\"), and the shortest that can be \
             asked for has 15: take more of it"
        );
    }
}
