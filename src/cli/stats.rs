//! `exirate stats`: how large the database is, and what has happened to it.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::database::{self, Common, now};
use super::figures::{Figures, bytes};
use super::screen::Screen;
use super::table::{Column, Layout};
use super::{Failure, Outcome, outfile, prometheus, text};

/// Permissions of the file for Prometheus, whose user is another.
const READABLE: u32 = 0o644;

/// Counts keys, and tells how the database is
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  How many keys are there, and how many are blocked?
    exirate stats
  For Prometheus, by the textfile collector of its node exporter:
    exirate stats --prometheus /var/lib/prometheus/node-exporter/exirate.prom
  How much of what it may take does it take?
    exirate stats --json | jq .fill

EVICTED keys went though they might have changed an answer, because the bound on
the size was reached: `exirate compact --max-size` sets it. FORGOTTEN ones could not
have. DAMAGED records are dropped when a check or `exirate repair` meets them. The
counts go on as long as the database is there. BYTES of a kind of key are those of
its records, without the index and what is dead.

--prometheus writes FILE.tmp and renames it, so that nobody reads a part of it.

Exit status: 0 counted; 2 an error. Where a file is damaged, the others are counted
all the same.

JSON: an object; `kinds` is an array of what is told for each mode and period, `fill`
the part of the bound that is taken, `over` how many keys would be refused one more
event of size 1.")]
pub(super) struct Stats {
    /// Prints Prometheus's text format, or writes it to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", conflicts_with = "json")]
    prometheus: Option<PathBuf>,

    #[command(flatten)]
    common: Common,
}

/// The figures, as JSON has them.
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    figures: &'a Figures,
    fill: f64,
}

impl Stats {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let now = now();
        let figures = Figures::of(&mut self.common.open()?, now)?;
        match &self.prometheus {
            Some(path) if path.as_os_str() == "-" => prometheus::write(screen, &figures, now)?,
            Some(path) => {
                outfile::replace(path, READABLE, |out| Ok(prometheus::write(out, &figures, now)?))?
            }
            None if self.common.json => {
                screen.json(&Answer { figures: &figures, fill: figures.fill() })?;
            }
            None => tell(screen, &figures)?,
        }
        screen.flush()?;
        database::incomplete(usize::try_from(figures.shards_unreadable).unwrap_or(usize::MAX))?;
        Ok(Outcome::Fine)
    }
}

fn tell(screen: &mut Screen<'_>, figures: &Figures) -> Result<(), Failure> {
    let rows = [
        ("keys", format!("{}, {} over the limit now", figures.keys, figures.over)),
        (
            "disk",
            format!(
                "{}, {} of the {} that it may take",
                bytes(figures.disk_bytes),
                text::percent(figures.fill()),
                bytes(figures.max_bytes)
            ),
        ),
        (
            "records",
            format!(
                "{}, of which {} filters, {} dead",
                bytes(figures.heap_bytes),
                bytes(figures.filter_bytes),
                bytes(figures.dead_bytes)
            ),
        ),
        ("index", format!("{} of {} entries taken", figures.keys, figures.index_entries)),
        ("shards", format!("{} of 256, {} rebuilt since", figures.shards, rebuilt(figures))),
        ("forgotten", figures.forgotten.to_string()),
        ("evicted", figures.evicted.to_string()),
        ("damaged", damaged(figures)),
        ("lock waits", figures.lock_waits.to_string()),
    ];
    for (name, value) in rows {
        writeln!(screen, "{name:<10}  {value}")?;
    }
    if figures.kinds.is_empty() {
        return Ok(());
    }
    writeln!(screen)?;
    let columns = [
        Column::numbers("KEYS"),
        Column::numbers("OVER"),
        Column::numbers("BYTES"),
        Column::words("PERIOD"),
        Column::words("MODE"),
    ];
    let cells = || {
        figures.kinds.iter().map(|kind| {
            let or_other = |text: &str| if text.is_empty() { "other" } else { text }.to_owned();
            [
                kind.keys.to_string(),
                kind.over.to_string(),
                bytes(kind.bytes),
                or_other(&kind.period),
                or_other(&kind.mode),
            ]
        })
    };
    let layout = Layout::of(screen, columns, cells());
    layout.head(screen)?;
    layout.write(screen, anstyle::Style::new(), cells(), None)?;
    Ok(())
}

/// How often shards were rebuilt: their first files do not count.
fn rebuilt(figures: &Figures) -> u64 {
    figures.rebuilds.saturating_sub(figures.shards)
}

fn damaged(figures: &Figures) -> String {
    let mut text = format!("{} records dropped", figures.dropped);
    if figures.damaged_now > 0 {
        text += &format!(", {} there now: see `exirate verify`", figures.damaged_now);
    }
    if figures.damaged_files > 0 {
        text += &format!(
            "; {} file(s) kept, {}",
            figures.damaged_files,
            bytes(figures.damaged_files_bytes)
        );
    }
    text
}
