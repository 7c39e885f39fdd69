//! All of one identity.

use std::collections::HashSet;
use std::path::Path;

use super::index::Index;
use super::row;
use super::sighted::{Seen, Sighted};
use super::suspicion;
use crate::rate::Wait;
use crate::serve::rates::{self, Purpose};
use crate::serve::web::api::types::Identity;
use crate::serve::web::http::problem::{Problem, unavailable};
use crate::standing::can_send::CanSend;
use crate::standing::in_force::InForce;
use crate::standing::key_state::{KeyState, later};
use crate::standing::one_key::OneKey;
use crate::standing::override_state::{self, OverrideJson};
use crate::standing::totals::{Totals, called};
use crate::standing::words;
use crate::store::{Entry, Inspect, Override, OwnedKey, Wanted};
use crate::text;

/// Those of these keys, in this order. Without an index of all keys, all are read.
pub(super) fn of_keys(
    spool: &Path,
    keys: &[String],
    index: Option<&Index>,
    seen: Seen,
) -> Result<Vec<Identity>, Problem> {
    let sighted = Sighted::of(spool, seen)?;
    let (sight, folding) = (sighted.sight(), &sighted.folding);
    let keys: Vec<OneKey> =
        keys.iter().map(|key| sighted.one_key(key)).collect::<Result<_, _>>()?;
    let mut store = rates::open(spool, Purpose::Read).map_err(unavailable)?;
    let mut own = rates::own(spool, Purpose::Read).map_err(unavailable)?;
    let mut records: Vec<Vec<KeyState>> = keys.iter().map(|_| Vec::new()).collect();
    let mut add = |entry: Entry| {
        let key = entry.record_key();
        if !sight.has(&key) {
            return;
        }
        for (one, records) in keys.iter().zip(&mut records) {
            if one.pattern.matches(&key) {
                records.push(KeyState::from(entry.clone()));
            }
        }
    };
    let left_out = match index {
        Some(index) => {
            let mut identities = HashSet::new();
            for key in &keys {
                identities.extend(key.pattern.identities());
                identities.extend(index.others(&key.pattern));
            }
            store.for_each_of(&identities, &mut add)
        }
        None => {
            let identities = keys.iter().flat_map(|key| key.pattern.identities()).collect();
            let mut wanted = Wanted {
                selects: &mut |key| keys.iter().any(|one| one.pattern.matches(key)),
                identities: Some((&identities, folding)),
            };
            store.for_each_wanted(&mut wanted, &mut add)
        }
    };
    if let Some(error) = left_out.map_err(unavailable)?.parts.pop() {
        return Err(unavailable(error));
    }
    let in_force = InForce::of(&mut *store, spool).0.seen_by(sighted.seen.as_ref());
    let each = keys.iter().zip(records).map(|(key, records)| {
        let suspicion = suspicion::of_target(&mut own, &key.target, &in_force);
        let found = identity(&mut *store, key, records, &in_force)?;
        Ok(Identity { suspicion, ..found })
    });
    each.collect()
}

/// What the rates and overrides of an identity say.
fn identity(
    store: &mut dyn Inspect,
    key: &OneKey,
    mut records: Vec<KeyState>,
    in_force: &InForce,
) -> Result<Identity, Problem> {
    let (target, now, sight) = (&key.target, in_force.now, in_force.sight());
    let keys: Vec<OwnedKey> = records.iter().map(|one| one.record_key().into()).collect();
    let of_records = Totals::of(store, in_force, keys.iter().map(OwnedKey::key));
    let refusing = Totals::refusing_target(store, in_force, target);
    let totals = of_records.map_err(unavailable)?.and(refusing.map_err(unavailable)?);
    records.sort_by(|a, b| {
        b.share(now).total_cmp(&a.share(now)).then_with(|| a.stored.cmp(&b.stored))
    });
    let can_send = CanSend::of(in_force, target, &records, &totals);
    let is_of_it = |one: &&Override| {
        one.is_active(now.seconds)
            && (override_state::covers(target, one)
                || can_send.overridden.is_some_and(|deciding| std::ptr::eq(deciding, *one))
                || records.iter().any(|record| one.target.applies_to(&record.record_key())))
    };
    let overrides: Vec<Override> = in_force.overrides().iter().filter(is_of_it).cloned().collect();
    let refused = &can_send.refused;
    let mut why: Vec<String> = refused.iter().map(|one| words::reason(one, in_force)).collect();
    if let (true, Some(one)) = (refused.is_empty(), can_send.denial()) {
        why.push(override_state::sentence(one));
    }
    if !can_send.totals.is_empty() {
        why.push(format!("refused by {}", called(&can_send.totals)));
    }
    let free = can_send.wait.and_then(Wait::whole_seconds).filter(|_| !can_send.can());
    Ok(Identity {
        key: key.shown.clone(),
        refused: !why.is_empty(),
        reasons: why,
        free_at: free.map(|seconds| text::iso(later(now, seconds))),
        records: records.iter().map(|record| row::of_record(record, in_force)).collect(),
        totals: totals
            .records()
            .filter(|record| sight.has(&record.record_key()))
            .map(|record| row::of_record(record, in_force))
            .collect(),
        overrides: overrides.iter().map(OverrideJson::of).collect(),
        suspicion: None,
    })
}
