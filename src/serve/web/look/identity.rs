//! All of one identity.

use std::collections::HashSet;
use std::path::Path;

use super::index::Index;
use super::row::{self, reason};
use super::suspicion;
use crate::engine::{Kind, Overridden};
use crate::policy::image::PolicyFile;
use crate::rate::Wait;
use crate::serve::rates::{self, Purpose};
use crate::serve::web::api::types::Identity;
use crate::serve::web::http::problem::{Problem, unavailable};
use crate::standing::in_force::InForce;
use crate::standing::key_state::{KeyState, later};
use crate::standing::one_key::{NotOne, OneKey};
use crate::standing::override_state::{self, OverrideJson};
use crate::standing::totals::{Totals, called};
use crate::store::{Entry, Inspect, Override, OwnedKey};
use crate::text;

/// Those of these keys, in this order. Without an index of all keys, all are read.
pub(super) fn of_keys(
    spool: &Path,
    keys: &[String],
    index: Option<&Index>,
) -> Result<Vec<Identity>, Problem> {
    let folding = PolicyFile::open(spool).folding().map_err(unavailable)?;
    let keys: Vec<OneKey> =
        keys.iter().map(|key| OneKey::parse(key, &folding)).collect::<Result<_, NotOne>>()?;
    let mut store = rates::open(spool, Purpose::Read).map_err(unavailable)?;
    let mut own = rates::own(spool, Purpose::Read).map_err(unavailable)?;
    let mut records: Vec<Vec<KeyState>> = keys.iter().map(|_| Vec::new()).collect();
    let mut add = |entry: Entry| {
        let key = entry.record_key();
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
        None => store.survey(&mut |key, remembered| {
            let is_rate = key.kind != Kind::Habits;
            if is_rate && keys.iter().any(|one| one.pattern.matches(&key)) {
                Entry::of(&key, remembered).into_iter().for_each(&mut add);
            }
        }),
    };
    if let Some(error) = left_out.map_err(unavailable)?.parts.pop() {
        return Err(unavailable(error));
    }
    let (in_force, _) = InForce::of(&mut *store, spool);
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
    let (target, now) = (&key.target, in_force.now);
    let keys: Vec<OwnedKey> = records.iter().map(|one| one.record_key().into()).collect();
    let of_records = Totals::of(store, in_force, keys.iter().map(OwnedKey::key));
    let refusing = Totals::refusing(store, in_force, target);
    let totals = of_records.map_err(unavailable)?.and(refusing.map_err(unavailable)?);
    records.sort_by(|a, b| {
        b.share(now).total_cmp(&a.share(now)).then_with(|| a.stored.cmp(&b.stored))
    });
    let is_of_it = |one: &&Override| {
        one.is_active(now.seconds)
            && (override_state::covers(target, one)
                || records.iter().any(|record| one.target.applies_to(&record.record_key())))
    };
    let overrides: Vec<Override> = in_force.overrides().iter().filter(is_of_it).cloned().collect();
    let denied = override_state::of_target(&overrides, target, now.seconds);
    let denied = denied.filter(|one| one.overridden == Overridden::Deny);
    let refused: Vec<&KeyState> = records.iter().filter(|one| in_force.refuses(one)).collect();
    let names = totals.names_refusing(in_force);
    let mut why: Vec<String> = refused.iter().map(|one| reason(one, in_force)).collect();
    if let (true, Some(one)) = (refused.is_empty(), denied) {
        why.push(override_state::sentence(one));
    }
    if !names.is_empty() {
        why.push(format!("refused by {}", called(&names)));
    }
    let waits = refused.iter().map(|one| in_force.next(one).wait(one, now));
    let longest = waits.map(|wait| wait.and_then(Wait::whole_seconds)).max_by_key(|wait| {
        // What never passes, and what is not known, is the longest.
        wait.unwrap_or(u64::MAX)
    });
    let free = longest.flatten().filter(|_| denied.is_none() && names.is_empty());
    Ok(Identity {
        key: key.shown.clone(),
        refused: !why.is_empty(),
        reasons: why,
        free_at: free.map(|seconds| text::iso(later(now, seconds))),
        records: records.iter().map(|record| row::of_record(record, in_force)).collect(),
        totals: totals.records().map(|record| row::of_record(record, in_force)).collect(),
        overrides: overrides.iter().map(OverrideJson::of).collect(),
        suspicion: None,
    })
}
