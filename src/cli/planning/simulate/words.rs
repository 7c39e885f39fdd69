//! Times and numbers, in words.

use crate::cli::planning::policy::many;
use crate::cli::shared::text;
use crate::rate::Timestamp;

/// `no attempt`, `1 attempt`, `5 attempts`.
pub(super) fn number(count: u64, one: &str, several: &str) -> String {
    many(usize::try_from(count).unwrap_or(usize::MAX), one, several)
}

/// A time as the log has it.
pub(super) fn time(at: Timestamp) -> String {
    text::iso(at).replace('T', " ").replace('Z', "")
}
