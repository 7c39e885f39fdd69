//! The exponentially weighted moving average.

/// A time as `gettimeofday` returns it: seconds and microseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Whole seconds since 1970-01-01 00:00:00 UTC.
    pub seconds: i64,
    /// Microseconds within the second, `0..1_000_000`.
    pub micros: u32,
}

impl From<(i64, u32)> for Timestamp {
    fn from((seconds, micros): (i64, u32)) -> Self {
        Self { seconds, micros }
    }
}

impl Timestamp {
    /// The time in seconds, rounded to `f64` exactly as Exim rounds it.
    #[must_use]
    pub fn as_seconds(self) -> f64 {
        self.seconds as f64 + f64::from(self.micros) / 1_000_000.0
    }

    /// The time in microseconds.
    #[must_use]
    pub fn as_micros(self) -> i64 {
        self.seconds.saturating_mul(1_000_000).saturating_add(i64::from(self.micros))
    }

    /// The time of so many microseconds since 1970.
    #[must_use]
    pub fn from_micros(micros: i64) -> Self {
        let below = u32::try_from(micros.rem_euclid(1_000_000)).unwrap_or(0);
        Self { seconds: micros.div_euclid(1_000_000), micros: below }
    }
}

/// The smoothed rate of one key at one time: everything that is remembered of a
/// key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Average {
    /// When the rate was last computed.
    pub at: Timestamp,
    /// Smoothed events per period at that time.
    pub rate: f64,
}

impl Average {
    /// The average after a key's first event of size `count`.
    ///
    /// It equals [`Average::next`] for an infinite interval.
    #[must_use]
    pub fn first(now: Timestamp, count: f64) -> Self {
        Self { at: now, rate: count }
    }

