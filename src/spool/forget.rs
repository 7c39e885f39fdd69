//! Which records may go, because remembering them could change no answer.

use crate::rate::{self, Average, Timestamp};
use crate::spec::StoredKey;

/// Whether the record of `key` may be forgotten at `now`; its filter was begun
/// in second `epoch`, where it has one.
///
/// Nothing is known here of how large its events are, so this waits until
/// even the smallest could tell no difference: see [`rate::forgettable`].
/// A key that names no period is kept.
pub(super) fn forgettable(
    key: &[u8],
    average: Average,
    limit: f64,
    epoch: Option<i64>,
    now: Timestamp,
) -> bool {
    let period = StoredKey::parse(key).and_then(|filed| filed.period_seconds());
    period.is_some_and(|period| rate::forgettable(average, limit, epoch, period, 0.0, now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_period_is_the_keys_own() {
        let at = |seconds| Timestamp { seconds, micros: 0 };
        let average = Average { at: at(1000), rate: 1.0 };
        let forgettable =
            |key: &str, now| forgettable(key.as_bytes(), average, 10.0, None, at(now));
        assert!(!forgettable("10s/per_mail/x", 1000 + 100));
        assert!(forgettable("10s/per_mail/x", 1000 + 400));
        assert!(!forgettable("20/per_mail/x", 1000 + 400));
        assert!(forgettable("20/per_mail/x", 1000 + 800));
        for no_period in ["", "/x", "h/m/x", "0/m/x", "1y/m/x", "1h/x", "key"] {
            assert!(!forgettable(no_period, 1_000_000), "{no_period}");
        }
    }
}
