//! The excerpts that a query searches for.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::text::{self, Voice, input};
use crate::trace::archive::{self, MESSAGE_MAX};
use crate::trace::decode::{self, Charset, Limits};
use crate::trace::{FileHash, Fragment, Part};

/// Of which texts a passage is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passages {
    /// All of each text is required.
    None,
    /// Of long texts in files.
    OfFiles,
    /// Of all texts.
    OfAll,
}

/// From so many bytes on, a passage of a text is enough evidence by itself: a shorter one would
/// have to be there as a whole anyway.
const PASSAGES_FROM: usize = 300;

/// Where an excerpt comes from.
#[derive(Clone, Debug)]
pub(crate) enum ExcerptSource {
    Text(OsString),
    File(PathBuf),
    Attachment(PathBuf),
    Hash(FileHash),
    Bytes(PathBuf),
}

/// The excerpts, in the order of the options.
#[derive(Debug)]
pub(crate) struct Excerpts {
    pub(crate) sources: Vec<ExcerptSource>,
    pub(crate) charset: Option<String>,
}

impl Excerpts {
    /// Reads them; `graded` is whether shares of them are enough, and `passages` of which of
    /// them passages are.
    ///
    /// # Errors
    /// One cannot be read, is not text although it should be, or is empty.
    pub(crate) fn parts(
        &self,
        graded: bool,
        passages: Passages,
        voice: &dyn Voice,
    ) -> Result<Vec<Part>, String> {
        let files = self.sources.iter().filter_map(|source| match source {
            ExcerptSource::Text(_) | ExcerptSource::Hash(_) => None,
            ExcerptSource::File(path)
            | ExcerptSource::Attachment(path)
            | ExcerptSource::Bytes(path) => Some(path),
        });
        if files.filter(|path| path.as_os_str() == "-").count() > 1 {
            return Err("- is given twice: standard input can be read only once".to_owned());
        }
        let mut parts = Vec::new();
        for source in &self.sources {
            match source {
                ExcerptSource::Text(text) => {
                    let texts = typed(text)?.into_iter();
                    parts.extend(texts.map(|part| in_passages(part, passages == Passages::OfAll)));
                }
                ExcerptSource::File(path) => {
                    parts.push(in_passages(self.file(path, voice)?, passages != Passages::None));
                }
                ExcerptSource::Hash(hash) => parts.push(Part::FileHash(*hash)),
                ExcerptSource::Attachment(path) => {
                    let bytes = whole(path, "--attachment", voice)?;
                    if graded || bytes.len() > Limits::default().attachments {
                        parts.extend(pieces(&bytes));
                    } else {
                        parts.push(Part::File(bytes));
                    }
                }
                ExcerptSource::Bytes(path) => {
                    parts.push(Part::Bytes(whole(path, "--bytes", voice)?))
                }
            }
        }
        Ok(parts)
    }

    fn file(&self, path: &Path, voice: &dyn Voice) -> Result<Part, String> {
        let bytes = whole(path, "--file", voice)?;
        let name = name(path);
        let text = match &self.charset {
            Some(charset) => {
                let charset = Charset::of(charset).ok_or_else(|| {
                    format!(
                        "--charset {}: unknown charset; use a name such as windows-1252, \
                         iso-8859-2, shift_jis or utf-16",
                        text::printable(charset.as_bytes())
                    )
                })?;
                charset.decode(&bytes).into_owned()
            }
            None => utf(&bytes).ok_or_else(|| {
                format!(
                    "{name} is not UTF-8: give its --charset, such as windows-1252, or use \
                     --attachment or --bytes if it is not text"
                )
            })?,
        };
        normalised(&text).ok_or_else(|| format!("{name} contains nothing that can be searched for"))
    }
}

