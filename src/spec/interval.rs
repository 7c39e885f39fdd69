//! Intervals such as `1w2d3h4m5s`.

/// Why a text is not an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoInterval {
    /// It is malformed, or zero.
    Malformed,
    /// It is well formed but longer than [`LONGEST`].
    TooLong,
}

/// The longest interval in seconds, 68 years: the maximum of Exim's `int`.
pub(super) const LONGEST: i64 = i32::MAX as i64;

/// The seconds of `text`: numbers, each with a unit `w d h m s`, in any order
/// and with repetitions; or one bare number of seconds. Always greater than
/// zero.
pub(crate) fn seconds(text: &[u8]) -> Result<f64, NoInterval> {
    let mut total = 0_i64;
    let mut rest = text;
    while !rest.is_empty() {
        let mut value = 0_i64;
        let mut any = false;
        while let [digit @ b'0'..=b'9', after @ ..] = rest {
            // Saturating just above the maximum keeps all sums in range.
            value = (value * 10 + i64::from(digit - b'0')).min(LONGEST + 1);
            (rest, any) = (after, true);
        }
        let unit = match rest {
            _ if !any => return Err(NoInterval::Malformed),
            [] if text.iter().all(u8::is_ascii_digit) => 1,
            [b'w', ..] => 7 * 24 * 60 * 60,
            [b'd', ..] => 24 * 60 * 60,
            [b'h', ..] => 60 * 60,
            [b'm', ..] => 60,
            [b's', ..] => 1,
            _ => return Err(NoInterval::Malformed),
        };
        rest = rest.get(1..).unwrap_or_default();
        total = (total + value * unit).min(LONGEST + 1);
    }
    match total {
        ..=0 => Err(NoInterval::Malformed),
        1..=LONGEST => Ok(total as f64),
        _ => Err(NoInterval::TooLong),
    }
}

/// The seconds of a period that somebody has typed.
///
/// # Errors
/// What would be right.
#[cfg(feature = "cli")]
pub(crate) fn typed(text: &str) -> Result<f64, String> {
    let expected = |_| "expected a period, such as 1h, 30m, 1d12h or 3600".to_owned();
    seconds(text.as_bytes()).map_err(expected)
}

#[cfg(test)]
mod tests {
    use super::{NoInterval, seconds};
    use kit::quickcheck;

    #[test]
    fn table() {
        use NoInterval::{Malformed, TooLong};
        let cases: &[(&str, Result<f64, NoInterval>)] = &[
            ("1s", Ok(1.0)),
            ("1m", Ok(60.0)),
            ("1h", Ok(3600.0)),
            ("1d", Ok(86400.0)),
            ("1w", Ok(604800.0)),
            ("1w2d3h4m5s", Ok(788645.0)),
            ("5s1h", Ok(3605.0)),
            ("1h1h", Ok(7200.0)),
            ("0h1s", Ok(1.0)),
            ("00000000000000000000000000001h", Ok(3600.0)),
            ("3600", Ok(3600.0)),
            ("2147483647", Ok(2147483647.0)),
            ("2147483648", Err(TooLong)),
            ("3550w", Ok(2147040000.0)),
            ("3551w", Err(TooLong)),
            ("2147483647s1s", Err(TooLong)),
            ("99999999999999999999999999w", Err(TooLong)),
            ("99999999999999999999999999wx", Err(Malformed)),
            ("", Err(Malformed)),
            ("0", Err(Malformed)),
            ("0s", Err(Malformed)),
            ("h", Err(Malformed)),
            ("1H", Err(Malformed)),
            ("1h30", Err(Malformed)),
            ("0s30", Err(Malformed)),
            ("1.5h", Err(Malformed)),
            ("1 h", Err(Malformed)),
            ("1h 2m", Err(Malformed)),
            ("-1h", Err(Malformed)),
            ("+1h", Err(Malformed)),
            ("1y", Err(Malformed)),
            ("1hour", Err(Malformed)),
            ("1h\0", Err(Malformed)),
        ];
        for (text, expected) in cases {
            assert_eq!(seconds(text.as_bytes()), *expected, "{text:?}");
        }
    }

    quickcheck! {
        fn units_add_up(parts: Vec<(u16, u8)>) -> bool {
            let units = [("w", 604_800), ("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];
            let (mut text, mut total) = (String::new(), 0);
            for (value, unit) in parts.into_iter().take(5) {
                let (letter, worth) = units[usize::from(unit) % units.len()];
                text += &format!("{}{letter}", value % 600);
                total += i64::from(value % 600) * worth;
            }
            seconds(text.as_bytes()) == if total > 0 { Ok(total as f64) } else { Err(NoInterval::Malformed) }
        }
    }
}
