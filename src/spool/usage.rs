//! What accounts send: records of a kind of their own.
//!
//! Such a record has words where others have a filter. Each is sealed, so that a damaged one is
//! noticed, and written in one step: a process that is killed loses at most the event that it was
//! counting. The record's state says on which day the account last sent, for forgetting and
//! eviction.

use crate::engine::{Change, FilterChange, RecordKey, State};
use crate::rate::usage::{self, Usage, WORDS, Words};
use crate::rate::{Average, Timestamp};
use crate::store::{Counting, OwnedKey, USAGE, usage_key};
use crate::sys::mapping::Mapping;

use super::apply::{AddFailure, NewFilter};
use super::forget::USAGE_KEPT;
use super::hashing::KeySlot;
use super::iterate::LeftOut;
use super::locked::Locked;
use super::record::{Fill, Record, USAGE_BYTES};
use super::shard::Body;
use super::usage_words::{WORD_BYTES, sealed, seed, unsealed};
use super::{Spool, SpoolError};

/// The words of a record, where they are.
struct Mapped<'m> {
    map: &'m mut Mapping,
    offset: usize,
    seed: u32,
}

impl Words for Mapped<'_> {
    #[inline]
    fn get(&self, word: usize) -> u64 {
        let stored = self.map.u64(self.offset + word * WORD_BYTES);
        stored.and_then(|stored| unsealed(stored, self.seed, word)).unwrap_or(0)
    }

    #[inline]
    fn set(&mut self, word: usize, value: u64) -> Option<()> {
        self.map.set_u64(self.offset + word * WORD_BYTES, sealed(value, self.seed, word))
    }
}

/// The words of a record, to be read.
struct Stored<'m> {
    bits: &'m [u8],
    seed: u32,
}

impl Stored<'_> {
    /// A word; `None` if it is damaged.
    fn word(&self, word: usize) -> Option<u64> {
        let bytes = self.bits.get(word * WORD_BYTES..)?.first_chunk()?;
        unsealed(u64::from_le_bytes(*bytes), self.seed, word)
    }
}

impl Words for Stored<'_> {
    fn get(&self, word: usize) -> u64 {
        self.word(word).unwrap_or(0)
    }

    fn set(&mut self, _word: usize, _value: u64) -> Option<()> {
        None
    }
}

impl Spool {
    /// Counts what an account has sent.
    pub(super) fn count_in_record(
        &mut self,
        counting: &Counting<'_>,
        clock: impl FnOnce() -> Timestamp,
    ) -> Result<(), SpoolError> {
        let now = self.kept.and_then(|kept| kept.at).unwrap_or_else(clock);
        match self.count_under_kept_lock(counting, now) {
            Some(()) => Ok(()),
            None => self.count_under_lock(counting, now),
        }
    }

    /// As above where the lock of a check of this account is still held, as it is as a rule, and
    /// its record is that of this quarter of an hour already; `None` if it is not, and nothing was
    /// counted.
    ///
    /// If the check was of somebody else, there is no such record at the place.
    #[inline]
    fn count_under_kept_lock(&mut self, counting: &Counting<'_>, now: Timestamp) -> Option<()> {
        let kept = self.kept?;
        let place = kept.slot.beside(USAGE);
        let body = &mut self.shards.get_mut(usize::from(kept.slot.shard))?.as_mut()?.body;
        let record = body.usage_of(place, counting.identity)?;
        let offset = record.filter_offset();
        let mut words = Mapped { map: &mut body.map, offset, seed: seed(place) };
        let counted = usage::count_on(&mut words, now.seconds, &counting.sent)?;
        self.counted_at = counted.map(|word| offset - record.offset + word * WORD_BYTES);
        Some(())
    }

    #[cold]
    fn count_under_lock(
        &mut self,
        counting: &Counting<'_>,
        now: Timestamp,
    ) -> Result<(), SpoolError> {
        let mut name = Vec::new();
        let key = usage_key(counting.identity, &mut name);
        self.locked(key, false, |locked| locked.count(counting, now))
    }

    /// What an account has sent until the second `at`, which is in this `day`. `key` is that of
    /// [`usage_key`].
    ///
    /// # Errors
    /// The database could not be used.
    pub fn usage(
        &mut self,
        key: RecordKey<'_>,
        at: i64,
        day: i64,
    ) -> Result<Option<Usage>, SpoolError> {
        let seed = seed(self.database.hashing.place(key));
        self.peek(key, None, |remembered, _| {
            let bits = remembered?.filter?.bits;
            Some(Usage::of(&Stored { bits, seed }, at, day))
        })
    }

    /// As [`Spool::for_each_usage_words`], with the usage. `at` and `day` are as above.
    ///
    /// # Errors
    /// The database's directory cannot be used; nothing has been visited.
    pub fn for_each_usage(
        &mut self,
        at: i64,
        day: i64,
        mut visit: impl FnMut(OwnedKey, Usage),
    ) -> Result<LeftOut, SpoolError> {
        self.for_each_usage_words(|key, words| visit(key, Usage::of(words, at, day)))
    }

