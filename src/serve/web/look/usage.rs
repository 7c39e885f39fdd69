//! What accounts, domains and customers have sent.

use std::path::Path;

use super::sighted::{Seen, Sighted};
use crate::serve::rates::{self, Purpose};
use crate::serve::web::api::types::SentOfKey;
use crate::serve::web::http::problem::{Problem, unavailable};
use crate::standing::usage::UsageReader;
use crate::text::time::now;

/// The days in which the members of a domain or a customer are compared: today.
const DAYS: usize = 1;

/// Those that a key means, as somebody may see them.
pub(super) fn of_key(spool: &Path, key: &str, seen: Seen) -> Result<SentOfKey, Problem> {
    let sighted = Sighted::of(spool, seen)?;
    let key = sighted.one_key(key)?;
    let mut store = rates::open(spool, Purpose::Read).map_err(unavailable)?;
    let reader = UsageReader::of(spool, now()).seen_by(sighted.seen);
    let sent = reader.reports(&mut *store, &key.target, DAYS).map_err(unavailable)?;
    Ok(SentOfKey { counted: reader.is_counted(), sent })
}
