//! Numbers in the syntax of `strtod` in the C locale.

use super::list::skip_blanks;

/// A limit: a number that is not negative, with an optional suffix `k`, `m` or
/// `g` in either case (1024-based). `None` for any other text.
///
/// As in Exim, a text without digits is 0 (an empty text, a lone `k`). Unlike
/// in Exim, `nan` is refused.
pub(crate) fn limit(text: &[u8]) -> Option<f64> {
    let (number, rest) = strtod(text);
    let (factor, rest) = match rest {
        [b'k' | b'K', rest @ ..] => (1024.0, rest),
        [b'm' | b'M', rest @ ..] => (1024.0 * 1024.0, rest),
        [b'g' | b'G', rest @ ..] => (1024.0 * 1024.0 * 1024.0, rest),
        rest => (1.0, rest),
    };
    whole(number * factor, rest)
}

/// The value of `count=`: a number that is not negative.
pub(super) fn count(text: &[u8]) -> Option<f64> {
    let (number, rest) = strtod(text);
    whole(number, rest)
}

/// `number`, if it is not negative and nothing follows it.
fn whole(number: f64, rest: &[u8]) -> Option<f64> {
    // Adding 0 turns -0 into 0; -0 would be printed as "-0.0".
    (rest.is_empty() && number >= 0.0).then_some(number + 0.0)
}

/// The number at the start of `text`, and the rest; 0 and the whole text if
/// there is none.
///
/// Decimal and hexadecimal, with point, sign and exponent, `inf` and `infinity`
/// in either case; never NaN.
fn strtod(text: &[u8]) -> (f64, &[u8]) {
    let unsigned = skip_blanks(text);
    let (negative, unsigned) = match unsigned {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, unsigned),
    };
    let read = match unsigned {
        [b'0', b'x' | b'X', digits @ ..] => hexadecimal(digits).or_else(|| decimal(unsigned)),
        [b'i' | b'I', ..] => infinity(unsigned),
        _ => decimal(unsigned),
    };
    match read {
        Some((number, rest)) => (if negative { -number } else { number }, rest),
        None => (0.0, text),
    }
}

/// `inf` or `infinity`; the longer match is taken.
fn infinity(text: &[u8]) -> Option<(f64, &[u8])> {
    [&b"infinity"[..], b"inf"].iter().find_map(|word| {
        let (start, rest) = text.split_at_checked(word.len())?;
        start.eq_ignore_ascii_case(word).then_some((f64::INFINITY, rest))
    })
}

/// The number of digits at the start of `text`.
fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|b| b.is_ascii_digit()).count()
}

/// A decimal number without sign, and the rest.
fn decimal(text: &[u8]) -> Option<(f64, &[u8])> {
    let before = digits(text);
    // Fast path: nearly every limit is a small whole number.
    if let (1..=15, Some((number, rest))) = (before, text.split_at_checked(before))
        && !matches!(rest, [b'.' | b'e' | b'E', ..])
    {
        let whole = number.iter().fold(0_u64, |n, b| n * 10 + u64::from(b - b'0'));
        return Some((whole as f64, rest));
    }
    let (mut length, mut any) = (before, before);
    if let Some([b'.', fraction @ ..]) = text.get(before..) {
        let after = digits(fraction);
        any += after;
        // A point without any digit is not a number.
        length += if any > 0 { 1 + after } else { 0 };
    }
    if any == 0 {
        return None;
    }
    length += text.get(length..).map_or(0, |rest| exponent(rest, b'e').0);
    let (number, rest) = text.split_at_checked(length)?;
    // Only ASCII digits, one point and one exponent: Rust and C read that
    // alike.
    let number = std::str::from_utf8(number).ok()?.parse().ok()?;
    Some((number, rest))
}

/// The exponent at the start of `text`, introduced by `mark` in either case:
/// its length, 0 if there is none, and its value.
fn exponent(text: &[u8], mark: u8) -> (usize, i64) {
    let [first, rest @ ..] = text else { return (0, 0) };
    if !first.eq_ignore_ascii_case(&mark) {
        return (0, 0);
    }
    let (sign, negative, rest) = match rest {
        [b'-', rest @ ..] => (1, true, rest),
        [b'+', rest @ ..] => (1, false, rest),
        _ => (0, false, rest),
    };
    let count = digits(rest);
    if count == 0 {
        return (0, 0);
    }
    // Saturates far beyond what the longest mantissa can compensate.
    let value = rest.iter().take(count).fold(0_i64, |value, b| {
        value.saturating_mul(10).saturating_add(i64::from(b - b'0')).min(1 << 40)
    });
    (1 + sign + count, if negative { -value } else { value })
}

/// A hexadecimal number without sign and `0x`, and the rest.
fn hexadecimal(text: &[u8]) -> Option<(f64, &[u8])> {
    // The leading 60 bits or so; later digits only set the lowest ("sticky")
    // bit.
    let (mut mantissa, mut scale, mut any, mut point, mut length) = (0_u64, 0_i64, false, false, 0);
    for &byte in text {
        if let Some(digit) = char::from(byte).to_digit(16) {
            any = true;
            if mantissa >> 60 == 0 {
                mantissa = mantissa << 4 | u64::from(digit);
                scale -= if point { 4 } else { 0 };
            } else {
                mantissa |= u64::from(digit != 0);
                scale += if point { 0 } else { 4 };
            }
        } else if byte == b'.' && !point {
            point = true;
        } else {
            break;
        }
        length += 1;
    }
    if !any {
        return None;
    }
    let (more, power) = exponent(text.get(length..)?, b'p');
    Some((scaled(mantissa, scale.saturating_add(power)), text.get(length + more..)?))
}

