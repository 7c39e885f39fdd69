//! The interface of all digest schemes.

use std::time::Instant;

use super::file_hash::FileHash;
use super::likeness::Sketch;
use super::message_part::{MessagePart, MessageParts};

/// A piece of a decoded message, the input of a digest.
///
/// An excerpt is found within one fragment, never across two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment<'a> {
    /// Normalised text: a body, a text attachment, the subject, the names of
    /// people and of attachments, the targets of links.
    Text(&'a str),
    /// A whole decoded attachment, to be found as a whole.
    File(&'a [u8]),
    /// The bytes of an attachment that is not text, to be found by an excerpt.
    Bytes(&'a [u8]),
}

/// A query by content: which messages may have contained this?
#[derive(Clone, Debug, PartialEq)]
pub struct ContentQuery {
    /// The content: all of it, and in this order if the scheme can tell (`S0 S1
    /// * S3` has two parts).
    pub parts: Vec<Part>,
    /// The minimum share, up to 1, of the elements of all parts that must be present: below 1
    /// for edited text. 0 is as many as unrelated messages hardly ever have: the scheme
    /// chooses how many that are, for each message. [`Part::Passage`] does not need it.
    pub min_share: f64,
}

/// One part of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Normalised text.
    Text(String),
    /// Normalised text of which a message may contain any passage that is long enough. A scheme
    /// that cannot find passages searches for all of it.
    Passage(String),
    /// A whole attachment.
    File(Vec<u8>),
    /// A whole attachment of which only the SHA-256 is known. It has the same digest.
    FileHash(FileHash),
    /// An excerpt of an attachment's bytes.
    Bytes(Vec<u8>),
}

/// The key of digests: secret random bytes.
pub type DigestKey = [u8; 32];

/// A digest scheme, with its parameters and key.
///
/// Equal fragments give equal digests.
pub trait Scheme: Send + Sync {
    /// Starts the digest of a message.
    fn digester(&self) -> Box<dyn Digester + '_>;

    /// Lays out the digests of a segment for fast queries.
    fn seal(&self, digests: &[&[u8]]) -> Sealed;

    /// The digests that were sealed in a body, in its order; `None` if it does not keep them
    /// apart, was folded, or is damaged.
    fn unseal(&self, body: &[u8]) -> Option<Vec<Vec<u8>>>;

    /// Reduces a sealed body to about half its size, with more false hits;
    /// `None` if it cannot be smaller, or is damaged.
    fn fold(&self, body: &[u8]) -> Option<Vec<u8>>;

    /// Checks that `body` can be the result of [`Self::seal`] or [`Self::fold`]
    /// for `messages` messages.
    ///
    /// # Errors
    /// What is wrong with it.
    fn check(&self, body: &[u8], messages: u32) -> Result<(), Damage>;

    /// Prepares a search.
    ///
    /// # Errors
    /// A part is too short for any digest.
    fn search(&self, query: &ContentQuery) -> Result<Box<dyn Search + '_>, TooShort>;

    /// The shortest excerpt, in bytes of normalised text, that is always found
    /// at whatever position it begins.
    fn shortest(&self) -> usize;

    /// What can be compared of a digest as [`Digester::finish`] returns it; `None` if it is
    /// damaged, or has no text.
    fn sketch(&self, digest: &[u8]) -> Option<Sketch>;

    /// Passes what can be compared of some messages of a sealed body to `each`; `wanted` are
    /// their numbers in the body, in order. Nothing is passed for messages without text, for
    /// very large ones, and where a sealed body does not tell its messages apart.
    ///
    /// # Errors
    /// The body is damaged; what was passed before remains valid.
    fn sealed_sketches(
        &self,
        body: &Body<'_>,
        messages: u32,
        wanted: &[u32],
        each: &mut dyn FnMut(u32, Sketch),
    ) -> Result<(), Damage>;

    /// Whether a sealed body tells its messages apart, so that they can be compared.
    fn compares_sealed(&self) -> bool;
}

/// A digest being computed.
pub trait Digester {
    /// The part of the message to which the fragments belong that are added next; before the
    /// first call, a plain text. A scheme that does not tell parts apart ignores it.
    fn begin(&mut self, _part: MessagePart) {}

    /// Adds a fragment.
    fn add(&mut self, piece: Fragment<'_>);

    /// The digest of all added fragments.
    fn finish(self: Box<Self>) -> Vec<u8>;
}

/// The sealed digests of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The index of the digest that is the n-th message of the body.
    pub order: Vec<u32>,
    /// The layout.
    pub body: Vec<u8>,
}

/// A search in progress.
///
/// The methods may report false hits, but never miss a message that contains
/// all parts.
pub trait Search {
    /// Finds out for the hits that follow in which parts of their messages they are, if the
    /// scheme can tell.
    fn locate(&mut self) {}

    /// Searches digests as [`Digester::finish`] returns them, in the order in
    /// which they were made. Damaged ones are not hits. The numbers in hits
    /// start at 0.
    fn digests(&mut self, digests: &[&[u8]], hit: &mut dyn FnMut(Hit));

    /// Searches a sealed body of `messages` messages.
    ///
    /// # Errors
    /// The body is damaged; all messages that this does not affect were searched.
    fn sealed(
        &mut self,
        body: &Body<'_>,
        messages: u32,
        hit: &mut dyn FnMut(Hit),
    ) -> Result<(), Unsearched>;

    /// The probability, 0 to 1, that a message without any of the content is
    /// reported as this hit. It takes into account how common the elements of
    /// the query are in the messages searched so far.
    fn chance(&self, hit: &Hit) -> f64;

    /// How many of the messages searched so far are expected to have at least this share of
    /// the elements by chance: the sum of their chances, each with its own size and fill.
    /// `None` if the scheme cannot tell. It never can for passages, and for a share that it chose.
    fn expected(&self, share: f64) -> Option<f64>;
}

/// A message that may contain the content searched for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// Its number within the segment.
    pub message: u32,
    /// How many of the query's elements are present.
    pub present: u32,
    /// How many elements the query has.
    pub of: u32,
    /// The share of its digest's bits that are set, 0 to 1.
    pub fill: f32,
    /// The longest passage that is present, if the query asked for passages. Then `present` is
    /// that of the passage, and `of` that of its part.
    pub passage: Option<Passage>,
    /// The parts of the message in one of which each part of the query is, if it is in any;
    /// `None` if that is not known, or was not wanted ([`Search::locate`]). A display name is
    /// taken for a text.
    pub within: Option<MessageParts>,
}

