//! The accounts that arguments mean.

use std::ffi::OsString;
use std::path::Path;

use crate::cli::Failure;
use crate::cli::shared::database::Common;
use crate::cli::shared::keys::{Narrow, Selection};
use crate::cli::shared::screen::complain;
use crate::history::explain::rule::{self, SaidOfHabits};
use crate::identity::fold::Folding;
use crate::policy::image::{Image, PolicyFile};
use crate::rate::habits::{Habits, Sensitivity};
use crate::spool::Spool;
use crate::standing::key_text;
use crate::store::OwnedKey;
use crate::text;

/// An account with habits.
pub(in crate::cli::senders) struct Account {
    pub(in crate::cli::senders) key: OwnedKey,
    pub(in crate::cli::senders) habits: Habits,
}

impl Account {
    /// Its key, as it is shown and can be pasted.
    pub(in crate::cli::senders) fn shown(&self) -> String {
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

/// What the policies in use say of the habits of accounts.
pub(in crate::cli::senders) struct InUse {
    file: PolicyFile,
}

impl InUse {
    /// Of this spool directory.
    pub(in crate::cli::senders) fn of(spool: &Path) -> Self {
        Self { file: PolicyFile::open(spool) }
    }

    /// Whether any has habits on.
    pub(in crate::cli::senders) fn has_any(&self) -> bool {
        let of =
            |image: &Image| image.each().any(|(_, one)| one.is_ok_and(|one| one.uses_habits()));
        self.file.image().is_ok_and(of)
    }

    /// What they say of an account; `None` if its habits are off.
    pub(in crate::cli::senders) fn said(
        &self,
        account: &Account,
        now: i64,
    ) -> Option<SaidOfHabits> {
        let key = account.key.key();
        let identity = std::str::from_utf8(key.identity()).ok()?;
        // Damage is said by what reads all of them.
        rule::of_habits(self.file.image().ok()?, identity, now).ok()?
    }

    /// How early an alarm of an account is raised; where habits are off, as by default.
    pub(super) fn sensitivity(&self, account: &Account, now: i64) -> Sensitivity {
        self.said(account, now).map(|said| said.sensitivity).unwrap_or_default()
    }
}

/// The accounts that arguments mean, and whether one means none: why has been printed.
pub(in crate::cli::senders) struct Found {
    pub(in crate::cli::senders) accounts: Vec<Account>,
    pub(in crate::cli::senders) missing: bool,
    /// Whether an argument may mean several.
    pub(super) is_loose: bool,
}

/// Finds the accounts that `keys` mean: all, where there are none.
pub(in crate::cli::senders) fn find(
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

/// The accounts that `keys` mean and that are suspected at `now`, where a policy in use has habits on.
pub(in crate::cli::senders) fn suspected(
    common: &Common,
    in_use: &InUse,
    keys: &[OsString],
    narrow: &Narrow,
    now: i64,
) -> Result<Vec<Account>, Failure> {
    let mut accounts = Vec::new();
    let Some(mut spool) = common.spool_if_any()?.filter(|_| in_use.has_any()) else {
        return Ok(accounts);
    };
    let narrow = Narrow::unselective(narrow.is_exact());
    let mut selection = Selection::new(keys, &narrow, &common.folding()?)?;
    spool.for_each_habits(|key, habits| {
        if habits.is_suspected(now) && selection.contains(&key.key()) {
            accounts.push(Account { key, habits });
        }
    })?;
    accounts.sort_by_key(Account::shown);
    Ok(accounts)
}
