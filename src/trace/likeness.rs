//! How alike the contents of messages are, as far as their digests show it.

/// The largest number of bits of a filter that is compared: a larger one is that of a
/// message with some megabytes of text.
pub(super) const BITS_MAX: u32 = 1 << 20;
/// Filters of which more is set outside of what they share say too little.
const CROWDED: f64 = 0.95;

/// What can be compared of the digest of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sketch {
    /// The filter of a digest of the scheme `winnow`: an element of the message sets the
    /// bit of its hash, as a fraction of the filter.
    Bits(Bits),
    /// The hashes of the blocks and attachments of a digest of the scheme `hbf`, sorted.
    Hashes(Vec<u64>),
}

/// A filter of any size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bits {
    words: Vec<u64>,
    size: u32,
}

/// How alike two messages are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Likeness {
    /// The share of the longer message that the shorter one has too: 1 if they are the
    /// same, about 0 if they have nothing in common. Of unrelated messages, the estimate may
    /// be below 0.
    pub share: f64,
    /// The standard deviation of the share of unrelated messages of this size; 0 if the
    /// share is exact.
    pub spread: f64,
}

impl Likeness {
    /// Whether the two are taken for one text: they share at least half, and five times
    /// more than the estimate varies by, or are the same in every bit.
    #[must_use]
    pub fn is_same_text(&self) -> bool {
        self.share >= 1.0 || self.share >= f64::max(0.5, 5.0 * self.spread)
    }
}

impl Bits {
    /// The filter in these bytes; bit 0 is the lowest bit of the first byte.
    pub(super) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let size = u32::try_from(bytes.len()).ok()?.checked_mul(8)?;
        let mut bits = Self::empty(size)?;
        for (word, chunk) in bits.words.iter_mut().zip(bytes.chunks(8)) {
            *word = chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        Some(bits)
    }

    /// A filter of this size without elements; `None` if it has no bits, or too many.
    pub(super) fn empty(size: u32) -> Option<Self> {
        let words = (1..=BITS_MAX).contains(&size).then(|| size.div_ceil(64) as usize)?;
        Some(Self { words: vec![0; words], size })
    }

    /// Sets a bit, if it exists.
    pub(super) fn set(&mut self, bit: u32) {
        if let Some(word) = self.words.get_mut((bit / 64) as usize).filter(|_| bit < self.size) {
            *word |= 1 << (bit % 64);
        }
    }

    fn has(&self, bit: u32) -> bool {
        self.words.get((bit / 64) as usize).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }

    fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// This filter as one of a larger `size`: each bit of that is set if one of those that
    /// it overlaps is, one or two.
    fn spread_over(&self, size: u32) -> Option<Self> {
        let mut larger = Self::empty(size)?;
        let place = |at: u64| (at * u64::from(self.size) / u64::from(size)) as u32;
        for bit in 0..size {
            let first = place(bit.into());
            let end = u64::from(bit + 1) * u64::from(self.size);
            let last = (end.saturating_sub(1) / u64::from(size)) as u32;
            if (first..=last).any(|bit| self.has(bit)) {
                larger.set(bit);
            }
        }
        Some(larger)
    }

    /// See [`Sketch::likeness`].
    fn likeness(&self, other: &Self) -> Option<Likeness> {
        let longer_first = (self.size, self.count()) >= (other.size, other.count());
        let (longer, shorter) = if longer_first { (self, other) } else { (other, self) };
        let spread;
        let shorter = match longer.size == shorter.size {
            true => shorter,
            false => {
                spread = shorter.spread_over(longer.size)?;
                &spread
            }
        };
        let both = longer.words.iter().zip(&shorter.words).map(|(a, b)| (a & b).count_ones());
        let (set, both) = (f64::from(longer.count()), f64::from(both.sum::<u32>()));
        let (free, others) = (f64::from(longer.size) - set, f64::from(shorter.count()) - both);
        if set <= 0.0 || free <= 0.0 {
            return None;
        }
        let (present, chance) = (both / set, others / free);
        if chance > CROWDED {
            return None;
        }
        let fill = ((both + others) / f64::from(longer.size)).min(CROWDED);
        let varies = (fill * (1.0 - fill) * (1.0 / set + 1.0 / free)).sqrt() / (1.0 - fill);
        Some(Likeness { share: (present - chance) / (1.0 - chance), spread: varies })
    }
}

impl Sketch {
    /// How alike two messages are; `None` if that cannot be told: one of them has no text, they
    /// are of different schemes, or their filters are too full.
    ///
    /// Of filters, with `A` the set bits of the larger one, of `m` bits, and `B` those of the
    /// smaller one, drawn to the same size:
    ///
    /// ```text
    /// p = |A ∩ B| / |A|            the share of A's bits that B has
    /// q = |B \ A| / (m - |A|)      the share that B has of the bits that A lacks: by chance
    /// share = (p - q) / (1 - q)
    /// ```
    ///
    /// Elements that both have set bits within `A`. All others fall on bits of `A` as often as on
    /// the rest, so that `p = share + (1 - share)·q`.
    ///
    /// Of hashes, `share = |A ∩ B| / |A|`, `A` being the longer list. Blocks are cut at fixed
    /// places of the text: after a name of another length all are different. So a mail merge
    /// may look like different texts.
    #[must_use]
    pub fn likeness(&self, other: &Self) -> Option<Likeness> {
        match (self, other) {
            (Self::Bits(one), Self::Bits(other)) => one.likeness(other),
            (Self::Hashes(one), Self::Hashes(other)) => {
                let longest = one.len().max(other.len());
                let share = common(one, other) as f64 / longest as f64;
                (longest > 0).then_some(Likeness { share, spread: 0.0 })
            }
            _ => None,
        }
    }
}