impl Hit {
    /// The share of the elements that are present, 0 to 1.
    pub fn share(&self) -> f64 {
        share(self.present, self.of)
    }
}

/// A share of some elements, 0 to 1.
pub(super) fn share(present: u32, of: u32) -> f64 {
    f64::from(present) / f64::from(of.max(1))
}

/// A passage of a [`Part::Passage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The index of the part, from 0.
    pub part: u32,
    /// Where in the part's text it begins, in bytes: perhaps not at the beginning of a letter.
    pub start: u32,
    /// Where it ends.
    pub end: u32,
}

/// The body of a sealed segment, checked and decrypted as it is read.
pub struct Body<'a> {
    source: BodySource<'a>,
    deadline: Option<Instant>,
}

/// Where a body is.
enum BodySource<'a> {
    /// In memory.
    Plain(&'a [u8]),
    /// Elsewhere; its length, and how it is read.
    Stored(usize, &'a Read<'a>),
}

/// Reads a part of a body at an offset.
type Read<'a> = dyn Fn(usize, &mut [u8]) -> Result<(), Damage> + 'a;

impl<'a> Body<'a> {
    /// A body that is not encrypted.
    pub fn plain(bytes: &'a [u8]) -> Self {
        Self { source: BodySource::Plain(bytes), deadline: None }
    }

    /// A body of so many bytes that `read` reads.
    pub fn stored(length: usize, read: &'a Read<'a>) -> Self {
        Self { source: BodySource::Stored(length, read), deadline: None }
    }

    /// The same body, which cannot be read after `deadline`.
    #[must_use]
    pub fn until(self, deadline: Option<Instant>) -> Self {
        Self { deadline, ..self }
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        match self.source {
            BodySource::Plain(bytes) => bytes.len(),
            BodySource::Stored(length, _) => length,
        }
    }

    /// Whether its length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads at `offset`.
    ///
    /// # Errors
    /// The body ends before that or is damaged there, or the deadline has passed; a caller that
    /// set one distinguishes them by the time.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Damage> {
        if is_past(self.deadline) {
            return Err(Damage("the deadline passed while it was read"));
        }
        let end = offset.checked_add(into.len()).filter(|&end| end <= self.len());
        let end = end.ok_or(Damage("an offset is beyond its end"))?;
        match self.source {
            BodySource::Stored(_, read) => read(offset, into)?,
            BodySource::Plain(bytes) => {
                into.copy_from_slice(bytes.get(offset..end).unwrap_or_default());
            }
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

/// Messages of a body that could not be searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsearched {
    /// How many.
    pub messages: u32,
    /// What is wrong with the body.
    pub damage: Damage,
}

impl Unsearched {
    /// Adds messages to those that were not searched before.
    pub(super) fn add(before: &mut Option<Self>, messages: u32, damage: Damage) {
        let more = before.map_or(0, |before| before.messages);
        *before = Some(Self { messages: messages.saturating_add(more), damage });
    }
}

/// A part of a query is too short for any digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooShort {
    /// The index of the part, from 0.
    pub part: usize,
    /// Its length, in bytes of normalised text or of the attachment.
    pub bytes: usize,
    /// The minimum length.
    pub needed: usize,
}
