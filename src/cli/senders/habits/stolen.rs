//! `exirate habits stolen`: an account is denied, and who has got mail of the thief.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::account::{FoundAccounts, Lookup, find};
use crate::cli::senders::allow::{note_observed, note_stronger, put};
use crate::cli::shared::administrator::{self, AuditLog};
use crate::cli::shared::database::print_incidents;
use crate::cli::shared::hold_queue::{self, QueueOptions};
use crate::cli::shared::rates::Rates;
use crate::cli::shared::screen::{Screen, complain, note};
use crate::cli::shared::{complete, confirm, times};
use crate::cli::{Failure, Json, Outcome};
use crate::history::habits::{SentMail, SentSince};
use crate::identity::fold::Folding;
use crate::spool::Spool;
use crate::standing::accounts::Account;
use crate::standing::databases::require_owner;
use crate::standing::held::{Deed, of_account};
use crate::standing::{alarm, override_state};
use crate::store::{FOREVER, Inspect};
use crate::text;
use crate::text::time::now;

/// So many recipients and clients of an account are shown to people.
const SHOWN: usize = 20;

/// Mark an account as stolen: deny it, and list who got the thief's mail
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Somebody has alice's password; the logs are in the usual place without --logs:
    exirate habits stolen alice@example.org --logs /var/log/exim4
  The people to warn, one address a line:
    exirate habits stolen alice@example.org --logs /var/log/exim4 --addresses > warn.txt
  What was sent is recorded in the trace store:
    exirate habits stolen alice@example.org --trace

The account is denied, as by `exirate deny`, and the answer is counted. Then it shows what was
sent since the evidence began, and to which people: all mail of the account, also what the owner
has sent meanwhile. Once the password is changed, run `exirate unblock KEY`.

Exit status: 0 denied and listed; 1 a KEY matches no account, its account has had no alarm, or not
confirmed; 2 an error, or what was sent could not be looked up: the account is denied all the
same.

The thief's mail does not count as usual: the recipients and networks of the listed mail are
forgotten, and the counts are those from before the evidence. The owner's own recipients and
networks among them become known again with the owner's next mail. Hours at which the thief sent
stay. If the command is run again before the account has sent more, it lists and forgets again
what it finds.

The recipients are read from the mail server's log and its rotated files, or from the logs that
--logs names, or from the trace store, if messages are recorded there. Logs must name the
recipients: see `man exirate-habits-learn`.

Messages that were held for the alarm have not been sent. It asks whether to delete them; --held
answers that. Without a terminal and without --held they stay held, and it says so.

For a glob, the command asks first; without a terminal, --yes is needed. The denial is logged to
audit.log in the database's directory, and to syslog (facility mail). Habits belong to this
server; where limits are shared, the denial applies on all servers.

KEY is a login such as alice@example.org, local_account:NAME for a local account, or a glob such as
'*@example.org'.", add = Json::of::<Vec<StolenReport>>())]
pub(super) struct Stolen {
    /// Deny these accounts
    #[arg(value_name = "KEY", required = true, add = complete::keys())]
    keys: Vec<OsString>,

    /// End the denial at this time, or `forever`
    #[arg(long, value_name = "TIME", default_value = "forever", value_parser = times::end_or_forever, add = times::Ahead)]
    until: i64,

    /// Say why, for the list of overrides and the log
    #[arg(long, value_name = "TEXT", default_value = alarm::REASON)]
    reason: String,

    /// Delete the messages that were held for the alarm, or keep them held
    #[arg(long, value_enum, value_name = "WHAT")]
    held: Option<WithHeld>,

    #[command(flatten)]
    queue: QueueOptions,

    /// Print only the recipients, one address a line
    #[arg(long, conflicts_with = "json")]
    addresses: bool,

    #[command(flatten)]
    lookup: Lookup,

    /// Do not ask for confirmation of a glob
    #[arg(long, short)]
    yes: bool,

    #[command(flatten)]
    common: Rates,
}

/// `3 messages of auth:alice stay`
fn stay_of(count: usize, key: &str) -> String {
    let (what, stay) = if count == 1 { ("message", "stays") } else { ("messages", "stay") };
    format!("{count} {what} of {key} {stay}")
}

