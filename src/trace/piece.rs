//! What a decoded message consists of.

/// A piece of a decoded message, as it is digested.
///
/// An excerpt is found within one piece, never across two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Normalised text: a body, a text attachment, the subject, the names of
    /// people and of attachments, the targets of links.
    Text(&'a str),
    /// A whole attachment, decoded, of which to remember that it was there.
    File(&'a [u8]),
    /// The bytes of an attachment that is no text, to be found by an excerpt.
    Bytes(&'a [u8]),
}
