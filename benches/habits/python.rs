//! The random numbers of Python, so that attacks are those that the reference evaluates:
//! the Mersenne Twister MT19937 of Matsumoto and Nishimura (1998), seeded as CPython seeds it.

use sha2::{Digest as _, Sha512};

const WORDS: usize = 624;
const MIDDLE: usize = 397;

/// `random.Random`.
#[derive(Clone)]
pub(crate) struct Random {
    state: [u32; WORDS],
    next: usize,
}

impl Random {
    /// `Random(number)`.
    pub(crate) fn of_number(number: u32) -> Self {
        Self::of_key(&[number])
    }

    /// `Random(text)`.
    pub(crate) fn of_text(text: &str) -> Self {
        let mut bytes = text.as_bytes().to_vec();
        bytes.extend(Sha512::digest(text.as_bytes()));
        // A number of these bytes, the first highest, in words, the lowest first.
        bytes.reverse();
        let words = bytes.chunks(4).map(|chunk| {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            u32::from_le_bytes(word)
        });
        Self::of_key(&words.collect::<Vec<_>>())
    }

    fn of_key(key: &[u32]) -> Self {
        let mut state = [0_u32; WORDS];
        state[0] = 19_650_218;
        let mixed = |before: u32| before ^ before >> 30;
        for n in 1..WORDS {
            state[n] = mixed(state[n - 1]).wrapping_mul(1_812_433_253).wrapping_add(n as u32);
        }
        let (mut n, mut of) = (1, 0);
        let wrap = |n: &mut usize, state: &mut [u32; WORDS]| {
            *n += 1;
            if *n >= WORDS {
                state[0] = state[WORDS - 1];
                *n = 1;
            }
        };
        for _ in 0..WORDS.max(key.len()) {
            let word = mixed(state[n - 1]).wrapping_mul(1_664_525);
            state[n] = (state[n] ^ word).wrapping_add(key[of]).wrapping_add(of as u32);
            wrap(&mut n, &mut state);
            of = (of + 1) % key.len();
        }
        for _ in 1..WORDS {
            let word = mixed(state[n - 1]).wrapping_mul(1_566_083_941);
            state[n] = (state[n] ^ word).wrapping_sub(n as u32);
            wrap(&mut n, &mut state);
        }
        state[0] = 1 << 31;
        Self { state, next: WORDS }
    }

    fn word(&mut self) -> u32 {
        if self.next == WORDS {
            for n in 0..WORDS {
                let joined = self.state[n] & 1 << 31 | self.state[(n + 1) % WORDS] & !(1 << 31);
                let twisted = joined >> 1 ^ if joined & 1 == 1 { 0x9908_b0df } else { 0 };
                self.state[n] = self.state[(n + MIDDLE) % WORDS] ^ twisted;
            }
            self.next = 0;
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= word << 7 & 0x9d2c_5680;
        word ^= word << 15 & 0xefc6_0000;
        word ^ word >> 18
    }

    /// `getrandbits(count)`, of 1 to 64.
    pub(crate) fn bits(&mut self, count: u32) -> u64 {
        if count <= 32 {
            return u64::from(self.word() >> (32 - count));
        }
        let low = u64::from(self.word());
        low | u64::from(self.word() >> (64 - count)) << 32
    }

    /// `random()`.
    pub(crate) fn unit(&mut self) -> f64 {
        let (high, low) = (self.word() >> 5, self.word() >> 6);
        (f64::from(high) * 67_108_864.0 + f64::from(low)) / 9_007_199_254_740_992.0
    }

    /// `randrange(below)`.
    pub(crate) fn below(&mut self, below: usize) -> usize {
        loop {
            let number = self.bits(usize::BITS - below.leading_zeros()) as usize;
            if number < below {
                return number;
            }
        }
    }

    /// `choice(of)`.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// `shuffle(of)`.
    pub(crate) fn shuffle<T>(&mut self, of: &mut [T]) {
        for last in (1..of.len()).rev() {
            of.swap(last, self.below(last + 1));
        }
    }
}