/// The lines of a file, each with its parts; empty lines are left out.
pub(crate) fn questions(
    path: &Path,
    passages: Passages,
    voice: &dyn Voice,
) -> Result<Vec<(String, Vec<Part>)>, String> {
    let bytes = whole(path, "--questions", voice)?;
    let text = utf(&bytes).ok_or_else(|| format!("{} is not UTF-8", name(path)))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let question = |line: &str| {
        let parts = typed(&OsString::from(line))?.into_iter();
        let parts = parts.map(|part| in_passages(part, passages == Passages::OfAll));
        Ok((line.to_owned(), parts.collect()))
    };
    let questions: Vec<_> = lines.map(question).collect::<Result<_, String>>()?;
    if questions.is_empty() {
        return Err(format!("{} has no line to search for", name(path)));
    }
    Ok(questions)
}

/// The parts with excerpts of bytes as text, if all of these are text; an excerpt may begin and
/// end within a letter.
pub(crate) fn bytes_as_text(parts: &[Part]) -> Option<Vec<Part>> {
    let mut any = false;
    let mut text = |bytes: &[u8]| {
        any = true;
        let start = bytes.iter().take(4).position(|byte| byte & 0xc0 != 0x80)?;
        let mut chunks = bytes.get(start..)?.utf8_chunks();
        let chunk = chunks.next()?;
        let is_text = chunks.next().is_none() && chunk.invalid().len() < 4;
        normalised(chunk.valid()).filter(|_| is_text && !chunk.valid().contains('\0'))
    };
    let texts: Option<Vec<Part>> = parts
        .iter()
        .map(|part| match part {
            Part::Bytes(bytes) => text(bytes),
            part => Some(part.clone()),
        })
        .collect();
    texts.filter(|_| any)
}

/// The part, or any passage of it if that is `enough` and it is long.
fn in_passages(part: Part, enough: bool) -> Part {
    match part {
        Part::Text(text) if enough && text.len() >= PASSAGES_FROM => Part::Passage(text),
        part => part,
    }
}

/// A SHA-256 in hexadecimal.
pub(crate) fn sha256(hex: &str) -> Result<FileHash, String> {
    let mut hash = FileHash::default();
    let digits: Option<Vec<u8>> =
        hex.trim().chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len() == 2 * hash.len());
    let digits = digits.ok_or("it takes a SHA-256: 64 hexadecimal digits")?;
    let (pairs, _) = digits.as_chunks::<2>();
    hash.iter_mut().zip(pairs).for_each(|(byte, [high, low])| *byte = high << 4 | low);
    Ok(hash)
}

/// The pieces of an attachment, as messages are digested, of which some may be
/// there.
fn pieces(bytes: &[u8]) -> Vec<Part> {
    let mut parts = Vec::new();
    decode::decode_file(bytes, &Limits::default(), &mut |piece| match piece {
        Fragment::Text(text) => parts.push(Part::Text(text.to_owned())),
        Fragment::Bytes(bytes) => parts.push(Part::Bytes(bytes.to_vec())),
        // That is there only where all of it is.
        Fragment::File(_) => {}
    });
    parts
}

/// The parts of a text that was typed, between its asterisks.
fn typed(typed: &OsString) -> Result<Vec<Part>, String> {
    let typed = typed.to_str().ok_or_else(|| {
        let shown = text::printable(typed.as_encoded_bytes());
        format!("--text {shown}: it is not UTF-8")
    })?;
    let parts: Vec<Part> = split(typed).iter().filter_map(|part| normalised(part)).collect();
    if parts.is_empty() {
        let shown = text::printable(typed.as_bytes());
        return Err(format!("--text \"{shown}\" contains nothing that can be searched for"));
    }
    Ok(parts)
}

/// Text between asterisks; `\*` is one that does not part it.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let literal = match letter {
            '\\' if letters.next_if_eq(&'*').is_some() => '*',
            '*' => {
                parts.push(String::new());
                continue;
            }
            letter => letter,
        };
        if let Some(part) = parts.last_mut() {
            part.push(literal);
        }
    }
    parts
}

/// A text as messages are digested; `None` where nothing is left of it.
fn normalised(text: &str) -> Option<Part> {
    Some(decode::excerpt(text)).filter(|text| !text.is_empty()).map(Part::Text)
}

