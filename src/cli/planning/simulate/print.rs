//! How `exirate simulate` shows who would have been refused, and the totals.

use std::io::{self, Write as _};
use std::path::Path;

use crate::cli::shared::screen::Screen;
use crate::cli::shared::table::{self, Column};
use crate::cli::{Failure, Outcome};
use crate::history::simulate::{
    AttemptLine, ComparisonReport, Decided, KeyComparison, LaterKey, NamedAccount, NamedAccounts,
    RefusalCounts, Refused, SentLater, Summary, Totals, attempt_in_words,
};
use crate::policy::word::Verdict;
use crate::text::{counted_or_no, duration, json, printable, utc};

/// Shows it, of the limits and the accounts only the first `top`.
pub(super) fn show(
    mut summary: Summary<'_>,
    screen: &mut Screen<'_>,
    top: Option<usize>,
    is_json: bool,
) -> Result<(), Failure> {
    let limits = summary.limits.len();
    summary.limits.truncate(top.unwrap_or(limits));
    if let Some(later) = &mut summary.later {
        later.keys.truncate(top.unwrap_or(usize::MAX));
    }
    if is_json {
        return screen.json(&summary);
    }
    if limits > 0 {
        table(screen, &summary.limits)?;
        writeln!(screen)?;
    }
    let hidden = limits - summary.limits.len();
    if hidden > 0 {
        writeln!(screen, "{hidden} more rows (--top)")?;
    }
    let totals = summary.totals;
    let verdicts = &totals.verdicts;
    let (deferred, rejected) = (verdicts.of(Verdict::Defer), verdicts.of(Verdict::Reject));
    writeln!(
        screen,
        "Refused: {} of {} ({deferred} for now, {rejected} for good), in {}",
        summary.refused,
        attempts(verdicts.all()),
        period(totals)
    )?;
    if summary.observed > 0 {
        writeln!(
            screen,
            "Only observed: {}, refused if the policy was enforced",
            attempts(summary.observed)
        )?;
    }
    if let Some(later) = &summary.later {
        print_later(screen, later)?;
    }
    print_named(screen, summary.named, top)?;
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
        summary.retry.describe()
    )?;
    Ok(())
}

