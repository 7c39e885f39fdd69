//! The logins whose names change with `[identity]`: what is counted of them moves with the policies.

use super::databases::StandingError;
use super::key_state::KeyState;
use super::override_state;
use crate::engine::{AlgorithmKind, Kind, RecordKey};
use crate::identity::fold::{Folding, escaped, shortened, split_field};
use crate::identity::{Field, first_field};
use crate::rate::{Average, Timestamp};
use crate::spool::Spool;
use crate::store::{Entry, Inspect, OwnedKey, Restored};

/// The database of this server, and the store that it shares with others, if there are any.
#[derive(Default)]
pub(crate) struct Stores {
    pub(crate) own: Option<Spool>,
    pub(crate) shared: Option<Box<dyn Inspect>>,
}

/// Records, each with its new name.
#[derive(Default)]
pub(crate) struct Moves {
    own: Vec<(OwnedKey, OwnedKey)>,
    shared: Vec<(OwnedKey, OwnedKey)>,
    habits: Vec<(OwnedKey, OwnedKey)>,
}

impl Stores {
    /// What is to be moved, so that logins have the names that `folding` gives them.
    pub(crate) fn moves(&mut self, folding: &Folding) -> Result<Moves, StandingError> {
        let mut moves = Moves::default();
        if let Some(own) = &mut self.own {
            moves.own = found(own, folding)?;
            own.for_each_habits_key(&mut |key| {
                if let Some(new) = renamed(&key.key(), folding) {
                    moves.habits.push((key, new));
                }
            })?;
        }
        if let Some(shared) = &mut self.shared {
            moves.shared = found(&mut **shared, folding)?;
        }
        Ok(moves)
    }

    /// Moves them, and has overrides compare names so.
    pub(crate) fn settle(
        &mut self,
        moves: &Moves,
        folding: &Folding,
        now: Timestamp,
    ) -> Result<(), StandingError> {
        if let Some(own) = &mut self.own {
            override_state::refold(own, folding)?;
            moves.own.iter().try_for_each(|(from, to)| moved(own, from, to, now))?;
            for (from, to) in &moves.habits {
                own.move_habits(from.key(), to.key())?;
            }
        }
        if let Some(shared) = &mut self.shared {
            override_state::refold(&mut **shared, folding)?;
            let shared = &mut **shared;
            moves.shared.iter().try_for_each(|(from, to)| moved(shared, from, to, now))?;
        }
        Ok(())
    }
}

impl Moves {
    /// How many rates, and habits.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.own.len() + self.shared.len(), self.habits.len())
    }
}

/// The records of a store whose names change.
fn found(
    store: &mut dyn Inspect,
    folding: &Folding,
) -> Result<Vec<(OwnedKey, OwnedKey)>, StandingError> {
    let mut all = Vec::new();
    let mut unread = store.survey(&mut |key, _| {
        if key.kind == Kind::Policy
            && let Some(new) = renamed(&key, folding)
        {
            all.push((OwnedKey::from(key), new));
        }
    })?;
    match unread.parts.pop() {
        Some(error) => Err(error.into()),
        None => Ok(all),
    }
}

/// The name that the record of a policy or of habits gets, if that is another.
fn renamed(key: &RecordKey<'_>, folding: &Folding) -> Option<OwnedKey> {
    let identity = key.identity();
    let (mut rest, mut fields, mut value) = (Some(identity), Vec::new(), String::new());
    while let Some(field) = first_field(&mut rest) {
        let text = std::str::from_utf8(&field).ok()?;
        let login = match split_field(text.as_bytes()) {
            Some((name, login)) if Field::of(name) == Some(Field::Auth) => Some(login),
            _ => None,
        };
        match login.map(std::str::from_utf8) {
            Some(Ok(login)) if folding.field_into(Field::Auth, login, &mut value) => {
                fields.push(format!("{}:{}", Field::Auth.word(), escaped(&shortened(&value))));
            }
            _ => fields.push(escaped(text).into_owned()),
        }
    }
    let new = fields.join(",");
    if new.as_bytes() == identity {
        return None;
    }
    let mut name = key.name.get(..key.identity_start)?.to_vec();
    name.extend_from_slice(new.as_bytes());
    Some(OwnedKey { name, ..OwnedKey::from(*key) })
}

/// Gives a record its new name; what is counted under that already is added.
fn moved(
    store: &mut dyn Inspect,
    from: &OwnedKey,
    to: &OwnedKey,
    now: Timestamp,
) -> Result<(), StandingError> {
    let Some(mut entry) = store.remove(from.key())? else { return Ok(()) };
    entry.key.clone_from(&to.name);
    if let Some(other) = store.remove(to.key())? {
        entry = sum(entry, other, now);
    }
    match store.restore(&entry)? {
        Restored::Added | Restored::Replaced | Restored::NotShared => Ok(()),
        // It was counted again at this moment.
        Restored::Kept => Ok(()),
    }
}

/// One record of two, as they are now.
fn sum(one: Entry, other: Entry, now: Timestamp) -> Entry {
    let (older, newer) =
        if one.average.at <= other.average.at { (one, other) } else { (other, one) };
    let now = if newer.average.at > now { newer.average.at } else { now };
    let rate = |entry: &Entry| KeyState::from(entry.clone()).rate(now);
    let rate = rate(&older) + rate(&newer);
    let at = match newer.algorithm {
        // Its time may be that of a window that has ended.
        AlgorithmKind::Calendar => newer.average.at,
        AlgorithmKind::MovingAverage | AlgorithmKind::Bucket => now,
        // Of two buckets of one time, one is kept.
        AlgorithmKind::Share => return newer,
    };
    let mut sum = Entry { average: Average { at, rate }, ..newer };
    let filters = (sum.filter.as_mut(), older.filter);
    if let (Some(filter), Some(before)) = filters
        && filter.bits.len() == before.bits.len()
    {
        filter.epoch = filter.epoch.min(before.epoch);
        filter.bits.iter_mut().zip(before.bits).for_each(|(bit, before)| *bit |= before);
    }
    sum
}
