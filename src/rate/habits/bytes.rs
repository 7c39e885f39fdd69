//! Numbers as bytes, little-endian and without gaps.

/// A number, or several, as bytes.
pub(super) trait Field: Sized {
    /// Writes it to the front of `to`.
    fn put(&self, to: &mut &mut [u8]);
    /// Takes it from the front of `from`.
    fn take(from: &mut &[u8]) -> Option<Self>;
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Field for $number {
            #[inline]
            fn put(&self, to: &mut &mut [u8]) {
                if let Some((first, rest)) = std::mem::take(to).split_first_chunk_mut() {
                    *first = self.to_le_bytes();
                    *to = rest;
                }
            }

            #[inline]
            fn take(from: &mut &[u8]) -> Option<Self> {
                let (first, rest) = from.split_first_chunk()?;
                *from = rest;
                Some(Self::from_le_bytes(*first))
            }
        }
    )*};
}

numbers!(u8 u16 u32 i16 f32 f64);

impl<T: Field + Copy + Default, const N: usize> Field for [T; N] {
    #[inline]
    fn put(&self, to: &mut &mut [u8]) {
        self.iter().for_each(|one| one.put(to));
    }

    #[inline]
    fn take(from: &mut &[u8]) -> Option<Self> {
        let mut all = [T::default(); N];
        for one in &mut all {
            *one = T::take(from)?;
        }
        Some(all)
    }
}
