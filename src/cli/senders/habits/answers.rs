//! `exirate habits accept` and `stolen`: what somebody who knows says of an alarm.

use std::ffi::OsString;
use std::io::Write as _;

use clap::Args;
use serde::Serialize;

use super::account::{Found, find};
use crate::cli::shared::audit_log::AuditLog;
use crate::cli::shared::complete;
use crate::cli::shared::confirm;
use crate::cli::shared::database::{Common, print_incidents, require_owner};
use crate::cli::shared::screen::{Screen, complain, note};
use crate::cli::{Failure, Outcome};
use crate::standing::accounts::Account;
use crate::standing::alarm;

/// Say that it was the owner: the account is no longer suspected
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Alice has written the announcement herself:
    exirate habits accept alice@example.org

The account is released at once, and its score is 0. What led to the alarm is usual from now on:
the recipients are known, and the most new recipients that it may have in a day without an alarm
are at least those of this time.

Exit status: 0 accepted; 1 a KEY matches no account, its account has no unanswered alarm, or not
confirmed; 2 an error.

An alarm can be answered until there is a later one, also when the account is no longer suspected.
Each is answered once. For a glob, the command asks first; without a terminal, --yes is needed.
The answer is logged to audit.log in the database's directory, and to syslog (facility mail).

KEY is a login such as alice@example.org, local_account:NAME for a local account, or a glob such as
'*@example.org'.

JSON: an array of objects with `key`, `alarm_at` (seconds since 1970; null: it never had an alarm)
and `accepted` (false: it has no unanswered alarm).")]
pub(super) struct Accept {
    /// Accept what these accounts have sent
    #[arg(value_name = "KEY", required = true, add = complete::keys())]
    keys: Vec<OsString>,

    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,

    #[command(flatten)]
    common: Common,
}

/// An account and whether its alarm was accepted, in JSON.
#[derive(Serialize)]
struct Accepted {
    key: String,
    alarm_at: Option<i64>,
    accepted: bool,
}

impl Accept {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let folding = self.common.folding()?;
        require_owner(&self.common.directory()?)?;
        let mut spool = self.common.spool_to_change()?;
        let Found { accounts, missing, is_loose } = find(&mut spool, &self.keys, &folding)?;
        if is_loose && !accounts.is_empty() {
            let names: Vec<String> = accounts.iter().map(Account::shown).collect();
            if !confirm::ask("accept the alarms of", &names, self.yes)? {
                note("nothing was accepted");
                return Ok(Outcome::Found);
            }
        }
        let (mut log, mut done) = (AuditLog::new(), Vec::new());
        for account in &accounts {
            let said = log.with(|by| alarm::accept(&mut spool, account, by))?;
            let (key, alarm_at) = (account.shown(), account.habits.alarm_at());
            let accepted = said.is_some();
            match said {
                Some(said) if !self.common.json => writeln!(screen, "{said}")?,
                Some(_) => {}
                // Of a glob, those that need it are meant.
                _ if is_loose => {}
                _ => complain(account.unsuspected()),
            }
            done.push(Accepted { key, alarm_at, accepted });
        }
        print_incidents(&mut spool);
        if self.common.json {
            screen.json(&done)?;
        }
        let all = done.iter().all(|one| one.accepted);
        let none = !done.iter().any(|one| one.accepted);
        Ok(Outcome::found_if(missing || none || !is_loose && !all))
    }
}
