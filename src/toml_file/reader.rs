//! Typed access to the values of a TOML file; what is wrong becomes a diagnostic.

use std::fmt::Display;
use std::ops::RangeInclusive;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::diagnostic::{Diagnostics, allowed_instead};
use super::long_tables::{Cut, cut, pieces};
use super::{Location, Word};

/// A value with its place.
pub(crate) type Value<'a> = &'a Spanned<DeValue<'a>>;

/// The place of offsets in a text.
pub(crate) struct LineStarts<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> LineStarts<'a> {
    pub(crate) fn of(text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
        Self { text, starts: starts.collect() }
    }

    /// The line and column of the byte at `offset`, in the file `file`.
    pub(crate) fn locate(&self, file: u16, offset: usize) -> Location {
        let line = self.starts.partition_point(|&start| start <= offset);
        let start = self.starts.get(line.wrapping_sub(1)).copied().unwrap_or(0);
        let before = self.text.as_bytes().get(start..offset).unwrap_or_default();
        // Bytes that continue a character are no column.
        let column = before.iter().filter(|&&byte| byte & 0xc0 != 0x80).count() + 1;
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Location { file, line: number(line), column: number(column) }
    }
}

/// The table that `text` is; if it is no TOML, that is all that is reported, as everything
/// else would be a guess.
pub(crate) fn parse<'t>(
    text: &'t str,
    diagnostics: &mut Diagnostics,
) -> Option<Spanned<DeTable<'t>>> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let lines = LineStarts::of(text);
    for error in &errors {
        let offset = error.span().map_or(0, |span| span.start);
        let mut message = message_of(error, text);
        if error.message() == DUPLICATE
            && let Some(line) = first_of(text, offset)
        {
            message += &format!("; the first is in line {line}");
        }
        diagnostics.error(lines.locate(0, offset), format!("not TOML: {message}"));
    }
    errors.is_empty().then_some(document)
}

/// What is wrong with `text`; of a key that is there twice, also which.
fn message_of(error: &toml::de::Error, text: &str) -> String {
    let message = error.message();
    match error.span().and_then(|span| text.get(span)) {
        Some(key) if message == DUPLICATE => format!("{message} {key}"),
        _ if message.contains("unquoted key") => {
            format!("{message}; write it in quotes, as in \"alice@example.org\"")
        }
        _ => message.to_owned(),
    }
}

/// What the parser says of a key that is there twice.
const DUPLICATE: &str = "duplicate key";

/// The line of the key, or the table, that is there again at `offset`.
fn first_of(text: &str, offset: usize) -> Option<usize> {
    let before = text.get(..offset)?;
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = text.get(start..)?.lines().next()?.trim();
    let above = text.get(..start)?.lines().zip(1..);
    if line.starts_with('[') {
        let mut same = above.filter(|(one, _)| one.trim() == line);
        return same.next().map(|(_, number)| number);
    }
    let key = line.split('=').next()?.trim();
    let mut first = None;
    for (one, number) in above {
        if one.trim_start().starts_with('[') {
            first = None;
        } else if first.is_none() && one.split('=').next().is_some_and(|one| one.trim() == key) {
            first = Some(number);
        }
    }
    first
}

/// A text whose long tables are read in pieces.
pub(crate) struct Shortened {
    /// Without the entries of these tables.
    pub(crate) text: String,
    cuts: Vec<Cut>,
}

/// Cuts out the entries of long tables whose headers are such.
pub(crate) fn shortened(text: &str, is_long: impl Fn(&str) -> bool) -> Option<Shortened> {
    cut(text, is_long).map(|(text, cuts)| Shortened { text, cuts })
}