/// Who would have been named by habits, where policies have any.
fn print_named(
    screen: &mut Screen<'_>,
    named: &NamedAccounts,
    top: Option<usize>,
) -> Result<(), Failure> {
    let all = named.all();
    if named.compared == 0 && all.is_empty() {
        return Ok(());
    }
    writeln!(
        screen,
        "Named by habits: {} of the senders of {}",
        counted_or_no(all.len() as u64 + named.omitted, "account", "accounts"),
        counted_or_no(named.compared, "message", "messages")
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

/// What would have waited, where policies are at delivery.
fn print_later(screen: &mut Screen<'_>, later: &SentLater) -> Result<(), Failure> {
    let SentLater { recipients, waited, waits, returned, over, waiting, observed, queue, .. } =
        later;
    let long = |seconds: u32| duration(f64::from(seconds));
    writeln!(
        screen,
        "Sent later: {waited} of {}, in half of all cases within {}, in 95 % within {}, in all within \
         {}; {returned} returned, {over} delivered over the limit, {waiting} waiting at the end",
        counted_or_no(*recipients, "recipient", "recipients"),
        long(waits.median),
        long(waits.most),
        long(waits.longest)
    )?;
    if *observed > 0 {
        writeln!(
            screen,
            "Only observed: {observed} more would have waited if the policy was enforced"
        )?;
    }
    if later.forgotten > 0 {
        writeln!(screen, "Too many waited: {} more are not followed", later.forgotten)?;
    }
    let Some(at) = later.at else { return Ok(()) };
    writeln!(screen, "The longest queue: {queue} at {}", utc(at))?;
    let words = |text: &str| printable(text.as_bytes());
    let columns: [table::Shows<'_, LaterKey>; 9] = [
        (Column::numbers("WAITED"), &|one| one.recipients.to_string()),
        (Column::words("MEDIAN"), &|one| long(one.waits.median)),
        (Column::words("95%"), &|one| long(one.waits.most)),
        (Column::words("LONGEST"), &|one| long(one.waits.longest)),
        (Column::numbers("QUEUE"), &|one| one.queue.to_string()),
        (Column::words("AT").spare(1), &|one| one.at.map_or_else(String::new, utc)),
        (Column::numbers("RETURNED").spare(2), &|one| one.returned.to_string()),
        (Column::words("POLICY"), &|one| words(&one.policy)),
        (Column::words("KEY"), &|one| words(&one.key)),
    ];
    table::print(screen, &later.keys, columns)?;
    writeln!(screen)?;
    Ok(())
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

/// Prints the keys of which only one of the files with these names refuses an attempt.
pub(super) fn print_comparison(
    screen: &mut Screen<'_>,
    names: [&Path; 2],
    report: &ComparisonReport,
) -> Result<(), Failure> {
    let ComparisonReport { keys: rows, omitted, keys_only_policy, keys_only_against, .. } = report;
    if !rows.is_empty() {
        print_keys(screen, rows)?;
        writeln!(screen)?;
    }
    if *omitted > 0 {
        writeln!(screen, "{omitted} more keys (--top)")?;
    }
    let [policy, against] = names.map(|name| printable(name.as_os_str().as_encoded_bytes()));
    let RefusalCounts { only_policy, only_against, both } = report.counts;
    let refuses = |attempts: u64, keys: usize| match attempts {
        0 => "nothing".to_owned(),
        _ => format!(
            "{} of {}",
            counted_or_no(attempts, "attempt", "attempts"),
            counted_or_no(keys, "key", "keys")
        ),
    };
    let one = refuses(only_policy, *keys_only_policy);
    let other = refuses(only_against, *keys_only_against);
    writeln!(screen, "{policy} refuses {one} that {against} accepts")?;
    writeln!(screen, "{against} refuses {other} that {policy} accepts")?;
    let verdict = match report.verdict {
        "stricter" => format!("{policy} is the stricter one"),
        "milder" => format!("{policy} is the milder one"),
        "same" => "both refuse the same attempts".to_owned(),
        _ => "neither is the stricter one".to_owned(),
    };
    writeln!(
        screen,
        "Both refuse {both} of {}; for this log, {verdict}.",
        counted_or_no(report.decided, "attempt", "attempts")
    )?;
    Ok(())
}

fn print_keys(screen: &mut Screen<'_>, rows: &[KeyComparison]) -> Result<(), Failure> {
    let words = |text: &str| printable(text.as_bytes());
    let limit_of = |limit: &Option<String>| limit.as_deref().map_or_else(String::new, words);
    let columns: [table::Shows<'_, KeyComparison>; 7] = [
        (Column::numbers("ONLY POLICY"), &|row| row.counts.only_policy.to_string()),
        (Column::numbers("ONLY OTHER"), &|row| row.counts.only_against.to_string()),
        (Column::numbers("BOTH"), &|row| row.counts.both.to_string()),
        (Column::words("FIRST").spare(2), &|row| row.first.map_or_else(String::new, utc)),
        (Column::words("LIMIT").spare(1), &|row| limit_of(&row.limit)),
        (Column::words("LIMIT OF OTHER").spare(1), &|row| limit_of(&row.limit_against)),
        (Column::words("KEY"), &|row| words(&row.key)),
    ];
    Ok(table::print(screen, rows, columns)?)
}

/// Prints refused attempts as they come.
pub(super) struct RefusedEvents {
    json: bool,
    any: bool,
    /// The first error of the output.
    failed: Option<io::Error>,
}

impl RefusedEvents {
    pub(super) fn new(json: bool) -> Self {
        Self { json, any: false, failed: None }
    }

    pub(super) fn add(&mut self, screen: &mut Screen<'_>, decided: &Decided<'_>) {
        let (is_refused, would_be) = (decided.is_refused(), decided.would_be_refused());
        if self.failed.is_some() || !is_refused && !would_be {
            return;
        }
        self.any |= is_refused;
        let printed = match self.json {
            true => json(&AttemptLine::of(decided))
                .map_err(io::Error::from)
                .and_then(|line| writeln!(screen, "{line}")),
            false => writeln!(screen, "{}", attempt_in_words(decided)),
        };
        self.failed = printed.err();
    }

    pub(super) fn finish(self) -> Result<Outcome, Failure> {
        match self.failed {
            Some(error) => Err(Failure::Output(error)),
            None => Ok(Outcome::found_if(self.any)),
        }
    }
}
