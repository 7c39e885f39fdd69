//! The scheme `hbf`: hierarchical Bloom filters, after K. Shanmugasundaram,
//! H. Brönnimann and N. Memon, "Payload attribution via hierarchical Bloom filters"
//! (CCS 2004).
//!
//! A message is cut into blocks of `s` bytes. Each block is an element together
//! with its number, and so are each two, four, eight … blocks that stand
//! together and begin at a multiple of their number ([`levels`]). The elements
//! of one message after the other go into a filter of `m` bits by `k` hash
//! functions, until it has taken `n`, and then into a new one ([`sealed`]). An
//! excerpt may begin anywhere in a block and anywhere in a message: all of that
//! is tried, and what is found of single blocks is verified at the levels above
//! ([`excerpt`]).
//!
//! Where the paper leaves it open, this is how it is done:
//!
//! - The texts of a message and the bytes of its attachments, in the order they
//!   come in, are one text. What is left at its end is in no block.
//! - Whole attachments are elements of their own, without a number.
//! - A group of blocks is inserted as soon as its last block is there, so that
//!   its elements are near each other. A message may begin in one filter and
//!   end in another; each of its elements is looked for where it was put.
//! - Where a filter matches, all messages of which it has elements are hits.
//! - Blocks between the parts of a question are not guessed. Parts of one kind
//!   must follow each other, at any distance.
//! - Of a longer part, the first 1,024 blocks are asked for.
//! - Until a segment is sealed, the hashes of a message's blocks are kept, and
//!   no filter is asked.

mod digest;
mod excerpt;
mod hashing;
mod levels;
mod params;
mod sealed;
mod search;

#[cfg(test)]
mod tests;

use super::{ContentQuery, Damage, Digester, Scheme, Sealed, Search, TooShort};
pub use params::Hbf;

impl Scheme for Hbf {
    fn digester(&self) -> Box<dyn Digester + '_> {
        Box::new(digest::HbfDigester::new(self))
    }

    fn seal(&self, digests: &[&[u8]]) -> Sealed {
        sealed::seal(self, digests)
    }

    fn fold(&self, body: &[u8]) -> Option<Vec<u8>> {
        sealed::fold(self, body)
    }

    fn check(&self, body: &[u8], messages: u32) -> Result<(), Damage> {
        sealed::check(self, body, messages)
    }

    fn search(&self, question: &ContentQuery) -> Result<Box<dyn Search + '_>, TooShort> {
        Ok(Box::new(search::HbfSearch::new(self, question)?))
    }

    /// 2·`s` - 1: some block of it is whole, wherever it begins.
    fn shortest(&self) -> usize {
        2 * usize::from(self.settings.block) - 1
    }
}
