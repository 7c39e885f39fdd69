//! `exirate simulate`: who would have been refused, and the totals.

use std::io::Write as _;
use std::path::Path;

use serde::Serialize;

use super::settings::Retry;
use crate::cli::Failure;
use crate::cli::shared::screen::Screen;
use crate::cli::shared::table::{self, Column};
use crate::history::measure::MeasuredBy;
use crate::history::simulate::{
    LimitKey, NamedAccount, NamedAccounts, Refusals, Refused, Retries, Simulation, Totals, grouped,
};
use crate::policy::word::Verdict;
use crate::rate::Timestamp;
use crate::text::{counted_or_no, utc};
use crate::text::{duration, printable};

/// What a simulation comes to.
#[derive(Serialize)]
pub(super) struct Summary<'a> {
    pub(super) policy: String,
    #[serde(flatten)]
    totals: &'a Totals,
    decided: u64,
    /// Attempts that were refused, and those that a policy only observed.
    pub(super) refused: u64,
    observed: u64,
    retries: RetriesOfOthers<'a>,
    limits: Vec<Refused>,
    #[serde(serialize_with = "accounts")]
    named: &'a NamedAccounts,
    notes: Vec<String>,
    #[serde(skip)]
    retry: &'a Retry,
}

/// How other mail servers were assumed to try again, and what came of it.
#[derive(Serialize)]
struct RetriesOfOthers<'a> {
    waits: &'a [f64],
    #[serde(flatten)]
    came_of_it: Retries,
}

fn accounts<S: serde::Serializer>(named: &NamedAccounts, serializer: S) -> Result<S::Ok, S::Error> {
    named.all().serialize(serializer)
}

impl<'a> Summary<'a> {
    pub(super) fn of(
        policy: &'a Path,
        simulation: &'a Simulation<'_>,
        refusals: Refusals,
        retry: &'a Retry,
        notes: Vec<String>,
    ) -> Self {
        let totals = simulation.totals();
        let end = totals.span.map_or_else(Timestamp::default, |(_, last)| last);
        Self {
            policy: policy.display().to_string(),
            totals,
            decided: totals.verdicts.all(),
            refused: refusals.events(),
            observed: refusals.observed(),
            retries: RetriesOfOthers { waits: retry.schedule.waits(), came_of_it: totals.retries },
            limits: refusals.sorted(end),
            named: simulation.named(),
            notes,
            retry,
        }
    }

    /// Adds up the keys of each domain or customer.
    pub(super) fn group(&mut self, by: &MeasuredBy) {
        let of = |key: &LimitKey| by.group_of_key(&key.policy, &key.key);
        self.limits = grouped(std::mem::take(&mut self.limits), of);
    }

    /// Shows it, of the limits and the accounts only the first `top`.
    pub(super) fn show(
        mut self,
        screen: &mut Screen<'_>,
        top: Option<usize>,
        json: bool,
    ) -> Result<(), Failure> {
        let limits = self.limits.len();
        self.limits.truncate(top.unwrap_or(limits));
        if json {
            return screen.json(&self);
        }
        if limits > 0 {
            table(screen, &self.limits)?;
            writeln!(screen)?;
        }
        let hidden = limits - self.limits.len();
        if hidden > 0 {
            writeln!(screen, "{hidden} more rows (--top)")?;
        }
        let totals = self.totals;
        let verdicts = &totals.verdicts;
        let (deferred, rejected) = (verdicts.of(Verdict::Defer), verdicts.of(Verdict::Reject));
        writeln!(
            screen,
            "Refused: {} of {} ({deferred} for now, {rejected} for good), in {}",
            self.refused,
            attempts(verdicts.all()),
            period(totals)
        )?;
        if self.observed > 0 {
            writeln!(
                screen,
                "Only observed: {}, refused if the policy was enforced",
                attempts(self.observed)
            )?;
        }
        self.print_named(screen, top)?;
        writeln!(
            screen,
            "The log shows: {}, {}, {}; {} refused by limits then",
            counted_or_no(totals.messages, "message", "messages"),
            counted_or_no(totals.recipients, "recipient", "recipients"),
            counted_or_no(totals.logins, "login", "logins"),
            attempts(totals.limited)
        )?;
        let retries = &totals.retries;
        if retries.messages > 0 {
            writeln!(
                screen,
                "Retries of other mail servers: {}, {}; {} accepted (after {} at most), {} given \
                 up, {} waiting at the end",
                counted_or_no(retries.messages, "message", "messages"),
                counted_or_no(retries.tries, "retry", "retries"),
                retries.accepted,
                duration(retries.longest),
                retries.given_up + retries.forgotten,
                retries.waiting
            )?;
        }
        writeln!(
            screen,
            "Assumed: rates are zero before the log; other mail servers try again {}; users do \
             not try again",
            self.retry.describe()
        )?;
        Ok(())
    }

