//! Decoding: from the bytes of a message to the text that a reader sees.
//!
//! Recorded messages and query texts are decoded in exactly the same way;
//! [`VERSION`] is incremented with a change of the output of usual messages; what changes that of
//! odd headers alone is not worth losing the search of all that was recorded before.
//!
//! The parts of a message are found line by line in one pass ([`walk`]), with a
//! stack of open parts and no recursion. Fields ([`fields`]) and charsets are
//! parsed by the crate mail-parser, which receives a limited number of bytes at
//! a time. The results become text ([`html`], [`normal`]), and go to the caller
//! as fragments ([`pieces`]).

mod chars;
mod charset;
mod encoded_words;
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

pub use charset::Charset;
pub use normal::{excerpt, normalise};
pub use pieces::{Extent, Limits};

use super::{Fragment, MessagePart};
use std::borrow::Cow;

/// The version of the decoder, raised as well when the same settings digest a text in another
/// way. Messages of another version are found by their envelopes only.
pub const VERSION: u16 = 4;

/// Decodes a message, header and body, with lines that end in LF or CRLF, and
/// passes its fragments to `sink`. Returns how much of it these are: what is beyond the
/// limits is left out.
///
/// Any bytes are a valid message. The time is proportional to their number, and
/// the memory to the limits: a few times that of text, and up to three times
/// that of attachments.
///
/// The fragments are: the subject and the display names, of this message and of
/// those within it; the names of attachments; the text of each body; of HTML
/// the text, the title, hidden text, alternative texts of images, and the
/// targets of links; of each attachment the whole file, byte for byte, and its text
/// if it is text, else its bytes. A file without a binary encoding, whose line ends depend on
/// the path, is there with LF and with CR LF.
pub fn decode(message: &[u8], limits: &Limits, sink: &mut dyn FnMut(Fragment<'_>)) -> Extent {
    decode_parts(message, limits, &mut |_, piece| sink(piece))
}

/// The same, with the part of the message that each fragment belongs to.
pub fn decode_parts(
    message: &[u8],
    limits: &Limits,
    sink: &mut dyn FnMut(MessagePart, Fragment<'_>),
) -> Extent {
    let mut pieces = pieces::Pieces::new(*limits, sink);
    walk::walk(message, 0, &mut pieces);
    while let Some(encoded) = pieces.messages.pop() {
        pieces.attachment = Some(encoded.attachment);
        walk::walk(&encoded.bytes, encoded.depth, &mut pieces);
    }
    pieces.extent()
}

/// Decodes text without a declared charset, like a body without one: as UTF-8
/// if it is valid, else as Windows-1252.
#[must_use]
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    charset::to_utf8(bytes, None)
}

/// Decodes a file as if it were attached to a message, into the fragments by
/// which it is found. Returns how much of it was decoded.
pub fn decode_file(bytes: &[u8], limits: &Limits, sink: &mut dyn FnMut(Fragment<'_>)) -> Extent {
    let mut sink = |_, piece: Fragment<'_>| sink(piece);
    let mut pieces = pieces::Pieces::new(*limits, &mut sink);
    pieces.lone_file(bytes);
    pieces.extent()
}
