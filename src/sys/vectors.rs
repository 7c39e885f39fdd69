//! Wide vectors, on processors that have them.
//!
//! The crate is compiled for every x86-64, whose vectors have 16 bytes. Loops that take much of
//! the time are compiled once more for vectors of 32 bytes (AVX2), which processors have had
//! since 2013, and this version runs where it can.

/// Work whose loops the compiler vectorises.
///
/// [`Work::run`] and all that it calls in its loops must be `#[inline(always)]`: else they are
/// compiled for every processor only.
pub trait Work {
    /// The result.
    type Output;

    /// Does it.
    fn run(self) -> Self::Output;
}

/// Does some work with the widest vectors that this processor has.
#[inline]
pub fn wide<W: Work>(work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the feature, the only one that the function needs.
        return unsafe { with_avx2(work) };
    }
    work.run()
}

/// The same, on a processor with AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2<W: Work>(work: W) -> W::Output {
    work.run()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sum<'a>(&'a [u16]);

    impl Work for Sum<'_> {
        type Output = u16;

        #[inline(always)]
        fn run(self) -> u16 {
            self.0.iter().fold(0, |sum, number| sum.wrapping_add(*number))
        }
    }

    #[test]
    fn the_result_is_the_same() {
        let numbers: Vec<u16> = (0..1000).map(|n| n * 37).collect();
        for length in 0..numbers.len() {
            assert_eq!(wide(Sum(&numbers[..length])), Sum(&numbers[..length]).run());
        }
    }
}