    /// Calls `visit` with the key and the words of each account, in no particular order, and
    /// returns what had to be left out.
    ///
    /// # Errors
    /// The database's directory cannot be used; nothing has been visited.
    pub fn for_each_usage_words(
        &mut self,
        mut visit: impl FnMut(OwnedKey, &[u64; WORDS]),
    ) -> Result<LeftOut, SpoolError> {
        let hashing = self.database.hashing.clone();
        let read = |body: &Body| -> Vec<(OwnedKey, [u64; WORDS])> {
            let all = body.records().flatten().filter(Record::is_of_usage);
            let read = all.filter_map(|record| {
                let seed = seed(record.slot(&body.map, &hashing)?);
                let key = record.record_key(&body.map)?;
                let bits = record.remembered(&body.map, body.seed)?.filter?.bits;
                let stored = Stored { bits, seed };
                Some((OwnedKey::from(key), std::array::from_fn(|word| stored.get(word))))
            });
            read.collect()
        };
        let shards = self.each_shard(read, |all| {
            all.into_iter().for_each(|(key, words)| visit(key, &words));
        })?;
        Ok(LeftOut { shards, ..LeftOut::default() })
    }
}

impl Body {
    /// The record of an account, which is at `place`.
    ///
    /// Its state is not read, and no checksum computed: all of its layout follows from its name, and
    /// each word is sealed.
    #[inline]
    fn usage_of(&self, place: KeySlot, identity: &[u8]) -> Option<Record> {
        let first = place.start(self.capacity);
        let mut entries = (first..self.capacity).map_while(|slot| self.entry(slot));
        let (_, offset) = entries.find(|&(tag, _)| tag == place.tag)?;
        Record::of_usage(&self.map, offset, self.seed, identity)
    }
}

/// Counts in a record that is there.
#[inline]
fn count_in(
    record: &Record,
    map: &mut Mapping,
    place: KeySlot,
    counting: &Counting<'_>,
    now: Timestamp,
) -> Option<()> {
    let mut words = Mapped { map, offset: record.filter_offset(), seed: seed(place) };
    let day = || (counting.day)(now.seconds);
    // Without a state, as after damage, nobody is shown the counts.
    if usage::count(&mut words, now.seconds, day, &counting.sent)? || record.current.is_none() {
        record.write_state(map, &last_sent(now), 0)?;
    }
    Some(())
}

/// The state of an account that last sent on the day of `now`. It has no rate, so it is the first
/// to be evicted, also by an exirate that does not know what it is.
fn last_sent(now: Timestamp) -> Change {
    let average = Average { at: Timestamp { micros: 0, ..now }, rate: 0.0 };
    Change { state: State::new(average, 1.0, USAGE_KEPT), filter: FilterChange::Keep }
}

impl Locked<'_> {
    fn count(&mut self, counting: &Counting<'_>, now: Timestamp) -> Result<(), AddFailure> {
        let Locked { file, body, key_slot, key, lookup, .. } = self;
        let known = lookup.record.filter(|record| record.filter_bytes == Some(USAGE_BYTES));
        if let Some(record) = known
            && record.filter(&body.map, body.seed).is_some()
        {
            return count_in(&record, &mut body.map, *key_slot, counting, now)
                .ok_or_else(AddFailure::lost);
        }
        let mut words = [0; WORDS];
        usage::count(&mut words, now.seconds, || (counting.day)(now.seconds), &counting.sent);
        let mut bits = [0; USAGE_BYTES];
        for (number, (to, word)) in bits.as_chunks_mut().0.iter_mut().zip(words).enumerate() {
            *to = sealed(word, seed(*key_slot), number).to_le_bytes();
        }
        let (change, fill) = (last_sent(now), Fill::Bits(&bits));
        // One that was forgotten by hand.
        if let Some(record) = known {
            let (map, seed) = (&mut body.map, body.seed);
            let mut write = || {
                record.write_state(map, &change, 0)?;
                record.begin_filter(map, seed, now.seconds, fill)
            };
            return write().ok_or_else(AddFailure::lost);
        }
        let filter = NewFilter { bytes: USAGE_BYTES, epoch: now.seconds, fill };
        body.append(file, *key_slot, key, lookup, &change, Some(filter))
    }
}

/// The problem of a record of usage, if it has one.
pub(super) fn fault(record: &Record, body: &Body, place: KeySlot) -> Option<&'static str> {
    let stored = Stored { bits: record.filter(&body.map, body.seed)?.bits, seed: seed(place) };
    let is_damaged = (0..WORDS).any(|word| stored.word(word).is_none());
    is_damaged.then_some("has a damaged count")
}

#[cfg(test)]
mod tests;
