//! Exim's configuration, with the file and the line of everything in it.
//!
//! What Exim reads is what `exim -bP config` prints. It prints no line numbers, and nothing of
//! files that `.include_if_exists` did not find: for these, [`Reader`] goes through the files as
//! Exim does. Where Exim prints nothing, as of the files that Debian generates a configuration
//! from, what was found there is all that is known.

mod line;
mod reader;

use std::borrow::Cow;
use std::path::Path;
use std::rc::Rc;

pub(crate) use line::{Absent, Include, Line, Macro, Position, ReadError, Refused, Source};
use reader::Reader;
pub(super) use reader::definition;

impl Source {
    /// Reads the configuration in `file`. `predefined` are Exim's own macros. Where Exim prints
    /// its lines (`exim -bP config`), these count, and the files only say where each stands.
    pub(crate) fn read(
        file: &Path,
        predefined: impl IntoIterator<Item = (String, String)>,
        printed: Option<&str>,
    ) -> Result<Self, ReadError> {
        let mut source = Reader::read(&[file], predefined, false)?;
        if let Some(printed) = printed {
            source.place(printed);
        }
        Ok(source.sorted())
    }

    /// Reads files one after the other, as one configuration that Exim does not print. It goes on
    /// where a file that is included does not exist.
    pub(super) fn read_all(
        files: &[&Path],
        predefined: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ReadError> {
        Ok(Reader::read(files, predefined, true)?.sorted())
    }

    /// Takes the lines that Exim prints in place of those of the files, each at the place of the
    /// one that says the same, else near the one before.
    fn place(&mut self, printed: &str) {
        let found = std::mem::take(&mut self.texts);
        let (mut rest, mut near) = (&found[..], Line::default().position);
        for text in printed.lines().map(str::trim).filter(|text| !text.is_empty()) {
            if text.starts_with('#') {
                near = marker(text).unwrap_or(near);
                continue;
            }
            // Exim prints several blanks as one.
            let is_same = |one: &Line| one.text.split_whitespace().eq(text.split_whitespace());
            if let Some(at) = rest.iter().position(is_same)
                && let Some((line, after)) = rest.get(at..).and_then(<[Line]>::split_first)
            {
                (near, rest) = (line.position.clone(), after);
                self.texts.push(line.clone());
            } else {
                self.unplaced = true;
                let (position, text) = (near.clone(), text.to_owned());
                self.texts.push(Line { position, text, ..Line::default() });
            }
        }
    }

    /// With the section and the ACL of each line.
    fn sorted(mut self) -> Self {
        let (mut section, mut acl): (Rc<str>, Option<Rc<str>>) = ("".into(), None);
        for kept in &mut self.texts {
            if definition(&kept.text).is_some() {
                continue;
            }
            if let Some((begin, name)) = kept.text.split_once(' ')
                && begin.eq_ignore_ascii_case("begin")
            {
                (section, acl) = (section_named(name), None);
                continue;
            }
            let label = label(&kept.text).filter(|_| &*section == "acl");
            acl = label.map(Rc::from).or(acl);
            (kept.section, kept.acl) = (section.clone(), acl.clone());
            let mut line = kept.clone();
            // Exim ignores the rest of the line.
            if label.is_some() {
                line.text.clear();
            }
            self.lines.push(line);
        }
        self
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

/// The place that `# 12 "/etc/exim4/exim4.conf"` names.
fn marker(text: &str) -> Option<Position> {
    let (line, file) = text.strip_prefix("# ")?.split_once(" \"")?;
    let file = Path::new(file.strip_suffix('"')?).into();
    Some(Position { file, line: line.parse().ok()?, piece: None })
}

/// The name of a section: Exim takes it in any case, and with or without an `s` at its end.
fn section_named(name: &str) -> Rc<str> {
    let name = name.trim().to_ascii_lowercase();
    match name.strip_suffix('s').unwrap_or(&name) {
        one @ ("authenticator" | "router" | "transport") => format!("{one}s").into(),
        one => one.into(),
    }
}

/// The name of the ACL that begins with a line: `check_rcpt:`.
pub(super) fn label(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
    let (name, rest) = text.split_at(end);
    (!name.is_empty() && rest.trim_start().starts_with(':')).then_some(name)
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
