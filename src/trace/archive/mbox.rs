//! Messages of an mbox, one after the other.
//!
//! mail-parser has a reader as well. This one takes a line for the beginning of
//! a message only where it follows an empty one and has a date, keeps what it
//! reads at a time limited, and knows more forms of that date.

use std::io::{self, BufRead, Read as _};

use super::{Hint, MESSAGE_MAX, from_line};

/// How much is read at a time of a line that does not end.
const PIECE: u64 = 64 << 10;

/// An mbox that is being read.
pub(crate) struct Mbox<R> {
    reader: R,
    /// What is read of the next message: the line that begins it.
    next: Option<Hint>,
    /// Whether a line begins with what comes next, and the one before was
    /// empty.
    at_line: bool,
    after_empty: bool,
}

/// A message of an mbox.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MboxMessage {
    pub(crate) hint: Hint,
    /// Whether only its beginning was read.
    pub(crate) cut: bool,
}

impl<R: BufRead> Mbox<R> {
    /// Begins to read an mbox; `None` if it is not one: its first line is not
    /// `From …`. One that is empty has no messages.
    ///
    /// # Errors
    /// Those of the reader.
    pub(crate) fn new(mut reader: R) -> io::Result<Option<Self>> {
        let mut line = Vec::new();
        while piece(&mut reader, &mut line)? > 0 && line.trim_ascii().is_empty() {
            line.clear();
        }
        if !line.is_empty() && !line.starts_with(b"From ") {
            return Ok(None);
        }
        let next = (!line.is_empty()).then(|| from_line::read(&line));
        Ok(Some(Self { reader, next, at_line: true, after_empty: false }))
    }

    /// Reads the next message into `message`, in place of what is there.
    ///
    /// # Errors
    /// Those of the reader.
    pub(crate) fn next(&mut self, message: &mut Vec<u8>) -> io::Result<Option<MboxMessage>> {
        message.clear();
        let Some(hint) = self.next.take() else { return Ok(None) };
        let mut cut = false;
        loop {
            let start = message.len();
            if piece(&mut self.reader, message)? == 0 {
                break;
            }
            let line = message.get(start..).unwrap_or_default();
            let at_line = std::mem::replace(&mut self.at_line, line.ends_with(b"\n"));
            if at_line && self.after_empty && from_line::begins_message(line) {
                self.next = Some(from_line::read(line));
                self.after_empty = false;
                message.truncate(start);
                break;
            }
            self.after_empty = at_line && matches!(line, b"\n" | b"\r\n");
            if start >= MESSAGE_MAX {
                message.truncate(start);
                cut = true;
            } else if at_line && is_quoted(line) {
                message.remove(start);
            }
        }
        // The empty line before the next message is none of this one.
        if !cut && let Some(whole) = message.strip_suffix(b"\n\n") {
            message.truncate(whole.len() + 1);
        }
        Ok(Some(MboxMessage { hint, cut }))
    }
}

/// Adds the rest of a line to `line`, or [`PIECE`] of it; how much.
fn piece(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    reader.take(PIECE).read_until(b'\n', line)
}

/// Whether a line would begin a message without the `>` that was put before.
fn is_quoted(line: &[u8]) -> bool {
    let unquoted = line.iter().position(|&b| b != b'>').and_then(|at| line.get(at..));
    line.starts_with(b">") && unquoted.is_some_and(|rest| rest.starts_with(b"From "))
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    /// The messages of an mbox, with their senders.
    fn all(mbox: &[u8]) -> Vec<(String, String)> {
        // A small buffer, so that lines come in parts.
        let reader = BufReader::with_capacity(7, mbox);
        let mut mbox = Mbox::new(reader).unwrap().unwrap();
        let (mut message, mut all) = (Vec::new(), Vec::new());
        while let Some(found) = mbox.next(&mut message).unwrap() {
            assert!(!found.cut);
            let text = String::from_utf8(message.clone()).unwrap();
            all.push((found.hint.sender.unwrap_or_else(|| "?".to_owned()), text));
        }
        assert_eq!(mbox.next(&mut message).unwrap(), None);
        all
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    #[test]
    fn messages_are_separated() {
        let mbox = b"\nFrom a@b.test Fri Nov 20 11:50:37 2026\nSubject: one\n\nFrom here on\n\n\
                     From there 12:00 off\n\nFrom MAILER-DAEMON Fri Nov 20 11:50:38 2026\nSubject: \
                     two\n\nlast\nFrom x Fri Nov 20 11:50:38 2026\n\n";
        let expected = [
            ("a@b.test", "Subject: one\n\nFrom here on\n\nFrom there 12:00 off\n"),
            ("", "Subject: two\n\nlast\nFrom x Fri Nov 20 11:50:38 2026\n"),
        ];
        assert_eq!(all(mbox), pairs(&expected));
        let crlf = "From - Fri Nov 20 11:50:37 2026\r\nA: b\r\n\r\nx\r\n\r\nFrom -\r\n\r\ny\r\n";
        let expected = [("?", "A: b\r\n\r\nx\r\n\r\n"), ("?", "\r\ny\r\n")];
        assert_eq!(all(crlf.as_bytes()), pairs(&expected));
    }

    #[test]
    fn quotes_before_from_are_taken_away_one_by_one() {
        let mbox = b"From a Fri Nov 20 11:50:37 2026\n\n>From x\n>>From y\n> From z\n>Fro\n>>\n";
        assert_eq!(all(mbox), pairs(&[("a", "\nFrom x\n>From y\n> From z\n>Fro\n>>\n")]));
    }

    #[test]
    fn what_is_no_mbox_is_none() {
        let none = |bytes: &'static [u8]| Mbox::new(bytes).unwrap().is_none();
        assert!(none(b"Subject: x\n\nFrom a Fri Nov 20 11:50:37 2026\n"));
        assert!(none(b"\x1f\x8b\x08"));
        assert_eq!(all(b""), []);
        assert_eq!(all(b"\n\n\r\n"), []);
        assert_eq!(all(b"From "), pairs(&[("?", "")]));
    }

    #[test]
    fn a_line_without_an_end_takes_bounded_memory() {
        let long = "x".repeat(3 << 16);
        let mbox = format!(
            "From a Fri Nov 20 11:50:37 2026\n{long}From b 11:50 2026\n\nFrom c Fri Nov 20 11:50:37 \
             2026\nA: b\n"
        );
        let found = all(mbox.as_bytes());
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].1.len(), (3 << 16) + "From b 11:50 2026\n".len());
        assert_eq!(found[1], ("c".to_owned(), "A: b\n".to_owned()));
    }
}
