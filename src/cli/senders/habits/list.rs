//! `exirate habits`: the accounts nearest to an alarm, and how alarms were answered.

use std::ffi::OsString;
use std::io::Write as _;

use anstyle::Style;
use clap::Args;

use super::account::{FoundAccounts, find};
use crate::cli::senders::list::OVER;
use crate::cli::shared::complete;
use crate::cli::shared::database::Common;
use crate::cli::shared::screen::Screen;
use crate::cli::shared::table::{Column, Layout};
use crate::cli::{Failure, Outcome};
use crate::rate::habits::{Answer, Answers, Habits};
use crate::standing::accounts::{Account, InUse};
use crate::standing::explained::AccountJson;
use crate::standing::key_state::second;
use crate::text::time::now;
use crate::text::{self, counted};

const COLUMNS: [Column; 11] = [
    Column::numbers("SCORE"),
    Column::numbers("OF"),
    Column::numbers("STRANGERS"),
    Column::numbers("MESSAGES").spare(3),
    Column::words("WITHIN").spare(2),
    Column::numbers("NETWORKS").spare(4),
    Column::numbers("USUAL").spare(1),
    Column::words("ALARM"),
    Column::words("STATE"),
    Column::words("SEEN").spare(5),
    Column::words("KEY"),
];

/// Which accounts are listed.
#[derive(Debug, Args)]
pub(super) struct HabitsList {
    /// Show these accounts or globs; the default is all
    #[arg(value_name = "KEY", add = complete::keys())]
    keys: Vec<OsString>,

    /// Show at most N accounts
    #[arg(long, value_name = "N", default_value = "20")]
    top: usize,

    #[command(flatten)]
    common: Common,
}

impl HabitsList {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let now = now().seconds;
        let mut spool = self.common.spool()?;
        let FoundAccounts { accounts: all, missing, .. } =
            find(&mut spool, &self.keys, &self.common.folding()?)?;
        let answers = all.iter().map(|one| one.habits.answers());
        let answers = answers.fold(Answers::default(), Answers::plus);
        let in_use = InUse::of(&self.common.directory()?);
        let mut all: Vec<(Account, f64)> = all
            .into_iter()
            .map(|one| {
                let threshold = one.habits.threshold(now, in_use.sensitivity(&one, now));
                (one, threshold)
            })
            .collect();
        all.sort_by(|(a, of_a), (b, of_b)| {
            let calm = |one: &Account| !one.habits.is_suspected(now);
            let share = |one: &Account, of: &f64| one.habits.score(now) / of;
            let order = calm(a).cmp(&calm(b)).then(share(b, of_b).total_cmp(&share(a, of_a)));
            order.then_with(|| a.shown().cmp(&b.shown()))
        });
        let is_suspected = all.first().is_some_and(|(first, _)| first.habits.is_suspected(now));
        all.truncate(self.top);
        if self.common.json {
            screen.json(
                &all.iter().map(|(one, of)| AccountJson::of(one, *of, now)).collect::<Vec<_>>(),
            )?;
        } else if all.is_empty() && !missing {
            writeln!(screen, "no account is known: `exirate habits learn LOG` learns from logs")?;
        } else if !all.is_empty() {
            let rows = |suspected: bool| {
                let alike =
                    all.iter().filter(move |one| one.0.habits.is_suspected(now) == suspected);
                alike.map(|(one, of)| cells(one, *of, now))
            };
            let layout = Layout::of(screen, COLUMNS, rows(true).chain(rows(false)));
            layout.head(screen)?;
            layout.write(screen, OVER, rows(true), None)?;
            layout.write(screen, Style::new(), rows(false), None)?;
            if answers.alarms > 0 {
                writeln!(screen, "\n{}", sum(answers))?;
            }
        }
        Ok(Outcome::found_if(is_suspected || missing))
    }
}

/// `14 alarms: 9 were the owner, 3 stolen, 2 not answered`
fn sum(answers: Answers) -> String {
    let Answers { alarms, accepted, stolen } = answers;
    let open = alarms.saturating_sub(accepted).saturating_sub(stolen);
    let owner = if accepted == 1 { "was the owner" } else { "were the owner" };
    let parts = [(accepted, owner), (stolen, "stolen"), (open, "not answered")];
    let parts = parts.iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts.map(|(count, what)| format!("{count} {what}")).collect();
    format!("{}: {}", counted(alarms, "alarm", "alarms"), parts.join(", "))
}

fn cells(account: &Account, threshold: f64, now: i64) -> [String; 11] {
    let habits = &account.habits;
    let ago = |then: i64| text::rough_age(second(then), second(now));
    let evidence = habits.evidence(habits.at());
    let score = habits.score(now);
    // Of an account that has only sent to people it knows, there is none.
    let has_evidence = score >= 1.0 || habits.is_suspected(now);
    let shown = |text: String| if has_evidence { text } else { String::new() };
    [
        format!("{score:.1}"),
        format!("{threshold:.0}"),
        shown(evidence.strangers.to_string()),
        shown(evidence.messages.to_string()),
        // An alarm by volume has put its begin back.
        shown(if evidence.is_put_back {
            "-".to_owned()
        } else {
            text::duration(evidence.seconds as f64)
        }),
        shown(evidence.networks.to_string()),
        format!("{:.1}", evidence.usual),
        habits.alarm_at().map_or_else(String::new, ago),
        state(habits, now),
        ago(habits.at()),
        account.shown(),
    ]
}

/// Until when an account is suspected, or how its last alarm was answered.
fn state(habits: &Habits, now: i64) -> String {
    let state = match (habits.suspected_until(), habits.answer()) {
        (Some(until), _) if until > now => {
            return format!("suspected for {}", text::rough((until - now) as f64));
        }
        (Some(_), _) => "not answered",
        (None, Some(Answer::Accepted)) => "was the owner",
        (None, Some(Answer::Stolen)) => "stolen",
        (None, None) => "",
    };
    state.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_summed_up() {
        let answers = Answers { alarms: 14, accepted: 9, stolen: 3 };
        assert_eq!(sum(answers), "14 alarms: 9 were the owner, 3 stolen, 2 not answered");
        let one = Answers { alarms: 1, accepted: 1, stolen: 0 };
        assert_eq!(sum(one), "1 alarm: 1 was the owner");
    }
}
