//! How alike the contents of messages are, as far as their digests show it.

/// The largest number of bits of a filter that is compared: a larger one is that of a
/// message with some megabytes of text.
pub(super) const BITS_MAX: u32 = 1 << 20;
/// Filters of which more is set outside of what they share say too little.
const CROWDED: f64 = 0.95;
/// In so many of all samples of unrelated messages, two are taken for one text.
const MISTAKEN: f64 = 0.01;

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
    /// By how many standard deviations the two have more in common than unrelated messages
    /// with as many bits have on average; infinite if the share is exact.
    pub deviations: f64,
}

impl Likeness {
    /// Whether the two are taken for one text: they share at least half, and have more in common
    /// than any two of `compared` unrelated messages have by chance.
    ///
    /// Of `n(n - 1)/2` pairs of unrelated messages, one exceeds `z` standard deviations with a
    /// probability of at most `n(n - 1)/2 · exp(-z²/2)/2`, since a normal variable exceeds `z`
    /// with at most `exp(-z²/2)/2`. `z` is chosen so that this is [`MISTAKEN`].
    #[must_use]
    pub fn is_same_text(&self, compared: usize) -> bool {
        let compared = compared.max(2) as f64;
        let pairs = compared * (compared - 1.0) / 2.0;
        let deviations = (2.0 * (pairs / (2.0 * MISTAKEN)).ln()).sqrt();
        self.share >= 0.5 && self.deviations >= deviations
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

    /// How much of bit `bit` of a filter of `size` bits, not smaller than this one, lies in bits that
    /// are set here: it lies in one or two.
    fn below(&self, bit: u32, size: u32) -> f64 {
        let (own, size) = (u64::from(self.size), u64::from(size));
        let start = u64::from(bit) * own;
        let first = start / size;
        let overlap = ((first + 1) * size - start).min(own) as f64 / own as f64;
        let value = |bit: u64| f64::from(u8::from(u32::try_from(bit).is_ok_and(|b| self.has(b))));
        overlap * value(first) + (1.0 - overlap) * value(first + 1)
    }

    /// See [`Sketch::likeness`].
    fn likeness(&self, other: &Self) -> Option<Likeness> {
        let longer_first = (self.size, self.count()) >= (other.size, other.count());
        let (longer, shorter) = if longer_first { (self, other) } else { (other, self) };
        let (size, set) = (f64::from(longer.size), f64::from(longer.count()));
        let free = size - set;
        if set <= 0.0 || free <= 0.0 {
            return None;
        }
        // The sums of b over A, of b over the rest, and of b² over all.
        let (mut within, mut outside, mut squares) = (0.0, 0.0, 0.0);
        let is_one_size = longer.size == shorter.size;
        if is_one_size {
            let both = longer.words.iter().zip(&shorter.words).map(|(a, b)| (a & b).count_ones());
            within = f64::from(both.sum::<u32>());
            outside = f64::from(shorter.count()) - within;
            squares = within + outside;
        } else {
            for bit in 0..longer.size {
                let value = shorter.below(bit, longer.size);
                *(if longer.has(bit) { &mut within } else { &mut outside }) += value;
                squares += value * value;
            }
        }
        let (present, chance) = (within / set, outside / free);
        if chance > CROWDED {
            return None;
        }
        let more = present - chance;
        let mean = (within + outside) / size;
        let deviation =
            (squares / size - mean * mean).max(0.0).sqrt() * (1.0 / set + 1.0 / free).sqrt();
        let filled = set / size;
        let unset = 1.0 - f64::from(shorter.count()) / f64::from(shorter.size);
        let crossed = if is_one_size { 0.0 } else { f64::from(shorter.size) / size };
        let share = share(more * filled / unset, -(1.0 - filled).ln(), crossed);
        Some(Likeness { share, deviations: more / deviation })
    }
}

/// The share at which `mean of the sums of o·(exp(share·λ·o) - 1)`, as [`Sketch::likeness`] has
/// it, is `value`; at most 1. In the share `crossed` of all bits, `o` is any number from 0 to 1
/// for one part, and the rest for the other one; in the others, it is 1.
fn share(value: f64, lambda: f64, crossed: f64) -> f64 {
    let slope = 1.0 - crossed / 3.0;
    if value < 1e-3 {
        return value / slope / lambda;
    }
    let mean = |y: f64| {
        let of_crossed = 2.0 * (y.exp() * (y - 1.0) + 1.0) / (y * y) - 1.0;
        (1.0 - crossed) * y.exp_m1() + crossed * of_crossed
    };
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..30 {
        let middle = f64::midpoint(low, high);
        if mean(middle * lambda) < value { low = middle } else { high = middle }
    }
    high
}

impl Sketch {
    /// How alike two messages are; `None` if that cannot be told: one of them has no text, they
    /// are of different schemes, or their filters are too full.
    ///
    /// Of filters, with `A` the set bits of the larger one, of `m` bits, and `B` those of the smaller one, of
    /// `k` bits. Each bit of the larger one lies in one or two of the smaller one, with the shares
    /// `o` of it, which are 1 if the sizes are equal; `b` is the sum of `o` over those that are set.
    ///
    /// ```text
    /// p = mean of b over A
    /// q = mean of b over the rest
    /// p - q = (1 - |B|/k)·m/|A| · mean of the sums of o·(exp(share·λ·o) - 1)
    ///     with λ = -ln(1 - |A|/m), the number of elements of the longer message for each bit
    /// ```
    ///
    /// A bit of `B` is empty with the probability `1 - |B|/k`; if it is known that no shared element
    /// is in the part `o` of a bit of the larger one, with `exp(share·λ·o)` times that. By Bayes'
    /// theorem, the difference follows. Of unrelated messages, `A` is a random choice of bits: `p - q`
    /// then varies as the difference between the means of a random part and of the rest does, by
    /// `√(variance of b · (1/|A| + 1/(m - |A|)))`.
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
                (longest > 0).then_some(Likeness { share, deviations: f64::INFINITY })
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
        let is_like = |first: &Sketch| {
            first.likeness(sketch).is_some_and(|likeness| likeness.is_same_text(sketches.len()))
        };
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
    use kit::quickcheck;

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
                let near = if tenths == 0 { 0.3 } else { 0.1 };
                assert!((found.share - exact).abs() <= near, "{size} {tenths}: {found:?}");
                assert!(tenths < 5 || found.deviations > 5.0, "{size} {tenths}: {found:?}");
                assert!(tenths == 5 || found.is_same_text(100) == (tenths > 5), "{found:?}");
            }
        }
    }

    #[test]
    fn filters_of_different_sizes_are_compared() {
        for (larger, smaller) in [(1032, 1024), (1280, 1024), (2048, 1024), (4608, 1024)] {
            let all = u64::from(larger) * 9 / 10;
            let part = u64::from(smaller) * 9 / 10;
            let longer = filter(larger, 0..all);
            let within = longer.likeness(&filter(smaller, 0..part)).unwrap();
            let exact = part as f64 / all as f64;
            assert!((within.share - exact).abs() < 0.1, "{within:?} {exact}");
            let apart = longer.likeness(&filter(smaller, all..all + part)).unwrap();
            assert!(apart.deviations.abs() < 4.0, "{apart:?}");
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
    fn unrelated_short_messages_are_not_one_group() {
        // Of messages with some 500 to 1,100 bytes of text.
        let sample = |first: u64| -> Vec<Sketch> {
            let message = |n: u64| {
                let size = 128 + 8 * (n % 19);
                filter(size as u32, 1000 * n..1000 * n + size * 9 / 10)
            };
            (100 * first..100 * first + 100).map(message).collect()
        };
        let mistaken = (0..40).map(|first| {
            let sample = sample(first);
            let firsts = grouped(&sample.iter().collect::<Vec<_>>());
            (0..).zip(firsts).filter(|(this, first)| this != first).count()
        });
        assert!(mistaken.sum::<usize>() <= 1);
    }

    #[test]
    fn of_few_messages_less_must_be_the_same() {
        let short = |n: u64| filter(128, (0..80).chain(1000 * n..1000 * n + 35));
        let few: Vec<Sketch> = (1..7).map(short).collect();
        assert_eq!(grouped(&few.iter().collect::<Vec<_>>()), [0; 6]);
        let likeness = few[0].likeness(&few[1]).unwrap();
        assert!(likeness.is_same_text(6) && !likeness.is_same_text(1_000_000), "{likeness:?}");
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
            own.likeness(&own).is_none_or(|likeness| likeness.share == 1.0 && likeness.is_same_text(100))
        }
    }
}
