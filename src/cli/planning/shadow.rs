//! `exirate shadow`: whether our answers are those of Exim's own `ratelimit`.

use std::io::Write as _;

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::shared::database::Common;
use crate::cli::shared::screen::{Screen, note};
use crate::cli::shared::table::{self, Column};
use crate::cli::{Failure, Json, Outcome};
use crate::rate::Timestamp;
use crate::shadow::{self, Seen};
use crate::spool::SpoolError;
use crate::standing::databases::require_owner;
use crate::standing::key_state::second;
use crate::text::time::now;
use crate::text::{self, counted_or_no};

/// Compare exirate with Exim's own ratelimit before you switch
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Is it safe to switch?
    exirate shadow report
  Begin again, after a change of the limits:
    exirate shadow reset

The lines of an ACL that use `shadow.conf` ask both, Exim's own condition and exirate, about the
same event. Exim's answer counts.

Exit status: as the help of each command says.

The lines of an ACL that use `shadow.conf` ask both, Exim's own condition and exirate, about the
same event. Exim's answer counts. docs/migrate.md shows how.")]
pub(in crate::cli) struct ShadowCommand {
    #[command(subcommand)]
    command: ShadowAction,
}

#[derive(Debug, Subcommand)]
enum ShadowAction {
    Report(ShadowReport),
    Reset(Reset),
}

impl ShadowCommand {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        match &self.command {
            ShadowAction::Report(report) => report.run(screen),
            ShadowAction::Reset(reset) => reset.run(screen),
        }
    }
}

/// Show how exirate's answers differ from Exim's, and whether it is safe to switch
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Is it safe to switch, after a week?
    exirate shadow report
  After two days:
    exirate shadow report --days 2

DIFFER counts the checks with another verdict, or with rates that are apart by more than the event.
SAFE is `yes` where a limit was compared for --days and nothing differs.

Exit status: 0 all limits are safe to switch; 1 one is not, a check failed, or nothing was
compared; 2 an error.

Each limit is a line: CHECKS is how often both were asked, OVER in how many of these Exim was over
the limit. DIFFER are answers with another verdict, or with rates that are apart by more than the
event itself. CLOSE are those apart by at most that event: two sessions at the same moment are not
always counted in the same order. ROUNDING are those with the same verdict of which only the last
digit of the rates differs, such as 65.8 and 65.9. WARMING are rates of Exim's that still include
events from before the comparison began; `exirate import` of Exim's database avoids them. LARGEST
is the largest difference of the rates, without WARMING.

SAFE is `yes` where a limit was compared for --days, in the last day as well, nothing differs, at
most 1 % of the verdicts are CLOSE, and at most half of the checks are WARMING. ROUNDING, and
rates that are CLOSE with the same verdict, do not count against it, but are reported. Otherwise, it is
`no` or `not yet`, and the reason follows. Differences are lines with `exirate shadow:` in Exim's
main log. Keys that are allowed or denied by exirate are not compared.")]
#[command(add = Json::of::<Comparison>())]
struct ShadowReport {
    /// Require a comparison of this many days
    #[arg(long, value_name = "N", default_value_t = 7)]
    days: u32,

    #[command(flatten)]
    common: Common,
}

/// Forget what was compared, and begin again
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Begin again:
    exirate shadow reset

The rates themselves stay as they are.

Exit status: 0 done, also if there was nothing to forget; 2 an error.

The rates themselves stay as they are. Exim's running processes continue to compare at once.")]
#[command(add = Json::of::<Forgotten>())]
struct Reset {
    #[command(flatten)]
    common: Common,
}

/// What was forgotten.
#[derive(Serialize, JsonSchema)]
struct Forgotten {
    /// How many limits.
    forgotten: usize,
}

/// What was compared.
#[derive(Serialize, JsonSchema)]
struct Comparison {
    limits: Vec<Judged>,
    /// How many checks exirate could not answer or count.
    failed: u64,
}

