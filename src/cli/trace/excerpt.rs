//! The excerpts that `exirate trace query` searches for.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, Command, FromArgMatches};

use super::super::{Failure, input, text};
use super::mailbox::{self, MESSAGE_MAX};
use crate::trace::decode::{self, Charset, Limits};
use crate::trace::{Fragment, Part};

/// The options for what the message contained.
#[derive(Debug, Args)]
struct Options {
    /// A text of the message; * stands for anything between two parts, and \* for
    /// an asterisk
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    text: Vec<OsString>,

    /// Read the text from a file, as one part in which * is an asterisk; - is
    /// standard input
    #[arg(long, value_name = "FILE")]
    file: Vec<PathBuf>,

    /// The charset of the files of --file
    #[arg(long, value_name = "NAME", requires = "file")]
    charset: Option<String>,

    /// An attached file, byte for byte
    #[arg(long, value_name = "FILE")]
    attachment: Vec<PathBuf>,

    /// An excerpt of an attachment that is not text
    #[arg(long, value_name = "FILE")]
    bytes: Vec<PathBuf>,
}

/// Where an excerpt comes from.
#[derive(Clone, Debug)]
enum Source {
    Text(OsString),
    File(PathBuf),
    Attachment(PathBuf),
    Bytes(PathBuf),
}

/// The excerpts, in the order of the options.
#[derive(Debug)]
pub(super) struct Excerpts {
    sources: Vec<Source>,
    charset: Option<String>,
}

impl Args for Excerpts {
    fn augment_args(command: Command) -> Command {
        Options::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Options::augment_args_for_update(command)
    }
}

impl FromArgMatches for Excerpts {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let options = Options::from_arg_matches(matches)?;
        let mut sources = Vec::new();
        let mut add = |name: &str, these: Vec<Source>| {
            sources.extend(matches.indices_of(name).into_iter().flatten().zip(these));
        };
        add("text", options.text.into_iter().map(Source::Text).collect());
        add("file", options.file.into_iter().map(Source::File).collect());
        add("attachment", options.attachment.into_iter().map(Source::Attachment).collect());
        add("bytes", options.bytes.into_iter().map(Source::Bytes).collect());
        // A scheme may know the order of the parts in the message.
        sources.sort_by_key(|(at, _)| *at);
        let sources = sources.into_iter().map(|(_, source)| source).collect();
        Ok(Self { sources, charset: options.charset })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Excerpts {
    /// Reads them; `graded` is whether shares of them are enough.
    ///
    /// # Errors
    /// One cannot be read, is not text although it should be, or is empty.
    pub(super) fn parts(&self, graded: bool) -> Result<Vec<Part>, Failure> {
        let files = self.sources.iter().filter_map(|source| match source {
            Source::Text(_) => None,
            Source::File(path) | Source::Attachment(path) | Source::Bytes(path) => Some(path),
        });
        if files.filter(|path| path.as_os_str() == "-").count() > 1 {
            return Err(Failure::new("- is given twice: standard input can be read only once"));
        }
        let mut parts = Vec::new();
        for source in &self.sources {
            match source {
                Source::Text(text) => parts.extend(typed(text)?),
                Source::File(path) => parts.push(self.file(path)?),
                Source::Attachment(path) => {
                    let bytes = whole(path, "--attachment")?;
                    if graded || bytes.len() > Limits::default().attachments {
                        parts.extend(pieces(&bytes));
                    } else {
                        let file = decode::canonical_file(&bytes);
                        parts.push(Part::File(file.into_owned()));
                    }
                }
                Source::Bytes(path) => parts.push(Part::Bytes(whole(path, "--bytes")?)),
            }
        }
        Ok(parts)
    }

    fn file(&self, path: &Path) -> Result<Part, Failure> {
        let bytes = whole(path, "--file")?;
        let name = name(path);
        let text = match &self.charset {
            Some(charset) => {
                let charset = Charset::of(charset).ok_or_else(|| {
                    Failure::new(format!(
                        "--charset {}: unknown charset; use a name such as windows-1252, \
                         iso-8859-2, shift_jis or utf-16",
                        text::printable(charset.as_bytes())
                    ))
                })?;
                charset.decode(&bytes).into_owned()
            }
            None => utf(&bytes).ok_or_else(|| {
                Failure::new(format!(
                    "{name} is not UTF-8: give its --charset, such as windows-1252, or use \
                     --attachment or --bytes if it is not text"
                ))
            })?,
        };
        normalised(&text).ok_or_else(|| {
            Failure::new(format!("{name} contains nothing that can be searched for"))
        })
    }
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
fn typed(typed: &OsString) -> Result<Vec<Part>, Failure> {
    let typed = typed.to_str().ok_or_else(|| {
        let shown = text::printable(typed.as_encoded_bytes());
        Failure::new(format!("--text {shown}: it is not UTF-8"))
    })?;
    let parts: Vec<Part> = split(typed).iter().filter_map(|part| normalised(part)).collect();
    if parts.is_empty() {
        let shown = text::printable(typed.as_bytes());
        return Err(Failure::new(format!(
            "--text \"{shown}\" contains nothing that can be searched for"
        )));
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
fn whole(path: &Path, option: &str) -> Result<Vec<u8>, Failure> {
    if path.is_dir() {
        return Err(Failure::new(format!("{option} {}: it is a directory", path.display())));
    }
    let (reader, name) = input::open(path)?;
    let mut bytes = Vec::new();
    let cut = mailbox::read(reader, &mut bytes).map_err(|error| input::failed(&name, &error))?;
    if cut {
        return Err(Failure::new(format!(
            "{name} is longer than {} MiB, as no message is",
            MESSAGE_MAX >> 20
        )));
    }
    if bytes.is_empty() {
        return Err(Failure::new(format!("{name} is empty")));
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
        let Err(Failure::Said(why)) = typed(&" * \n".into()) else { panic!() };
        assert_eq!(why, r#"--text " * \n" contains nothing that can be searched for"#);
    }

    #[test]
    fn files_are_in_the_charset_they_say_or_in_utf() {
        assert_eq!(utf(b"a\xc3\xa9").as_deref(), Some("aé"));
        assert_eq!(utf(b"\xff\xfea\0\xe9\0").as_deref(), Some("aé"));
        assert_eq!(utf(b"\xfe\xff\0a\0\xe9").as_deref(), Some("aé"));
        assert_eq!(utf(b"a\xe9"), None);
        assert_eq!(utf(b"a\0"), None);
    }

    #[test]
    fn excerpts_stay_in_the_order_they_were_written_in() {
        let command = Excerpts::augment_args(Command::new("x"));
        let line = ["x", "--file", "a", "--text", "b", "--bytes", "c", "--file", "d"];
        let matches = command.try_get_matches_from(line).unwrap();
        let excerpts = Excerpts::from_arg_matches(&matches).unwrap();
        let shown = format!("{:?}", excerpts.sources);
        assert_eq!(shown, r#"[File("a"), Text("b"), Bytes("c"), File("d")]"#);
    }
}
