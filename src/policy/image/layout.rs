//! The layout of a policy image. `IMAGE.md` explains it, and a test checks that the two
//! agree.

use crate::calendar::Every;
use crate::policy::word::Unit;
use crate::versions::Versions;

/// The magic of an image.
pub(super) const MAGIC: [u8; 8] = *b"EXIRATEP";
/// The latest format version.
pub(super) const VERSION: u32 = 5;
/// The versions that it reads. It writes the lowest that can express a policy, so that libraries
/// which are still loaded read the image.
pub(super) const VERSIONS: Versions = Versions { oldest: 4, newest: VERSION };

/// The size of the header.
pub(super) const HEADER_BYTES: usize = 72;
/// The offset of the version.
pub(super) const HEADER_VERSION: usize = 8;
/// The offset of the flags.
pub(super) const HEADER_FLAGS: usize = 12;
/// Header flag: what accounts send is not counted.
pub(super) const NO_USAGE: u32 = 1;
/// The offset of the random key.
pub(super) const HEADER_KEY: usize = 16;
/// The offset of the length of the image.
pub(super) const HEADER_LENGTH: usize = 32;
/// The offset of the position of the directory.
pub(super) const HEADER_DIRECTORY: usize = 40;
/// The offset of the position of `[identity]`.
pub(super) const HEADER_IDENTITY: usize = 44;
/// The offset of the position of `[on.crossing]`.
pub(super) const HEADER_ON_CROSSING: usize = 48;
/// The offset of the position of the time zone.
pub(super) const HEADER_ZONE: usize = 52;
/// The offset of the header's checksum, which covers all bytes before it.
pub(super) const HEADER_CRC: usize = 56;
/// The offset of the word that is not 0 once another image has the name, or will have it
/// soon. No checksum covers it.
pub(super) const HEADER_SUPERSEDED: usize = 64;

/// The unit of positions, and the alignment of rows and tables.
pub(super) const ALIGN: usize = 8;
/// The size of a row's head: its length and its checksum.
pub(super) const ROW_HEAD_BYTES: usize = 8;
/// The size of a slot of a table: a row's position and a checksum.
pub(super) const SLOT_BYTES: usize = 8;
/// The size of an item in a list of exemptions.
pub(super) const ITEM_BYTES: usize = 20;
/// Item flag: it has an end.
pub(super) const ITEM_ENDS: u32 = 1;

// The constants agree with each other.
const _: () = {
    assert!(
        HEADER_VERSION == 8 && HEADER_VERSION + 4 == HEADER_FLAGS && HEADER_FLAGS + 4 == HEADER_KEY
    );
    assert!(HEADER_KEY + 16 == HEADER_LENGTH && HEADER_LENGTH + 8 == HEADER_DIRECTORY);
    assert!(HEADER_DIRECTORY + 4 == HEADER_IDENTITY && HEADER_IDENTITY + 4 == HEADER_ON_CROSSING);
    assert!(HEADER_ON_CROSSING + 4 == HEADER_ZONE && HEADER_ZONE + 4 == HEADER_CRC);
    assert!(HEADER_CRC + 4 <= HEADER_SUPERSEDED);
    assert!(HEADER_SUPERSEDED.is_multiple_of(8) && HEADER_SUPERSEDED + 8 == HEADER_BYTES);
    assert!(HEADER_BYTES.is_multiple_of(ALIGN) && SLOT_BYTES.is_multiple_of(ALIGN));
    assert!(ITEM_BYTES == 8 + 4 + 4 + 4);
};

/// A hashed table of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    /// The position of its first slot, in units of [`ALIGN`].
    pub(super) start: u32,
    /// How many slots it has.
    pub(super) slots: u32,
}

impl Table {
    /// The slot of what has this hash.
    #[inline]
    pub(super) fn slot(self, hash: u64) -> u32 {
        (((hash >> 32) * u64::from(self.slots)) >> 32) as u32
    }
}

/// The kind of an amount: windows of each key.
pub(super) const EACH: u8 = 0;
/// The kind of an amount: windows of all users of a domain, or of a customer, together.
pub(super) const TOTAL: u8 = 1;
/// The kind of an amount: leaky buckets.
pub(super) const BUCKETS: u8 = 2;
/// The kind of an amount that is none: the settings of habits.
pub(super) const HABITS: u8 = 3;

/// How many units there are. A unit's code is less.
pub(super) const UNITS: usize = Unit::ALL.len();

/// The code of a unit.
#[cfg(any(test, feature = "cli"))]
pub(super) const fn unit_code(unit: Unit) -> u8 {
    unit as u8
}

/// The unit with this code.
#[inline]
pub(super) fn unit_of(code: u8) -> Option<Unit> {
    Unit::ALL.get(usize::from(code)).copied()
}

/// What is added to the code of the unit of a window for each [`Every`], from the first on. An
/// exirate that does not know it takes the unit for an unknown one.
const EVERY: u8 = 32;
const _: () = assert!(UNITS <= EVERY as usize && Every::ALL.len() < 8);

/// The code of a window's unit, and of how often it starts again by the calendar.
#[cfg(any(test, feature = "cli"))]
pub(super) fn window_code(unit: Unit, every: Option<Every>) -> u8 {
    let every = every.and_then(|every| Every::ALL.iter().position(|one| *one == every));
    unit_code(unit) + EVERY * every.map_or(0, |position| position as u8 + 1)
}

/// What has this code.
#[inline]
pub(super) fn window_of(code: u8) -> Option<(Unit, Option<Every>)> {
    let every = match code / EVERY {
        0 => None,
        number => Some(*Every::ALL.get(usize::from(number) - 1)?),
    };
    Some((unit_of(code % EVERY)?, every))
}

/// The checksum of `bytes`, begun from `seed`.
#[inline]
pub(super) fn checksum(seed: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed);
    hasher.update(bytes);
    hasher.finalize()
}

/// The checksum of a row: of its length and contents.
#[inline]
pub(super) fn row_checksum(seed: u32, at: u32, contents: &[u8]) -> u32 {
    let length = (contents.len() as u32).to_le_bytes();
    checksum(checksum(seed ^ at, &length), contents)
}

/// The checksum of the slot at `at`, which has this row.
#[inline]
pub(super) fn slot_checksum(seed: u32, at: u32, row: u32) -> u32 {
    checksum(seed ^ at, &row.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_has_a_code() {
        for &unit in Unit::ALL {
            assert_eq!(unit_of(unit_code(unit)), Some(unit));
        }
        assert_eq!(unit_of(UNITS as u8), None);
    }

    #[test]
    fn each_window_has_a_code() {
        let mut known = 0;
        for &unit in Unit::ALL {
            for every in Every::ALL.iter().copied().map(Some).chain([None]) {
                assert_eq!(window_of(window_code(unit, every)), Some((unit, every)));
                known += 1;
            }
        }
        assert_eq!((0..=255).filter_map(window_of).count(), known);
    }
}
