//! Which records may go, because remembering them could change no answer.

use crate::rate::{Average, Timestamp, bloom};

/// A rate under this prints as 0.0.
const PRINTS_AS_ZERO: f64 = 0.05;

/// Whether the record of `key` may be forgotten at `now`: it is at least one
/// period old, its rate has decayed to what prints as 0.0, and its filter,
/// begun in second `epoch`, has expired.
///
/// A key that names no period is kept.
pub(super) fn forgettable(
    key: &[u8],
    average: Average,
    epoch: Option<i64>,
    now: Timestamp,
) -> bool {
    let Some(period) = period(key) else { return false };
    let age = now.as_seconds() - average.at.as_seconds();
    age >= period
        && average.next(now, period, 0.0).rate < PRINTS_AS_ZERO
        && epoch.is_none_or(|epoch| bloom::expired(epoch, now, period))
}

/// The period in seconds that a stored key begins with: `1h30m/per_mail/…`,
/// or bare seconds.
fn period(key: &[u8]) -> Option<f64> {
    let text = key.split(|&byte| byte == b'/').next()?;
    let (mut total, mut number) = (0u64, None);
    for &byte in text {
        let unit = match byte {
            b'0'..=b'9' => {
                let digit = u64::from(byte - b'0');
                number = Some(number.unwrap_or(0u64).checked_mul(10)?.checked_add(digit)?);
                continue;
            }
            b'w' => 7 * 24 * 60 * 60,
            b'd' => 24 * 60 * 60,
            b'h' => 60 * 60,
            b'm' => 60,
            b's' => 1,
            _ => return None,
        };
        total = total.checked_add(number.take()?.checked_mul(unit)?)?;
    }
    let total = total.checked_add(number.unwrap_or(0))?;
    (total > 0).then_some(total as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, micros: 0 }
    }

    #[test]
    fn periods_are_read_from_keys() {
        assert_eq!(period(b"1h/per_mail/x"), Some(3600.0));
        assert_eq!(period(b"1w2d3h4m5s/per_mail/x"), Some(788_645.0));
        assert_eq!(period(b"90/per_mail/x"), Some(90.0));
        for none in ["", "/x", "h/x", "0/x", "1y/x", "key", "99999999999999999999s/x"] {
            assert_eq!(period(none.as_bytes()), None, "{none}");
        }
    }

    #[test]
    fn only_what_changes_no_answer_may_go() {
        let average = Average { at: at(1000), rate: 100.0 };
        let key = b"10s/per_mail/x";
        // 100·e^(-7.6) is just over 0.05, 100·e^(-7.7) just under.
        assert!(!forgettable(key, average, None, at(1076)));
        assert!(forgettable(key, average, None, at(1077)));
        assert!(forgettable(key, average, Some(1066), at(1077)));
        assert!(!forgettable(key, average, Some(1067), at(1077)));
        assert!(!forgettable(b"x", average, None, at(1_000_000)));
        let small = Average { at: at(1000), rate: 0.01 };
        assert!(!forgettable(key, small, None, at(1009)));
        assert!(!forgettable(key, small, None, at(900)));
        assert!(forgettable(key, small, None, at(1010)));
    }
}
