//! The sizes of filters.

/// Additional bits of a filter: in a very small filter, several elements of a
/// query would fall on one bit and give as little evidence as one.
const SPARE: u64 = 12;
/// The number of elements for which a filter has exactly the configured bits for each. With twice
/// as many it has a 16th root of two fewer.
///
/// All messages are equally likely to be a false hit that someone looks at, but those with the
/// large filters take most of the space. So space is better used in the filters of the many
/// small ones: with equal bits for each element, there are 1.5 times as many false hits in the
/// same space for excerpts of 64 bytes. With the tenth root, there are more for 128 bytes, which
/// only the fullest filters cause.
const TYPICAL: f64 = 256.0;

/// The size of a filter: any number of bytes up to 16, then eight sizes per
/// power of two.
///
/// Coarser steps would make filters so unequally full that there were half as
/// many false hits again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Class(u8);

impl Class {
    /// No filter: that of a message without text.
    pub(super) const EMPTY: Self = Self(0);
    /// The largest: 4 MiB.
    pub(super) const LARGEST: Self = Self(160);

    /// The class with this [`Self::number`].
    pub(super) fn numbered(number: u8) -> Option<Self> {
        (number <= Self::LARGEST.0).then_some(Self(number))
    }

    /// Its number, which increases with the size.
    pub(super) fn number(self) -> u8 {
        self.0
    }

    /// The octave of the size: 0 for the sizes up to 7 bytes, then one per
    /// power of two.
    pub(super) fn octave(self) -> u8 {
        self.0 / 8
    }

    /// The number of buckets of its filters, equal for all classes of an
    /// octave: a power of two.
    pub(super) fn buckets(self) -> u32 {
        8 << self.octave().saturating_sub(1)
    }

    /// The number of bits in a bucket.
    pub(super) fn units(self) -> u32 {
        match self.octave() {
            0 => u32::from(self.0),
            _ => u32::from(8 + self.0 % 8),
        }
    }

    /// The number of bits of its filters.
    pub(super) fn bits(self) -> u32 {
        self.units() * self.buckets()
    }

    /// The size of its filters in bytes.
    pub(super) fn bytes(self) -> usize {
        self.bits() as usize / 8
    }

    /// The class of half the size, for filters of at least 16 bytes.
    pub(super) fn half(self) -> Option<Self> {
        (self.0 >= 16).then(|| Self(self.0 - 8))
    }

    /// As [`Class::of`], but only by halving the largest: the nearest by ratio.
    pub(super) fn folded(elements: u64, centibits: u16) -> Self {
        let wanted = u64::from(Self::of(elements, centibits).bits());
        let mut class = Self::LARGEST;
        let is_near = |class: Self, half: &Self| {
            wanted.pow(2) < u64::from(half.bits()) * u64::from(class.bits())
        };
        while let Some(half) = class.half().filter(|half| is_near(class, half)) {
            class = half;
        }
        class
    }

    /// The class for so many distinct elements, with so many hundredths of a bit for each if they
    /// are [`TYPICAL`].
    pub(super) fn of(elements: u64, centibits: u16) -> Self {
        if elements == 0 {
            return Self::EMPTY;
        }
        let ratio = elements as f64 / TYPICAL;
        // Square roots are exactly rounded, and so equal on all machines.
        let each = f64::from(centibits) / 100.0 / ratio.sqrt().sqrt().sqrt().sqrt();
        let bits = ((elements as f64 * each).ceil() as u64).saturating_add(SPARE);
        let mut class = Self(1);
        // Whether it is beyond the middle, by ratio, between two sizes.
        while class < Self::LARGEST {
            let next = Self(class.0 + 1);
            if bits.saturating_mul(bits) <= u64::from(class.bits()) * u64::from(next.bits()) {
                break;
            }
            class = next;
        }
        class
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let sizes: Vec<usize> = (0..26).map(|n| Class(n).bytes()).collect();
        assert_eq!(sizes[..17], (0..17).collect::<Vec<_>>());
        assert_eq!(sizes[16..], [16, 18, 20, 22, 24, 26, 28, 30, 32, 36]);
        assert_eq!(Class::LARGEST.bytes(), 4 << 20);
        assert_eq!(Class::numbered(160), Some(Class::LARGEST));
        assert_eq!(Class::numbered(161), None);
        for class in (1..=160).map(Class) {
            let half = class.half().map(|half| half.bits() * 2);
            assert_eq!(half, Some(class.bits()).filter(|&bits| bits >= 128));
        }
    }

    #[test]
    fn sizes_are_as_requested() {
        for (elements, bytes) in
            [(0, 0), (1, 2), (46, 8), (47, 8), (48, 8), (56, 9), (256, 32), (1100, 128)]
        {
            assert_eq!(Class::of(elements, 100).bytes(), bytes, "{elements}");
        }
        for elements in (200..200_000).chain([5_000_000, 33_000_000]) {
            let each = (elements as f64 / 256.0).powf(-1.0 / 16.0);
            let ratio =
                f64::from(Class::of(elements, 100).bits()) / (elements as f64 * each + 12.0);
            assert!((0.94..1.07).contains(&ratio), "{elements}: {ratio}");
        }
        assert_eq!(Class::of(u64::MAX, 3200), Class::LARGEST);
        for centibits in [25, 127, 3200] {
            let classes = (0..100_000).map(|elements| Class::of(elements, centibits));
            assert!(classes.is_sorted(), "{centibits}");
        }
    }
}