    /// The average after another event of size `count` at `now`, smoothed over
    /// `period` seconds.
    ///
    /// With `i` seconds since the last event, at least 1e-9, `x = i/period` and
    /// `a = exp(-x)` it is `(1-a)·count/x + a·rate`, and never below `count`.
    ///
    /// The operations and their order are those of Exim, because `1-a` loses
    /// digits if `x` is tiny, and the same digits must be lost: an event one
    /// microsecond after the last one counts for its size within 2e-7 if the
    /// period is an hour, and within 4e-5 if it is a week. At no measurable
    /// interval (1e-9 seconds) that is 4e-4 and 1 %; and with a period of more
    /// than 208 days `1-a` is then 0, and the event is not counted.
    #[must_use]
    pub fn next(self, now: Timestamp, period: f64, count: f64) -> Self {
        let elapsed = now.as_seconds() - self.at.as_seconds();
        // A clock that stands still or goes back must not cause a division by
        // zero.
        let interval = if elapsed <= 0.0 { 1e-9 } else { elapsed };
        let i_over_p = interval / period;
        let a = (-i_over_p).exp();
        let rate = (1.0 - a) * count / i_over_p + a * self.rate;
        // An isolated event counts in full.
        Self { at: now, rate: if rate < count { count } else { rate } }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::{Average, Timestamp};
    use kit::quickcheck;
    use quickcheck::{Arbitrary, Gen, TestResult};

    /// The same arithmetic, written independently on plain numbers.
    fn model(then: (i64, u32), rate: f64, now: (i64, u32), period: f64, count: f64) -> f64 {
        let this_time = now.0 as f64 + now.1 as f64 / 1e6;
        let prev_time = then.0 as f64 + then.1 as f64 / 1e6;
        let mut interval = this_time - prev_time;
        if this_time - prev_time <= 0.0 {
            interval = 0.000_000_001;
        }
        let ratio = interval / period;
        let a = f64::exp(-ratio);
        let fresh = 1.0 - a;
        let fresh = fresh * count;
        let fresh = fresh / ratio;
        let old = a * rate;
        let sum = fresh + old;
        if sum < count {
            return count;
        }
        sum
    }

    impl Arbitrary for Timestamp {
        fn arbitrary(g: &mut Gen) -> Self {
            Self {
                seconds: 1_700_000_000 + i64::from(u32::arbitrary(g)),
                micros: u32::arbitrary(g) % 1_000_000,
            }
        }
    }

    /// Not negative, of any magnitude, often a small whole number.
    #[derive(Clone, Copy, Debug)]
    pub(in super::super) struct Size(pub(in super::super) f64);

    impl Arbitrary for Size {
        fn arbitrary(g: &mut Gen) -> Self {
            Self(match u8::arbitrary(g) % 4 {
                0 => f64::from(u8::arbitrary(g)),
                1 => f64::from(u32::arbitrary(g)) / 1000.0,
                2 => f64::from_bits(u64::arbitrary(g) >> 1),
                _ => (f64::from(i8::arbitrary(g)) / 4.0).exp(),
            })
        }
    }

    #[test]
    fn as_computed_by_c() {
        // (interval in seconds and microseconds, period, count, rate before, bits of the rate
        // after): from a C program (gcc -O2, x86-64, glibc), last event at 1700000000.123456.
        let table: &[(i64, i64, f64, f64, f64, u64)] = &[
            (0, 1, 3600.0, 1.0, 0.0, 0x3ff0_0000_0680_0000),
            (0, 1, 604800.0, 1.0, 50.0, 0x4049_8000_26df_d4a8),
            (0, 0, 3600.0, 1.0, 99.0, 0x4059_0000_0058_cff1),
            (-5, 0, 604800.0, 1.0, 99.0, 0x4059_0075_df32_cdf4),
            (1, 0, 86400.0, 1.0, 99.5, 0x4059_1fed_0982_7032),
            (60, 0, 3600.0, 1.0, 4.25, 0x4014_af94_e6a2_e834),
            (3599, 999999, 3600.0, 1.0, 1.0, 0x3ff0_0000_000b_81e5),
            (3600, 0, 3600.0, 1.0, 100.0, 0x4042_b5c4_ade6_c106),
            (7200, 1, 3600.0, 1.0, 1000.0, 0x4060_f890_4e81_4801),
            (600, 0, 900.0, 1.0, 1.65, 0x3ff9_3b71_87c5_156a),
            (0, 250, 3600.0, 4096.0, 1000000.0, 0x412e_a47f_dc5b_2377),
            (86400, 0, 60.0, 3.0, 1e300, 0x4008_0000_0000_0000),
            (10, 500000, 18000.0, 2.5, 19.75, 0x4036_3cdd_69d8_d05b),
            (0, 0, 18144000.0, 1.0, 50.0, 0x4049_0000_0000_0000),
            (33, 333333, 86400.0, 0.0, 12.345, 0x4028_ae33_b31d_9951),
        ];
        for &(seconds, micros, period, count, rate, expected) in table {
            let micros = micros + 123_456;
            let then = Average { at: Timestamp { seconds: 1_700_000_000, micros: 123_456 }, rate };
            let now = Timestamp {
                seconds: 1_700_000_000 + seconds + micros.div_euclid(1_000_000),
                micros: micros.rem_euclid(1_000_000) as u32,
            };
            let got = then.next(now, period, count).rate;
            assert_eq!(got.to_bits(), expected, "{seconds} {micros} {period} {count}: {got}");
        }
    }

    #[test]
    fn no_measurable_interval() {
        let at = Timestamp { seconds: 1_700_000_000, micros: 0 };
        let step = |period: f64| Average { at, rate: 50.0 }.next(at, period, 1.0).rate - 50.0;
        assert!((step(3600.0) - 1.0).abs() < 4e-4, "{}", step(3600.0));
        assert!((step(604_800.0) - 1.0).abs() < 1e-2, "{}", step(604_800.0));
        assert_eq!(step(210.0 * 86_400.0), 0.0);
        let back = Timestamp { seconds: at.seconds - 1000, micros: 0 };
        let clamped = Average { at, rate: 50.0 }.next(back, 3600.0, 1.0);
        assert_eq!((clamped.at, clamped.rate), (back, 50.0 + step(3600.0)));
    }

    quickcheck! {
        fn bit_for_bit(then: Timestamp, later: u32, micros: u32, sizes: (Size, Size, Size)) -> TestResult {
            let (Size(rate), Size(period), Size(count)) = sizes;
            if rate.is_nan() || count.is_nan() || period.is_nan() || period <= 0.0 {
                return TestResult::discard();
            }
            let now = Timestamp {
                // Sometimes the clock goes back, or stays within the second.
                seconds: then.seconds + i64::from(later >> (later % 32)) - i64::from(later % 3),
                micros: micros % 1_000_000,
            };
            let got = Average { at: then, rate }.next(now, period, count);
            let at = |t: Timestamp| (t.seconds, t.micros);
            let expected = model(at(then), rate, at(now), period, count);
            TestResult::from_bool(
                got.at == now
                    && (got.rate.to_bits() == expected.to_bits()
                        || (got.rate.is_nan() && expected.is_nan())),
            )
        }
    }
}
