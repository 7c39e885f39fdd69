//! Times.

use std::time::Duration;

use crate::toml_file::reader::{Reader, Value};

/// A time such as `20ms` or `2s`, from 1 ms to `most`.
pub(super) fn duration(
    reader: &mut Reader<'_>,
    value: Value<'_>,
    example: &str,
    most: Duration,
) -> Option<Duration> {
    let text = reader.string(value, &format!("{example:?}"))?;
    let (number, unit) = text.split_at(text.trim_end_matches(|c: char| !c.is_ascii_digit()).len());
    let unit = match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        _ => None,
    };
    let number = number.parse().ok().filter(|_| number.bytes().all(|b| b.is_ascii_digit()));
    let time = number.zip(unit).and_then(|(number, unit): (u64, _)| number.checked_mul(unit));
    let Some(time) = time.map(Duration::from_millis) else {
        reader.error(value, format!("{text:?} is not a time; expected such as {example:?}"));
        return None;
    };
    if !(Duration::from_millis(1)..=most).contains(&time) {
        let most = most.as_millis();
        reader.error(value, format!("{text:?} is not a time from 1ms to {most}ms"));
        return None;
    }
    Some(time)
}
