//! `exirate report`: a page of HTML with the rates of a log and of the database.

mod live;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;
use std::rc::Rc;

use clap::Args;

use super::logs::{Logs, notes};
use super::measure::Periods;
use super::policy::compiled;
use super::simulate::Input;
use crate::cli::shared::output_file;
use crate::cli::shared::rates::Rates;
use crate::cli::shared::screen::Screen;
use crate::cli::{Failure, Outcome};
use crate::history::measure::{By, Count, MeasuredBy, Period};
use crate::history::page::{self, Evaluation, Log, Networks, Page, RatesOfLog, Who};
use crate::policy::source::FILE;
use crate::text;
use crate::text::time::now;
use crate::text::{bytes, counted};

/// The page has addresses of people: it is readable by its owner only.
const PRIVATE: u32 = 0o600;
/// Of so many identities with the highest peaks, and so many with the most refusals, the page
/// has the networks of their clients.
const DETAILS_MAX: usize = 1000;

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

/// The numbers of the identities with the highest peaks, and of those with the most refusals.
fn shown_in_detail(log: &Log, policy: Option<&page::Policy>) -> BTreeSet<usize> {
    let mut numbers: Vec<usize> = (0..log.names.len()).collect();
    numbers.sort_by(|&a, &b| log.peaks[b].total_cmp(&log.peaks[a]).then(a.cmp(&b)));
    let busiest = numbers.iter().copied().take(DETAILS_MAX).collect::<Vec<_>>();
    let refused = |number: usize| policy.and_then(|policy| *policy.of.get(number)?).unwrap_or(0);
    numbers.sort_by_key(|&number| Reverse(refused(number)));
    let refused = numbers.into_iter().filter(|&number| refused(number) > 0).take(DETAILS_MAX);
    busiest.into_iter().chain(refused).collect()
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
            page.live = Some(live::read(&self.common)?);
        } else {
            cursor = self.read_logs(&mut page)?;
            page.live = live::read_if_any(&self.common);
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
        let by = MeasuredBy::new(self.by, image.clone())?;
        let who = Who::new(by.clone());
        let mut evaluation = match (&image, &file) {
            (Some(image), Some(file)) => Some(Evaluation::new(image, file, who.clone())?),
            _ => None,
        };
        let files = self.logs.open()?;
        let mut rates = RatesOfLog::new(by, self.count, self.period.clone());
        // A client's own network says nothing more of it.
        let mut networks = (self.by != By::Host).then(|| Networks::new(who));
        let mut input = Input::default();
        input.read(&files, &mut |line| rates.add(line), &mut |attempt| {
            if let Some(networks) = &mut networks {
                networks.add(attempt);
            }
            evaluation.as_mut().map_or(Ok(()), |evaluation| evaluation.decide(attempt))
        })?;
        page.notes.extend(notes(&input.read, &input.counts.unused));
        let mut log = rates.finish(self.limit, &mut page.notes)?;
        if log.names.is_empty() {
            return Err(Failure::new(format!(
                "the log shows no {}: give another --by (sender, host, auth, user, domain, customer or all) or \
                 --count (messages, bytes, recipients or different)",
                log.who
            )));
        }
        if let Some(evaluation) = evaluation {
            page.policy = Some(evaluation.finish(&log.names)?);
        } else {
            page.notes.push(format!(
                "No policy was evaluated: {FILE} is not there, and --policy was not given."
            ));
        }
        if let Some(networks) = networks {
            if networks.omitted() > 0 {
                page.notes.push(format!(
                    "{} are not counted by their clients, as there are too many.",
                    counted(networks.omitted(), "message", "messages")
                ));
            }
            let of = shown_in_detail(&log, page.policy.as_ref());
            log.networks = networks.of(of.iter().map(|&id| (id, &*log.names[id])));
        }
        page.log = Some(log);
        Ok(input.read.cursor)
    }

    fn write(&self, screen: &mut Screen<'_>, page: &Page) -> Result<(), Failure> {
        let failed = |error: serde_json::Error| Failure::new(error.to_string());
        let text = match self.common.json {
            true => serde_json::to_string(page).map_err(failed)? + "\n",
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
