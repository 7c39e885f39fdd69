//! Sizes of the database and its files, and the limits on them.

use super::format::{ENTRY_BYTES, HEADER_BYTES, SHARD_BYTES_MAX, SHARDS};

/// The default size limit of a database, in bytes: 1 GiB.
pub const MAX_BYTES_DEFAULT: u64 = 1 << 30;
/// The smallest size limit, in bytes: 64 KiB for each shard.
pub const MAX_BYTES_MIN: u64 = 16 << 20;

/// The most checks that can be decided in one call. This many new records always fit
/// into the index of a shard after [`super::Spool`] has made room.
pub const CHECKS_MAX: usize = 64;

/// The heap grows by at least this many bytes: one page.
pub(super) const PAGE: usize = 4096;

/// Index entries of an empty shard: header and index fill one page.
pub(super) const CAPACITY_MIN: usize = (PAGE - HEADER_BYTES) / ENTRY_BYTES;

/// Index entries for this many records, so that half as many more fit.
pub(super) const fn capacity_for(records: usize) -> usize {
    let capacity = records * 15 / 8;
    if capacity > CAPACITY_MIN { capacity } else { CAPACITY_MIN }
}

/// The share of one shard in the size limit `max_bytes`, if its largest record has
/// `largest` bytes. All are bytes.
///
/// It always has room for four records of that size: the size of a filter follows from
/// the limit, and a limit whose filter is evicted at once would limit nothing.
pub(super) fn shard_share(max_bytes: u64, largest: usize) -> usize {
    let share = max_bytes.max(MAX_BYTES_MIN) / SHARDS as u64;
    let share = usize::try_from(share).unwrap_or(SHARD_BYTES_MAX);
    share.max(largest.saturating_mul(4)).min(SHARD_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_has_room_for_four_of_its_largest_records() {
        assert_eq!(shard_share(MAX_BYTES_DEFAULT, 100), 4 << 20);
        assert_eq!(shard_share(0, 0), 64 << 10);
        assert_eq!(shard_share(0, 2_000_000), 8_000_000);
        assert_eq!(shard_share(u64::MAX, usize::MAX), SHARD_BYTES_MAX);
    }
}
