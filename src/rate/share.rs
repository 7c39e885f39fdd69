//! A share of what went out: so large a part of it failed, over a period.
//!
//! The period is divided into [`BUCKETS`] buckets of equal length, each with how many went out in
//! it and how many of these have failed. A failure that is known later is booked to the bucket in
//! which its message was accepted, so that both numbers are of the same mail, and leave the period
//! together. The share is that of the sums over the buckets of the period.
//!
//! A bucket is one word, which a store writes in one step: a process that is killed leaves the
//! bucket as it was before, or after. So the whole record is of a fixed size, [`BYTES`].

use super::{Timestamp, Wait};

/// How many buckets a period has.
pub const BUCKETS: usize = 24;
/// The size of all buckets in bytes.
pub const BYTES: usize = BUCKETS * size_of::<u64>();
/// The most that a bucket counts.
const MOST: u64 = (1 << 24) - 1;

/// The parameters of a share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The part of what went out from which it is over. Greater than zero, at most 1.
    pub limit: f64,
    /// So many must have gone out: before, no share is over. Not negative.
    pub least: f64,
    /// The period in seconds; greater than zero.
    pub period: f64,
}

/// What is counted in the period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// What went out.
    pub sent: u64,
    /// What of it has failed.
    pub failed: u64,
}

impl Counted {
    /// The share of what has failed; 0 if nothing went out.
    #[must_use]
    pub fn share(self) -> f64 {
        if self.sent == 0 { 0.0 } else { self.failed as f64 / self.sent as f64 }
    }

    fn with(self, other: Self) -> Self {
        Self { sent: self.sent + other.sent, failed: self.failed + other.failed }
    }
}

/// A bucket: in which time, and what is counted there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bucket {
    /// The last 16 bits of its number since 1970.
    tag: u16,
    counted: Counted,
}

impl Bucket {
    fn of_word(word: u64) -> Self {
        let sent = word >> 24 & MOST;
        // Bytes that no store has written may say anything.
        let failed = (word & MOST).min(sent);
        Self { tag: (word >> 48) as u16, counted: Counted { sent, failed } }
    }

    fn word(self) -> u64 {
        let Counted { sent, failed } = self.counted;
        u64::from(self.tag) << 48 | sent.min(MOST) << 24 | failed.min(sent).min(MOST)
    }
}

/// The change of one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Booked {
    /// Which word of the buckets.
    pub index: usize,
    /// Its new value.
    pub word: u64,
}

/// The buckets of a record, as they are stored: words, little-endian. Fewer bytes are buckets in
/// which nothing is counted.
#[derive(Clone, Copy, Debug)]
pub struct Buckets<'a>(pub &'a [u8]);

impl Buckets<'_> {
    fn get(self, index: usize) -> Bucket {
        let words = self.0.as_chunks().0;
        Bucket::of_word(words.get(index).copied().map_or(0, u64::from_le_bytes))
    }
}

impl Share {
    /// The length of a bucket in whole seconds: all together are no shorter than the period.
    fn length(&self) -> i64 {
        ((self.period / BUCKETS as f64).ceil() as i64).max(1)
    }

    /// The number of the bucket of a second, since 1970.
    fn number(&self, second: i64) -> i64 {
        second.div_euclid(self.length())
    }

    fn index(number: i64) -> usize {
        number.rem_euclid(BUCKETS as i64) as usize
    }

    /// The numbers of the buckets of the period that ends now, oldest first.
    fn numbers(&self, now: Timestamp) -> impl Iterator<Item = i64> {
        let last = self.number(now.seconds);
        last.saturating_sub(BUCKETS as i64 - 1)..last.saturating_add(1)
    }

    /// What is counted in this bucket, if it is there.
    fn found(buckets: Buckets<'_>, number: i64) -> Option<Counted> {
        let Bucket { tag, counted } = buckets.get(Self::index(number));
        (tag == number as u16 && counted.sent > 0).then_some(counted)
    }

