//! A shard's index: which record belongs to which key.

use crate::engine::{RecordKey, Remembered};

use super::format::{ALIGN, EMPTY, ENTRY_BYTES, FLAGS, HEADER_BYTES};
use super::hashing::KeySlot;
use super::record::Record;
use super::shard::Body;

/// So many records with a key's tag but another key mean that the index is damaged: two
/// keys have the same tag with a probability of one in four billion.
const STRANGERS_MAX: u32 = 16;

/// The result of a lookup in the index.
#[derive(Debug)]
pub(super) struct Lookup {
    /// The key's record.
    pub(super) record: Option<Record>,
    /// Its index entry, or a free one for a new record.
    pub(super) slot: Option<usize>,
    /// That entry belongs to a damaged record.
    pub(super) slot_damaged: bool,
    /// Damaged records that the lookup came across.
    pub(super) damaged: u64,
    /// The index itself has damaged entries.
    pub(super) index_damaged: bool,
}

impl Lookup {
    /// The contents of the record that was found in `body`.
    #[inline]
    pub(super) fn remembered<'a>(&self, body: &'a Body) -> Option<Remembered<'a>> {
        self.record.and_then(|record| record.remembered(&body.map, body.seed))
    }

    /// The record was found, but both its states are damaged.
    #[inline]
    pub(super) fn has_no_state(&self) -> bool {
        self.record.is_some_and(|record| record.current.is_none())
    }

    /// There is a record that needs no more room, unless a filter is added.
    #[inline]
    pub(super) fn stays(&self) -> bool {
        self.record.is_some_and(|record| record.filter_bytes.is_none()) && !self.index_damaged
    }
}

impl Body {
    /// An index entry as (tag, offset of its record), `None` if it is empty.
    #[inline]
    pub(super) fn entry(&self, slot: usize) -> Option<(u32, usize)> {
        let entry = self.map.u64(HEADER_BYTES + slot * ENTRY_BYTES)? ^ EMPTY;
        (entry != 0).then_some(((entry >> 32) as u32, (entry as u32) as usize * ALIGN))
    }

    /// Points an index entry at a record, in one atomic store.
    #[must_use = "None means that nothing was written"]
    pub(super) fn set_entry(&mut self, slot: usize, tag: u32, offset: usize) -> Option<()> {
        let unit = u32::try_from(offset / ALIGN).ok()?;
        let entry = (u64::from(tag) << 32 | u64::from(unit)) ^ EMPTY;
        self.map.set_u64(HEADER_BYTES + slot * ENTRY_BYTES, entry)
    }

    /// Whether an entry can point at `offset`.
    #[inline]
    pub(super) fn in_heap(&self, offset: usize) -> bool {
        offset >= self.heap_start && offset < self.map.len()
    }

    /// Prefetches what [`Body::find`] will most likely read while the kernel takes the
    /// lock, and `further` places of the record. Nothing that is read here is used.
    #[inline]
    pub(super) fn prefetch(&self, key_slot: KeySlot, second: i64, further: [usize; 2]) {
        // The file's length must be checked first.
        if self.checked != second {
            return;
        }
        let start = key_slot.start(self.capacity);
        let mut entries = (start..self.capacity.min(start + 16)).map_while(|slot| self.entry(slot));
        if let Some((_, offset)) = entries.find(|&(tag, _)| tag == key_slot.tag) {
            for place in [0, 64, 128, further[0], further[1]] {
                self.map.prefetch(offset.saturating_add(place));
            }
        }
        self.map.prefetch(FLAGS);
    }

    /// Finds the record of `key`.
    #[inline]
    pub(super) fn find<'k>(&self, key_slot: KeySlot, key: impl Into<RecordKey<'k>>) -> Lookup {
        let key = &key.into();
        let mut lookup = Lookup {
            record: None,
            slot: None,
            slot_damaged: false,
            damaged: 0,
            index_damaged: false,
        };
        let (mut slot, mut strangers) = (key_slot.start(self.capacity), 0);
        for _ in 0..self.capacity {
            let Some((tag, offset)) = self.entry(slot) else {
                lookup.slot = lookup.slot.or(Some(slot));
                break;
            };
            if !self.in_heap(offset) {
                lookup.index_damaged = true;
            } else if tag == key_slot.tag {
                if let Some(record) = Record::of_key(&self.map, offset, key, self.seed) {
                    lookup.record = Some(record);
                    lookup.slot = Some(slot);
                    lookup.slot_damaged = false;
                    break;
                }
                strangers += 1;
                if strangers > STRANGERS_MAX {
                    lookup.index_damaged = true;
                    break;
                }
                if Record::read(&self.map, offset, self.seed).is_none() {
                    lookup.damaged += 1;
                    if lookup.slot.is_none() {
                        lookup.slot = Some(slot);
                        lookup.slot_damaged = true;
                    }
                }
            }
            slot += 1;
            if slot >= self.capacity {
                slot = 0;
            }
        }
        lookup
    }
}
