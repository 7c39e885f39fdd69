//! `exirate copy`: a backup while the stores are in use.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::shared::database::Common;
use crate::cli::shared::output_file;
use crate::cli::shared::screen::{Screen, TERMINAL, Terminal, noted};
use crate::cli::{Failure, Json, Outcome};
use crate::policy::image::{ImageError, PolicyFile, install};
use crate::spool::{Options, Spool};
use crate::standing::databases::{Both, visit};
use crate::standing::in_force::InForce;
use crate::standing::key_state::KeyState;
use crate::text::{self, Voice as _, bytes, counted_or_no};

/// Copy the databases while they are in use
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Back up the databases:
    exirate copy /var/backups/exirate

The copy is as secret as the original. To restore it, stop the mail server, put DIR/exirate in place
of the directory exirate in the spool directory with the same owner and modes (cp -a), and start the
mail server.

Exit status: 0 copied; 1 the copy has problems, as the original has; 2 an error.

The copy is DIR/exirate, and DIR/exirate/trace for the trace store. It contains all records, the
overrides (`exirate allow`, `exirate deny`), the policies in use and the logs of `exirate events`,
but not audit.log and not quarantined files. DIR is created, readable by its owner only, if it
does not exist; it must not contain a database yet, nor belong to another user. Exim may run
meanwhile: each shard is locked while it is copied, so each record is consistent, but two records
may be from different moments. The copy is then verified. It is as secret as the original: anyone
who reads its keys can forge unique events and query the trace store.

To restore the whole copy, stop Exim, put DIR/exirate in place of the exirate directory in the
spool directory with the same owner and modes (cp -a), and start Exim. To restore rates only,
while Exim runs: `exirate export --spool DIR | exirate import -`. A record that is newer than that of
the copy is kept; overrides are not restored. Either way, a key that was unblocked after the copy
was made is blocked again: list --over shows such keys before, import reports their number, and
`exirate unblock --over` unblocks them.", add = Json::of::<CopyReport>())]
pub(in crate::cli) struct Copy {
    /// The directory for the copy
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    dir: PathBuf,

    #[command(flatten)]
    common: Common,
}

/// Where the copy is, and what it holds.
#[derive(Default, Serialize, JsonSchema)]
struct CopyReport {
    path: String,
    shards: usize,
    bytes: u64,
    records: u64,
    /// How many keys are blocked.
    over: u64,
    /// How many are in use.
    policies: Option<usize>,
    /// Null where there is no trace store.
    trace: Option<TraceReport>,
    problems: Vec<String>,
}

/// What was copied of the trace store, in JSON.
#[derive(Serialize, JsonSchema)]
struct TraceReport {
    files: u64,
    bytes: u64,
    messages: u64,
}

impl Copy {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let spool = self.common.directory()?;
        let mut both = Both::open(&spool, &Terminal)?;
        // What is copied belongs to the owner of the directory.
        let owner = std::fs::metadata(&spool).map_or(0, |spool| spool.uid());
        output_file::directory(&self.dir, owner)?;
        let mut report = CopyReport {
            path: self.dir.join("exirate").display().to_string(),
            ..CopyReport::default()
        };
        if let Some(rates) = &mut both.rates {
            copy_rates(rates, &spool, &self.dir, &mut report)?;
        }
        if let Some(traces) = &mut both.traces {
            let (of, mut progress) = (traces.stats()?.bytes, Terminal.progress("bytes"));
            let copied = traces.copy_to(&self.dir, &mut |done| progress(done, of))?;
            drop(progress);
            report.problems.extend(copied.problems.iter().map(ToString::to_string));
            report.trace = Some(TraceReport {
                files: copied.files,
                bytes: copied.bytes,
                messages: copied.verified.messages,
            });
        }
        copy_policies(&spool, &self.dir, &mut report)?;
        let rates = both.rates.is_some();
        screen.show(self.common.json, &report, |screen, it| print(screen, it, rates))?;
        Ok(Outcome::found_if(!report.problems.is_empty()))
    }
}

fn copy_rates(
    spool: &mut Spool,
    of: &Path,
    directory: &Path,
    report: &mut CopyReport,
) -> Result<(), Failure> {
    let copied = spool.copy_to(directory, TERMINAL.shards())?;
    report.problems.extend(spool.take_incidents());
    let mut copy = Spool::open_existing(directory, Options::default())?;
    let verified = copy.verify()?;
    // As `exirate list --over` has them of what is copied.
    let in_force = noted(InForce::of(spool, of));
    let mut over = 0;
    let mut count = |entry| over += u64::from(in_force.refuses(&KeyState::from(entry)));
    visit(&mut copy, &Terminal, &mut count)?;
    report.shards = copied.shards;
    report.bytes = copied.bytes;
    report.records = verified.records();
    report.over = over;
    report.problems.extend(verified.problems());
    Ok(())
}

/// Copies the policies in use, if there are any. A damaged image is not copied.
fn copy_policies(spool: &Path, directory: &Path, report: &mut CopyReport) -> Result<(), Failure> {
    let in_use = PolicyFile::open(spool);
    let copied = match in_use.image() {
        Err(ImageError::Absent { .. }) => return Ok(()),
        Err(error) => Err(error.to_string()),
        Ok(image) => match image.policies() {
            Err(error) => Err(error.to_string()),
            Ok(policies) => {
                install(directory, &image.to_bytes())?;
                Ok(policies.policies.len())
            }
        },
    };
    match copied {
        Ok(policies) => report.policies = Some(policies),
        Err(problem) => report.problems.push(problem),
    }
    Ok(())
}

fn print(screen: &mut Screen<'_>, report: &CopyReport, rates: bool) -> std::io::Result<()> {
    for problem in &report.problems {
        writeln!(screen, "{}", text::printable(problem.as_bytes()))?;
    }
    if rates {
        writeln!(
            screen,
            "copied {} in {}, {}, to {}; {} blocked",
            counted_or_no(report.records, "record", "records"),
            counted_or_no(report.shards, "shard", "shards"),
            bytes(report.bytes),
            report.path,
            report.over
        )?;
    }
    if let Some(policies) = report.policies {
        let policies = counted_or_no(policies, "policy", "policies");
        writeln!(screen, "copied {policies} to {}/policy.image", report.path)?;
    }
    if let Some(trace) = &report.trace {
        writeln!(
            screen,
            "copied {} messages in {} trace files, {}, to {}/trace",
            trace.messages,
            trace.files,
            bytes(trace.bytes),
            report.path
        )?;
    }
    Ok(())
}