    /// The sums over the buckets of the period. Nothing is left of a record that was last counted
    /// at `last`, if that was more than a period ago, whatever its buckets seem to be.
    #[must_use]
    pub fn counted(&self, buckets: Buckets<'_>, last: Timestamp, now: Timestamp) -> Counted {
        let is_over = now.seconds.saturating_sub(last.seconds) > self.length() * BUCKETS as i64;
        let numbers = self.numbers(now).filter(|_| !is_over);
        numbers
            .filter_map(|number| Self::found(buckets, number))
            .fold(Counted::default(), Counted::with)
    }

    /// The share that is compared with the limit: 0 until enough went out.
    #[must_use]
    pub fn rate(&self, counted: Counted) -> f64 {
        if counted.sent as f64 >= self.least { counted.share() } else { 0.0 }
    }

    /// Counts what goes out now.
    #[must_use]
    pub fn send(&self, buckets: Buckets<'_>, count: u64, now: Timestamp) -> Booked {
        let number = self.number(now.seconds);
        let before = Self::found(buckets, number).unwrap_or_default();
        let counted = Counted { sent: before.sent.saturating_add(count), ..before };
        let bucket = Bucket { tag: number as u16, counted };
        Booked { index: Self::index(number), word: bucket.word() }
    }

    /// Books a failure of a message that was accepted at that second. `None` if what went out then
    /// is not counted any more, or was not.
    #[must_use]
    pub fn fail(&self, buckets: Buckets<'_>, accepted: i64, now: Timestamp) -> Option<Booked> {
        let number = self.number(accepted);
        let before = self.numbers(now).find(|one| *one == number);
        let before = Self::found(buckets, before?)?;
        let counted = Counted { failed: before.failed + 1, ..before };
        let bucket = Bucket { tag: number as u16, counted };
        Some(Booked { index: Self::index(number), word: bucket.word() })
    }

    /// The wait until the share is below its limit, or too little is left, if nothing more goes
    /// out and nothing more fails.
    #[must_use]
    pub fn retry_after(&self, buckets: Buckets<'_>, last: Timestamp, now: Timestamp) -> Wait {
        let mut left = self.counted(buckets, last, now);
        let mut starts = self.numbers(now).map(|number| number.saturating_mul(self.length()));
        let mut wait = 0.0;
        for number in self.numbers(now) {
            if self.rate(left) < self.limit {
                break;
            }
            let gone = Self::found(buckets, number).unwrap_or_default();
            left.sent -= gone.sent;
            left.failed -= gone.failed;
            // It leaves when the first second after the period is in the next bucket.
            let leaves = starts.next().unwrap_or(0).saturating_add(self.length() * BUCKETS as i64);
            let micros = Timestamp { seconds: leaves, micros: 0 }.as_micros() - now.as_micros();
            wait = micros.max(0) as f64 / 1e6;
        }
        Wait::Seconds(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Share = Share { limit: 0.3, least: 50.0, period: 86_400.0 };

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds: 1_800_000_000 + seconds, micros: 0 }
    }

    /// A record.
    struct Record {
        share: Share,
        bytes: [u8; BYTES],
        last: Timestamp,
    }

    impl Record {
        fn new(share: Share) -> Self {
            Self { share, bytes: [0; BYTES], last: Timestamp::default() }
        }

        fn write(&mut self, booked: Booked, now: Timestamp) {
            let at = booked.index * 8;
            self.bytes[at..at + 8].copy_from_slice(&booked.word.to_le_bytes());
            self.last = now;
        }

        fn send(&mut self, count: u64, now: Timestamp) {
            self.write(self.share.send(Buckets(&self.bytes), count, now), now);
        }

        fn fail(&mut self, accepted: Timestamp, now: Timestamp) -> bool {
            let booked = self.share.fail(Buckets(&self.bytes), accepted.seconds, now);
            booked.map(|booked| self.write(booked, now)).is_some()
        }

        fn counted(&self, now: Timestamp) -> (u64, u64) {
            let Counted { sent, failed } = self.share.counted(Buckets(&self.bytes), self.last, now);
            (sent, failed)
        }
    }

