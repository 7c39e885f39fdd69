//! The accounts that arguments mean.

use std::ffi::OsString;

use crate::cli::Failure;
use crate::cli::shared::key_text;
use crate::cli::shared::keys::{Narrow, Selection};
use crate::cli::shared::screen::complain;
use crate::identity::fold::Folding;
use crate::rate::habits::Habits;
use crate::spool::Spool;
use crate::store::OwnedKey;
use crate::text;

/// An account with habits.
pub(super) struct Account {
    pub(super) key: OwnedKey,
    pub(super) habits: Habits,
}

impl Account {
    /// Its key, as it is shown and can be pasted.
    pub(super) fn shown(&self) -> String {
        key_text::key(self.key.key().identity())
    }

    /// Why it has no alarm to answer.
    pub(super) fn unsuspected(&self) -> String {
        let (key, habits) = (self.shown(), &self.habits);
        match habits.alarm_at().zip(habits.answer()) {
            Some((at, answer)) => {
                let (at, answer) = (text::time::local_second(at), answer.word());
                format!("{key} is not suspected: its last alarm, of {at}, was answered: {answer}")
            }
            None => format!("{key} is not suspected: it never had an alarm"),
        }
    }
}

/// The accounts that arguments mean, and whether one means none: why has been printed.
pub(super) struct Found {
    pub(super) accounts: Vec<Account>,
    pub(super) missing: bool,
    /// Whether an argument may mean several.
    pub(super) is_loose: bool,
}

/// Finds the accounts that `keys` mean: all, where there are none.
pub(super) fn find(
    spool: &mut Spool,
    keys: &[OsString],
    folding: &Folding,
) -> Result<Found, Failure> {
    let mut selection = Selection::new(keys, &Narrow::unselective(false), folding)?;
    let (mut accounts, mut others) = (Vec::new(), Vec::new());
    let left_out = spool.for_each_habits(|key, habits| {
        match selection.contains(&key.key()) {
            true => accounts.push(Account { key, habits }),
            false => others.push(key),
        };
    })?;
    left_out.shards.iter().for_each(complain);
    let others = others.iter().map(OwnedKey::key);
    let missing = selection.report_missing_among(others, "`exirate habits` shows all accounts");
    Ok(Found { accounts, missing, is_loose: selection.is_loose() })
}