/// What was counted of a limit, and whether it is safe to switch it.
#[derive(Serialize, JsonSchema)]
struct Judged {
    #[serde(flatten)]
    seen: Seen,
    /// yes, no or not yet.
    safe: &'static str,
    reason: String,
}

/// Whether it is safe to switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Safe {
    Yes,
    No,
    NotYet,
}

impl Safe {
    fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::NotYet => "not yet",
        }
    }
}

const DAY: u64 = 86_400;

/// Answers with another verdict or rate, by more than the event.
fn differing(seen: &Seen) -> u64 {
    let verdicts = seen.only_native.saturating_add(seen.only_ours);
    seen.rates.saturating_add(verdicts.saturating_sub(seen.verdicts_close))
}

/// Whether it is safe to switch this limit at `now`, after `days`, and why.
fn judge(seen: &Seen, days: u32, now: u64) -> (Safe, String) {
    let differ = differing(seen);
    let close = seen.verdicts_close;
    let silent = now.saturating_sub(seen.latest);
    let age = now.saturating_sub(seen.since);
    let span = |seconds: u64| text::duration(seconds as f64);
    if differ > 0 {
        return (
            Safe::No,
            format!(
                "{} by more than one event; Exim's main log has them",
                counted_or_no(as_count(differ), "answer differs", "answers differ")
            ),
        );
    }
    if close > (seen.checks / 100).max(1) {
        return (
            Safe::No,
            format!(
                "the verdicts of {close} of {} answers differ, by one event: more than 1 %, so \
                     sessions at the same moment do not explain it",
                seen.checks
            ),
        );
    }
    if seen.checks == 0 || silent > DAY {
        return (Safe::NotYet, format!("nothing was compared for {}", span(silent)));
    }
    if age < u64::from(days) * DAY {
        let expected = span(u64::from(days) * DAY);
        return (Safe::NotYet, format!("compared for {} of {expected}", span(age)));
    }
    if seen.warming_up > seen.checks / 2 {
        let reason = "older events still count in Exim's rates; `exirate import` of its database \
                      avoids that";
        return (Safe::NotYet, reason.to_owned());
    }
    let reason = match seen.over {
        0 => "the answers agree; the limit was never reached",
        _ => "the answers agree, also at the limit",
    };
    let apart: Vec<String> =
        [(seen.rounding, "by the last digit"), (seen.rates_close, "by at most one event")]
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, by)| format!("{count} {by}"))
            .collect();
    let numbers = match &apart[..] {
        [] => String::new(),
        _ => format!("; only numbers differ, {}", apart.join(", ")),
    };
    (Safe::Yes, format!("{reason}{numbers}"))
}

fn as_count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl ShadowReport {
    fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let now = now();
        let read = shadow::read(&self.common.directory()?).map_err(SpoolError::from)?;
        let (seen, failed) = read.unwrap_or_default();
        let seconds = u64::try_from(now.seconds).unwrap_or(0);
        let judged = |seen: Seen| {
            let (safe, reason) = judge(&seen, self.days, seconds);
            Judged { seen, safe: safe.word(), reason }
        };
        let limits: Vec<Judged> = seen.into_iter().map(judged).collect();
        let all_safe = limits.iter().all(|one| one.safe == Safe::Yes.word());
        let safe = !limits.is_empty() && failed == 0 && all_safe;
        let comparison = Comparison { limits, failed };
        screen.show(self.common.json, &comparison, |screen, it| it.print(screen, now))?;
        if failed > 0 {
            screen.flush()?;
            note(format_args!(
                "{} failed, or could not be counted; Exim's main log says why",
                counted_or_no(as_count(failed), "check", "checks")
            ));
        }
        Ok(Outcome::found_if(!safe))
    }
}

