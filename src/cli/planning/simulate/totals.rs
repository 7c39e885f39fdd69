//! `exirate simulate`: who would have been refused, and the totals.

use std::io::Write as _;
use std::path::Path;

use serde::Serialize;

use super::settings::Retry;
use crate::cli::Failure;
use crate::cli::shared::screen::Screen;
use crate::cli::shared::table::{self, Column};
use crate::history::simulate::{NamedAccount, NamedAccounts, Refusals, Refused, Totals};
use crate::policy::word::Verdict;
use crate::rate::Timestamp;
use crate::text::{counted_or_no, utc};
use crate::text::{duration, iso_exact, printable};

/// What a simulation comes to.
pub(super) struct Summary<'a> {
    policy: &'a Path,
    totals: &'a Totals,
    /// Attempts that were refused, and those that a policy only observed.
    refused: u64,
    observed: u64,
    refusals: Vec<Refused>,
    named: &'a NamedAccounts,
    retry: &'a Retry,
    notes: Vec<String>,
}

impl<'a> Summary<'a> {
    pub(super) fn of(
        policy: &'a Path,
        totals: &'a Totals,
        named: &'a NamedAccounts,
        refusals: Refusals,
        retry: &'a Retry,
        notes: Vec<String>,
    ) -> Self {
        let (refused, observed) = (refusals.events(), refusals.observed());
        let end = totals.span.map_or_else(Timestamp::default, |(_, last)| last);
        let refusals = refusals.sorted(end);
        Self { policy, totals, refused, observed, refusals, named, retry, notes }
    }

    /// Whether anything would have been refused.
    pub(super) fn is_refused(&self) -> bool {
        self.refused > 0
    }

    fn first(&self, top: Option<usize>) -> &[Refused] {
        let end = top.unwrap_or(usize::MAX).min(self.refusals.len());
        self.refusals.get(..end).unwrap_or_default()
    }

    pub(super) fn print(&self, screen: &mut Screen<'_>, top: Option<usize>) -> Result<(), Failure> {
        if !self.refusals.is_empty() {
            self.table(screen, self.first(top))?;
            writeln!(screen)?;
        }
        let hidden = self.refusals.len() - self.first(top).len();
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

    fn table(&self, screen: &mut Screen<'_>, rows: &[Refused]) -> Result<(), Failure> {
        let words = |text: &str| printable(text.as_bytes());
        let columns: [(Column, &dyn Fn(&Refused) -> String); 11] = [
            (Column::numbers("REFUSED"), &|one| one.events.to_string()),
            (Column::numbers("MESSAGES"), &|one| one.messages.to_string()),
            (Column::numbers("RETRIES").spare(4), &|one| match one.retries {
                0 => String::new(),
                retries => retries.to_string(),
            }),
            (Column::numbers("TIMES"), &|one| one.crossings.to_string()),
            (Column::words("OVER").spare(3), &|one| duration(one.over)),
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

    pub(super) fn json(&self, screen: &mut Screen<'_>, top: Option<usize>) -> Result<(), Failure> {
        let totals = self.totals;
        let retries = &totals.retries;
        screen.json(&TotalsJson {
            policy: self.policy.display().to_string(),
            first: totals.span.map(|(first, _)| iso_exact(first)),
            last: totals.span.map(|(_, last)| iso_exact(last)),
            messages: totals.messages,
            recipients: totals.recipients,
            logins: totals.logins,
            decided: totals.verdicts.all(),
            verdicts: JsonVerdicts {
                accept: totals.verdicts.of(Verdict::Accept),
                log: totals.verdicts.of(Verdict::Log),
                delay: totals.verdicts.of(Verdict::Delay),
                hold: totals.verdicts.of(Verdict::Hold),
                defer: totals.verdicts.of(Verdict::Defer),
                reject: totals.verdicts.of(Verdict::Reject),
            },
            undecided: totals.undecided,
            refused: self.refused,
            observed: self.observed,
            limited_in_log: totals.limited,
            retries: JsonRetries {
                waits: self.retry.schedule.waits(),
                messages: retries.messages,
                tries: retries.tries,
                accepted: retries.accepted,
                longest: retries.longest,
                given_up: retries.given_up,
                forgotten: retries.forgotten,
                waiting: retries.waiting,
            },
            limits: self.first(top).iter().map(JsonLimit::of).collect(),
            named: self.named.all().iter().map(JsonNamed::of).collect(),
            notes: &self.notes,
        })
    }
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

/// Everything, as JSON has it.
#[derive(Serialize)]
struct TotalsJson<'a> {
    policy: String,
    first: Option<String>,
    last: Option<String>,
    messages: u64,
    recipients: u64,
    logins: u64,
    decided: u64,
    verdicts: JsonVerdicts,
    undecided: u64,
    refused: u64,
    observed: u64,
    limited_in_log: u64,
    retries: JsonRetries<'a>,
    limits: Vec<JsonLimit<'a>>,
    named: Vec<JsonNamed<'a>>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct JsonVerdicts {
    accept: u64,
    log: u64,
    delay: u64,
    hold: u64,
    defer: u64,
    reject: u64,
}

#[derive(Serialize)]
struct JsonRetries<'a> {
    waits: &'a [f64],
    messages: u64,
    tries: u64,
    accepted: u64,
    longest: f64,
    given_up: u64,
    forgotten: u64,
    waiting: u64,
}

/// An account that habits would have named, as JSON has it.
#[derive(Serialize)]
struct JsonNamed<'a> {
    key: &'a str,
    at: String,
    strangers: u32,
    messages: u32,
    evidence: String,
    alarms: u64,
}

impl<'a> JsonNamed<'a> {
    fn of(one: &'a NamedAccount) -> Self {
        Self {
            key: &one.key,
            at: iso_exact(one.at),
            strangers: one.alarm.strangers,
            messages: one.alarm.messages,
            evidence: one.alarm.to_string(),
            alarms: one.alarms,
        }
    }
}

/// A limit and a key, as JSON has it.
#[derive(Serialize)]
struct JsonLimit<'a> {
    policy: &'a str,
    rule: &'a str,
    unit: &'static str,
    window: &'a str,
    key: &'a str,
    observed: bool,
    refused: u64,
    rejected: u64,
    messages: u64,
    recipients: u64,
    retries: u64,
    first: Option<String>,
    last: Option<String>,
    times: u64,
    over: f64,
    longest: f64,
    peak: f64,
    limit: f64,
}

impl<'a> JsonLimit<'a> {
    fn of(one: &'a Refused) -> Self {
        Self {
            policy: &one.of.policy,
            rule: &one.of.rule,
            unit: one.of.unit.word(),
            window: &one.of.window,
            key: &one.of.key,
            observed: one.observed,
            refused: one.events,
            rejected: one.rejected,
            messages: one.messages,
            recipients: one.recipients,
            retries: one.retries,
            first: one.refused.map(|(first, _)| iso_exact(first)),
            last: one.refused.map(|(_, last)| iso_exact(last)),
            times: one.crossings,
            over: one.over,
            longest: one.longest,
            peak: one.highest,
            limit: one.limit,
        }
    }
}
