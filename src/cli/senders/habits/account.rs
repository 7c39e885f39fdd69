//! The accounts that arguments mean.

use std::ffi::OsString;

use crate::cli::Failure;
use crate::cli::shared::database::Common;
use crate::cli::shared::keys::{Narrow, Selection};
use crate::cli::shared::screen::complain;
use crate::identity::fold::Folding;
use crate::spool::Spool;
use crate::standing::accounts::{Account, InUse};
use crate::store::OwnedKey;

/// The accounts that arguments mean, and whether one means none: why has been printed.
pub(in crate::cli::senders) struct FoundAccounts {
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
) -> Result<FoundAccounts, Failure> {
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
    Ok(FoundAccounts { accounts, missing, is_loose: selection.is_loose() })
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