/// What becomes of the messages that were held for the alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum WithHeld {
    /// Nobody gets them
    Delete,
    /// They stay held
    Keep,
}

/// What became of an account that was stolen.
#[derive(Serialize, JsonSchema)]
struct StolenReport {
    key: String,
    /// False: it was before.
    answered: bool,
    /// In seconds since 1970; null: forever, or it was denied before.
    denied_until: Option<i64>,
    /// When the evidence began.
    since: i64,
    /// How many held messages.
    deleted: usize,
    /// How many of its messages stay held; null: not known.
    held: Option<usize>,
    #[serde(flatten)]
    sent: Option<SentMail>,
}

impl Stolen {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let folding = self.common.folding()?;
        let directory = self.common.directory()?;
        require_owner(&directory)?;
        let mut spool = self.common.spool_to_change()?;
        let FoundAccounts { accounts, missing, is_loose } = find(&mut spool, &self.keys, &folding)?;
        let (stolen, others): (Vec<Account>, Vec<Account>) =
            accounts.into_iter().partition(alarm::may_be_thief);
        if is_loose && !stolen.is_empty() {
            let names: Vec<String> = stolen.iter().map(Account::shown).collect();
            if !confirm::ask("deny the accounts of", &names, self.yes)? {
                note("nothing was changed");
                return Ok(Outcome::Found);
            }
        }
        if !is_loose {
            others.iter().for_each(|one| {
                complain(one.unsuspected());
                note(format_args!("to deny it all the same: {}", self.command("deny", one)));
            });
        }
        // First what is urgent.
        let mut store = self.common.open_to_change()?;
        for one in stolen.iter().filter(|one| one.habits.answer().is_none()) {
            self.deny(&mut *store, one, &folding, screen)?;
        }
        screen.flush()?;
        let held = self.delete_held(&directory, &stolen, &mut spool)?;
        let since = stolen.iter().map(|one| (one.identity(), one.habits.since()));
        let mut sent = SentSince::new(since);
        let counted = self.lookup.count(&mut sent, &folding, &self.common);
        let mut reports = Vec::new();
        for (one, (deleted, held)) in stolen.iter().zip(held) {
            let mail = counted.is_ok().then(|| sent.of(&one.identity()));
            let report = self.answer(&mut spool, one, mail)?;
            reports.push(StolenReport { deleted, held, ..report });
        }
        print_incidents(&mut spool);
        if self.common.json {
            screen.json(&reports)?;
        } else if self.addresses {
            let all = reports.iter().filter_map(|one| one.sent.as_ref());
            let all: BTreeSet<&String> = all.flat_map(|sent| sent.recipients.keys()).collect();
            // The thief has chosen them.
            let mut all = all.into_iter().map(|one| text::printable(one.as_bytes()));
            all.try_for_each(|one| writeln!(screen, "{one}"))?;
        } else {
            for (report, account) in reports.iter().zip(&stolen) {
                self.print(screen, report, account)?;
            }
        }
        screen.flush()?;
        counted.map_err(|failure| match failure {
            Failure::Said(why) => Failure::new(format!(
                "what was sent is not known: {why}; --logs LOG or --trace looks it up elsewhere"
            )),
            failure => failure,
        })?;
        Ok(Outcome::found_if(missing || stolen.is_empty() || !is_loose && !others.is_empty()))
    }

    /// Denies an account, whichever limit its mail is held against.
    fn deny(
        &self,
        store: &mut dyn Inspect,
        account: &Account,
        folding: &Folding,
        screen: &mut Screen<'_>,
    ) -> Result<(), Failure> {
        let times = (now().seconds, self.until);
        let set = alarm::denial(account, folding, times, &self.reason, &administrator::who());
        let set = set.map_err(Failure::new)?;
        let changed = put(store, &set)?;
        print_incidents(store);
        if self.is_for_people() {
            writeln!(screen, "{}", override_state::sentence(&set))?;
        }
        note_stronger(&changed, &self.common);
        note_observed(store, &self.common, set.overridden)
    }

    /// Answers the alarm; the recipients and clients of `sent` are forgotten.
    fn answer(
        &self,
        spool: &mut Spool,
        account: &Account,
        sent: Option<SentMail>,
    ) -> Result<StolenReport, Failure> {
        let answer = |by: &mut _| alarm::stolen(spool, account, sent.as_ref(), by);
        let answered = AuditLog::new().with(answer)?;
        let key = account.shown();
        let denied_until = Some(self.until).filter(|&until| answered && until != FOREVER);
        let since = account.habits.since();
        Ok(StolenReport { key, answered, denied_until, since, deleted: 0, held: None, sent })
    }

    /// Deletes what was held for the alarms, if that is wanted; of each account, how many messages
    /// were deleted, and how many stay, if that is known.
    fn delete_held(
        &self,
        directory: &Path,
        accounts: &[Account],
        spool: &mut Spool,
    ) -> Result<Vec<(usize, Option<usize>)>, Failure> {
        let held = match self.queue.held(directory) {
            Ok(held) => held,
            Err(why) => {
                let some = accounts.iter().filter(|one| one.habits.held() > 0);
                some.for_each(|one| {
                    let (key, why) = (one.shown(), text::printable(why.as_bytes()));
                    note(format_args!("mail of {key} may be held: {why}; see `exirate held`"));
                });
                return Ok(vec![(0, None); accounts.len()]);
            }
        };
        let (mut log, mut all) = (AuditLog::new(), Vec::new());
        for account in accounts {
            let (of_alarm, others) = of_account(&held.messages, account);
            let lines: Vec<String> = of_alarm.iter().map(|message| message.line()).collect();
            let is_wanted = match self.held {
                _ if lines.is_empty() => false,
                Some(held) => held == WithHeld::Delete,
                None => {
                    let count = text::counted(lines.len(), "held message", "held messages");
                    confirm::offer(&lines, &format!("delete {count}, so that nobody gets them"))?
                }
            };
            let deleted = match is_wanted {
                true => {
                    let (queue, spool) = (&*held.queue, Some(&mut *spool));
                    hold_queue::deal(queue, Deed::Delete, &of_alarm, spool, &mut log).done.len()
                }
                false => 0,
            };
            if deleted > 0 {
                note(format_args!(
                    "deleted: {}",
                    text::counted(deleted, "held message", "held messages")
                ));
            }
            let stay = of_alarm.len() - deleted + others.len();
            if stay > 0 {
                note(format_args!(
                    "{} held: see {}; {} deletes them",
                    stay_of(stay, &account.shown()),
                    self.command("held", account),
                    self.command("held delete", account)
                ));
            }
            all.push((deleted, Some(stay)));
        }
        Ok(all)
    }

    fn is_for_people(&self) -> bool {
        !self.common.json && !self.addresses
    }

    fn print(
        &self,
        screen: &mut Screen<'_>,
        report: &StolenReport,
        account: &Account,
    ) -> Result<(), Failure> {
        let StolenReport { since, sent, answered, .. } = report;
        if !answered {
            writeln!(screen, "{}", alarm::was_answered(account))?;
        }
        if let Some(mail @ SentMail { recipients, clients, .. }) = sent {
            writeln!(screen, "{}", alarm::sent(*since, mail))?;
            let mut from: Vec<_> = clients.iter().collect();
            from.sort_by(|(a, of_a), (b, of_b)| of_b.cmp(of_a).then(a.cmp(b)));
            for (client, count) in from.iter().take(SHOWN) {
                writeln!(screen, "  from {client}: {count}")?;
            }
            for (recipient, _) in recipients.iter().take(SHOWN) {
                let recipient = text::printable(recipient.as_bytes());
                writeln!(screen, "  to {recipient}")?;
            }
            let more = recipients.len().saturating_sub(SHOWN);
            if more > 0 {
                let command = self.command("habits stolen --addresses", account);
                writeln!(screen, "  and {more} more: {command} lists all")?;
            }
        }
        writeln!(screen, "once the password is changed: {}", self.command("unblock", account))?;
        Ok(())
    }

    /// A command to paste, about the account.
    fn command(&self, words: &str, account: &Account) -> String {
        format!("`{}`", self.common.commands().about(words, &account.name()))
    }
}
