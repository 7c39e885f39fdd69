//! The accounts that arguments mean, and what stolen ones have sent, from the log or from the trace
//! store.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::cli::Failure;
use crate::cli::shared::database::{Common, traces_incomplete};
use crate::cli::shared::keys::{Narrow, Selection};
use crate::cli::shared::screen::{Terminal, complain, note};
use crate::history::habits::{Sent, SentSince};
use crate::identity::fold::Folding;
use crate::logs::files::LogFiles;
use crate::logs::follow::Follow;
use crate::logs::usual;
use crate::policy::model::Identity;
use crate::spool::Spool;
use crate::standing::accounts::{Account, InUse};
use crate::standing::sent;
use crate::store::OwnedKey;
use crate::text::{Voice as _, counted};
use crate::trace::{Address, Query};

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

/// Where mail is looked up.
#[derive(Debug, Args)]
pub(super) struct Lookup {
    /// Look in these logs, also compressed; of a directory, in the main logs; the default is the
    /// mail server's log and what rotation made of it
    #[arg(long, value_name = "LOG", value_hint = clap::ValueHint::FilePath)]
    logs: Vec<PathBuf>,

    /// Look in the trace store
    #[arg(long, conflicts_with = "logs")]
    trace: bool,
}

impl Lookup {
    /// Counts the mail of `accounts`.
    pub(super) fn count(
        &self,
        accounts: &mut SentSince,
        folding: &Folding,
        common: &Common,
    ) -> Result<(), Failure> {
        match self.trace {
            true => in_traces(accounts, folding, common),
            false => self.in_logs(accounts, folding),
        }
    }

    fn in_logs(&self, accounts: &mut SentSince, folding: &Folding) -> Result<(), Failure> {
        let read = |from, mut see: sent::See<'_>| match usual::log() {
            _ if !self.logs.is_empty() => {
                LogFiles::find(&self.logs)?.read_while(see, |_| {}).map(drop)
            }
            Some(log) => sent::read_file(&log, from, see),
            None => Follow::journal(None, from).poll(&mut see).map(drop),
        };
        let left = sent::count(accounts, folding, |_| true, read)?;
        if left > 0 {
            note(format_args!(
                "the log does not name the recipients of {}",
                counted(left, "message of an account", "messages of accounts")
            ));
        }
        Ok(())
    }
}

fn in_traces(accounts: &mut SentSince, folding: &Folding, common: &Common) -> Result<(), Failure> {
    let store = common.open_traces()?;
    let identity = Identity { folding: folding.clone(), ..Identity::default() };
    let query = Query {
        since: Some(accounts.from()),
        auth: Some(Address::Test(Box::new(|login| !login.is_empty()))),
        ..Query::default()
    };
    let summary = store.query(&query, &mut Terminal.progress("messages"), &mut |result| {
        if let Some(sent) = Sent::of_envelope(&identity, &result.envelope) {
            accounts.add(&sent);
        }
    })?;
    traces_incomplete(&summary.damaged)
}
