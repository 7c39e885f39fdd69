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
mod params;
mod sealed;
mod search;
mod words;

use super::{ContentQuery, Damage, Digester, Scheme, Sealed, Search, TooShort};
pub use params::Winnow;

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