/// Groups messages with the same text: for each, the number of the first one of its group.
#[must_use]
pub fn grouped(sketches: &[&Sketch]) -> Vec<usize> {
    let mut firsts: Vec<(usize, &Sketch)> = Vec::new();
    let mut groups = Vec::with_capacity(sketches.len());
    for (number, &sketch) in sketches.iter().enumerate() {
        let is_like = |first: &Sketch| first.likeness(sketch).is_some_and(|l| l.is_same_text());
        let first = firsts.iter().find(|(_, first)| is_like(first)).map(|(first, _)| *first);
        if first.is_none() {
            firsts.push((number, sketch));
        }
        groups.push(first.unwrap_or(number));
    }
    groups
}

/// How many numbers two sorted lists have in common, with repetitions.
fn common(one: &[u64], other: &[u64]) -> usize {
    let (mut a, mut b, mut count) = (one.iter().peekable(), other.iter().peekable(), 0);
    while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
        match x.cmp(y) {
            std::cmp::Ordering::Less => drop(a.next()),
            std::cmp::Ordering::Greater => drop(b.next()),
            std::cmp::Ordering::Equal => {
                count += 1;
                a.next();
                b.next();
            }
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use quickcheck::quickcheck;

    fn hash(n: u64) -> u64 {
        let mix = |n: u64| (n ^ n >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mix(mix(mix(n.wrapping_add(1))))
    }

    /// The filter of these elements.
    fn filter(size: u32, elements: impl Iterator<Item = u64>) -> Sketch {
        let mut bits = Bits::empty(size).unwrap();
        elements.for_each(|n| bits.set(((u128::from(hash(n)) * u128::from(size)) >> 64) as u32));
        Sketch::Bits(bits)
    }

    #[test]
    fn the_share_in_common_is_estimated() {
        for size in [1024, 4096] {
            let elements = u64::from(size) * 9 / 10;
            for tenths in [0, 1, 5, 9, 10] {
                let shared = elements * tenths / 10;
                let one = filter(size, 0..elements);
                let other = filter(size, (0..shared).chain(elements..2 * elements - shared));
                let found = one.likeness(&other).unwrap();
                let exact = tenths as f64 / 10.0;
                let near = (found.share - exact).abs() <= 5.0 * found.spread + 0.02;
                assert!(near, "{size} {tenths}: {found:?}");
                assert_eq!(
                    found.is_same_text(),
                    tenths >= 9 || found.share > 5.0 * found.spread && tenths >= 5,
                    "{found:?}"
                );
                assert_eq!(other.likeness(&one).map(|l| l.spread > 0.0), Some(true));
            }
        }
    }

    #[test]
    fn filters_of_different_sizes_are_compared() {
        for (larger, smaller) in [(1280, 1024), (2048, 1024), (4608, 1024)] {
            let all = u64::from(larger) * 9 / 10;
            let part = u64::from(smaller) * 9 / 10;
            let longer = filter(larger, 0..all);
            let within = longer.likeness(&filter(smaller, 0..part)).unwrap();
            let exact = part as f64 / all as f64;
            assert!(
                (within.share - exact).abs() < 5.0 * within.spread + 0.05,
                "{within:?} {exact}"
            );
            let apart = longer.likeness(&filter(smaller, all..all + part)).unwrap();
            assert!(apart.share.abs() < 5.0 * apart.spread, "{apart:?}");
        }
    }

    #[test]
    fn messages_with_the_same_text_are_one_group() {
        let merge = |n: u64| filter(4096, (0..3000).chain(10_000 * n..10_000 * n + 100));
        let other = filter(4096, 500_000..503_000);
        let all = [merge(1), other.clone(), merge(2), Sketch::Hashes(vec![1]), merge(3), other];
        assert_eq!(grouped(&all.iter().collect::<Vec<_>>()), [0, 1, 0, 3, 0, 1]);
    }

    #[test]
    fn what_cannot_be_told_is_not() {
        let (full, none) = (filter(64, 0..9999), filter(64, 0..0));
        assert_eq!(full.likeness(&filter(64, 0..20)), None);
        assert_eq!(none.likeness(&none), None);
        assert_eq!(Sketch::Hashes(vec![]).likeness(&Sketch::Hashes(vec![])), None);
        assert_eq!(Sketch::Hashes(vec![1]).likeness(&none), None);
        assert_eq!(Bits::empty(0), None);
        assert_eq!(Bits::empty(BITS_MAX + 1), None);
    }

    #[test]
    fn hashes_in_common_are_counted() {
        let list = |list: &[u64]| Sketch::Hashes(list.to_vec());
        let share = |a: &[u64], b: &[u64]| list(a).likeness(&list(b)).unwrap().share;
        assert_eq!(share(&[1, 2, 3, 4], &[1, 2, 3, 4]), 1.0);
        assert_eq!(share(&[1, 1, 3, 4], &[1, 4]), 0.5);
        assert_eq!(share(&[], &[1, 4]), 0.0);
    }

    quickcheck! {
        fn bytes_are_read_as_filters(bytes: Vec<u8>) -> bool {
            let Some(bits) = Bits::of_bytes(&bytes) else { return bytes.is_empty() };
            let ones: u32 = bytes.iter().map(|byte| byte.count_ones()).sum();
            bits.count() == ones
                && (0..bits.size).all(|bit| {
                    bits.has(bit) == (bytes[(bit / 8) as usize] >> (bit % 8) & 1 == 1)
                })
        }

        fn a_message_is_like_itself(elements: Vec<u64>, size: u8) -> bool {
            let own = filter(u32::from(size) + 64, elements.into_iter());
            own.likeness(&own).is_none_or(|likeness| likeness.share == 1.0 && likeness.is_same_text())
        }
    }
}
