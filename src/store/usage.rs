//! What accounts send, as stores keep it: see [`crate::rate::usage`].

use crate::engine::{AlgorithmKind, Kind, RecordKey};
use crate::rate::usage::Sent;

/// What the name of a record of usage begins with, before the identity.
const PREFIX: &[u8] = b"usage/";

/// Writes the name of the record of an account's usage into `name`; `identity` is as in the
/// records of policies, such as `auth:alice@example.org`.
pub fn usage_key<'n>(identity: &[u8], name: &'n mut Vec<u8>) -> RecordKey<'n> {
    name.clear();
    name.extend_from_slice(PREFIX);
    name.extend_from_slice(identity);
    key_of(name)
}

/// The key of the record with this name, which [`usage_key`] has written; `None` if it is empty.
#[inline]
#[must_use]
pub fn named_usage_key(name: &[u8]) -> Option<RecordKey<'_>> {
    (!name.is_empty()).then(|| key_of(name))
}

#[inline]
fn key_of(name: &[u8]) -> RecordKey<'_> {
    RecordKey {
        name,
        identity_start: PREFIX.len(),
        kind: Kind::Usage,
        algorithm: AlgorithmKind::MovingAverage,
    }
}

/// What an account has sent, to be counted.
#[derive(Clone, Copy)]
pub struct Counting<'a> {
    /// The record of the account, by [`usage_key`].
    pub key: RecordKey<'a>,
    /// How much.
    pub sent: Sent,
    /// The day of a second (since 1970), as a number of days since 1970 in the time zone of the
    /// policies.
    pub day: &'a dyn Fn(i64) -> i64,
}
