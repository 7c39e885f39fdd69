//! `exirate setup --habits`: whether stolen accounts are noticed by mail that is unlike their own.

use std::io::Write as _;
use std::path::Path;

use super::{SetupCommand, log};
use crate::cli::shared::confirm;
use crate::cli::shared::screen::Screen;
use crate::cli::{Failure, Outcome};
use crate::logs::usual;
use crate::policy::source::FILE;
use crate::policy::word::{OnHabits, Word as _};
use crate::setup::policy_file::{HABITS_TABLE, with_habits};
use crate::setup::{MailServer, Plan};
use crate::text;
use crate::toml_file::text::load;

/// What is remembered of people, in two sentences.
const REMEMBERED: [&str; 2] = [
    "For each account that sends, exirate remembers a few bits of a keyed hash of each of 256 \
     recipients and 8 client networks, the hours of the day at which it sends, and some counts: no \
     recipient's address, and nothing of what is written.",
    "An account is forgotten 400 days after its last message, or by `exirate erase`: see \
     docs/privacy.md.",
];

impl SetupCommand {
    /// Says how habits are learned before the first day.
    pub(super) fn advise_habits(screen: &mut Screen<'_>) -> Result<(), Failure> {
        let learn = match usual::log() {
            // The main logs of its directory are all Exim's.
            Some(log) if log.file_name().is_some_and(|name| name == "mainlog") => {
                log.parent().unwrap_or(&log).display().to_string()
            }
            Some(log) => log.display().to_string(),
            None => "--journal".to_owned(),
        };
        let learn = if learn == "--journal" { learn } else { text::shell(&learn) };
        writeln!(
            screen,
            "habits are known after some weeks of mail: `exirate habits learn {learn}` learns them from \
             the logs that exist"
        )?;
        Ok(())
    }

    /// Has the policy file that the plan writes say what is to be done about habits: what was asked
    /// for, else what somebody answers, else nothing.
    pub(super) fn choose_habits(
        &self,
        screen: &mut Screen<'_>,
        plan: &mut Plan,
    ) -> Result<OnHabits, Failure> {
        let Some(text) = plan.policy_text() else { return Ok(OnHabits::Off) };
        let on = match self.habits {
            Some(on) => on,
            None if self.yes || self.dry_run => OnHabits::Off,
            None => {
                screen.flush()?;
                let lines = REMEMBERED.map(str::to_owned);
                let question =
                    "notice stolen accounts by mail unlike their habits, and refuse nothing for it";
                match confirm::offer(&lines, question)? {
                    true => OnHabits::Observe,
                    false => OnHabits::Off,
                }
            }
        };
        if on != OnHabits::Off {
            *text = with_habits(text, on).ok_or_else(by_hand)?;
        }
        Ok(on)
    }

    /// Has the policy file that is there say so, and puts it into use.
    pub(super) fn set_habits(
        &self,
        screen: &mut Screen<'_>,
        server: &dyn MailServer,
        on: OnHabits,
    ) -> Result<Outcome, Failure> {
        let path = Path::new(FILE);
        let old = load(path).map_err(Failure::new)?;
        let new = with_habits(&old, on).ok_or_else(by_hand)?;
        if on != OnHabits::Off {
            REMEMBERED.iter().try_for_each(|sentence| writeln!(screen, "{sentence}"))?;
        }
        if self.dry_run {
            writeln!(screen, "would change {HABITS_TABLE} of {FILE}: habits {}", on.word())?;
            return Ok(Outcome::Fine);
        }
        screen.flush()?;
        let question = match on {
            OnHabits::Off => "compare no account with its habits from now on",
            OnHabits::Observe => {
                "notice stolen accounts by their habits, and refuse nothing for it"
            }
            OnHabits::Hold => "hold the mail of accounts that are suspected",
            OnHabits::Defer => "defer the mail of accounts that are suspected",
        };
        if !confirm::plainly(&[], question, self.yes)? {
            writeln!(screen, "nothing was changed")?;
            return Ok(Outcome::Found);
        }
        self.setup(server).set_policies(path, &old, &new)?;
        log(server.spool(), &format!("setup --habits {}", on.word()));
        writeln!(screen, "in use: habits = \"{}\" in {HABITS_TABLE} of {FILE}", on.word())?;
        if on != OnHabits::Off {
            Self::advise_habits(screen)?;
        }
        Ok(Outcome::Fine)
    }
}

/// What to change in a policy file of one's own.
fn by_hand() -> Failure {
    Failure::new(format!(
        "{FILE} has no line `habits = …` in {HABITS_TABLE}: write it into the table of the policy that \
         counts logins, then run `exirate policy apply`"
    ))
}
