//! Identities that are found by a part of their names.

use std::collections::HashMap;
use std::path::Path;

use super::row::reason;
use super::unavailable;
use crate::serve::rates::{self, Purpose};
use crate::serve::web::api::types::{Found, Hit};
use crate::serve::web::http::problem::Problem;
use crate::standing::in_force::InForce;
use crate::standing::key_state::KeyState;
use crate::standing::key_text;
use crate::text;

/// Those that contain `text`.
pub(super) fn found(spool: &Path, text: &str, limit: usize) -> Result<Found, Problem> {
    let mut store = rates::open(spool, Purpose::Read).map_err(unavailable)?;
    let (in_force, _) = InForce::of(&mut *store, spool);
    let (now, wanted) = (in_force.now, text.to_lowercase());
    let mut all: HashMap<Vec<u8>, KeyState> = HashMap::new();
    let left_out = store.for_each(&mut |entry| {
        let record = KeyState::from(entry);
        if String::from_utf8_lossy(record.key()).to_lowercase().contains(&wanted) {
            let key = record.key().to_vec();
            if all.get(&key).is_none_or(|known| known.share(now) < record.share(now)) {
                all.insert(key, record);
            }
        }
    });
    left_out.map_err(unavailable)?;
    let mut all: Vec<KeyState> = all.into_values().collect();
    all.sort_by(|a, b| a.key().len().cmp(&b.key().len()).then_with(|| a.key().cmp(b.key())));
    let more = all.len() > limit;
    all.truncate(limit);
    let hit = |record: KeyState| Hit {
        shown: key_text::shown(record.key()),
        pasted: key_text::key(record.key()),
        refused: in_force.refuses(&record),
        suspected: false,
        reason: Some(reason(&record, &in_force)),
        share: Some(record.share(now)),
    };
    Ok(Found { at: text::iso(now), found: all.into_iter().map(hit).collect(), more })
}
