//! `exirate habits`: which accounts send unlike themselves, what is said of them, and what their
//! habits are learned from.

mod answers;
mod learn;
mod list;

use std::ffi::OsString;

use clap::{Args, Subcommand};

use crate::cli::shared::complete;
use crate::cli::shared::database::Common;
use crate::cli::shared::key_text;
use crate::cli::shared::keys::{Narrow, Selection};
use crate::cli::shared::screen::{Screen, complain};
use crate::cli::{Failure, Outcome};
use crate::identity::fold::Folding;
use crate::rate::habits::Habits;
use crate::spool::Spool;
use crate::store::OwnedKey;

/// Show which accounts send unlike themselves
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  Which accounts are suspected, and which are nearest to an alarm?
    exirate habits
  Those of one domain:
    exirate habits '*@example.org'
  It was alice herself:
    exirate habits accept alice@example.org
  Somebody has her password: deny the account, and list whom to warn:
    exirate habits stolen alice@example.org
  Learn from the logs of the last weeks, and see who would have been named:
    exirate habits learn /var/log/exim4

An account is compared with its own mail: recipients to whom it has never written, in runs, at
hours and from networks that it never uses. No limit is set by anybody.

Exit status: 0 shown; 1 an account is suspected, or a KEY matches nothing; 2 an error.

After an alarm an account is suspected for a day, or until somebody answers. Suspected accounts
come first. STATE is until when one is suspected, or how its last alarm was answered. The last
line counts all alarms of these accounts and their answers.

SCORE is a log-likelihood ratio, in nats: how much more likely a thief is than the owner, from the
last messages. At OF an alarm is raised: 16, and more if there was an alarm before. It is forgotten
with a time constant of a week. STRANGERS, MESSAGES, WITHIN and NETWORKS are the evidence since the
score was nearly 0, of a suspected account since what led to the alarm began: recipients never
written to, the messages, the time from the first to the last of them, and networks never seen.
USUAL is how many new recipients the account has a day, ALARM how long ago the last alarm was.

The database remembers of each account a few bits of a keyed hash of each of 256 recipients and 8
networks, the active hours of the day, and some counts. `exirate erase` removes them.

KEY is a login such as alice@example.org, local_account:NAME for a local account, or a glob such as
'*@example.org'.

JSON: an array of objects with `key`, `score`, `threshold`, `at` (the last message; seconds since
1970), `messages`, `alarm_at` (null: never), `since` (the evidence began), `suspected_until` (null:
not suspected), `answer` (\"accepted\" or \"stolen\"; null: none), `alarms`, `accepted`, `stolen` (how
many of each), `usual` and `evidence`."
)]
pub(in crate::cli) struct HabitsCommand {
    #[command(subcommand)]
    command: Option<Command>,

    /// Show these accounts or globs; the default is all
    #[arg(value_name = "KEY", add = complete::keys())]
    keys: Vec<OsString>,

    /// Show at most N accounts
    #[arg(long, value_name = "N", default_value = "20")]
    top: usize,

    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Subcommand)]
enum Command {
    Accept(answers::Accept),
    Learn(learn::Learn),
}

impl HabitsCommand {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        match &self.command {
            Some(Command::Accept(accept)) => accept.run(screen),
            Some(Command::Learn(learn)) => learn.run(screen),
            None => self.list(screen),
        }
    }
}

/// An account with habits.
struct Account {
    key: OwnedKey,
    habits: Habits,
}

impl Account {
    /// Its key, as it is shown and can be pasted.
    fn shown(&self) -> String {
        key_text::key(self.key.key().identity())
    }
}

/// The accounts that arguments mean, and whether one means none: why has been printed.
struct Found {
    accounts: Vec<Account>,
    missing: bool,
    /// Whether an argument may mean several.
    is_loose: bool,
}

/// Finds the accounts that `keys` mean: all, where there are none.
fn find(spool: &mut Spool, keys: &[OsString], folding: &Folding) -> Result<Found, Failure> {
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
