//! Chances for people to read.

/// A chance: `1 in 25 million`, or `12%` where it is not small.
pub(crate) fn one_in(chance: f64) -> String {
    if chance >= 0.1 {
        return crate::text::percent(chance.min(1.0));
    }
    let times = 1.0 / chance;
    const UNITS: [(f64, &str); 4] =
        [(1e12, "trillion"), (1e9, "billion"), (1e6, "million"), (1e3, "thousand")];
    // Two digits: nobody knows more of a chance. What grows by that to a larger
    // unit is one of it.
    let times = two_digits(times);
    if times >= 1e15 {
        // A digest is never certain: no probability is printed as zero.
        return format!("1 in 10^{}", times.log10().floor().min(300.0));
    }
    match UNITS.into_iter().find(|(unit, _)| times >= *unit && times >= 1e4) {
        Some((unit, name)) => format!("1 in {} {name}", times / unit),
        None => format!("1 in {times}"),
    }
}

/// A number that is to be expected: `3`, `0.04`, `under 0.000000001`.
pub(crate) fn expected(number: f64) -> String {
    if number >= 10.0 {
        return format!("{number:.0}");
    }
    if number < 1e-9 {
        return "under 0.000000001".to_owned();
    }
    // One digit that counts; it may become one of the next place.
    let unit = 10_f64.powf(number.log10().floor());
    let rounded = (number / unit).round() * unit;
    let decimals = -(rounded * 1.000_001).log10().floor();
    format!("{rounded:.*}", decimals.clamp(0.0, 9.0) as usize)
}

/// `number`, which is at least 1, with its first two digits.
fn two_digits(number: f64) -> f64 {
    if !number.is_finite() {
        return f64::MAX;
    }
    let unit = 10_f64.powf(number.log10().floor() - 1.0).max(1.0);
    (number / unit).round() * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_in_words() {
        for (chance, text) in [
            (1.0, "100%"),
            (2.0, "100%"),
            (0.123, "12%"),
            (0.1, "10%"),
            (0.09, "1 in 11"),
            (0.01, "1 in 100"),
            (1.0 / 9_940.0, "1 in 9900"),
            (1.0 / 9_960.0, "1 in 10 thousand"),
            (1.0 / 123_456.0, "1 in 120 thousand"),
            (1.0 / 999_999.0, "1 in 1 million"),
            (4e-8, "1 in 25 million"),
            (2.5e-12, "1 in 400 billion"),
            (1e-14, "1 in 100 trillion"),
            (1e-18, "1 in 10^18"),
            (0.0, "1 in 10^300"),
        ] {
            assert_eq!(one_in(chance), text, "{chance}");
        }
    }

    #[test]
    fn what_is_to_be_expected_has_one_digit_that_counts() {
        for (number, text) in [
            (1234.5, "1234"),
            (12.0, "12"),
            (3.4, "3"),
            (0.123, "0.1"),
            (0.97, "1"),
            (0.00097, "0.001"),
            (0.001, "0.001"),
            (9.7, "10"),
            (0.00004, "0.00004"),
            (2e-9, "0.000000002"),
            (1e-12, "under 0.000000001"),
            (0.0, "under 0.000000001"),
        ] {
            assert_eq!(expected(number), text, "{number}");
        }
    }
}
