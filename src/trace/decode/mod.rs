//! Decoding: from the bytes of a message to the pieces that a reader sees.
//!
//! Exactly as it is done here, text is decoded when a message passes and when it
//! is asked about; [`VERSION`] goes up with every change of what comes out.
//!
//! The parts of a message are found line by line in one pass ([`walk`]), with a
//! list of what is open and no recursion. Fields ([`fields`]) and charsets are
//! read by the crate mail-parser, of which each call gets a bounded number of
//! bytes. What is read becomes text ([`html`], [`normal`]) and goes to the
//! caller piece by piece ([`pieces`]).

mod chars;
mod charset;
mod entities;
#[cfg(test)]
mod excerpt_tests;
mod fields;
mod file;
mod flowed;
#[cfg(test)]
mod hostile_tests;
mod html;
#[cfg(test)]
mod html_tests;
mod normal;
#[cfg(test)]
mod normal_tests;
mod pieces;
mod tags;
#[cfg(test)]
mod tests;
mod transfer;
mod walk;
mod words;

pub use charset::Charset;
pub use file::canonical_file;
pub use normal::{excerpt, normalise};
pub use pieces::Limits;

use super::Fragment;
use std::borrow::Cow;

/// Of all that is done here. Digests of one version are asked with text that the
/// same one has decoded.
pub const VERSION: u16 = 2;

/// Decodes a message, headers and body, with lines that end in LF or CRLF, and
/// gives each of its pieces to `sink`. Whether that is all of it: what is beyond
/// the limits is left out.
///
/// Any bytes at all are a message. The time taken is proportional to their
/// number, and the memory to the limits: a few times that of text, and once that
/// of attachments.
///
/// The pieces are: the subject and the names of people, of this message and of
/// those within it; the names of attachments; the text of each body; of HTML the
/// text, the title, what is hidden, texts in place of images, and the targets of
/// links; of each attachment the whole file, and its text if it is text, else
/// its bytes.
pub fn decode(message: &[u8], limits: &Limits, sink: &mut dyn FnMut(Fragment<'_>)) -> bool {
    let mut pieces = pieces::Pieces::new(*limits, sink);
    walk::walk(message, 0, &mut pieces);
    while let Some((message, depth)) = pieces.messages.pop() {
        walk::walk(&message, depth, &mut pieces);
    }
    pieces.is_whole()
}

/// Text of which nothing says what it is written in, as a body is read of which
/// nothing says so: UTF-8 if it can be, and Windows-1252 otherwise.
#[must_use]
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    charset::to_utf8(bytes, None)
}

/// Decodes a file as if it had been attached to a message: the pieces by which
/// it would be found. Whether that is all of it.
pub fn decode_file(bytes: &[u8], limits: &Limits, sink: &mut dyn FnMut(Fragment<'_>)) -> bool {
    let mut pieces = pieces::Pieces::new(*limits, sink);
    pieces.lone_file(bytes);
    pieces.is_whole()
}