/// Text in UTF-8, or in UTF-16 with a mark at its beginning.
fn utf(bytes: &[u8]) -> Option<String> {
    if let [0xff, 0xfe, ..] | [0xfe, 0xff, ..] = bytes {
        return Charset::of("utf-16").map(|charset| charset.decode(bytes).into_owned());
    }
    // Bytes of no text may happen to be UTF-8.
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0')).map(str::to_owned)
}

/// All of a file.
fn whole(path: &Path, option: &str, voice: &dyn Voice) -> Result<Vec<u8>, String> {
    if path.is_dir() {
        return Err(format!("{option} {}: it is a directory", path.display()));
    }
    let (reader, name) = input::open(path, voice)?;
    let mut bytes = Vec::new();
    let cut = archive::read(reader, &mut bytes).map_err(|error| input::failed(&name, &error))?;
    if cut {
        return Err(format!("{name} is longer than {} MiB, as no message is", MESSAGE_MAX >> 20));
    }
    if bytes.is_empty() {
        return Err(format!("{name} is empty"));
    }
    Ok(bytes)
}

fn name(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".to_owned() } else { path.display().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asterisks_part_a_text_and_escaped_ones_do_not() {
        for (text, parts) in [
            ("one", &["one"][..]),
            ("one * two*three", &["one ", " two", "three"]),
            (r"2 \* 3 = 6", &["2 * 3 = 6"]),
            (r"C:\temp\*.txt*x\", &[r"C:\temp*.txt", r"x\"]),
            (r"\\*", &[r"\*"]),
            ("**", &["", "", ""]),
            ("", &[""]),
        ] {
            assert_eq!(split(text), parts, "{text}");
        }
    }

    #[test]
    fn parts_are_normalised_and_empty_ones_go() {
        let parts = typed(&" Quarterly\nFIGURES  *  * for Bob ".into()).unwrap();
        let expected = ["quarterly figures", "for bob"];
        assert_eq!(parts, expected.map(|part| Part::Text(part.to_owned())));
        let why = typed(&" * \n".into()).unwrap_err();
        assert_eq!(why, r#"--text " * \n" contains nothing that can be searched for"#);
    }

    #[test]
    fn of_a_long_text_a_passage_is_enough() {
        let text = |bytes| Part::Text("x".repeat(bytes));
        assert_eq!(in_passages(text(400), true), Part::Passage("x".repeat(400)));
        assert_eq!(in_passages(text(400), false), text(400));
        assert_eq!(in_passages(text(200), true), text(200));
    }

    #[test]
    fn bytes_that_are_text_are_text_as_well() {
        let as_text = |bytes: &[u8]| bytes_as_text(&[Part::Bytes(bytes.to_vec())]);
        let text = |text: &str| Some(vec![Part::Text(text.to_owned())]);
        assert_eq!(as_text(b"1;Kuppel;M\xc3\xbcnchen"), text("1;kuppel;münchen"));
        assert_eq!(as_text(b"\xbcnchen;2;M\xc3"), text("nchen;2;m"));
        assert_eq!(as_text(b"%PDF-1.4\n\xff\xfe\xfd and more"), None);
        assert_eq!(as_text(b"a\0b"), None);
        assert_eq!(as_text(b""), None);
        assert_eq!(bytes_as_text(&[Part::Text("a".to_owned())]), None);
    }

    #[test]
    fn hashes_are_64_hexadecimal_digits() {
        let hex = "BA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(hex), Ok(crate::trace::file_hash(b"abc")));
        for text in ["", &hex[1..], &format!("{hex}00"), &hex.replace('f', "g")] {
            assert!(sha256(text).is_err(), "{text}");
        }
    }

    #[test]
    fn files_are_in_the_charset_they_say_or_in_utf() {
        assert_eq!(utf(b"a\xc3\xa9").as_deref(), Some("aé"));
        assert_eq!(utf(b"\xff\xfea\0\xe9\0").as_deref(), Some("aé"));
        assert_eq!(utf(b"\xfe\xff\0a\0\xe9").as_deref(), Some("aé"));
        assert_eq!(utf(b"a\xe9"), None);
        assert_eq!(utf(b"a\0"), None);
    }
}
