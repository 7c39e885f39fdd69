//! Reproducible random numbers: the one generator of all tests.

/// A fast generator (wyrand, Wang Yi 2019).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Always the same numbers for a seed, and unrelated ones for the next seed: as wyrand's own
    /// steps do not ensure that, the seed is mixed as SplitMix64 does.
    pub fn new(seed: u64) -> Self {
        let mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self::of_state(mixed ^ mixed >> 31)
    }

    /// For seeds that are far apart, such as those of [`mix`].
    pub(crate) fn of_state(state: u64) -> Self {
        Self(state)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0xa076_1d64_78bd_642f);
        fold(self.0, self.0 ^ 0xe703_7ed1_a0b4_28db)
    }

    /// A number below `below`, which is not 0.
    pub fn below(&mut self, below: usize) -> usize {
        ((u128::from(self.bits()) * below as u128) >> 64) as usize
    }

    /// A number from `low` to `high`.
    pub fn within(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True in `percent` of cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// A number from 0 to 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A log-normally distributed number: half are below `median`, and two
    /// thirds within a factor of e^`sigma`.
    pub fn spread(&mut self, median: f64, sigma: f64) -> usize {
        // A normal deviate by the method of Box and Muller.
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * self.unit()).cos();
        (median * (sigma * normal).exp()) as usize
    }

    /// A number below `below`, `n` with a probability of about 1 / (n + 1)
    /// (Zipf).
    pub fn zipf(&mut self, below: usize) -> usize {
        let n = ((below as f64 + 1.0).ln() * self.unit()).exp() as usize - 1;
        n.min(below - 1)
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Any byte.
    pub fn byte(&mut self) -> u8 {
        self.bits() as u8
    }

    /// A letter from `a` to `z`.
    pub fn letter(&mut self) -> char {
        char::from(b'a' + self.below(26) as u8)
    }

    /// Puts them into another order.
    pub fn shuffle<T>(&mut self, of: &mut [T]) {
        for last in (1..of.len()).rev() {
            of.swap(last, self.below(last + 1));
        }
    }
}

/// A pseudo-random number for each pair of numbers.
pub fn mix(a: u64, b: u64) -> u64 {
    fold(a ^ 0x2d35_8dcc_aa6c_78a5, b ^ 0x8bb8_4b93_962e_acc9)
}

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}
