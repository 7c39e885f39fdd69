//! `exirate simulate`: what policies would have refused, from a log.

mod print;

use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::{Args, ValueEnum as _};

use self::print::RefusedEvents;
use super::logs::{Logs, print_unused};
use super::policy::compiled;
use crate::cli::shared::screen::{Screen, bytes_read, note};
use crate::cli::{Failure, Outcome};
use crate::history::measure::{By, MeasuredBy};
use crate::history::simulate::{
    AssumedRetries, Attempt, Comparison, Decided, Input, Refusals, Simulation, SimulationSettings,
    Stages, Summary, notes,
};
use crate::policy::image::Image;
use crate::policy::model::Policies;
use crate::policy::source::FILE;

/// Show what a policy file would have refused, from logs
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Who would have been refused last month, and by which limit?
    exirate simulate --policy policy.toml /var/log/exim4
  The same for each customer of the policy file?
    exirate simulate --policy policy.toml --by customer /var/log/exim4
  How many recipients, messages and logins would have been refused?
    exirate simulate --policy policy.toml /var/log/exim4/mainlog --events | wc -l
  What would a new file refuse that the one in use accepts, and the reverse?
    exirate simulate --policy policy.toml --against /etc/exirate/policy.toml /var/log/exim4

REFUSED counts the recipients, messages and logins that the limit refused, TIMES how often the key
went over it, OVER for how long in all, PEAK its highest rate. No database is read or changed. All
rates start at zero when the log does. log_selector = +all +millisec shows the most.

Exit status: 0 nobody would have been refused; 1 somebody would, or with --against, the two
files refuse different attempts; 2 an error, or no line could be used.

The policies are evaluated on the log's own times by the code that Exim runs, on rates in memory:
no database is read or changed. Logs are found and read as by `exirate measure`; their lines must
be in the order of time. log_selector = +all +millisec shows the most: sessions, and recipients.
docs/simulate.md says what each selector shows, and what no log shows.

Where a policy has habits, the accounts that would have raised an alarm are listed: when, and
after how many recipients. Habits start empty with the log, too.

Each row is a limit and a key. REFUSED counts the attempts that it refused: recipients,
messages at DATA, logins. TIMES is how often the key went over the limit, OVER for how long
in all, PEAK its highest rate. Times are in the log's zone; in UTC if the log has zones.

With --by, KEY is `customer:acme` or `domain:example.org`, of what its logins, local accounts and
scripts and its total were refused, TIMES and OVER are sums, and PEAK is the highest of a key; what
is of none has no KEY.

Assumed: all rates start at zero when the log does. Other mail servers try again what was
accepted then and is deferred now, as Exim does (--retry); users and local programs do not,
and nobody does after a refusal for good. What was refused then is not tried again.

docs/simulate.md lists the fields of --json. With --events, each attempt is an object on a
line of its own.")]
pub(in crate::cli) struct Simulate {
    /// Decide by this policy file
    #[arg(long, value_name = "FILE", default_value = FILE, value_hint = clap::ValueHint::FilePath)]
    policy: PathBuf,

    /// Compare with this policy file: which attempts does only one of the two refuse?
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with = "events")]
    against: Option<PathBuf>,

    #[command(flatten)]
    logs: Logs,

    /// Decide only by this policy of the file; several are separated by commas
    #[arg(long, value_name = "NAMES", default_value = "*")]
    only: String,

    /// The ACLs that evaluate the policies, separated by commas: connect, auth, mail, rcpt,
    /// predata, data, not-smtp
    #[arg(long, value_name = "STAGES", default_value = "auth,rcpt,data,not-smtp", value_parser = Stages::parse)]
    stages: Stages,

    /// How other mail servers try again: exim, never, or the waits before each retry, as in
    /// 5m,15m,1h
    #[arg(long, value_name = "WAITS", default_value = "exim", value_parser = AssumedRetries::parse)]
    retry: AssumedRetries,

    /// Show only the first N
    #[arg(long, value_name = "N")]
    top: Option<usize>,

    /// Add up the keys of each domain, or of each customer of the policy file
    #[arg(long, value_name = "GROUP", value_parser = group, conflicts_with_all = ["against", "events", "unused"])]
    by: Option<By>,

    /// Show each refused attempt, in the order of time, and no totals
    #[arg(long, conflicts_with = "top")]
    events: bool,

    /// Show the lines that are not used, by reason and with examples, and decide nothing
    #[arg(long, conflicts_with_all = ["against", "top", "events"])]
    unused: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A group by which keys are added up.