    /// Who would have been named by habits, where policies have any.
    fn print_named(&self, screen: &mut Screen<'_>, top: Option<usize>) -> Result<(), Failure> {
        let all = self.named.all();
        if self.named.compared == 0 && all.is_empty() {
            return Ok(());
        }
        writeln!(
            screen,
            "Named by habits: {} of the senders of {}",
            counted_or_no(all.len() as u64 + self.named.omitted, "account", "accounts"),
            counted_or_no(self.named.compared, "message", "messages")
        )?;
        let shown = top.unwrap_or(usize::MAX).min(all.len());
        for NamedAccount { key, at, alarm, alarms } in all.iter().take(shown) {
            let more = match alarms {
                1 => String::new(),
                _ => format!("; {} later", counted_or_no(alarms - 1, "alarm", "alarms")),
            };
            let key = printable(key.as_bytes());
            writeln!(screen, "{}  {key} may be stolen: {alarm}{more}", utc(*at))?;
        }
        if shown < all.len() {
            writeln!(screen, "{} more accounts (--top)", all.len() - shown)?;
        }
        Ok(())
    }
}

fn table(screen: &mut Screen<'_>, rows: &[Refused]) -> Result<(), Failure> {
    let words = |text: &str| printable(text.as_bytes());
    let columns: [table::Shows<'_, Refused>; 12] = [
        (Column::numbers("REFUSED"), &|one| one.events.to_string()),
        (Column::numbers("MESSAGES"), &|one| one.messages.to_string()),
        (Column::numbers("RETRIES").spare(4), &|one| match one.retries {
            0 => String::new(),
            retries => retries.to_string(),
        }),
        (Column::numbers("TIMES"), &|one| one.crossings.to_string()),
        (Column::words("OVER").spare(3), &|one| duration(one.over)),
        (Column::words("BLOCKED"), &|one| match one.blocked {
            0.0 => String::new(),
            blocked => duration(blocked),
        }),
        (Column::numbers("PEAK").spare(2), &|one| format!("{:.1}", one.highest)),
        (Column::words("FIRST").spare(1), &|one| {
            one.refused.map_or_else(String::new, |(first, _)| utc(first))
        }),
        (Column::words("LIMIT"), &|one| {
            words(&format!("{} {}", one.of.unit.word(), one.of.window))
        }),
        (Column::words("POLICY"), &|one| match (words(&one.of.policy), one.observed) {
            (policy, true) => format!("({policy})"),
            (policy, false) => policy,
        }),
        (Column::words("RULE"), &|one| words(&one.of.rule)),
        (Column::words("KEY"), &|one| words(&one.of.key)),
    ];
    Ok(table::print(screen, rows, columns)?)
}

fn attempts(count: u64) -> String {
    counted_or_no(count, "attempt", "attempts")
}

/// The times of a simulation, in words.
fn period(totals: &Totals) -> String {
    totals.span.map_or_else(String::new, |(first, last)| {
        let long = duration(last.as_seconds() - first.as_seconds());
        format!("{long} from {} to {}", utc(first), utc(last))
    })
}
