//! The kinds of values that keys take: each reads one, and reports what is wrong with it.

use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::address::{self, Address};
use crate::sys::users;
use crate::text::byte_size;
use crate::toml_file::reader::{Reader, Value};

/// The least and the most bytes of messages that are kept.
const SIZE_MIN: usize = 64 << 10;
const SIZE_MAX: usize = 64 << 30;

/// What another daemon reads, or the section as a whole.
pub(super) fn elsewhere(_: &mut Reader<'_>, _: Value<'_>) -> Option<()> {
    Some(())
}

/// A whole number.
pub(super) fn number<T: TryFrom<u64> + PartialOrd + std::fmt::Display + Clone>(
    range: RangeInclusive<T>,
) -> impl Fn(&mut Reader<'_>, Value<'_>) -> Option<T> {
    move |reader, value| reader.integer(value, range.clone())
}

/// A text that `parse` takes.
pub(super) fn text<T>(
    example: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> impl Fn(&mut Reader<'_>, Value<'_>) -> Option<T> {
    move |reader, value| {
        let text = reader.string(value, &format!("{example:?}"))?;
        parse(text).map_err(|message| reader.error(value, message)).ok()
    }
}

/// One text or several that `parse` takes.
pub(super) fn texts<T, C: FromIterator<T>>(
    example: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> impl Fn(&mut Reader<'_>, Value<'_>) -> Option<C> {
    move |reader, value| Some(reader.each(value, example, &parse)?.into_iter().collect())
}

/// What `read` takes, or `[]`.
pub(super) fn or_none<T: Default>(
    read: impl Fn(&mut Reader<'_>, Value<'_>) -> Option<T>,
) -> impl Fn(&mut Reader<'_>, Value<'_>) -> Option<T> {
    move |reader, value| match value.get_ref().as_array() {
        Some(array) if array.is_empty() => Some(T::default()),
        _ => read(reader, value),
    }
}

/// A full path.
pub(super) fn path(example: &str) -> impl Fn(&mut Reader<'_>, Value<'_>) -> Option<PathBuf> {
    text(example, move |text| full_path(text, &format!("expected such as {example:?}")))
}

/// `text`, if it is a full path.
pub(super) fn full_path(text: &str, instead: &str) -> Result<PathBuf, String> {
    match text.starts_with('/') {
        true => Ok(text.into()),
        false => Err(format!("{text:?} is not a full path; {instead}")),
    }
}

/// The path of a unix socket.
pub(super) fn socket(example: &str) -> impl Fn(&mut Reader<'_>, Value<'_>) -> Option<PathBuf> {
    text(example, move |path| address::socket_path(path, example).map(|()| path.into()))
}

/// An address to listen on.
pub(super) fn listen(
    example: &str,
) -> impl Fn(&mut Reader<'_>, Value<'_>) -> Option<Option<Address>> {
    move |reader, value| {
        let address = text(example, |text| address::parse(text, example))(reader, value)?;
        if let Address::Inet(place) = &address
            && place.ip().is_loopback()
        {
            let message = format!(
                "every user of this machine can connect to {address}, and count in the name of \
                 others; use a unix socket, such as {example:?}"
            );
            let at = reader.at(value);
            reader.diagnostics.warning(at, message);
        }
        Some(Some(address))
    }
}

/// The id of a user with this name.
pub(super) fn user_id(name: &str) -> Result<u32, String> {
    let id = users::id_of(OsStr::new(name));
    id.ok_or_else(|| format!("there is no user {name:?} on this machine"))
}

/// The id of a group with this name.
pub(super) fn group_id(name: &str) -> Result<u32, String> {
    let id = users::group_id_of(OsStr::new(name));
    id.ok_or_else(|| format!("there is no group {name:?} on this machine"))
}

/// The id of a user.
pub(super) fn user(example: &str) -> impl Fn(&mut Reader<'_>, Value<'_>) -> Option<Option<u32>> {
    text(example, |name| user_id(name).map(Some))
}

/// The id of a group.
pub(super) fn group(example: &str) -> impl Fn(&mut Reader<'_>, Value<'_>) -> Option<Option<u32>> {
    text(example, |name| group_id(name).map(Some))
}

/// A number of bytes.
pub(super) fn size(example: &str) -> impl Fn(&mut Reader<'_>, Value<'_>) -> Option<usize> {
    text(example, move |text| {
        let bytes = byte_size(text.as_bytes()).and_then(|bytes| usize::try_from(bytes).ok());
        bytes.filter(|bytes| (SIZE_MIN..=SIZE_MAX).contains(bytes)).ok_or_else(|| {
            format!(
                "{text:?} is not a number of bytes from 64k to 64G, with its unit; expected such \
                 as {example:?}"
            )
        })
    })
}

/// The mode of a socket, in octal.
pub(super) fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| (0o600..=0o777).contains(mode));
    mode.ok_or_else(|| format!("{text:?} is not the mode of a socket; expected such as \"0660\""))
}

/// A time such as `20ms` or `2s`, from 1 ms to `most`.
pub(super) fn duration(
    example: &str,
    most: Duration,
) -> impl Fn(&mut Reader<'_>, Value<'_>) -> Option<Duration> {
    text(example, move |text| {
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let unit = match unit {
            "ms" => Some(1),
            "s" => Some(1000),
            _ => None,
        };
        let number = number.parse().ok().filter(|_| number.bytes().all(|b| b.is_ascii_digit()));
        let time = number.zip(unit).and_then(|(number, unit): (u64, _)| number.checked_mul(unit));
        let time = time.map(Duration::from_millis);
        let time =
            time.ok_or_else(|| format!("{text:?} is not a time; expected such as {example:?}"))?;
        match (Duration::from_millis(1)..=most).contains(&time) {
            true => Ok(time),
            false => Err(format!("{text:?} is not a time from 1ms to {}ms", most.as_millis())),
        }
    })
}
