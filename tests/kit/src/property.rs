//! Properties that hold for any input: the same inputs each time, so that chance decides nothing.
//!
//! With `EXIRATE_TEST_LONG` they are others each time; what they find becomes a test of its own.

use std::hash::{BuildHasher as _, RandomState};

use quickcheck::{Gen, QuickCheck};

/// What quickcheck makes its inputs as large as.
const SIZE: usize = 100;

/// The seed of all inputs; printed where a test fails.
fn seed() -> u64 {
    let seed = match std::env::var_os("EXIRATE_TEST_LONG") {
        None => 0x1095,
        Some(_) => RandomState::new().hash_one(0),
    };
    println!("seed of the properties: {seed:#x}");
    seed
}

/// Checks a property: as `quickcheck::QuickCheck::new`, whose inputs are others each time.
#[allow(clippy::disallowed_methods)]
pub fn quick_check() -> QuickCheck {
    QuickCheck::new().rng(generator(SIZE))
}

/// Generates inputs up to this size: as `quickcheck::Gen::new`.
pub fn generator(size: usize) -> Gen {
    Gen::from_size_and_seed(size, seed())
}

/// Makes a test of each function with parameters, which must hold for any: as `quickcheck::quickcheck!`.
#[macro_export]
macro_rules! quickcheck {
    ($(
        $(#[$attribute:meta])*
        fn $name:ident($($argument:ident: $of:ty),* $(,)?) -> $result:ty { $($code:tt)* }
    )*) => {$(
        #[test]
        $(#[$attribute])*
        fn $name() {
            fn property($($argument: $of),*) -> $result { $($code)* }
            $crate::quick_check().quickcheck(property as fn($($of),*) -> $result);
        }
    )*};
}
