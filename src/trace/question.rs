//! What is asked of the digests.

/// What is asked of the digests: which messages may have carried this?
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// What was carried: all of it, and in this order where the scheme can
    /// tell (`S0 S1 * S3` of the seed is two parts).
    pub parts: Vec<Part>,
    /// The least share, above 0 and up to 1, of the elements of all parts that
    /// must be present: below 1 for text that has been edited.
    pub least: f64,
}

/// One part of what is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Normalised text.
    Text(String),
    /// A whole attachment.
    File(Vec<u8>),
    /// An excerpt of an attachment's bytes.
    Bytes(Vec<u8>),
}