/// Reads values, and collects what is wrong with them.
pub(crate) struct Reader<'a> {
    lines: LineStarts<'a>,
    pub(crate) diagnostics: Diagnostics,
    /// The entries that are missing in the text of the values, and were not read yet.
    cuts: Vec<Cut>,
    /// Where the text of the values begins in the whole text, while a piece is read.
    piece: Option<usize>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(text: &'a str, diagnostics: Diagnostics) -> Self {
        Self { lines: LineStarts::of(text), diagnostics, cuts: Vec::new(), piece: None }
    }

    /// For values of a text that is shortened; `text` is the whole.
    pub(crate) fn of_shortened(text: &'a str, short: &Shortened, diagnostics: Diagnostics) -> Self {
        Self { cuts: short.cuts.clone(), ..Self::new(text, diagnostics) }
    }

    pub(crate) fn at<T>(&self, spanned: &Spanned<T>) -> Location {
        let start = spanned.span().start;
        let before = self.cuts.iter().filter(|cut| cut.header.end <= start);
        let offset = match self.piece {
            Some(piece) => piece + start,
            None => start + before.map(|cut| cut.entries.len()).sum::<usize>(),
        };
        self.lines.locate(0, offset)
    }

    /// Calls `read` with each piece of the entries that were cut out of the table whose header
    /// has this key.
    pub(crate) fn cut_out<T>(
        &mut self,
        key: &Spanned<T>,
        mut read: impl FnMut(&mut Self, &DeTable<'_>),
    ) {
        let start = key.span().start;
        let Some(cut) = self.cuts.iter_mut().find(|cut| cut.header.contains(&start)) else {
            return;
        };
        cut.is_read = true;
        let (text, entries) = (self.lines.text, cut.entries.clone());
        for piece in pieces(text, entries) {
            self.piece = Some(piece.start);
            let text = text.get(piece).unwrap_or_default();
            let (table, errors) = DeTable::parse_recoverable(text);
            if let Some(error) = errors.first() {
                self.error(&table, message_of(error, text));
            }
            read(self, table.get_ref());
            self.piece = None;
        }
    }

    /// Whether all was read that was cut out.
    pub(crate) fn is_complete(&self) -> bool {
        self.cuts.iter().all(|cut| cut.is_read)
    }

    pub(crate) fn error<T>(&mut self, spanned: &Spanned<T>, message: impl Into<String>) {
        let at = self.at(spanned);
        self.diagnostics.error(at, message);
    }

    /// `value` is not of the type that is wanted.
    fn wrong_type(&mut self, value: Value<'_>, expected: &str) {
        let found = match value.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a float",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date or time",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        };
        self.error(value, format!("expected {expected}, found {found}"));
    }

    /// A key that the language does not have, `place` such as `in [identity]`.
    pub(crate) fn unknown_key<T: AsRef<str>>(
        &mut self,
        key: &Spanned<T>,
        place: &str,
        allowed: &[&str],
    ) {
        let name = key.get_ref().as_ref();
        let instead = allowed_instead(name, allowed);
        self.error(key, format!("unknown key {name:?} {place}; {instead}"));
    }

    pub(crate) fn table<'v>(&mut self, value: Value<'v>, example: &str) -> Option<&'v DeTable<'v>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.wrong_type(value, &format!("a table such as {example}"));
        }
        table
    }

    pub(crate) fn boolean(&mut self, value: Value<'_>) -> Option<bool> {
        let boolean = value.get_ref().as_bool();
        if boolean.is_none() {
            self.wrong_type(value, "true or false");
        }
        boolean
    }

    pub(crate) fn string<'v>(&mut self, value: Value<'v>, example: &str) -> Option<&'v str> {
        let string = value.get_ref().as_str();
        if string.is_none() {
            self.wrong_type(value, &format!("a string such as {example}"));
        }
        string
    }

    pub(crate) fn array<'v>(&mut self, value: Value<'v>, example: &str) -> Option<&'v DeArray<'v>> {
        let array = value.get_ref().as_array();
        if array.is_none() {
            self.wrong_type(value, &format!("an array such as {example}"));
        }
        array
    }

    /// One string, or an array of them: each with its place.
    pub(crate) fn strings<'v>(
        &mut self,
        value: Value<'v>,
        example: &str,
    ) -> Option<Vec<(&'v str, Value<'v>)>> {
        match value.get_ref() {
            DeValue::String(text) => Some(vec![(text, value)]),
            DeValue::Array(array) => {
                if array.is_empty() {
                    self.error(value, format!("the array is empty; expected such as {example}"));
                }
                let each = array.iter().filter_map(|one| Some((self.string(one, example)?, one)));
                Some(each.collect())
            }
            _ => {
                self.wrong_type(
                    value,
                    &format!("a string or an array of strings such as {example}"),
                );
                None
            }
        }
    }

    /// One string, or an array of them, each parsed; a text that `parse` refuses is
    /// left out.
    pub(crate) fn each<T>(
        &mut self,
        value: Value<'_>,
        example: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let mut parsed = Vec::new();
        for (text, at) in self.strings(value, example)? {
            match parse(text) {
                Ok(one) => parsed.push(one),
                Err(message) => self.error(at, message),
            }
        }
        Some(parsed)
    }

    /// A whole number of this range.
    pub(crate) fn integer<T>(&mut self, value: Value<'_>, range: RangeInclusive<T>) -> Option<T>
    where
        T: TryFrom<u64> + PartialOrd + Display,
    {
        let wanted = format!("a number from {} to {}", range.start(), range.end());
        let Some(integer) = value.get_ref().as_integer() else {
            self.wrong_type(value, &wanted);
            return None;
        };
        let number = u64::from_str_radix(integer.as_str(), integer.radix()).ok();
        let number = number.and_then(|number| T::try_from(number).ok());
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            self.error(value, format!("{} is not {wanted}", integer.as_str()));
        }
        number
    }

    /// A word of a closed set; `what` names the set: `action`.
    pub(crate) fn word<T: Word>(&mut self, value: Value<'_>, what: &str) -> Option<T> {
        let example = T::ALL.first().map_or("", |word| word.word());
        let text = self.string(value, &format!("{example:?}"))?;
        self.word_of(value, text, what)
    }

    /// As [`Self::word`], for a text that is at `value`.
    pub(crate) fn word_of<T: Word>(
        &mut self,
        value: Value<'_>,
        text: &str,
        what: &str,
    ) -> Option<T> {
        let word = T::of(text);
        if word.is_none() {
            let instead = allowed_instead(text, &T::words());
            self.error(value, format!("unknown {what} {text:?}; {instead}"));
        }
        word
    }

    /// Words of a closed set, each at most once.
    pub(crate) fn words<T: Word + PartialEq>(
        &mut self,
        value: Value<'_>,
        what: &str,
    ) -> Option<Vec<T>> {
        let example = T::ALL.first().map_or("", |word| word.word());
        let mut words = Vec::new();
        for (text, at) in self.strings(value, &format!("[{example:?}]"))? {
            let Some(word) = self.word_of(at, text, what) else { continue };
            if words.contains(&word) {
                self.error(at, format!("{what} {text:?} is listed twice"));
            } else {
                words.push(word);
            }
        }
        Some(words)
    }
}
