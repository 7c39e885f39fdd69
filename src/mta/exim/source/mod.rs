//! Read Exim's configuration as Exim does: `.include`, conditionals, macros and
//! continued lines, with the file and the line of everything that remains.
//!
//! `exim -bP config` prints the same without line numbers, and without the files
//! that `.include_if_exists` did not find.

mod line;
mod reader;

use std::borrow::Cow;
use std::path::Path;

pub(crate) use line::{Absent, Include, Line, Macro, Position, ReadError, Refused, Source};
use reader::Reader;
pub(super) use reader::definition;

impl Source {
    /// Reads `file` and what it includes. `predefined` are Exim's own macros.
    pub(crate) fn read(
        file: &Path,
        predefined: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ReadError> {
        Self::read_all(&[file], predefined, false)
    }

    /// Reads files one after the other, as one configuration. `lenient` goes on where a file
    /// that is included does not exist.
    pub(crate) fn read_all(
        files: &[&Path],
        predefined: impl IntoIterator<Item = (String, String)>,
        lenient: bool,
    ) -> Result<Self, ReadError> {
        let mut reader = Reader::default();
        reader.lenient = lenient;
        reader.source.macros.extend(predefined.into_iter().map(|(name, value)| Macro {
            name,
            value,
            position: None,
            used: false,
        }));
        for file in files {
            reader.file(file, None, 0)?;
        }
        if let Some(last) = reader.unfinished.take() {
            reader.logical(last);
        }
        Ok(reader.source)
    }

    /// Puts the lines that Exim read, as `exim -bP config` prints them in `printed`, in place
    /// of those that were read here. Returns whether they differ.
    pub(crate) fn settle(&mut self, printed: &str) -> bool {
        let theirs =
            printed.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
        let theirs: Vec<&str> = theirs.collect();
        // Exim prints several blanks as one.
        let is_same =
            |ours: &str, theirs: &str| ours.split_whitespace().eq(theirs.split_whitespace());
        let mut pairs = self.texts.iter().zip(&theirs);
        if self.texts.len() == theirs.len() && pairs.all(|(ours, text)| is_same(&ours.text, text)) {
            return false;
        }
        let Some(first) = self.texts.first() else { return false };
        let first = first.position.clone();
        let mut reader = Reader::default();
        reader.source = std::mem::take(self);
        reader.source.lines.clear();
        let texts = std::mem::take(&mut reader.source.texts);
        let (mut texts, mut position) = (texts.iter(), first);
        for text in theirs {
            if definition(text).is_some_and(|(name, _)| reader.source.macro_named(name).is_some()) {
                continue;
            }
            // Where it stands, or near: what was read here only is passed over.
            let mut ahead = texts.clone();
            if let Some(known) = ahead.find(|known| is_same(&known.text, text)) {
                (position, texts) = (known.position.clone(), ahead);
            }
            let line =
                Line { position: position.clone(), text: text.to_owned(), ..Line::default() };
            reader.logical(line);
        }
        *self = reader.source;
        true
    }

    /// The value of a macro.
    pub(crate) fn macro_named(&self, name: &str) -> Option<&Macro> {
        self.macros.iter().find(|known| known.name == name)
    }

    /// The value of an option of the main section, such as `acl_smtp_rcpt`, and
    /// where it is set.
    pub(crate) fn main_options(&self) -> impl Iterator<Item = (&str, Cow<'_, str>, &Position)> {
        self.lines.iter().filter(|line| line.section.is_empty()).filter_map(|line| {
            let (name, value) = line.text.split_once('=')?;
            let name = name.split_whitespace().find(|word| *word != "hide")?;
            Some((name, unquoted(value.trim()), &line.position))
        })
    }
}

/// A value as Exim takes it, which may be in double quotes.
pub(super) fn unquoted(value: &str) -> Cow<'_, str> {
    let Some(inside) = value.strip_prefix('"') else { return Cow::Borrowed(value) };
    let (mut bytes, mut rest) = (Vec::new(), inside.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'"' => break,
            b'\\' => rest = escaped(rest, &mut bytes),
            _ => bytes.push(byte),
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

/// Adds what stands behind a backslash: `n`, `x41`, `101` or any other character.
pub(super) fn escaped<'a>(text: &'a [u8], to: &mut Vec<u8>) -> &'a [u8] {
    let Some((&byte, rest)) = text.split_first() else { return text };
    let (digits, radix, most) = match byte {
        b'0'..=b'7' => (text, 8, 3),
        b'x' => (rest, 16, 2),
        _ => {
            let known = [(b'b', 8), (b'f', 12), (b'n', 10), (b'r', 13), (b't', 9), (b'v', 11)];
            let known = known.iter().find(|(letter, _)| *letter == byte);
            to.push(known.map_or(byte, |(_, code)| *code));
            return rest;
        }
    };
    let is_digit = |byte: &&u8| char::from(**byte).is_digit(radix);
    let count = digits.iter().take(most).take_while(is_digit).count();
    let (digits, rest) = digits.split_at(count);
    let value = digits.iter().filter_map(|byte| char::from(*byte).to_digit(radix));
    let value = value.fold(0, |value, digit| value * radix + digit);
    to.push(u8::try_from(value & 0xff).unwrap_or_default());
    rest
}

#[cfg(test)]
mod agreement_tests;
#[cfg(test)]
mod tests;
