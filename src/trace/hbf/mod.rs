//! The scheme `hbf`: hierarchical Bloom filters, after K. Shanmugasundaram,
//! H. Brönnimann and N. Memon, "Payload attribution via hierarchical Bloom filters"
//! (CCS 2004).
//!
//! A message is divided into blocks of `s` bytes. Each block is an element
//! together with its number, and so are groups of two, four, eight …
//! consecutive blocks that begin at a multiple of their size ([`levels`]). The
//! elements of consecutive messages go into a filter of `m` bits by `k` hash
//! functions, until `n` have been inserted, and then into a new one
//! ([`sealed`]). An excerpt may begin anywhere in a block and anywhere in a
//! message: all positions are tried, and matches of single blocks are verified
//! at the higher levels ([`excerpt`]).
//!
//! Details that the paper leaves open:
//!
//! - The texts of a message and the bytes of its attachments, in order, are one
//!   text. The incomplete block at its end is ignored.
//! - Whole attachments are separate elements, without a number.
//! - A group of blocks is inserted as soon as its last block is known, so that
//!   its elements are close together. A message may begin in one filter and end
//!   in another; each of its elements is looked up in its own filter.
//! - If a filter matches, all messages with elements in it are hits.
//! - Blocks between the parts of a query are not guessed. Parts of one kind
//!   must follow each other, at any distance.
//! - Of a longer part, the first 1,024 blocks are searched.
//! - Until a segment is sealed, the hashes of a message's blocks are kept, and
//!   searches use no filter.

mod digest;
mod excerpt;
mod hashing;
mod levels;
mod params;
mod sealed;
mod search;

#[cfg(test)]
mod tests;

use super::likeness::Sketch;
use super::{Body, ContentQuery, Damage, Digester, Scheme, Sealed, Search, TooShort};
pub use params::Hbf;

impl Scheme for Hbf {
    fn digester(&self) -> Box<dyn Digester + '_> {
        Box::new(digest::HbfDigester::new(self))
    }

    fn seal(&self, digests: &[&[u8]]) -> Sealed {
        sealed::seal(self, digests)
    }

    fn unseal(&self, _body: &[u8]) -> Option<Vec<Vec<u8>>> {
        None
    }

    fn fold(&self, body: &[u8]) -> Option<Vec<u8>> {
        sealed::fold(self, body)
    }

    fn check(&self, body: &[u8], messages: u32) -> Result<(), Damage> {
        sealed::check(self, body, messages)
    }

    fn search(&self, query: &ContentQuery) -> Result<Box<dyn Search + '_>, TooShort> {
        Ok(Box::new(search::HbfSearch::new(self, query)?))
    }

    /// 2·`s` - 1: wherever the excerpt begins, it contains a whole block.
    fn shortest(&self) -> usize {
        2 * usize::from(self.settings.block) - 1
    }

    fn sketch(&self, digest: &[u8]) -> Option<Sketch> {
        let (mut hashes, files) = digest::parse(digest)?;
        hashes.extend(files);
        hashes.sort_unstable();
        (!hashes.is_empty()).then_some(Sketch::Hashes(hashes))
    }

    /// One filter is for the elements of many messages.
    fn sealed_sketches(
        &self,
        _: &Body<'_>,
        _: u32,
        _: &[u32],
        _: &mut dyn FnMut(u32, Sketch),
    ) -> Result<(), Damage> {
        Ok(())
    }

    fn compares_sealed(&self) -> bool {
        false
    }
}
