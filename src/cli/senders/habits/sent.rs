//! What stolen accounts have sent, from the mail server's log or from the trace store.

use std::path::PathBuf;

use clap::Args;

use crate::cli::Failure;
use crate::cli::shared::database::{Common, bar, traces_incomplete};
use crate::cli::shared::screen::note;
use crate::history::habits::{Senders, Sent, SentSince};
use crate::identity::fold::Folding;
use crate::logs::files::{LogFiles, Stamped};
use crate::logs::follow::Follow;
use crate::logs::usual;
use crate::policy::model::Identity;
use crate::rate::Timestamp;
use crate::text::counted;
use crate::trace::{Address, Query};

/// A line of a log may be so much older than the message that is received after it, in seconds.
const SESSION: i64 = 3600;

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
        let from = Timestamp { seconds: accounts.from() - SESSION, micros: 0 };
        let mut senders = Senders::new(folding.clone());
        let mut see = |line: Stamped<'_>| {
            senders.line(&line, &mut |sent| accounts.add(&sent));
            true
        };
        match usual::log() {
            _ if !self.logs.is_empty() => {
                LogFiles::find(&self.logs)?.read_while(see, |_| {})?;
            }
            Some(log) => _ = Follow::file(&log, from, &mut see)?,
            None => _ = Follow::journal(None, from).poll(&mut see)?,
        }
        let left = senders.finish(false, &mut |sent| accounts.add(&sent)).without_recipients;
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
