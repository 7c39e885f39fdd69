//! What was changed by hand: `audit.log`.

use std::path::Path;

use crate::policy::image::PolicyFile;
use crate::serve::rates::{self, Purpose};
use crate::serve::web::api::cursor::{Cursor, Page};
use crate::serve::web::api::types::{Change, Changes};
use crate::serve::web::http::problem::{Problem, unavailable};
use crate::standing::audit_line::AuditLine;
use crate::standing::one_key::OneKey;

/// A change as the API has it.
pub(super) fn change(line: AuditLine) -> Change {
    Change {
        key: line.key(),
        at: line.at,
        who: line.who,
        web: line.is_by_web,
        what: line.what,
        text: line.text,
    }
}

/// A page of those of a key, or of all.
pub(super) fn of_key(
    spool: &Path,
    key: Option<&str>,
    limit: usize,
    after: Option<&Cursor>,
) -> Result<Changes, Problem> {
    let folding = PolicyFile::open(spool).folding().map_err(unavailable)?;
    let key = key.map(|key| OneKey::parse(key, &folding)).transpose()?;
    let mut own = rates::own(spool, Purpose::Read).map_err(unavailable)?;
    let lines = own.changes_logged().map_err(unavailable)?;
    // By places: the log before may be removed meanwhile, with all that is older.
    let cursor = |(_, (file, end)): &(AuditLine, (u64, u64))| Cursor {
        at: 0,
        rank: *end,
        key: file.to_be_bytes().to_vec(),
    };
    let before = match after {
        None => lines.len(),
        Some(after) => {
            let is_last =
                |(file, end): (u64, u64)| end == after.rank && file.to_be_bytes()[..] == *after.key;
            lines.iter().position(|line| is_last(line.place)).unwrap_or(0)
        }
    };
    let read = lines.iter().take(before).rev().filter_map(|logged| {
        let line = AuditLine::parse(&logged.text)?;
        let is_meant =
            key.as_ref().is_none_or(|key| line.is_of(&key.pattern, &key.target, &folding));
        is_meant.then_some((line, logged.place))
    });
    let Page { items, next } = Page::of(read, limit, cursor);
    Ok(Changes { changes: items.into_iter().map(|(line, _)| change(line)).collect(), next })
}
