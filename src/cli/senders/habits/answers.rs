//! `exirate habits accept` and `stolen`: what somebody who knows says of an alarm.

use std::ffi::OsString;
use std::io::Write as _;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::account::{FoundAccounts, find};
use crate::cli::shared::administrator::AuditLog;
use crate::cli::shared::database::{Common, print_incidents};
use crate::cli::shared::hold_queue::{self, QueueOptions};
use crate::cli::shared::screen::{Screen, complain, note};
use crate::cli::shared::{complete, confirm};
use crate::cli::{Failure, Json, Outcome};
use crate::mta::held::HeldMail;
use crate::spool::Spool;
use crate::standing::accounts::{Account, InUse};
use crate::standing::alarm;
use crate::standing::databases::require_owner;
use crate::standing::held::{Deed, of_account};
use crate::text;

/// Say that it was the owner: the account is no longer suspected
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Alice has written the announcement herself:
    exirate habits accept alice@example.org

The account is no longer suspected, and its score is 0. The messages that were held for the alarm
are released: the mail server delivers them. What led to the alarm is usual from now on: the most
new recipients that it may have in a day without an alarm are at least those of this time, and the
recipients are known. Of an account, some 130 recipients that it has written to once are remembered,
the last ones. The answer says until when those of this time are, and what to do before a mailing to
more than half as many is repeated.

Exit status: 0 accepted; 1 a KEY matches no account, its account has no unanswered alarm, or not
confirmed; 2 an error, or a message that was held for the alarm was not released.

Run it as root, who may release messages in the queue of each mail server. Messages that are held
for another reason, or for an earlier alarm, stay: it says how many.

An alarm can be answered until there is a later one, also when the account is no longer suspected.
Each is answered once. For a glob, the command asks first; without a terminal, --yes is needed.
The answer is logged to audit.log in the database's directory, and to syslog (facility mail).

KEY is a login such as alice@example.org, local_account:NAME for a local account, or a glob such as
'*@example.org'.", add = Json::of::<Vec<Accepted>>())]
pub(super) struct Accept {
    /// Accept what these accounts have sent
    #[arg(value_name = "KEY", required = true, add = complete::keys())]
    keys: Vec<OsString>,

    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,

    #[command(flatten)]
    queue: QueueOptions,

    #[command(flatten)]
    common: Common,
}

/// An account and whether its alarm was accepted, in JSON.
#[derive(Serialize, JsonSchema)]
struct Accepted {
    key: String,
    /// In seconds since 1970; null: it never had an alarm.
    alarm_at: Option<i64>,
    /// False: it has no unanswered alarm.
    accepted: bool,
    /// What became of the alarm, and how long that holds; null: not accepted.
    said: Option<String>,
    /// How many messages.
    released: usize,
    /// How many of its messages stay held; null: not known.
    held: Option<usize>,
}

impl Accept {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let folding = self.common.folding()?;
        let directory = self.common.directory()?;
        require_owner(&directory)?;
        let mut spool = self.common.spool_to_change()?;
        let FoundAccounts { accounts, missing, is_loose } = find(&mut spool, &self.keys, &folding)?;
        if is_loose && !accounts.is_empty() {
            let names: Vec<String> = accounts.iter().map(Account::shown).collect();
            if !confirm::ask("accept the alarms of", &names, self.yes)? {
                note("nothing was accepted");
                return Ok(Outcome::Found);
            }
        }
        let held = self.queue.held(&directory);
        let in_use = InUse::of(&directory);
        let (mut log, mut done, mut failed) = (AuditLog::new(), Vec::new(), Vec::new());
        for account in &accounts {
            let said = log.with(|by| alarm::accept(&mut spool, account, &in_use, by))?;
            let (key, alarm_at) = (account.shown(), account.habits.alarm_at());
            let accepted = said.is_some();
            let in_one = said.as_ref().map(|said| said.join("; "));
            let mut one =
                Accepted { key, alarm_at, accepted, said: in_one, released: 0, held: None };
            match &said {
                Some(said) => {
                    if !self.common.json {
                        writeln!(screen, "{}", said.join("\n  "))?;
                    }
                    let release = self.release(&held, account, &mut spool, &mut log, screen)?;
                    (one.released, one.held) = (release.released, release.held);
                    failed.extend(release.failed);
                }
                // Of a glob, those that need it are meant.
                None if is_loose => {}
                None => complain(account.unsuspected()),
            }
            done.push(one);
        }
        print_incidents(&mut spool);
        if self.common.json {
            screen.json(&done)?;
        }
        screen.flush()?;
        if !failed.is_empty() {
            return Err(Failure::new(failed.join("; ")));
        }
        let all = done.iter().all(|one| one.accepted);
        let none = !done.iter().any(|one| one.accepted);
        Ok(Outcome::found_if(missing || none || !is_loose && !all))
    }
}

/// What became of the messages that were held for an alarm.
struct Released {
    released: usize,
    /// How many of the account stay held, if that is known.
    held: Option<usize>,
    /// Why some were not released.
    failed: Option<String>,
}

impl Accept {
    /// Releases the messages that were held for the alarm of an account.
    fn release(
        &self,
        held: &Result<HeldMail, String>,
        account: &Account,
        spool: &mut Spool,
        log: &mut AuditLog,
        screen: &mut Screen<'_>,
    ) -> Result<Released, Failure> {
        let command = |words: &str, key: &str| self.common.commands().about(words, key);
        let by_hand = || format!("`{}`", command("held release", &account.name()));
        let held = match held {
            Ok(held) => held,
            // Nothing was held or deferred since the alarm.
            Err(_) if account.habits.held() == 0 => {
                return Ok(Released { released: 0, held: None, failed: None });
            }
            Err(why) => {
                let failed = format!(
                    "mail of {} may still be held: {}; {} releases it",
                    account.shown(),
                    text::printable(why.as_bytes()),
                    by_hand()
                );
                return Ok(Released { released: 0, held: None, failed: Some(failed) });
            }
        };
        let (of_alarm, others) = of_account(&held.messages, account);
        let dealt = hold_queue::deal(&*held.queue, Deed::Release, &of_alarm, Some(spool), log);
        if !self.common.json {
            for message in &dealt.done {
                writeln!(screen, "released {}", message.line())?;
            }
            if !others.is_empty() {
                writeln!(screen, "held for another reason, or for an earlier alarm, stay:")?;
                hold_queue::print(screen, &others, command)?;
            }
        }
        let failed = (!dealt.failed.is_empty()).then(|| {
            let count = text::counted(dealt.failed.len(), "message", "messages");
            let key = account.shown();
            format!("{key} is accepted, and {count} of it not released: try {}", by_hand())
        });
        let stay = others.len() + dealt.failed.len();
        Ok(Released { released: dealt.done.len(), held: Some(stay), failed })
    }
}
