//! The scheme `winnow`: winnowed grams in a filter a message.
//!
//! Of a text, all grams of a few bytes are looked at and some are kept, by a
//! rule that keeps the same ones wherever the text stands ([`grams`]). What is
//! kept is hashed under the store's key, and each hash sets one bit of a filter
//! whose size fits the message ([`digest`]). When a segment is sealed, filters
//! of one size are laid side by side, so that one bit of all of them is read at
//! once ([`sealed`]).

mod chance;
#[cfg(test)]
mod chance_tests;
mod class;
mod digest;
mod grams;
mod hashing;
mod matrix;
mod octave;
mod sealed;
mod search;
mod words;

use super::settings::WinnowSettings;
use super::{ContentQuery, Damage, DigestKey, Digester, Scheme, Sealed, Search, TooShort};
use grams::{Scratch, Winnower};
use hashing::Hashing;

/// The scheme `winnow` with its parameters and its key.
#[derive(Clone, Debug)]
pub struct Winnow {
    hashing: Hashing,
    text: Winnower,
    bytes: Winnower,
    centibits: u16,
}

impl Winnow {
    /// One with these parameters; those out of range are taken for the nearest
    /// within.
    pub fn new(settings: WinnowSettings, key: &DigestKey) -> Self {
        let settings = settings.nearest();
        let hashing = Hashing::new(key);
        Self {
            text: Winnower::new(settings.gram, settings.window, hashing.order),
            bytes: Winnower::new(settings.bytes_gram, settings.bytes_window, hashing.order),
            centibits: settings.centibits,
            hashing,
        }
    }

    /// Gives the elements of a text, some more than once.
    fn text_elements(&self, text: &[u8], scratch: &mut Scratch, mut element: impl FnMut(u64)) {
        self.text.kept(text, scratch, |gram| element(self.hashing.text.hash(gram)));
    }

    /// Gives the elements of an attachment's bytes, some more than once.
    fn bytes_elements(&self, bytes: &[u8], scratch: &mut Scratch, mut element: impl FnMut(u64)) {
        self.bytes.kept(bytes, scratch, |gram| element(self.hashing.bytes.hash(gram)));
    }
}

impl Scheme for Winnow {
    fn digester(&self) -> Box<dyn Digester + '_> {
        Box::new(digest::WinnowDigester::new(self))
    }

    fn seal(&self, digests: &[&[u8]]) -> Sealed {
        sealed::seal(digests)
    }

    fn fold(&self, body: &[u8]) -> Option<Vec<u8>> {
        sealed::fold(body)
    }

    fn check(&self, body: &[u8], messages: u32) -> Result<(), Damage> {
        sealed::check(body, messages)
    }

    fn search(&self, question: &ContentQuery) -> Result<Box<dyn Search + '_>, TooShort> {
        Ok(Box::new(search::WinnowSearch::new(self, question)?))
    }

    fn shortest(&self) -> usize {
        self.text.shortest()
    }
}

#[cfg(test)]
mod tests;