fn group(text: &str) -> Result<By, String> {
    let by = By::from_str(text, false).ok().filter(|by| by.is_of_group());
    by.ok_or_else(|| "expected domain or customer".to_owned())
}

impl Simulate {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let (policies, image) = compiled(&self.policy)?;
        let image = Rc::new(image);
        let mut simulation = self.simulation(&self.policy, &image)?;
        let other = match &self.against {
            Some(path) => Some((path, compiled(path)?)),
            None => None,
        };
        let files = self.logs.open()?;
        let mut input = Input::default();
        let noted = |policies: &Policies, input: &Input, simulation: &Simulation<'_>| {
            notes::of(policies, &self.only, &self.stages.0, input, simulation.totals())
        };
        let outcome = if self.unused {
            input.read(&files, &mut |_| {}, &mut |_| Ok(()), &mut bytes_read(&files))?;
            print_unused(screen, input.counts.used, &input.counts.unused, self.json)?
        } else if let Some((path, (other_policies, image))) = &other {
            let mut against = self.simulation(path, image)?;
            let mut comparison = Comparison::new(&self.policy, path);
            let decide =
                &mut |attempt: &Attempt| comparison.decide(&mut simulation, &mut against, attempt);
            input.read(&files, &mut |_| {}, decide, &mut bytes_read(&files))?;
            let mut notes = noted(&policies, &input, &simulation);
            for one in noted(other_policies, &input, &against) {
                if !notes.contains(&one) {
                    notes.push(one);
                }
            }
            notes.extend(notes::omitted(comparison.omitted()));
            notes.iter().for_each(note);
            let report = comparison.report(self.top, notes);
            let outcome = Outcome::found_if(report.counts.differ() > 0);
            let names = [&*self.policy, path];
            screen.show(self.json, &report, |screen, it| {
                print::print_comparison(screen, names, it)
            })?;
            outcome
        } else if self.events {
            let mut events = RefusedEvents::new(self.json);
            let decide = &mut |decided: &Decided<'_>| events.add(screen, decided);
            let each = &mut |attempt: &Attempt| simulation.decide(attempt, decide);
            input.read(&files, &mut |_| {}, each, &mut bytes_read(&files))?;
            simulation.finish(decide)?;
            noted(&policies, &input, &simulation).iter().for_each(note);
            events.finish()?
        } else {
            let mut refusals = Refusals::default();
            let decide = &mut |decided: &Decided<'_>| refusals.add(decided);
            let each = &mut |attempt: &Attempt| simulation.decide(attempt, decide);
            input.read(&files, &mut |_| {}, each, &mut bytes_read(&files))?;
            simulation.finish(decide)?;
            let mut notes = noted(&policies, &input, &simulation);
            notes.extend(notes::omitted(refusals.omitted()));
            notes.iter().for_each(note);
            let by = self.by.map(|by| MeasuredBy::new(by, Some(Rc::clone(&image)))).transpose()?;
            let mut summary = Summary::of(&self.policy, &simulation, refusals, &self.retry, notes);
            if let Some(by) = &by {
                summary.group(by);
            }
            let outcome = Outcome::found_if(summary.refused > 0);
            print::show(summary, screen, self.top, self.json)?;
            outcome
        };
        self.logs.keep_cursor(input.read.cursor.as_deref())?;
        Ok(outcome)
    }

    fn simulation<'i>(&self, path: &Path, image: &'i Image) -> Result<Simulation<'i>, Failure> {
        let settings = SimulationSettings {
            stages: self.stages.0.clone(),
            retry: self.retry.schedule.clone(),
        };
        Simulation::new(image, &self.only, settings)
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))
    }
}
