//! What stolen accounts have sent, from the mail server's log or from the trace store.

use std::path::PathBuf;

use clap::Args;

use crate::cli::Failure;
use crate::cli::shared::database::{Common, bar, traces_incomplete};
use crate::cli::shared::screen::note;
use crate::history::habits::{Sent, SentSince};
use crate::identity::fold::Folding;
use crate::logs::files::LogFiles;
use crate::logs::follow::Follow;
use crate::logs::usual;
use crate::policy::model::Identity;
use crate::standing::sent;
use crate::text::counted;
use crate::trace::{Address, Query};

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
    let summary = store.query(&query, &mut bar("messages"), &mut |result| {
        if let Some(sent) = Sent::of_envelope(&identity, &result.envelope) {
            accounts.add(&sent);
        }
    })?;
    traces_incomplete(&summary.damaged)
}
