//! The scheme `winnow`: winnowed grams, with one filter for each message.
//!
//! From all grams of a few bytes in a text, some are selected by a rule that
//! selects the same ones wherever the text occurs ([`grams`]). The selected
//! grams are hashed with the store's key, and each hash sets one bit of a
//! filter whose size fits the message ([`digest`]). When a segment is sealed,
//! filters of one size are stored transposed, so that one bit of all of them is
//! read at once ([`sealed`]).

mod buffers;
mod candidates;
mod chance;
#[cfg(test)]
mod chance_tests;
mod class;
mod contained;
mod digest;
mod expected;
mod grams;
mod hashing;
mod integers;
mod located;
#[cfg(test)]
mod located_tests;
mod marks;
mod matrix;
mod octave;
mod params;
mod passage;
mod passage_hits;
mod sampling;
mod sealed;
mod search;

use super::likeness::{Bits, Sketch};
use super::{Body, ContentQuery, Damage, Digester, Scheme, Sealed, Search, TooShort};
pub use params::Winnow;

impl Scheme for Winnow {
    fn digester(&self) -> Box<dyn Digester + '_> {
        Box::new(digest::WinnowDigester::new(self))
    }

    fn seal(&self, digests: &[&[u8]]) -> Sealed {
        sealed::seal(digests)
    }

    fn unseal(&self, body: &[u8]) -> Option<Vec<Vec<u8>>> {
        sealed::unseal(body)
    }

    fn fold(&self, body: &[u8]) -> Option<Vec<u8>> {
        sealed::fold(body)
    }

    fn check(&self, body: &[u8], messages: u32) -> Result<(), Damage> {
        sealed::check(body, messages)
    }

    fn search(&self, query: &ContentQuery) -> Result<Box<dyn Search + '_>, TooShort> {
        Ok(Box::new(search::WinnowSearch::new(self, query)?))
    }

    fn shortest(&self) -> usize {
        self.text.shortest()
    }

    fn sketch(&self, digest: &[u8]) -> Option<Sketch> {
        Bits::of_bytes(digest::parse(digest)?.filter).map(Sketch::Bits)
    }

    fn sealed_sketches(
        &self,
        body: &Body<'_>,
        messages: u32,
        wanted: &[u32],
        each: &mut dyn FnMut(u32, Sketch),
    ) -> Result<(), Damage> {
        sealed::filters(body, messages, wanted, &mut |message, bits| {
            each(message, Sketch::Bits(bits));
        })
    }

    fn compares_sealed(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
