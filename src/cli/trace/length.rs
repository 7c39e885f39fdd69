//! How long a text is, and how long it should be.

use crate::trace::{GramOrder, Part, Settings, WinnowSettings};

/// A query should not have more false results than this.
pub(super) const RARE: f64 = 0.01;

/// The length of a part in bytes.
pub(super) fn of(part: &Part) -> usize {
    match part {
        Part::Text(text) | Part::Passage(text) => text.len(),
        Part::File(bytes) | Part::Bytes(bytes) => bytes.len(),
        Part::FileHash(hash) => hash.len(),
    }
}

/// How long an excerpt must be for [`RARE`] false results among so many messages,
/// if one of `bytes` bytes is false with this probability, which falls exponentially
/// with the length. In tens of bytes.
pub(super) fn enough(bytes: usize, chance: f64, messages: u64) -> Option<u64> {
    let wanted = (RARE / messages as f64).ln();
    let times = wanted / chance.ln();
    (times.is_finite() && times > 1.0).then(|| (bytes as f64 * times / 10.0).ceil() as u64 * 10)
}

/// The share of a text of so many bytes that distinguishes a message from unrelated
/// ones, roughly: fewer than one in ten thousand contain more of it by chance. `None`
/// if the scheme does not determine it.
pub(super) fn distinctive_share(bytes: usize, settings: Settings) -> Option<f64> {
    let Settings::Winnow(WinnowSettings { window, centibits, order, .. }) = settings else {
        return None;
    };
    // The share of bits set, and how many are tested.
    let set = 1.0 - (-100.0 / f64::from(centibits)).exp();
    let fewer = match order {
        GramOrder::Random => 1.0,
        GramOrder::OpenClosed => 0.87,
    };
    let bits = bytes as f64 * fewer * 2.0 / (f64::from(window) + 1.0);
    let deviation = (set * (1.0 - set) / bits).sqrt();
    Some((set + 3.7 * deviation).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::HbfSettings;

    #[test]
    fn a_longer_text_is_rarely_false() {
        // 0.5^10 is about one in a thousand, so that 17 of as many bytes as one
        // in two takes are one in 100,000.
        assert_eq!(enough(100, 0.000_976_562_5, 1000), Some(170));
        assert_eq!(enough(100, 1e-9, 1000), None, "it is long enough");
        assert_eq!(enough(100, 1.0, 1000), None);
    }

    #[test]
    fn of_a_longer_text_a_smaller_share_is_enough() {
        // As the help has it.
        for (bytes, percent) in [(30, 100.0), (150, 95.0), (500, 77.0), (2000, 66.0)] {
            let share = distinctive_share(bytes, Settings::default()).unwrap();
            assert!((share * 100.0 - percent).abs() < 2.0, "{bytes}: {share}");
        }
        assert_eq!(distinctive_share(500, Settings::Hbf(HbfSettings::default())), None);
    }
}