impl Comparison {
    fn print(&self, screen: &mut Screen<'_>, now: Timestamp) -> Result<(), Failure> {
        if self.limits.is_empty() {
            writeln!(screen, "nothing was compared yet; docs/migrate.md shows how")?;
            return Ok(());
        }
        let since = |seconds: u64| i64::try_from(seconds).unwrap_or(0);
        let columns: [table::Shows<'_, Judged>; 10] = [
            (Column::words("SAFE"), &|one| one.safe.to_owned()),
            (Column::words("SINCE"), &|one| text::rough_age(second(since(one.seen.since)), now)),
            (Column::numbers("CHECKS"), &|one| one.seen.checks.to_string()),
            (Column::numbers("OVER"), &|one| one.seen.over.to_string()),
            (Column::numbers("DIFFER"), &|one| differing(&one.seen).to_string()),
            (Column::numbers("CLOSE"), &|Judged { seen, .. }| {
                seen.rates_close.saturating_add(seen.verdicts_close).to_string()
            }),
            (Column::numbers("ROUNDING"), &|one| one.seen.rounding.to_string()),
            (Column::numbers("WARMING"), &|one| one.seen.warming_up.to_string()),
            (Column::numbers("LARGEST"), &|one| format!("{:.1}", one.seen.largest)),
            (Column::words("LIMIT"), &|one| text::printable(one.seen.limit.as_bytes())),
        ];
        table::print(screen, &self.limits, columns)?;
        writeln!(screen)?;
        for Judged { seen, safe, reason } in &self.limits {
            let limit = text::printable(seen.limit.as_bytes());
            writeln!(screen, "{limit}: {safe}:\n  {reason}")?;
        }
        Ok(())
    }
}

impl Reset {
    fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let directory = self.common.directory()?;
        require_owner(&directory)?;
        let forgotten = shadow::forget(&directory).map_err(SpoolError::from)?;
        if self.common.json {
            screen.json(&Forgotten { forgotten })?;
        } else {
            writeln!(
                screen,
                "forgot the comparison of {}",
                counted_or_no(forgotten, "limit", "limits")
            )?;
        }
        Ok(Outcome::Fine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    /// Compared for eight days, without a difference.
    fn good() -> Seen {
        Seen { since: NOW - 8 * DAY, latest: NOW - 60, checks: 1000, over: 20, ..Seen::default() }
    }

    #[test]
    fn a_limit_is_safe_only_where_nothing_speaks_against_it() {
        for (seen, safe, reason) in [
            (good(), Safe::Yes, "also at the limit"),
            (Seen { over: 0, ..good() }, Safe::Yes, "never reached"),
            (Seen { rates_close: 10, ..good() }, Safe::Yes, "agree"),
            (Seen { only_ours: 5, verdicts_close: 5, ..good() }, Safe::Yes, "agree"),
            // Only numbers.
            (Seen { rounding: 500, ..good() }, Safe::Yes, "only numbers differ, 500 by the last"),
            (Seen { rates_close: 11, ..good() }, Safe::Yes, "11 by at most one event"),
            (
                Seen { only_ours: 11, verdicts_close: 11, ..good() },
                Safe::No,
                "the verdicts of 11 of 1000 answers differ",
            ),
            (Seen { rates: 1, ..good() }, Safe::No, "1 answer differs by more"),
            (Seen { only_native: 2, verdicts_close: 1, ..good() }, Safe::No, "1 answer differs"),
            (Seen { only_ours: 2, ..good() }, Safe::No, "2 answers differ"),
            (Seen { since: NOW - DAY, ..good() }, Safe::NotYet, "compared for 1d of 7d"),
            (Seen { latest: NOW - 2 * DAY, ..good() }, Safe::NotYet, "nothing was compared for 2d"),
            (Seen { warming_up: 501, ..good() }, Safe::NotYet, "exirate import"),
        ] {
            let found = judge(&seen, 7, NOW);
            assert_eq!(found.0, safe, "{found:?}");
            assert!(found.1.contains(reason), "{found:?} {reason}");
        }
    }
}
