//! `exirate usage`: what accounts, domains and customers have sent.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use clap::Args;

use crate::cli::shared::complete;
use crate::cli::shared::database::Common;
use crate::cli::shared::screen::{Screen, note};
use crate::cli::shared::table::{self, Column};
use crate::cli::{Failure, Json, Outcome};
use crate::cluster::ClusterSettings;
use crate::rate::usage::{DAYS, Sent};
use crate::serve::servers;
use crate::standing::pattern;
use crate::standing::usage::{By, SortBy, UsageDay, UsageList, UsageReader, UsageReport, UsageRow};
use crate::store::{Inspect, Target};
use crate::text::time::now;
use crate::{csv, text};

/// Show what accounts, domains and customers have sent
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Who sent most in the last week?
    exirate usage
  How much did this mailbox send, day by day?
    exirate usage alice@example.org --days 35
  Which customer was refused most often today, for a spreadsheet?
    exirate usage --by customer --days 1 --sort refused --csv
  Whose mail is that of this domain?
    exirate usage domain:example.org --days 1

KEY is a login or a local account, or domain:NAME or customer:NAME, which are shown with their
members. Without KEY, all are listed, those that sent most first.

Exit status: 0 shown; 1 nothing is known; 2 an error.

Counted is what logins and local accounts send by the policies in use, unless these say
`usage = false`: messages and recipients that were accepted, where a limit of them would count them;
bytes, where a policy is evaluated once the message has been received; recipients that the mail server
refused; and failed deliveries, if `exirate serve follow` runs. The mail server's own mail, mail without
a login from elsewhere, and what a router evaluates are not counted. Known are the last 35 days, in the
time zone of the policies, and the last 24 hours.

A domain or a customer is the sum of those of its accounts that are known, by the policies in use now.
Usage by script or by client is not known: who sends chooses these, and would fill the database.
`exirate measure` counts them in the mail server's log.

Where limits are shared, all servers are added up: what others have sent is known within a minute or so
after it, from `exirate serve alerts` there. A server that cannot reach the store shows its own mail.")]
#[command(add = Json::when::<UsageList>("Without KEY").or::<Vec<UsageReport>>("With KEY"))]
pub(in crate::cli) struct UsageCommand {
    /// Show this login, local account, domain:NAME or customer:NAME, by day
    #[arg(value_name = "KEY", add = complete::keys())]
    key: Option<OsString>,

    /// List by this: customer, domain or user
    #[arg(long, value_name = "BY", default_value = "user", value_parser = by, conflicts_with = "key")]
    by: By,

    /// Count the last N days, today included, at most 35
    #[arg(
        long,
        value_name = "N",
        default_value = "7",
        value_parser = clap::value_parser!(u8).range(1..=DAYS as i64)
    )]
    days: u8,

    /// Sort by this: messages, recipients, bytes, refused, failed or key
    #[arg(long, value_name = "COUNT", default_value = "recipients", value_parser = sort)]
    sort: SortBy,

    /// Show at most N lines of a table
    #[arg(long, value_name = "N", default_value = "20")]
    top: usize,

    /// Print comma-separated values
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    #[command(flatten)]
    common: Common,
}

fn by(word: &str) -> Result<By, String> {
    let known = By::ALL.iter().find(|by| by.word() == word);
    known.copied().ok_or_else(|| match word {
        "script" | "client" => format!(
            "what each {word} sends is not known: who sends chooses it, so strangers could fill the \
             database; `exirate measure --by {word}` counts it in the log"
        ),
        _ => "expected customer, domain or user".to_owned(),
    })
}

fn sort(word: &str) -> Result<SortBy, String> {
    let known = SortBy::ALL.iter().find(|sort| sort.word() == word);
    known.copied().ok_or_else(|| {
        let words: Vec<&str> = SortBy::ALL.iter().map(|sort| sort.word()).collect();
        format!("expected one of {}", words.join(", "))
    })
}

