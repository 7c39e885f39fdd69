//! How long a text is, and how long it should be.

use crate::trace::{Part, Settings, WinnowSettings};

/// So few false messages a question are few.
pub(super) const RARE: f64 = 0.01;

/// The length of a part in bytes.
pub(super) fn of(part: &Part) -> usize {
    match part {
        Part::Text(text) => text.len(),
        Part::File(bytes) | Part::Bytes(bytes) => bytes.len(),
    }
}

/// How long an excerpt must be so that [`RARE`] messages of so many are false,
/// if one of `bytes` is false with a chance: each byte more divides that by as
/// much as each before. In tens of bytes.
pub(super) fn enough(bytes: usize, chance: f64, messages: u64) -> Option<u64> {
    let wanted = (RARE / messages as f64).ln();
    let times = wanted / chance.ln();
    (times.is_finite() && times > 1.0).then(|| (bytes as f64 * times / 10.0).ceil() as u64 * 10)
}

/// Which share of a text of so many bytes tells a message from those that have
/// nothing to do with it, roughly: fewer than one in ten thousand have more of it
/// by chance. `None` where the scheme does not tell.
pub(super) fn tellable(bytes: usize, settings: Settings) -> Option<f64> {
    let Settings::Winnow(WinnowSettings { window, centibits, .. }) = settings else {
        return None;
    };
    // The share of bits set, and how many are looked at.
    let set = 1.0 - (-100.0 / f64::from(centibits)).exp();
    let bits = bytes as f64 * 2.0 / (f64::from(window) + 1.0);
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
        assert_eq!(enough(100, 1e-9, 1000), None, "it is already");
        assert_eq!(enough(100, 1.0, 1000), None);
    }

    #[test]
    fn of_a_longer_text_less_will_do() {
        // As the help has it.
        for (bytes, percent) in [(30, 100.0), (150, 92.0), (500, 78.0), (2000, 70.0)] {
            let share = tellable(bytes, Settings::default()).unwrap();
            assert!((share * 100.0 - percent).abs() < 2.0, "{bytes}: {share}");
        }
        assert_eq!(tellable(500, Settings::Hbf(HbfSettings::default())), None);
    }
}
