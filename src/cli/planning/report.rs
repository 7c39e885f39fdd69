//! `exirate report`: a page of HTML with the rates of a log and of the database.

use std::io::Write as _;
use std::path::PathBuf;
use std::rc::Rc;

use clap::Args;

use super::logs::Logs;
use super::policy::compiled;
use crate::cli::shared::output_file;
use crate::cli::shared::rates::Rates;
use crate::cli::shared::screen::{Screen, Terminal, bytes_read, note};
use crate::cli::{Failure, Outcome};
use crate::history::measure::{By, Count, Period, Periods};
use crate::history::page::{Live, Page, WantedLog};
use crate::policy::source::FILE;
use crate::standing::page;
use crate::text::time::now;
use crate::text::{self, bytes, json};

/// The page has addresses of people: it is readable by its owner only.
const PRIVATE: u32 = 0o600;
/// Write a page for the browser: rates, limits and refusals
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Who sent how fast last month, and who would a limit have hit?
    exirate report /var/log/exim4 --output report.html
  What would a policy file have refused, and when?
    exirate report /var/log/exim4/mainlog --policy policy.toml --output report.html
  The same by customer of a policy file:
    exirate report /var/log/exim4 --by customer --policy policy.toml --output report.html
  Different recipients a day, by the client's address:
    exirate report /var/log/exim4 --by host --count different --period 1d --output report.html
  Only the state of the database:
    exirate report --output report.html

The page is one file, which loads nothing from the network: rates over time, a slider that computes
who a limit would have hit, what was refused, and who is over a limit now. It has the addresses of
users and clients, so only its owner can read it.

Exit status: 0 written; 2 an error.

The page is one file: it loads nothing from the network, and runs no script but its own. It shows
the rates of the busiest senders over time, a slider that recomputes who a limit would have hit, a
table of all senders, what refused them and when, and the hours of the week; and, from the
database, who is over a limit or close to it, and the crossings and logged refusals of the last 30
days, with what was sent where messages are recorded in the trace store.

Logs are found and read, and rates computed, as by `exirate measure`. The policies are evaluated
as by `exirate simulate`: those of --policy, or of /etc/exirate/policy.toml if it is there. The
page has the addresses of users and clients: its file is readable by its owner only.
docs/report.md explains each part.

With --json, what the page shows is written to FILE as JSON instead, with the fields that
docs/report.md lists.")]
pub(in crate::cli) struct Report {
    #[command(flatten)]
    logs: Logs,

    /// Write the page to FILE; - is standard output
    #[arg(long, short, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: PathBuf,

    /// Show the rates of these identities
    #[arg(long, value_name = "WHO", default_value = "auth")]
    by: By,

    /// Count this
    #[arg(long, value_name = "WHAT", default_value = "recipients")]
    count: Count,

    /// The period of the rates, as in a spec
    #[arg(long, value_name = "P", default_value = "1h", value_parser = period)]
    period: Period,

    /// Begin with this limit; the slider changes it
    #[arg(long, value_name = "M", value_parser = limit)]
    limit: Option<f64>,

    /// Evaluate the policies of this file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    policy: Option<PathBuf>,

    #[command(flatten)]
    common: Rates,
}

/// One period.
fn period(text: &str) -> Result<Period, String> {
    let mut periods = Periods::parse(text)?.0;
    match (periods.pop(), periods.is_empty()) {
        (Some(period), true) if period.calendar.is_none() => Ok(period),
        _ => Err("expected one period, such as 1h".to_owned()),
    }
}

/// A limit above 0.
fn limit(text: &str) -> Result<f64, String> {
    let limit = text.parse().ok().filter(|limit: &f64| *limit > 0.0 && limit.is_finite());
    limit.ok_or_else(|| "expected a number above 0, such as 100".to_owned())
}

impl Report {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let mut page = Page {
            version: env!("CARGO_PKG_VERSION"),
            made: text::local(now()),
            ..Page::default()
        };
        let mut cursor = None;
        if self.logs.is_empty() {
            // Without logs, the database must be there.
            page.live = Some(live(&self.common)?);
        } else {
            cursor = self.read_logs(&mut page)?;
            page.live = live_if_any(&self.common);
        }
        self.write(screen, &page)?;
        self.logs.keep_cursor(cursor.as_deref())?;
        Ok(Outcome::Fine)
    }

    fn read_logs(&self, page: &mut Page) -> Result<Option<String>, Failure> {
        let file = self.policy.clone().or_else(|| {
            let usual = PathBuf::from(FILE);
            usual.exists().then_some(usual)
        });
        let image = file.as_deref().map(compiled).transpose()?.map(|(_, image)| Rc::new(image));
        if self.by == By::Customer && image.is_none() {
            return Err(Failure::new("--by customer needs the customers of a file: --policy FILE"));
        }
        let wanted =
            WantedLog { by: self.by, count: self.count, period: &self.period, limit: self.limit };
        let files = self.logs.open()?;
        let policy = image.zip(file.as_deref());
        page.read_logs(&files, &wanted, policy, &mut bytes_read(&files)).map_err(Failure::new)
    }

    fn write(&self, screen: &mut Screen<'_>, page: &Page) -> Result<(), Failure> {
        let failed = |error: serde_json::Error| Failure::new(error.to_string());
        let text = match self.common.json {
            true => json(page).map_err(failed)? + "\n",
            false => page.html().map_err(failed)?,
        };
        if self.output.as_os_str() == "-" {
            screen.write_all(text.as_bytes())?;
            return Ok(());
        }
        output_file::replace(&self.output, PRIVATE, |output| {
            output.write_all(text.as_bytes()).map_err(Failure::from)
        })?;
        writeln!(screen, "{}: {}", self.output.display(), bytes(text.len() as u64))?;
        Ok(())
    }
}

/// The state of the database, which must exist.
fn live(rates: &Rates) -> Result<Live, Failure> {
    let mut store = rates.open()?;
    Ok(page::live(&mut *store, &mut rates.spool()?, &rates.directory()?, &Terminal)?)
}

/// The state of the database, if there is one; a note says what is wrong with one that
/// cannot be read.
fn live_if_any(rates: &Rates) -> Option<Live> {
    let left_out = |failure: Failure| {
        if let Failure::Said(why) = failure {
            note(format_args!("the page has no state of the database: {why}"));
        }
        None
    };
    match rates.spool_if_any() {
        Ok(None) => None,
        Ok(Some(_)) => live(rates).map_or_else(left_out, Some),
        // No spool directory was found: the logs may be those of another machine.
        Err(_) if rates.spool.is_none() => None,
        Err(failure) => left_out(failure),
    }
}
