//! Wide vectors, on processors that have them.
//!
//! The crate is compiled for every x86-64, whose vectors have 16 bytes. Loops that take much of
//! the time are compiled once more for vectors of 32 bytes (AVX2), which processors have had
//! since 2013, and this version runs where it can.

#[cfg(target_arch = "x86_64")]
use std::sync::LazyLock;

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
    if *HAS_AVX2 {
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

/// Whether this processor has AVX2, and the system supports it.
#[cfg(target_arch = "x86_64")]
static HAS_AVX2: LazyLock<bool> = LazyLock::new(|| {
    linker::has_avx2().unwrap_or_else(|| std::arch::is_x86_feature_detected!("avx2"))
});

/// What the dynamic linker knows of the processor, which it asked when the program started.
/// To ask the processor again takes a virtual machine 0.05 ms: each of the ten questions stops
/// it, and every SMTP connection is a process of its own.
#[cfg(target_arch = "x86_64")]
mod linker {
    use std::ffi::c_uint;

    /// `struct cpuid_feature` of `<sys/platform/x86.h>`: the registers EAX to EDX that an
    /// instruction CPUID returned, and of these the features that can be used.
    #[repr(C)]
    struct Features {
        cpuid: [c_uint; 4],
        active: [c_uint; 4],
    }

    /// The number of CPUID leaf 7 (`CPUID_INDEX_7`), and where it has AVX2: bit 5 of EBX.
    const LEAF_7: c_uint = 1;
    const EBX: usize = 1;
    const AVX2: c_uint = 1 << 5;

    /// Whether AVX2 can be used; `None` if the C library is not glibc 2.33 or later.
    pub(super) fn has_avx2() -> Option<bool> {
        let name = c"__x86_get_cpuid_feature_leaf".as_ptr();
        // SAFETY: the name is a C string.
        let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name) };
        if function.is_null() {
            return None;
        }
        type Leaf = unsafe extern "C" fn(c_uint) -> *const Features;
        // SAFETY: the type is that in glibc's manual ("X86-specific Facilities"). The result is
        // null or points to constants of the dynamic linker, for any number.
        let features = unsafe { std::mem::transmute::<*mut _, Leaf>(function)(LEAF_7).as_ref() }?;
        Some(features.active[EBX] & AVX2 != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_dynamic_linker_knows_the_processor() {
        // Other C libraries than glibc do not say.
        if let Some(known) = linker::has_avx2() {
            assert_eq!(known, std::arch::is_x86_feature_detected!("avx2"));
        }
    }

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
