//! What every way to digest messages offers.

use std::time::Instant;

/// A piece of a decoded message, as it is digested.
///
/// An excerpt is found within one piece, never across two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment<'a> {
    /// Normalised text: a body, a text attachment, the subject, the names of
    /// people and of attachments, the targets of links.
    Text(&'a str),
    /// A whole attachment, decoded, of which to remember that it was there.
    File(&'a [u8]),
    /// The bytes of an attachment that is no text, to be found by an excerpt.
    Bytes(&'a [u8]),
}

/// What is asked of the digests: which messages may have carried this?
#[derive(Clone, Debug, PartialEq)]
pub struct ContentQuery {
    /// What was carried: all of it, and in this order where the scheme can
    /// tell (`S0 S1 * S3` is two parts).
    pub parts: Vec<Part>,
    /// The least share, above 0 and up to 1, of the elements of all parts that
    /// must be present: below 1 for text that has been edited.
    pub min_share: f64,
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

/// What digests are keyed with: random bytes that nobody knows.
pub type DigestKey = [u8; 32];

/// A way to digest messages, and to ask the digests.
///
/// It knows its parameters and its key. Equal pieces give equal digests.
pub trait Scheme {
    /// Begins to digest a message.
    fn digester(&self) -> Box<dyn Digester + '_>;

    /// Lays out the digests of a segment to be asked quickly.
    fn seal(&self, digests: &[&[u8]]) -> Sealed;

    /// Makes a sealed body about half as large, at the price of more false
    /// hits; `None` where it can be no smaller, or is damaged.
    fn fold(&self, body: &[u8]) -> Option<Vec<u8>>;

    /// Whether `body` is one that [`Self::seal`] or [`Self::fold`] can have
    /// made of `messages` messages.
    ///
    /// # Errors
    /// What is wrong with it.
    fn check(&self, body: &[u8], messages: u32) -> Result<(), Damage>;

    /// Prepares to ask digests.
    ///
    /// # Errors
    /// A part is so short that no digest could answer.
    fn search(&self, question: &ContentQuery) -> Result<Box<dyn Search + '_>, TooShort>;

    /// The shortest excerpt of text, in bytes of normalised text, that is sure
    /// to be found wherever it begins.
    fn shortest(&self) -> usize;
}

/// A message being digested.
pub trait Digester {
    /// Takes in one more piece.
    fn add(&mut self, piece: Fragment<'_>);

    /// The digest of all that was taken in.
    fn finish(self: Box<Self>) -> Vec<u8>;
}

/// The digests of a segment, laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Which of the digests is the n-th message of the body.
    pub order: Vec<u32>,
    /// The layout.
    pub body: Vec<u8>,
}

/// A question under way.
///
/// None of the methods misses a message that carried all parts, whatever
/// else they report.
pub trait Search {
    /// Asks digests as [`Digester::finish`] made them, in the order they were
    /// made in. Damaged ones are no hits. The numbers in hits count from 0.
    fn digests(&mut self, digests: &[&[u8]], hit: &mut dyn FnMut(Hit));

    /// Asks a sealed body of so many messages.
    ///
    /// # Errors
    /// The body is damaged; what was reported before stands.
    fn sealed(
        &mut self,
        body: &Body<'_>,
        messages: u32,
        hit: &mut dyn FnMut(Hit),
    ) -> Result<(), Damage>;

    /// The chance, 0 to 1, that a message that carried nothing of what is asked
    /// would be reported as this hit. It takes into account how common the
    /// elements of the question are in what has been asked so far.
    fn chance(&self, hit: &Hit) -> f64;
}

/// A message that may have carried what is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// Its number within the segment.
    pub message: u32,
    /// How many of the question's elements are present.
    pub present: u32,
    /// Of how many.
    pub of: u32,
    /// The share of its digest's bits that are set, 0 to 1.
    pub fill: f32,
}

/// The body of a sealed segment, deciphered where it is read.
pub struct Body<'a> {
    bytes: &'a [u8],
    decipher: Option<&'a Decipher<'a>>,
    deadline: Option<Instant>,
}

/// Deciphers bytes that were found at an offset of a body.
type Decipher<'a> = dyn Fn(u64, &mut [u8]) + 'a;

impl<'a> Body<'a> {
    /// A body that is not enciphered.
    pub fn plain(bytes: &'a [u8]) -> Self {
        Self { bytes, decipher: None, deadline: None }
    }

    /// A body that `decipher` makes readable, given an offset and the bytes
    /// found there.
    pub fn enciphered(bytes: &'a [u8], decipher: &'a Decipher<'a>) -> Self {
        Self { bytes, decipher: Some(decipher), deadline: None }
    }

    /// The same, of which nothing can be read after `deadline`.
    #[must_use]
    pub fn until(self, deadline: Option<Instant>) -> Self {
        Self { deadline, ..self }
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it is of no length.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reads what lies at `offset`.
    ///
    /// # Errors
    /// The body ends before, or the deadline has passed; who set one finds out
    /// which by looking at the time.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Damage> {
        if is_past(self.deadline) {
            return Err(Damage("the deadline passed while it was read"));
        }
        let end = offset.checked_add(into.len());
        let found = end.and_then(|end| self.bytes.get(offset..end));
        into.copy_from_slice(found.ok_or(Damage("a place beyond its end is named"))?);
        if let Some(decipher) = self.decipher {
            decipher(offset as u64, into);
        }
        Ok(())
    }
}

/// Whether a deadline, if there is one, has passed.
pub(super) fn is_past(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// What is wrong with a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage(pub &'static str);

/// A part of a question is too short for any digest to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooShort {
    /// Which part, from 0.
    pub part: usize,
    /// Its length, in bytes of normalised text or of the attachment.
    pub bytes: usize,
    /// The needed length that can be answered.
    pub needed: usize,
}
