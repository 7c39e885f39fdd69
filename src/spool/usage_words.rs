//! The words of a record of usage: each is sealed, and so sound only in its place in its own record.

use crate::rate::usage::WORDS;
use crate::sys::mapping::Mapping;

use super::format::{seal, unseal};
use super::hashing::KeySlot;
use super::record::USAGE_BYTES;

/// The size of a word.
pub(super) const WORD_BYTES: usize = USAGE_BYTES / WORDS;

/// The seed of the seals of a record: a word is sound only in its place in its own record.
#[inline]
pub(super) fn seed(slot: KeySlot) -> u32 {
    slot.hash() as u32
}

/// The word that is stored for a value.
#[inline]
pub(super) fn sealed(value: u64, seed: u32, word: usize) -> u64 {
    if value == 0 { 0 } else { seal(value, seed.wrapping_add(word as u32)) }
}

/// The value of a stored word; `None` if it is damaged.
#[inline]
pub(super) fn unsealed(word: u64, seed: u32, number: usize) -> Option<u64> {
    if word == 0 { Some(0) } else { unseal(word, seed.wrapping_add(number as u32)) }
}

/// Gives up the damaged counts of a record whose words are at `offset`.
pub(super) fn mend(map: &mut Mapping, offset: usize, place: KeySlot) -> Option<()> {
    let seed = seed(place);
    for word in 0..WORDS {
        let at = offset + word * WORD_BYTES;
        if unsealed(map.u64(at)?, seed, word).is_none() {
            map.set_u64(at, 0)?;
        }
    }
    Some(())
}
