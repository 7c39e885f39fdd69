//! What was changed by hand: `audit.log`.

use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::sighted::Sighted;
use crate::serve::rates::{self, Purpose};
use crate::serve::web::api::cursor::{Cursor, Page};
use crate::serve::web::api::types::{Change, Changes};
use crate::serve::web::http::problem::{Problem, unavailable};
use crate::spool::LoggedLine;
use crate::standing::audit_line::AuditLine;

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

/// The bytes of an id.
const ID: usize = 12;

/// What a line is known by: its place would say how much was logged of others. `lines` are all, and
/// `at` is its number; of lines with the same text, which are of one second, each has its own.
pub(super) fn id_of(lines: &[LoggedLine], at: usize) -> Vec<u8> {
    let text = |at: usize| lines.get(at).map(|line| &*line.text).unwrap_or_default();
    let second = |at| text(at).split(|byte| *byte == b' ').next();
    let before = (0..at).rev().take_while(|&other| second(other) == second(at));
    let same = before.filter(|&other| text(other) == text(at)).count();
    let hash = Sha256::new().chain_update(text(at)).chain_update(same.to_le_bytes()).finalize();
    hash.iter().take(ID).copied().collect()
}

/// A page of those of a key, or of all.
pub(super) fn of_key(
    spool: &Path,
    key: Option<&str>,
    limit: usize,
    after: Option<&Cursor>,
    sighted: &Sighted,
) -> Result<Changes, Problem> {
    let (folding, sight) = (&sighted.folding, sighted.sight());
    let key = key.map(|key| sighted.one_key(key)).transpose()?;
    let mut own = rates::own(spool, Purpose::Read).map_err(unavailable)?;
    let lines = own.changes_logged().map_err(unavailable)?;
    let ids: Vec<_> = (0..lines.len()).map(|at| id_of(&lines, at)).collect();
    // The log before may be removed meanwhile, with all that is older.
    let before = match after {
        None => lines.len(),
        Some(after) => ids.iter().position(|id| *id == after.key).unwrap_or(0),
    };
    let cursor = |(_, id): &(AuditLine, &Vec<u8>)| Cursor { at: 0, rank: 0, key: id.to_vec() };
    let read = lines.iter().zip(&ids).take(before).rev().filter_map(|(logged, id)| {
        let line = AuditLine::parse(&logged.text)?;
        let is_meant = line.is_seen(&sight, folding)
            && key.as_ref().is_none_or(|key| line.is_of(&key.pattern, &key.target, folding));
        is_meant.then_some((line, id))
    });
    let Page { items, next } = Page::of(read, limit, cursor);
    Ok(Changes { changes: items.into_iter().map(|(line, _)| change(line)).collect(), next })
}