    #[test]
    fn failures_known_hours_later_are_of_the_mail_that_failed() {
        let mut record = Record::new(DAY);
        record.send(60, at(0));
        for n in 0..18 {
            assert!(record.fail(at(0), at(5 * 3600 + n)));
        }
        let now = at(6 * 3600);
        assert_eq!(record.counted(now), (60, 18));
        let counted = DAY.counted(Buckets(&record.bytes), record.last, now);
        assert!(DAY.rate(counted) >= DAY.limit);
        // More that goes out makes the share smaller, and all of the first leaves together.
        record.send(40, now);
        assert_eq!(record.counted(now), (100, 18));
        assert_eq!(record.counted(at(86_400)), (40, 0));
        assert!(!record.fail(at(0), at(86_400)));
        assert_eq!(record.counted(at(86_400 * 2)), (0, 0));
    }

    #[test]
    fn little_mail_has_no_share() {
        let mut record = Record::new(DAY);
        record.send(49, at(0));
        for _ in 0..60 {
            record.fail(at(0), at(1));
        }
        // Not more fails than went out.
        assert_eq!(record.counted(at(1)), (49, 49));
        let rate = |record: &Record| DAY.rate(DAY.counted(Buckets(&record.bytes), at(1), at(1)));
        assert_eq!(rate(&record), 0.0);
        record.send(1, at(1));
        assert_eq!(rate(&record), 0.98);
        // Of what this record does not know, nothing is booked.
        assert!(!record.fail(at(-3 * 3600), at(1)) && !record.fail(at(9 * 3600), at(1)));
    }

    /// Against a list of all that was sent: as the record, by whole buckets.
    #[test]
    fn the_sums_are_those_of_a_list() {
        // A small generator, the same each time.
        let mut state = 7_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for period in [1.0, 60.0, 3600.0, 5000.0, 86_400.0, 604_800.0] {
            let share = Share { period, least: 10.0, ..DAY };
            let mut record = Record::new(share);
            let (mut now, mut sent) = (at(0), Vec::<(i64, u64, u64)>::new());
            for _ in 0..3000 {
                now.seconds += next(share.length() as u64 * 4) as i64;
                match next(3) {
                    0 => {
                        let count = next(5) + 1;
                        record.send(count, now);
                        sent.push((now.seconds, count, 0));
                    }
                    _ if !sent.is_empty() => {
                        let one = sent.len() - 1 - (next(20) as usize).min(sent.len() - 1);
                        let (accepted, count, failed) = &mut sent[one];
                        if *failed < *count
                            && record.fail(Timestamp { seconds: *accepted, micros: 0 }, now)
                        {
                            *failed += 1;
                        }
                    }
                    _ => {}
                }
                let first = share.number(now.seconds) - BUCKETS as i64;
                let in_period = sent.iter().filter(|one| share.number(one.0) > first);
                let sums = in_period.fold((0, 0), |sum, one| (sum.0 + one.1, sum.1 + one.2));
                assert_eq!(record.counted(now), sums, "{period} {now:?}");
                let wait = share.retry_after(Buckets(&record.bytes), record.last, now);
                let Wait::Seconds(wait) = wait else { panic!() };
                let rate = |seconds: f64| {
                    let then = Timestamp { seconds: now.seconds + seconds as i64, micros: 0 };
                    share.rate(share.counted(Buckets(&record.bytes), record.last, then))
                };
                assert!(rate(wait) < share.limit);
                assert!(wait == 0.0 || rate(wait - 1.0) >= share.limit);
            }
        }
    }

    #[test]
    fn any_bytes_are_buckets() {
        let now = at(0);
        for byte in 0..=255_u8 {
            let bytes = [byte; BYTES];
            for length in [0, 7, 8, BYTES - 1, BYTES] {
                let counted = DAY.counted(Buckets(&bytes[..length]), now, now);
                assert!(counted.failed <= counted.sent);
                let _ = DAY.fail(Buckets(&bytes[..length]), now.seconds, now);
                let _ = DAY.send(Buckets(&bytes[..length]), u64::MAX, now);
            }
        }
        let full = DAY.send(Buckets(&[]), u64::MAX, now);
        assert_eq!(Bucket::of_word(full.word).counted, Counted { sent: MOST, failed: 0 });
    }
}
