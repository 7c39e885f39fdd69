//! Identities that are found by a part of their names.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::index::{Fit, FoundName};
use super::snapshot::Snapshot;
use crate::serve::rates::{self, Purpose};
use crate::serve::web::api::types::{Found, Hit};
use crate::serve::web::http::problem::{Problem, unavailable};
use crate::standing::in_force::InForce;
use crate::standing::key_state::KeyState;
use crate::standing::key_text;
use crate::standing::override_state;
use crate::standing::words::reason;
use crate::text;

/// Those whose names contain `part`, as they stand now.
pub(super) fn found(
    spool: &Path,
    snapshot: &Snapshot,
    part: &str,
    limit: usize,
) -> Result<Found, Problem> {
    let part = part.to_lowercase();
    let (names, mut more) = snapshot.index.search(&part, limit);
    let mut store = rates::open(spool, Purpose::Read).map_err(unavailable)?;
    let mut of_identity: HashMap<Vec<u8>, usize> = HashMap::new();
    for (number, name) in names.iter().enumerate() {
        of_identity.extend(name.identities().map(|identity| (identity, number)));
    }
    let mut records: Vec<Vec<KeyState>> = names.iter().map(|_| Vec::new()).collect();
    let identities: HashSet<Vec<u8>> = of_identity.keys().cloned().collect();
    let left_out = store.for_each_of(&identities, &mut |entry| {
        let number = of_identity.get(entry.record_key().identity());
        if let Some(records) = number.and_then(|&number| records.get_mut(number)) {
            records.push(KeyState::from(entry));
        }
    });
    left_out.map_err(unavailable)?;
    let in_force = InForce::of(&mut *store, spool).0.seen_by(snapshot.in_force.scope());
    let suspected: HashSet<&[u8]> = snapshot.suspected().collect();
    let each = names.iter().zip(&records);
    let mut hits: Vec<(Fit, Hit)> = each
        .map(|(name, records)| {
            let is_suspected = name.identities().any(|one| suspected.contains(&*one));
            (name.fit, hit(name, records, is_suspected, &in_force))
        })
        .collect();
    hits.extend(of_overrides(&in_force, &part, &hits));
    hits.sort_by_key(|(fit, _)| *fit);
    more |= hits.len() > limit;
    hits.truncate(limit);
    let at = text::iso(snapshot.in_force.now);
    Ok(Found { at, found: hits.into_iter().map(|(_, hit)| hit).collect(), more })
}

fn hit(name: &FoundName<'_>, records: &[KeyState], suspected: bool, in_force: &InForce) -> Hit {
    let now = in_force.now;
    let highest = records.iter().max_by(|a, b| a.share(now).total_cmp(&b.share(now)));
    let refused = records.iter().find(|record| in_force.refuses(record));
    Hit {
        shown: key_text::shown(name.name),
        pasted: key_text::key(name.name),
        refused: refused.is_some(),
        suspected,
        reason: refused.or(highest).map(|record| reason(record, in_force)),
        share: highest.map(|record| record.share(now)),
    }
}

/// The overrides whose keys contain `part`, and that are none of `known`.
fn of_overrides(in_force: &InForce, part: &str, known: &[(Fit, Hit)]) -> Vec<(Fit, Hit)> {
    let found = in_force.own_overrides().filter_map(|one| {
        let name = one.argument.to_lowercase();
        let fit = Fit::of(name.as_bytes(), name.find(part)?, part.as_bytes());
        let is_known = known.iter().any(|(_, hit)| hit.pasted == one.argument);
        let hit = || Hit {
            shown: override_state::key(one),
            pasted: one.argument.clone(),
            refused: one.overridden.is_denial(),
            suspected: false,
            reason: Some(override_state::end(one)),
            share: None,
        };
        (!is_known).then(|| (fit, hit()))
    });
    found.collect()
}
