//! The totals of a domain or a customer, which count what a key sends as well.

use std::collections::{BTreeMap, BTreeSet};

use super::in_force::InForce;
use super::key_state::KeyState;
use crate::engine::RecordKey;
use crate::history::explain::rule;
use crate::identity::Field;
use crate::identity::fold::{TOTALS, split_field};
use crate::store::{Inspect, InspectError, OwnedKey, Target};

/// The totals of some records, and how they stand.
#[derive(Debug, Default)]
pub(crate) struct Totals(BTreeMap<OwnedKey, KeyState>);

impl Totals {
    /// Those that count what one of these records counts.
    ///
    /// # Errors
    /// The database cannot be read.
    pub(crate) fn of<'r>(
        store: &mut dyn Inspect,
        in_force: &InForce,
        records: impl Iterator<Item = RecordKey<'r>>,
    ) -> Result<Self, InspectError> {
        Self::read(store, records.flat_map(|record| of_record(in_force, &record)).collect())
    }

    /// Those that count what whoever `target` names sends, and that refuse it now.
    ///
    /// # Errors
    /// The database cannot be read.
    pub(crate) fn refusing_target(
        store: &mut dyn Inspect,
        in_force: &InForce,
        target: &Target,
    ) -> Result<Self, InspectError> {
        let mut found = Self::read(store, of_target(in_force, target).into_iter().collect())?;
        found.0.retain(|_, total| in_force.next(total).is_refused());
        Ok(found)
    }

    fn read(store: &mut dyn Inspect, keys: BTreeSet<OwnedKey>) -> Result<Self, InspectError> {
        let mut read = BTreeMap::new();
        for key in keys {
            if let Some(entry) = store.get(key.key())? {
                read.insert(key, KeyState::from(entry));
            }
        }
        Ok(Self(read))
    }

    /// Those with these.
    pub(crate) fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// The keys of their records.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &OwnedKey> {
        self.0.keys()
    }

    /// All of them.
    pub(crate) fn records(&self) -> impl Iterator<Item = &KeyState> {
        self.0.values()
    }

    /// Those that refuse now.
    pub(crate) fn refusing(&self, in_force: &InForce) -> impl Iterator<Item = &KeyState> {
        self.records().filter(|total| in_force.next(total).is_refused())
    }

    /// Those that count what this record counts.
    pub(crate) fn of_record<'t>(
        &'t self,
        in_force: &InForce,
        record: &KeyState,
    ) -> Vec<&'t KeyState> {
        let keys = of_record(in_force, &record.record_key());
        keys.iter().filter_map(|key| self.0.get(key)).collect()
    }

    /// The keys of the totals that refuse now, such as `customer:acme`.
    pub(crate) fn names_refusing(&self, in_force: &InForce) -> Vec<String> {
        names_refusing(in_force, self.records())
    }

    /// The keys of the totals that refuse now what this record counts.
    pub(crate) fn refuse(&self, in_force: &InForce, record: &KeyState) -> Vec<String> {
        names_refusing(in_force, self.of_record(in_force, record).into_iter())
    }
}

fn names_refusing<'a>(
    in_force: &InForce,
    totals: impl Iterator<Item = &'a KeyState>,
) -> Vec<String> {
    let refusing = totals.filter(|total| in_force.next(total).is_refused());
    let names: BTreeSet<String> =
        refusing.map(|total| in_force.name_of_total(&total.record_key())).collect();
    names.into_iter().collect()
}

/// `the total of customer:acme`
pub(crate) fn called(names: &[String]) -> String {
    let word = if let [_] = names { "total" } else { "totals" };
    format!("the {word} of {}", names.join(" and "))
}

/// `the total of customer:acme still holds`
pub(crate) fn still_holds(name: &str) -> String {
    format!("the total of {name} still holds")
}

/// The keys, such as `customer:acme`, of the totals that hold for what `target` names, and that no
/// override lifts.
pub(crate) fn holding(in_force: &InForce, target: &Target, records: &[OwnedKey]) -> Vec<String> {
    let of_records = records.iter().flat_map(|record| of_record(in_force, &record.key()));
    let mut all = of_target(in_force, target);
    all.extend(of_records);
    let names = all.iter().filter(|total| !in_force.is_allowed(&total.key()));
    let names: BTreeSet<String> = names.map(|total| in_force.name_of_total(&total.key())).collect();
    names.into_iter().collect()
}

/// The totals by which its policy counts what a record counts.
fn of_record(in_force: &InForce, record: &RecordKey<'_>) -> Vec<OwnedKey> {
    let found = || {
        let [policy, _, _, identity] = rule::parts(record)?;
        let (field, who) = rule::fields(identity).into_iter().next()?;
        let is_total = TOTALS.contains(&&*field);
        // Damage is noted by what reads all of it; here it decides nothing.
        let find = |image| rule::totals(image, policy, &who, in_force.now.seconds).ok();
        in_force.image().filter(|_| !is_total).and_then(find)
    };
    found().unwrap_or_default()
}

/// The totals by which the policies count what whoever `target` names sends.
fn of_target(in_force: &InForce, target: &Target) -> BTreeSet<OwnedKey> {
    let found = || {
        let Target::Exact { key, .. } = target else { return None };
        let (field, who) = match split_field(key) {
            Some((field, who)) => (Some(Field::of(field)?), who),
            None => (None, &**key),
        };
        let (image, who) = (in_force.image()?, std::str::from_utf8(who).ok()?);
        let who = who.replace(",,", ",");
        let mut all = BTreeSet::new();
        for policy in rule::counting(image, field).ok()? {
            all.extend(rule::totals(image, policy, &who, in_force.now.seconds).ok()?);
        }
        Some(all)
    };
    found().unwrap_or_default()
}
