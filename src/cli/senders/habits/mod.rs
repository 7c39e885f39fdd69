//! `exirate habits`: which accounts send unlike themselves, what is said of them, and what their
//! habits are learned from.

pub(super) mod account;
mod answers;
mod learn;
mod list;
mod stolen;

use clap::{Args, Subcommand};

use crate::cli::shared::screen::Screen;
use crate::cli::{Failure, Json, Outcome};
use crate::standing::explained::AccountJson;

/// Show which accounts send mail unlike their habits
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
  Somebody has her password: deny the account, and list the people to warn:
    exirate habits stolen alice@example.org --logs /var/log/exim4
  Learn from the logs of the last weeks, and show which accounts would have raised an alarm:
    exirate habits learn /var/log/exim4

An account is compared with its own earlier mail: it is suspected when it writes to many
recipients that it has never written to, at hours and from networks that it does not use. It needs
no limit.

Exit status: 0 shown; 1 an account is suspected, or a KEY matches nothing; 2 an error.

After an alarm, an account is suspected until somebody answers, or for a day. Each message that is
held or deferred starts the day again, for up to a week. Suspected accounts come first. STATE is
until when one is suspected, or how its last alarm was answered. The last line counts all alarms
of these accounts and their answers.

SCORE is a log-likelihood ratio, in nats: how much more likely the last messages are from a thief
than from the owner. It decays with a time constant of a week. OF is the score at which an alarm
is raised: 16, or what the sensitivity in the policies in use sets, and more after an earlier
alarm. STRANGERS, MESSAGES, WITHIN and NETWORKS are the evidence since the score was nearly 0 (for
a suspected account, since what led to the alarm began): recipients never written to, the
messages, the time from the first to the last of them, and networks never seen. USUAL is how many
new recipients the account has a day, ALARM how long ago the last alarm was.

For each account, the database remembers a few bits of a keyed hash of each of 256 recipients and
8 networks, the active hours of the day, and some counts. `exirate erase` removes them.

KEY is a login such as alice@example.org, local_account:NAME for a local account, or a glob such as
'*@example.org'.", add = Json::of::<Vec<AccountJson>>())]
pub(in crate::cli) struct HabitsCommand {
    #[command(subcommand)]
    command: Option<HabitsAction>,

    #[command(flatten)]
    list: list::HabitsList,
}

#[derive(Debug, Subcommand)]
enum HabitsAction {
    Accept(answers::Accept),
    Stolen(stolen::Stolen),
    Learn(learn::Learn),
}

impl HabitsCommand {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        match &self.command {
            Some(HabitsAction::Accept(accept)) => accept.run(screen),
            Some(HabitsAction::Stolen(stolen)) => stolen.run(screen),
            Some(HabitsAction::Learn(learn)) => learn.run(screen),
            None => self.list.run(screen),
        }
    }
}
