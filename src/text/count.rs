//! Numbers, and numbers of things.

/// `1 message`, `2 messages`. The words may go on: `1 file is`, `2 files are`.
pub(crate) fn counted(number: impl TryInto<u64>, one: &str, several: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    format!("{number} {}", if number == 1 { one } else { several })
}

/// As [`counted`], and `no message` for 0.
#[cfg(feature = "cli")]
pub(crate) fn counted_or_no(number: impl TryInto<u64>, one: &str, several: &str) -> String {
    match number.try_into().unwrap_or(u64::MAX) {
        0 => format!("no {one}"),
        number => counted(number, one, several),
    }
}

/// A number as short as can be: `100`, `0.5`, `inf`.
#[cfg(feature = "cli")]
pub(crate) fn number(value: f64) -> String {
    format!("{value}")
}

/// A part of a whole in per cent: `85%`. Only what is the whole or more is shown
/// as 100 %.
#[cfg(feature = "cli")]
pub(crate) fn percent(part: f64) -> String {
    match (part * 100.0).round() {
        hundred if hundred >= 100.0 && part < 1.0 => "99%".to_owned(),
        percent if percent.is_finite() => format!("{percent:.0}%"),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_several() {
        let logs = [0_usize, 1, 2].map(|number| counted(number, "log was", "logs were"));
        assert_eq!(logs, ["0 logs were", "1 log was", "2 logs were"]);
        assert_eq!(counted(u64::MAX, "a", "b"), format!("{} b", u64::MAX));
    }

    #[cfg(feature = "cli")]
    #[test]
    fn none_is_no() {
        let users = [0_u64, 1, 2].map(|number| counted_or_no(number, "user", "users"));
        assert_eq!(users, ["no user", "1 user", "2 users"]);
    }

    #[cfg(feature = "cli")]
    #[test]
    fn less_than_all_is_less_than_100_percent() {
        for (part, text) in [(0.0, "0%"), (0.996, "99%"), (1.0, "100%"), (1.596, "160%")] {
            assert_eq!(percent(part), text);
        }
        assert_eq!((percent(f64::INFINITY), percent(f64::NAN)), ("-".into(), "-".into()));
    }
}
