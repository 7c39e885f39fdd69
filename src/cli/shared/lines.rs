//! The lines of what commands read.

use std::io::{self, BufRead};
use std::path::Path;

use super::screen::{Terminal, complain};
use crate::cli::Failure;
use crate::text::{input, printable};

/// The longest line: of an export, the largest filter in base64, a key of the largest
/// size with every byte escaped, and more.
const LINE_MAX: usize = 4 << 20;
/// How many invalid lines are reported one by one.
const REPORTED: u64 = 20;

/// The lines of a file, of whatever bytes, one at a time.
pub(in crate::cli) struct Lines {
    input: Box<dyn BufRead>,
    /// The file, for messages.
    pub(in crate::cli) name: String,
    /// The number of the line, from 1 on.
    pub(in crate::cli) number: u64,
    /// The line without its end.
    pub(in crate::cli) line: Vec<u8>,
    /// Whether it was too long to be kept.
    too_long: bool,
    pub(in crate::cli) done: bool,
    /// How many were invalid.
    pub(in crate::cli) invalid: u64,
}

impl Lines {
    pub(in crate::cli) fn open(path: &Path) -> Result<Self, Failure> {
        let (input, name) = input::open(path, &Terminal).map_err(Failure::new)?;
        let line = Vec::new();
        Ok(Self { input, name, number: 0, line, too_long: false, done: false, invalid: 0 })
    }

    /// The line, which must be whole.
    pub(in crate::cli) fn bytes(&self) -> Result<&[u8], String> {
        match self.too_long {
            true => Err(format!("it is longer than {LINE_MAX} bytes")),
            false => Ok(&self.line),
        }
    }

    /// The line as text.
    pub(in crate::cli) fn text(&self) -> Result<&str, String> {
        std::str::from_utf8(self.bytes()?).map_err(|_| "it is not UTF-8".to_owned())
    }

    /// Reports what is wrong with the line, which is skipped.
    pub(in crate::cli) fn skip(&mut self, what: &str) {
        self.invalid += 1;
        if self.invalid <= REPORTED {
            let what = printable(what.as_bytes());
            complain(format_args!("{}, line {}: {what}", self.name, self.number));
        }
    }

    /// Reports how many lines were skipped, if any; all others are `done`.
    ///
    /// # Errors
    /// Some were.
    pub(in crate::cli) fn all_valid(&self, done: &str) -> Result<(), Failure> {
        let Self { invalid, number, .. } = self;
        if let Some(more) = invalid.checked_sub(REPORTED).filter(|more| *more > 0) {
            complain(format_args!("and {more} more lines are invalid"));
        }
        match invalid {
            0 => Ok(()),
            _ => Err(Failure::new(format!(
                "{invalid} of {number} lines were invalid and have been skipped; all others are \
                 {done}"
            ))),
        }
    }

    /// Goes to the first line that is not blank; `None` if there is none.
    pub(in crate::cli) fn skip_blank(&mut self) -> Result<Option<()>, Failure> {
        loop {
            self.next()?;
            if self.done {
                return Ok(None);
            }
            if !self.line.trim_ascii().is_empty() {
                return Ok(Some(()));
            }
        }
    }

    /// Goes to the next line. Of one that is too long, only a part is kept.
    pub(in crate::cli) fn next(&mut self) -> Result<(), Failure> {
        self.line.clear();
        (self.too_long, self.done) = (false, true);
        loop {
            let buffer = match self.input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => {
                    result.map_err(|error| Failure::new(input::failed(&self.name, &error)))?
                }
            };
            if buffer.is_empty() {
                break;
            }
            self.done = false;
            let end = buffer.iter().position(|&b| b == b'\n');
            let part = buffer.get(..end.unwrap_or(buffer.len())).unwrap_or_default();
            if self.line.len() + part.len() <= LINE_MAX {
                self.line.extend_from_slice(part);
            } else {
                self.too_long = true;
            }
            let used = end.map_or(buffer.len(), |end| end + 1);
            self.input.consume(used);
            if end.is_some() {
                break;
            }
        }
        self.number += u64::from(!self.done);
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        Ok(())
    }
}