/// `mantissa · 2^power`, rounded once, to nearest, ties to even.
fn scaled(mantissa: u64, power: i64) -> f64 {
    if mantissa == 0 {
        return 0.0;
    }
    let width = i64::from(u64::BITS - mantissa.leading_zeros());
    // The exponent of the lowest bit that the result can hold.
    let lowest = (power + width - 53).max(-1074);
    let surplus = lowest - power;
    let rounded = match surplus {
        ..=0 => mantissa,
        1..=63 => {
            let (kept, cut, half) =
                (mantissa >> surplus, mantissa & ((1 << surplus) - 1), 1 << (surplus - 1));
            kept + u64::from(cut > half || (cut == half && kept & 1 == 1))
        }
        // Only a mantissa above one half of the smallest number rounds up.
        64 => u64::from(mantissa > 1 << 63),
        _ => 0,
    };
    let mut result = rounded as f64;
    let mut power = if surplus > 0 { lowest } else { power };
    // This is exact: the remaining bits fit, and no step before the last leaves
    // the range of normal numbers.
    while power != 0 && result != 0.0 && result.is_finite() {
        let step = power.clamp(-1000, 1000);
        result *= f64::from_bits(((1023 + step) as u64) << 52);
        power -= step;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::{count, limit, scaled};
    use kit::quickcheck;

    #[test]
    fn table() {
        let infinite = f64::INFINITY;
        let cases: &[(&str, Option<f64>)] = &[
            ("", Some(0.0)),
            ("k", Some(0.0)),
            ("0", Some(0.0)),
            ("-0", Some(0.0)),
            ("+7", Some(7.0)),
            (" \t7", Some(7.0)),
            ("2.5", Some(2.5)),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            (".", None),
            (".e1", None),
            ("1e3", Some(1000.0)),
            ("1E+3", Some(1000.0)),
            ("1e-3", Some(0.001)),
            ("1e", None),
            ("1e+", None),
            ("1ek", None),
            ("1e400", Some(infinite)),
            ("1e-400", Some(0.0)),
            ("1e99999999999999999999", Some(infinite)),
            ("0e99999999999999999999", Some(0.0)),
            ("10k", Some(10240.0)),
            ("10K", Some(10240.0)),
            ("1m", Some(1048576.0)),
            ("1.5G", Some(1610612736.0)),
            ("1kk", None),
            ("1 k", None),
            (" k", None),
            ("1t", None),
            ("1,5", None),
            ("-1", None),
            ("-1k", None),
            ("+-1", None),
            ("0x10", Some(16.0)),
            ("0X1.8p1", Some(3.0)),
            ("0x.8", Some(0.5)),
            ("0xfk", Some(15360.0)),
            ("0x1p-1074", Some(5e-324)),
            ("0x1p-1075", Some(0.0)),
            ("0x1.8p-1075", Some(5e-324)),
            ("0x3p-1075", Some(1e-323)),
            ("0x1.fffffffffffff7fffffffp1023", Some(f64::MAX)),
            ("0x1.fffffffffffff8p1023", Some(infinite)),
            ("0x1.00000000000008p0", Some(1.0)),
            ("0x1.000000000000080000000000000001p0", Some(1.0 + f64::EPSILON)),
            ("0x1p99999999999999999999", Some(infinite)),
            ("0x1p-99999999999999999999", Some(0.0)),
            ("0x", None),
            ("0x.", None),
            ("0xk", None),
            ("0x1p", None),
            ("0x1.2.3", None),
            ("inf", Some(infinite)),
            ("INFinity", Some(infinite)),
            ("infk", Some(infinite)),
            ("infi", None),
            ("-inf", None),
            ("in", None),
            ("nan", None),
            ("NAN(1)", None),
            ("-nan", None),
            ("abc", None),
            ("1h", None),
            ("1\0", None),
            ("1_000", None),
            ("1f32", None),
            ("\u{661}", None),
        ];
        for (text, expected) in cases {
            let got = limit(text.as_bytes());
            assert_eq!(got.map(f64::to_bits), expected.map(f64::to_bits), "{text:?}: {got:?}");
        }
        assert_eq!(count(b"10k"), None);
        assert_eq!(count(b"2.5e1"), Some(25.0));
    }

    quickcheck! {
        fn every_number_is_read_back(bits: u64) -> bool {
            let number = f64::from_bits(bits & !(1 << 63));
            number.is_nan() || count(format!("{number:e}").as_bytes()) == Some(number)
        }

        fn every_number_is_read_back_in_hexadecimal(bits: u64) -> bool {
            let number = f64::from_bits(bits & !(1 << 63));
            let (exponent, fraction) = (number.to_bits() >> 52, number.to_bits() & ((1 << 52) - 1));
            let text = if exponent == 0 {
                format!("0x0.{fraction:013x}p-1022")
            } else {
                format!("0x1.{fraction:013x}p{}", exponent as i64 - 1023)
            };
            !number.is_finite() || count(text.as_bytes()) == Some(number)
        }

        fn mantissas_are_rounded_like_integers(mantissa: u64, shift: u8) -> bool {
            let power = i64::from(shift) - 128;
            scaled(mantissa, power) == mantissa as f64 * 2_f64.powi(power as i32)
        }
    }
}
