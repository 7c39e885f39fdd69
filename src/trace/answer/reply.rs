//! The result of a query: the messages, and how certain they are.

use schemars::JsonSchema;
use serde::Serialize;

use super::answers::AnswerJson;
use crate::text;
use crate::trace::{
    GramOrder, Part, QueryResult, QuerySummary, Settings, TooShort, WinnowSettings,
};

/// The result.
pub(crate) struct QueryReply {
    /// What was searched for.
    pub(crate) parts: Vec<Part>,
    /// The share of it that was enough, or 0 if it was chosen for each message.
    pub(crate) least: f64,
    /// How messages are digested now.
    pub(crate) settings: Settings,
    /// Whether only some were to be shown.
    pub(crate) limited: bool,
    /// Whether only some envelopes were meant, and nobody has counted them.
    pub(crate) narrowed: bool,
    /// The messages to show.
    pub(crate) found: Vec<QueryResult>,
    /// If near-identical messages are shown once: how many there are of each of `found`.
    pub(crate) alike: Option<Vec<u64>>,
    /// How many were left out as there by chance.
    pub(crate) doubtful: u64,
    pub(crate) summary: QuerySummary,
}

/// The result, in JSON.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ReplyFacts<'a> {
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
    /// As JSON has it.
    pub(crate) fn facts(&self) -> ReplyFacts<'_> {
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
    pub(crate) fn is_whole(&self) -> bool {
        self.found.len() as u64 == self.summary.matches
    }

    /// This result, of a search for bytes, with that of a search for the same as text: at most
    /// `limit` messages of both; the second says how many there are of each. `matches` is how many there
    /// are of both together, if it is known.
    pub(crate) fn or_as_text(
        mut self,
        other: Self,
        matches: Option<u64>,
        limit: Option<usize>,
    ) -> (Self, String) {
        let (as_bytes, as_text) = (self.summary.matches, other.summary.matches);
        let said = format!(
            "the excerpt of an attachment is text: {} it as text, and {as_bytes} as bytes",
            text::counted(as_text, "message matches", "messages match")
        );
        if as_bytes == 0 {
            return (other, said);
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
        (self, said)
    }

    /// The messages found, in JSON.
    pub(crate) fn answers(&self) -> impl Iterator<Item = AnswerJson<'_>> {
        (0..).zip(&self.found).map(|(number, answer)| {
            let alike = self.alike.as_ref().and_then(|alike: &Vec<u64>| alike.get(number));
            AnswerJson::of(answer, &self.parts, alike.copied())
        })
    }

    /// Whether messages were searched for passages.
    pub(crate) fn asks_passages(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Passage(_)))
    }

    /// How many bytes were searched for.
    pub(crate) fn bytes(&self) -> usize {
        self.parts.iter().map(length_of).sum()
    }

    /// With how many bytes one such query in a hundred would have a false result,
    /// roughly; `None` if these are enough, or it is not known.
    pub(crate) fn enough(&self) -> Option<u64> {
        let is_file = |part: &Part| matches!(part, Part::File(_) | Part::FileHash(_));
        let QuerySummary { expected, messages, .. } = self.summary;
        let expected = expected.filter(|expected| *expected > RARE)?;
        let chance = expected / messages as f64;
        if self.parts.iter().any(is_file) || chance >= 0.999 {
            return None;
        }
        enough(self.bytes(), chance, messages)
    }
}

/// Says which part is too short, and what it would take.
pub(crate) fn too_short(short: TooShort, parts: &[Part]) -> String {
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
    format!("{what}, and the minimum is {needed}: use a longer excerpt")
}

impl<'a> From<&'a Part> for PartJson<'a> {
    fn from(part: &'a Part) -> Self {
        let (kind, text) = match part {
            Part::Text(text) => ("text", Some(text.as_str())),
            Part::Passage(text) => ("passage", Some(text.as_str())),
            Part::File(_) | Part::FileHash(_) => ("attachment", None),
            Part::Bytes(_) => ("bytes", None),
        };
        Self { kind, bytes: length_of(part), text }
    }
}

/// A query should not have more false results than this.
pub(crate) const RARE: f64 = 0.01;

/// The length of a part in bytes.
pub(crate) fn length_of(part: &Part) -> usize {
    match part {
        Part::Text(text) | Part::Passage(text) => text.len(),
        Part::File(bytes) | Part::Bytes(bytes) => bytes.len(),
        Part::FileHash(hash) => hash.len(),
    }
}

/// How long an excerpt must be for [`RARE`] false results among so many messages,
/// if one of `bytes` bytes is false with this probability, which falls exponentially
/// with the length. In tens of bytes.
pub(crate) fn enough(bytes: usize, chance: f64, messages: u64) -> Option<u64> {
    let wanted = (RARE / messages as f64).ln();
    let times = wanted / chance.ln();
    (times.is_finite() && times > 1.0).then(|| (bytes as f64 * times / 10.0).ceil() as u64 * 10)
}

/// The share of a text of so many bytes that distinguishes a message from unrelated
/// ones, roughly: fewer than one in ten thousand contain more of it by chance. `None`
/// if the scheme does not determine it.
pub(crate) fn distinctive_share(bytes: usize, settings: Settings) -> Option<f64> {
    let Settings::Winnow(WinnowSettings { window, centibits, order, .. }) = settings else {
        return None;
    };
    // The share of bits set, and how many are tested.
    let set = 1.0 - (-100.0 / f64::from(centibits)).exp();
    let fewer = match order {
        GramOrder::Random => 1.0,
        GramOrder::OpenClosed => 0.87,
    };
    let bits = bytes as f64 * fewer * 2.0 / (f64::from(window) + 1.0);
    let deviation = (set * (1.0 - set) / bits).sqrt();
    Some((set + 3.7 * deviation).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_too_short_is_shown_as_it_is_compared() {
        let parts = [Part::Text("long enough".to_owned()), Part::Text("ab\u{200b}".to_owned())];
        let short = TooShort { part: 1, bytes: 2, needed: 15 };
        let why = too_short(short, &parts);
        assert_eq!(
            why,
            "part 2 is 2 bytes as text is compared (\"ab\\u{200b}\"), and the minimum is 15: use a \
             longer excerpt"
        );
    }
}

#[cfg(test)]
mod length_tests {
    use super::*;
    use crate::trace::HbfSettings;

    #[test]
    fn a_longer_text_is_rarely_false() {
        // 0.5^10 is about one in a thousand, so that 17 of as many bytes as one
        // in two takes are one in 100,000.
        assert_eq!(enough(100, 0.000_976_562_5, 1000), Some(170));
        assert_eq!(enough(100, 1e-9, 1000), None, "it is long enough");
        assert_eq!(enough(100, 1.0, 1000), None);
    }

    #[test]
    fn of_a_longer_text_a_smaller_share_is_enough() {
        // As the help has it.
        for (bytes, percent) in [(30, 100.0), (150, 95.0), (500, 77.0), (2000, 66.0)] {
            let share = distinctive_share(bytes, Settings::default()).unwrap();
            assert!((share * 100.0 - percent).abs() < 2.0, "{bytes}: {share}");
        }
        assert_eq!(distinctive_share(500, Settings::Hbf(HbfSettings::default())), None);
    }
}
