//! A number of things, in words.

/// `1 message`, `2 messages`. The words may go on: `1 file is`, `2 files are`.
pub(crate) fn counted(number: impl Into<u64>, one: &str, many: &str) -> String {
    let number = number.into();
    format!("{number} {}", if number == 1 { one } else { many })
}

/// The same, of a number of items in memory.
#[cfg(any(feature = "cli", feature = "trace"))]
pub(crate) fn counted_items(number: usize, one: &str, many: &str) -> String {
    counted(u64::try_from(number).unwrap_or(u64::MAX), one, many)
}

#[cfg(all(test, any(feature = "cli", feature = "trace")))]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_several() {
        let logs = [0, 1, 2].map(|number| counted_items(number, "log was", "logs were"));
        assert_eq!(logs, ["0 logs were", "1 log was", "2 logs were"]);
        assert_eq!(counted(u64::MAX, "a", "b"), format!("{} b", u64::MAX));
    }
}
