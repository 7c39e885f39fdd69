//! What still refuses a key once its records are deleted, in words.

use super::key_state::KeyState;
use super::{override_state, words};
use crate::store::Override;
use crate::text;

/// `alice is still denied by *@example.org`
pub(crate) fn denied(argument: &str, denial: &Override) -> String {
    format!("{argument} is still denied by {}", override_state::key(denial))
}

/// `auth:alice is still suspected, as …`
pub(crate) fn suspected(account: &str) -> String {
    format!("{account} is still suspected, as its mail is unlike its habits")
}

/// `the total of customer:acme refuses as well`
pub(crate) fn total(name: &str) -> String {
    format!("the total of {name} refuses as well")
}

/// `alice (per_rcpt, 1h): no event ever passes, as the limit is 1`
pub(crate) fn never(record: &KeyState) -> String {
    let (name, limit) = (words::name(record), text::number(record.limit));
    format!("{name}: no event ever passes, as the limit is {limit}")
}
