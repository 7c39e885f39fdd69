//! The two slots of a record of habits: each holds the whole habits, a number and a check.

use crate::rate::habits::Habits;

use super::hashing::{KeySlot, fold};

/// The offset of a slot's number, after the habits.
const SEQUENCE: usize = Habits::BYTES;
/// The offset of its check, which covers what is before.
const CHECK: usize = SEQUENCE + 4;
/// The size of a slot.
pub(super) const SLOT_BYTES: usize = CHECK + 4;
/// The size of both.
pub(super) const SLOTS_BYTES: usize = 2 * SLOT_BYTES;

/// The habits in a slot, and which it is.
pub(super) struct Slot {
    pub(super) habits: Habits,
    pub(super) which: usize,
    pub(super) sequence: u32,
}

/// The sound slot with the higher number.
pub(super) fn newest(slots: &[u8], of: KeySlot) -> Option<Slot> {
    let (first, second) = slots.split_first_chunk::<SLOT_BYTES>()?;
    let second = second.first_chunk::<SLOT_BYTES>()?;
    let later = sequence(second).wrapping_sub(sequence(first)).cast_signed() > 0;
    let order = if later { [(second, 1), (first, 0)] } else { [(first, 0), (second, 1)] };
    order.into_iter().find_map(|(slot, which)| {
        let (habits, _) = slot.split_first_chunk()?;
        let is_sound = slot[CHECK..] == check(slot, of);
        let habits = is_sound.then(|| Habits::from_bytes(habits))??;
        Some(Slot { habits, which, sequence: sequence(slot) })
    })
}

/// A slot with its number and its check, which is valid in the record of this key only.
pub(super) fn encoded(habits: &Habits, sequence: u32, of: KeySlot) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    slot[..SEQUENCE].copy_from_slice(&habits.to_bytes());
    slot[SEQUENCE..CHECK].copy_from_slice(&sequence.to_le_bytes());
    let check = check(&slot, of);
    slot[CHECK..].copy_from_slice(&check);
    slot
}

fn sequence(slot: &[u8; SLOT_BYTES]) -> u32 {
    slot[SEQUENCE..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn check(slot: &[u8; SLOT_BYTES], of: KeySlot) -> [u8; 4] {
    // Four sums at once, as each step of one waits for the step before.
    let mut sums = [of.hash(); 4];
    let mut parts = slot[..CHECK].chunks_exact(8 * sums.len());
    for part in &mut parts {
        let (words, _) = part.as_chunks::<8>();
        sums.iter_mut().zip(words).for_each(|(sum, word)| *sum = fold(*sum, word));
    }
    let [first, rest @ ..] = sums;
    let sum = fold(first, parts.remainder());
    (rest.iter().fold(sum, |sum, next| fold(sum, &next.to_le_bytes())) as u32).to_le_bytes()
}