impl UsageCommand {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let directory = self.common.directory()?;
        let mut store = self.store(&directory)?;
        let reader = UsageReader::of(&directory, now());
        let days = usize::from(self.days);
        let is_known = match &self.key {
            Some(key) => {
                let folding = self.common.folding()?;
                let (target, shown) = pattern::override_target(key.as_bytes(), false, &folding)
                    .map_err(Failure::new)?;
                if let Target::Glob { .. } = target {
                    let wanted = "expected an account, domain:NAME or customer:NAME";
                    return Err(Failure::new(format!("{shown} is a glob; {wanted}")));
                }
                let mut reports = reader.reports(&mut *store, &target, days)?;
                for report in &mut reports {
                    report.sort_members(self.sort);
                }
                self.show(screen, &reports, days)?;
                if reports.is_empty() {
                    note(format_args!("no usage of {shown} is known"));
                }
                !reports.is_empty()
            }
            None => {
                let list = reader.list(&mut *store, self.by, days, self.sort)?;
                self.show_list(screen, &list)?;
                !list.rows.is_empty()
            }
        };
        if !is_known && !reader.is_counted() {
            note("nothing is counted: no policies are in use, or they say usage = false");
        }
        screen.flush()?;
        Ok(Outcome::found_if(!is_known))
    }

    /// The database, with what other servers have published, where it can be reached.
    fn store(&self, directory: &Path) -> Result<Box<dyn Inspect>, Failure> {
        let own = || self.common.spool().map(|spool| Box::new(spool) as Box<dyn Inspect>);
        let Ok((_, Some(settings))) = ClusterSettings::of(directory) else { return own() };
        servers::rates(&settings, own()?).or_else(|why| {
            note(format_args!("{why}: this is what this server alone has accepted"));
            own()
        })
    }

    fn show(
        &self,
        screen: &mut Screen<'_>,
        reports: &[UsageReport],
        days: usize,
    ) -> Result<(), Failure> {
        if self.common.json {
            return screen.json(&reports);
        }
        if self.csv {
            let head = ["key", "date", "messages", "recipients", "bytes", "refused", "failed"];
            writeln!(screen, "{}", csv::line(head))?;
        }
        for (number, report) in reports.iter().enumerate() {
            let UsageReport { key, zone, members, .. } = report;
            if self.csv {
                for day in report.last_days(days) {
                    let counts = day.sent.counts().map(|count| count.to_string());
                    let cells = [key.clone(), day.date.clone()].into_iter().chain(counts);
                    writeln!(screen, "{}", csv::line(cells))?;
                }
                continue;
            }
            let gap = if number > 0 { "\n" } else { "" };
            let hours = report.hours.iter();
            let (sent, refused) = hours.fold((0, 0), |(sent, refused), hour| {
                (sent + hour.recipients, refused + hour.refused)
            });
            writeln!(
                screen,
                "{gap}{key}: in the last 24 hours {}, {refused} refused",
                text::counted(sent, "recipient", "recipients")
            )?;
            table::print(
                screen,
                report.last_days(days),
                [
                    (Column::words("DAY"), &|day: &UsageDay| day.date.clone()),
                    (Column::numbers("MESSAGES"), &|day: &UsageDay| day.sent.messages.to_string()),
                    (Column::numbers("RECIPIENTS"), &|day: &UsageDay| {
                        day.sent.recipients.to_string()
                    }),
                    (Column::numbers("BYTES"), &|day: &UsageDay| text::bytes(day.sent.bytes)),
                    (Column::numbers("REFUSED"), &|day: &UsageDay| day.sent.refused.to_string()),
                    (Column::numbers("FAILED"), &|day: &UsageDay| day.sent.failed.to_string()),
                ],
            )?;
            if !members.is_empty() {
                writeln!(screen, "\nits accounts, in {}:", in_days(days, zone))?;
                self.rows(screen, members)?;
            }
        }
        Ok(())
    }

    fn show_list(&self, screen: &mut Screen<'_>, list: &UsageList) -> Result<(), Failure> {
        if self.common.json {
            return screen.json(list);
        }
        if self.csv {
            let head = ["key", "messages", "recipients", "bytes", "refused", "failed"];
            writeln!(screen, "{}", csv::line(head))?;
            for row in &list.rows {
                let counts = row.sent.counts().map(|count| count.to_string());
                writeln!(screen, "{}", csv::line([row.key.clone()].into_iter().chain(counts)))?;
            }
            return Ok(());
        }
        if list.rows.is_empty() {
            note(format_args!("nothing was sent in {}", in_days(list.days, &list.zone)));
            return Ok(());
        }
        self.rows(screen, &list.rows)?;
        let Sent { messages, recipients, bytes, refused, failed } = list.total.sent;
        writeln!(
            screen,
            "\nall in {}: {} to {}, {}; {refused} refused, {failed} failed",
            in_days(list.days, &list.zone),
            text::counted(messages, "message", "messages"),
            text::counted(recipients, "recipient", "recipients"),
            text::bytes(bytes)
        )?;
        Ok(())
    }

    fn rows(&self, screen: &mut Screen<'_>, rows: &[UsageRow]) -> Result<(), Failure> {
        let shown = rows.get(..self.top).unwrap_or(rows);
        table::print(
            screen,
            shown,
            [
                (Column::numbers("SHARE"), &|row: &UsageRow| text::percent(row.share)),
                (Column::numbers("MESSAGES"), &|row: &UsageRow| row.sent.messages.to_string()),
                (Column::numbers("RECIPIENTS"), &|row: &UsageRow| row.sent.recipients.to_string()),
                (Column::numbers("BYTES"), &|row: &UsageRow| text::bytes(row.sent.bytes)),
                (Column::numbers("REFUSED"), &|row: &UsageRow| row.sent.refused.to_string()),
                (Column::numbers("FAILED"), &|row: &UsageRow| row.sent.failed.to_string()),
                (Column::words("KEY"), &|row: &UsageRow| match &*row.key {
                    "" => "(none)".to_owned(),
                    key => key.to_owned(),
                }),
            ],
        )?;
        if let Some(more) = rows.len().checked_sub(shown.len()).filter(|more| *more > 0) {
            writeln!(screen, "and {more} more: --top {}", rows.len())?;
        }
        Ok(())
    }
}

/// `7 days (Europe/Berlin)`
fn in_days(days: usize, zone: &str) -> String {
    format!("{} ({zone})", text::counted(days, "day", "days"))
}
