//! Numbers as bytes, little-endian and without gaps.

/// A number, or several, as bytes.
pub(super) trait Field: Sized {
    /// Writes it to the front of `to`.
    fn put(&self, to: &mut &mut [u8]);
    /// Takes it from the front of `from`.
    fn take(from: &mut &[u8]) -> Option<Self>;

    /// Writes all of them to the front of `to`.
    #[inline]
    fn put_all(all: &[Self], to: &mut &mut [u8]) {
        all.iter().for_each(|one| one.put(to));
    }

    /// Takes all of them from the front of `from`.
    #[inline]
    fn take_all(all: &mut [Self], from: &mut &[u8]) -> Option<()> {
        all.iter_mut().try_for_each(|one| Self::take(from).map(|taken| *one = taken))
    }
}

/// Copied as they are: most of what is kept are bytes.
impl Field for u8 {
    #[inline]
    fn put(&self, to: &mut &mut [u8]) {
        Self::put_all(&[*self], to);
    }

    #[inline]
    fn take(from: &mut &[u8]) -> Option<Self> {
        let (&first, rest) = from.split_first()?;
        *from = rest;
        Some(first)
    }

    #[inline]
    fn put_all(all: &[Self], to: &mut &mut [u8]) {
        if let Some((first, rest)) = std::mem::take(to).split_at_mut_checked(all.len()) {
            first.copy_from_slice(all);
            *to = rest;
        }
    }

    #[inline]
    fn take_all(all: &mut [Self], from: &mut &[u8]) -> Option<()> {
        let (first, rest) = from.split_at_checked(all.len())?;
        all.copy_from_slice(first);
        *from = rest;
        Some(())
    }
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

numbers!(u16 u32 i16 f32 f64);

impl<T: Field + Copy + Default, const N: usize> Field for [T; N] {
    #[inline]
    fn put(&self, to: &mut &mut [u8]) {
        T::put_all(self, to);
    }

    #[inline]
    fn take(from: &mut &[u8]) -> Option<Self> {
        let mut all = [T::default(); N];
        T::take_all(&mut all, from)?;
        Some(all)
    }
}
