//! What accounts send, as stores keep it: see [`crate::rate::usage`].

use crate::engine::{AlgorithmKind, Kind, RecordKey};
use crate::rate::usage::Sent;

/// What the name of a record of usage begins with, before the identity.
pub(crate) const USAGE: &[u8] = b"usage/";

/// Writes the name of the record of an account's usage into `name`; `identity` is as in the
/// records of policies, such as `auth:alice@example.org`.
pub fn usage_key<'n>(identity: &[u8], name: &'n mut Vec<u8>) -> RecordKey<'n> {
    name.clear();
    name.extend_from_slice(USAGE);
    name.extend_from_slice(identity);
    RecordKey {
        name,
        identity_start: USAGE.len(),
        kind: Kind::Usage,
        algorithm: AlgorithmKind::MovingAverage,
    }
}

/// What an account has sent, to be counted.
#[derive(Clone, Copy)]
pub struct Counting<'a> {
    /// The account, as in the records of policies: `auth:alice@example.org`.
    pub identity: &'a [u8],
    /// How much.
    pub sent: Sent,
    /// The day of a second (since 1970), as a number of days since 1970 in the time zone of the
    /// policies.
    pub day: &'a dyn Fn(i64) -> i64,
}
