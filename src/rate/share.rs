//! A share of what went out: so large a part of it failed, over a period.
//!
//! The period is divided into [`BUCKETS`] buckets of equal length, each with how many went out in
//! it and how many of these have failed. A failure that is known later is booked to the bucket in
//! which its message was accepted, so that both numbers are of the same mail, and leave the period
//! together. The share is that of the sums over the buckets of the period, in percent.
//!
//! A bucket is one word, which a store writes in one step: a process that is killed leaves the
//! bucket as it was before, or after. So the whole record is of a fixed size, [`BYTES`].

use std::fmt;

use super::{Timestamp, Wait, calendar};

/// How many buckets a period has.
pub const BUCKETS: usize = 24;
/// The size of all buckets in bytes.
pub const BYTES: usize = BUCKETS * size_of::<u64>();
/// The most that a bucket counts.
const MOST: u64 = (1 << 24) - 1;

/// The parameters of a share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The percentage from which it is over. Greater than zero, at most 100.
    pub limit: f64,
    /// So many must have gone out: before, no share is over.
    pub least: u32,
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
    fn with(self, other: Self) -> Self {
        Self { sent: self.sent + other.sent, failed: self.failed + other.failed }
    }
}

/// `12 of 40 recipients failed (30%)`
impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, failed } = *self;
        let percent = failed as f64 * 100.0 / sent.max(1) as f64;
        write!(f, "{failed} of {sent} recipients failed ({}%)", (percent * 10.0).floor() / 10.0)
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
    /// All of them, with this change.
    #[must_use]
    pub fn with(self, booked: Option<Booked>) -> [u8; BYTES] {
        let mut all = [0; BYTES];
        all.iter_mut().zip(self.0).for_each(|(to, from)| *to = *from);
        if let Some(Booked { index, word }) = booked
            && let Some(place) = all.as_chunks_mut().0.get_mut(index)
        {
            *place = word.to_le_bytes();
        }
        all
    }

    fn get(self, index: usize) -> Bucket {
        let words = self.0.as_chunks().0;
        Bucket::of_word(words.get(index).copied().map_or(0, u64::from_le_bytes))
    }
}

impl Share {
    /// The limit and the least as one number, which files keep in place of a limit.
    #[must_use]
    pub fn packed(&self) -> f64 {
        calendar::pack(self.limit, self.least.into())
    }

    /// With the limit and the least of a [`Share::packed`] number.
    #[must_use]
    pub fn of_packed(packed: f64, period: f64) -> Self {
        let (limit, least) = calendar::unpack(packed);
        Self { limit, least: least as u32, period }
    }

    /// After so many seconds, all that was counted has left the period.
    #[must_use]
    pub fn lasts(&self) -> i64 {
        self.length() * BUCKETS as i64
    }

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
        let is_over = now.seconds.saturating_sub(last.seconds) > self.lasts();
        let numbers = self.numbers(now).filter(|_| !is_over);
        numbers
            .filter_map(|number| Self::found(buckets, number))
            .fold(Counted::default(), Counted::with)
    }

    /// The share that is compared with the limit: 0 until enough went out.
    #[must_use]
    pub fn rate(&self, counted: Counted) -> f64 {
        match counted.sent {
            0 => 0.0,
            sent if sent < self.least.into() => 0.0,
            sent => counted.failed as f64 * 100.0 / sent as f64,
        }
    }

    /// What an event books: a failure of what was accepted in a second, or else so many that go out.
    #[must_use]
    pub fn book(
        &self,
        buckets: Buckets<'_>,
        accepted: Option<i64>,
        count: f64,
        now: Timestamp,
    ) -> Option<Booked> {
        match accepted {
            _ if count <= 0.0 => None,
            Some(accepted) => self.fail(buckets, accepted, now),
            None => Some(self.send(buckets, count as u64, now)),
        }
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

    /// The second from which on the share is below its limit, or too little is left, if nothing
    /// more goes out and nothing more fails; 0 if it is now.
    #[must_use]
    pub fn under_from(&self, buckets: Buckets<'_>, last: Timestamp, now: Timestamp) -> i64 {
        let mut left = self.counted(buckets, last, now);
        let mut from = 0;
        for number in self.numbers(now) {
            if self.rate(left) < self.limit {
                break;
            }
            let gone = Self::found(buckets, number).unwrap_or_default();
            left.sent -= gone.sent;
            left.failed -= gone.failed;
            // It leaves when the first second after the period is in the next bucket.
            from = number.saturating_mul(self.length()).saturating_add(self.lasts());
        }
        from
    }
}

/// The wait from `now` until this second.
#[must_use]
pub fn wait(second: i64, now: Timestamp) -> Wait {
    let micros =
        Timestamp { seconds: second, micros: 0 }.as_micros().saturating_sub(now.as_micros());
    Wait::Seconds(micros.max(0) as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Share = Share { limit: 30.0, least: 50, period: 86_400.0 };

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
        assert_eq!(rate(&record), 98.0);
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
            let share = Share { period, least: 10, ..DAY };
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
                let from = share.under_from(Buckets(&record.bytes), record.last, now);
                let Wait::Seconds(wait) = wait(from, now) else { panic!() };
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
