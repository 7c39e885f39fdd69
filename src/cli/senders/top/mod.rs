//! `exirate top`: the busiest keys, live.

mod terminal;

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _, stdin, stdout};
use std::time::{Duration, Instant};

use anstyle::Style;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use terminal::{Input, Terminal};

use super::list::{COLUMNS, OVER, cells};
use crate::cli::shared::complete;
use crate::cli::shared::keys::{self, Narrow, Selection};
use crate::cli::shared::rates::Rates;
use crate::cli::shared::screen::Screen;
use crate::cli::shared::table::Layout;
use crate::cli::{Failure, Json, Outcome};
use crate::rate::Timestamp;
use crate::standing::bypass_state;
use crate::standing::in_force::InForce;
use crate::standing::key_state::KeyState;
use crate::standing::listed::{First, Listed, Sort};
use crate::text;

/// Show the busiest keys, live
#[derive(Debug, Args)]
#[command(after_help = help(), add = Json::of::<SnapshotJson>())]
pub(in crate::cli) struct Top {
    /// Show these keys or globs; the default is all keys
    #[arg(value_name = "KEY", add = complete::keys())]
    keys: Vec<OsString>,

    #[command(flatten)]
    narrow: Narrow,

    /// Show only keys that are blocked: one more event would be refused
    #[arg(long)]
    over: bool,

    /// Sort by this
    #[arg(long, value_name = "BY", default_value = "share")]
    sort: Sort,

    /// Show at most N keys; the default is as many as fit the terminal
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    limit: Option<usize>,

    /// Refresh every SECONDS
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "2",
        value_parser = interval,
        allow_negative_numbers = true
    )]
    interval: Duration,

    /// Print once and exit
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    common: Rates,
}

/// What the help says besides the options.
fn help() -> String {
    format!(
        "Examples:
  Watch all keys:
    exirate top
  Watch those of one domain that are blocked, every ten seconds:
    exirate top '*@example.org' --over --interval 10
  Print once, for a script or a mail:
    exirate top --once --limit 10

q, Esc or ^C quits; o shows only keys that are blocked, or all again; s sorts by share of the limit,
r by rate, t by time, k by key; Enter refreshes.

Exit status: 0 shown; 1 a KEY matches nothing; 2 an error.

Keys on the keyboard: q, Esc or ^C quits; o shows only keys that are blocked, or all
again; s sorts by share of the limit, r by rate, t by time (latest first), k by key;
Enter refreshes at once; ^Z suspends. Where standard output is not a terminal, and
with --json, it prints once.

The first line shows how many keys there are, how many are blocked now, and
how many had an event counted since the last refresh; these are bold. The columns are
those of `exirate list`: RATE is the level of a leaky bucket, and what decides instead of
the rate is in parentheses, such as (allowed) or (exempt). Reading a large database takes
time: the next refresh waits at least four times as long as the last one took.

{manual}",
        manual = keys::MANUAL
    )
}

/// How many keys are printed by default.
const LIMIT: usize = 20;
/// Lines of the live view besides keys: two above, and the column heads.
const OTHER_LINES: usize = 3;
/// How many times longer than the last snapshot took the next one waits.
const PAUSE: u32 = 4;

/// The time between snapshots.
fn interval(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.1..=86_400.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "expected a number of seconds from 0.1 to 86400".to_owned())
}

impl Top {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let mut selection = Selection::new(&self.keys, &self.narrow, &self.common.folding()?)?;
        let mut store = self.common.open()?;
        if self.keys.is_empty() {
            drop(store);
        } else {
            selection.keys(&mut *store)?;
            if selection.report_missing(&mut *store)? {
                return Ok(Outcome::Found);
            }
        }
        let terminal = stdout().is_terminal() && stdin().is_terminal();
        if self.once || self.common.json || !terminal {
            self.print_once(screen, &mut selection)?;
        } else {
            self.watch(screen, &mut selection)?;
        }
        Ok(Outcome::Fine)
    }

    fn print_once(
        &self,
        screen: &mut Screen<'_>,
        selection: &mut Selection,
    ) -> Result<(), Failure> {
        let view = View {
            sort: self.sort,
            over: self.over,
            limit: self.limit.unwrap_or(LIMIT),
            last: before(crate::text::time::now(), self.interval),
        };
        let snapshot = Snapshot::take(&self.common, selection, view)?;
        if self.common.json {
            return screen.json(&snapshot.json());
        }
        writeln!(screen, "{}\n", summary(&snapshot, view))?;
        Ok(table(screen, &snapshot, view, None)?)
    }

    /// Shows the live view until the user quits.
    fn watch(&self, screen: &mut Screen<'_>, selection: &mut Selection) -> Result<(), Failure> {
        let terminal = Terminal::take()?;
        let (mut sort, mut over) = (self.sort, self.over);
        let spool = self.common.directory()?;
        let mut last = before(crate::text::time::now(), self.interval);
        loop {
            let started = Instant::now();
            let (width, height) = terminal.size()?;
            let bypass = match bypass_state::state(&spool) {
                Some(bypass_state::BypassState::Active(what)) => Some(what),
                _ => None,
            };
            let others = OTHER_LINES + usize::from(bypass.is_some());
            let room = usize::from(height).saturating_sub(others);
            let view = View { sort, over, limit: self.limit.unwrap_or(room).min(room), last };
            let snapshot = Snapshot::take(&self.common, selection, view);
            let mut bytes = Vec::new();
            {
                let mut page = screen.page(&mut bytes, width);
                if let Some(bypass) = &bypass {
                    writeln!(page, "{}", page.paint(OVER, bypass))?;
                }
                match &snapshot {
                    Ok(snapshot) => draw(&mut page, snapshot, view)?,
                    // The next snapshot may succeed.
                    Err(Failure::Said(what)) => writeln!(page, "{}", page.paint(OVER, what))?,
                    Err(Failure::Output(error)) => writeln!(page, "{error}")?,
                }
            }
            let lines = bytes.split(|&b| b == b'\n').take(usize::from(height));
            terminal.draw(screen, lines)?;

            let pause = self.interval.max(started.elapsed() * PAUSE);
            match terminal.wait(Instant::now() + pause)? {
                Input::Quit => return Ok(()),
                Input::Key('o') => over = !over,
                Input::Key('s') => sort = Sort::Share,
                Input::Key('r') => sort = Sort::Rate,
                Input::Key('t') => sort = Sort::Seen,
                Input::Key('k') => sort = Sort::Key,
                Input::Key(_) | Input::Redraw => {}
                Input::Timeout => {
                    if let Ok(snapshot) = snapshot {
                        last = snapshot.at;
                    }
                }
            }
        }
    }
}

/// Writes a page of the live view.
fn draw(page: &mut Screen<'_>, snapshot: &Snapshot, view: View) -> Result<(), Failure> {
    let sorted = match view.sort {
        Sort::Share => "share of the limit",
        Sort::Rate => "rate",
        Sort::Seen => "time",
        Sort::Key => "key",
    };
    let only = if view.over { "only those that are blocked, " } else { "" };
    let first = page.paint(Style::new().bold(), summary(snapshot, view));
    writeln!(page, "{first}")?;
    writeln!(page, "{only}by {sorted}; q quit, o only blocked, sort: s share r rate t time k key")?;
    Ok(table(page, snapshot, view, Some(1))?)
}

/// `exirate 14:05:12  1024 keys, 3 blocked, 12 active in the last 2s`.
fn summary(snapshot: &Snapshot, view: View) -> String {
    let span = (snapshot.at.as_seconds() - view.last.as_seconds()).max(0.0).round();
    let unread = match snapshot.unread {
        0 => String::new(),
        unread => format!(", {unread} UNREADABLE (exirate verify)"),
    };
    format!(
        "exirate {}  {} keys, {} blocked, {} active in the last {}{unread}",
        text::clock(snapshot.at),
        snapshot.keys,
        snapshot.over,
        snapshot.active,
        text::duration(span),
    )
}

/// Writes the table of a snapshot, at most `lines` lines a key.
fn table(
    screen: &mut Screen<'_>,
    snapshot: &Snapshot,
    view: View,
    lines: Option<usize>,
) -> std::io::Result<()> {
    if snapshot.records.is_empty() {
        return Ok(());
    }
    let rows = |records: &'_ [KeyState]| -> Vec<_> {
        records.iter().map(|record| cells(record, &snapshot.in_force)).collect()
    };
    let layout = Layout::of(screen, COLUMNS, rows(&snapshot.records).into_iter());
    layout.head(screen)?;
    for record in &snapshot.records {
        let style = if snapshot.in_force.refuses(record) { OVER } else { Style::new() };
        let active = record.average.at > view.last;
        let style = if active { style.bold() } else { style };
        layout.write(screen, style, rows(std::slice::from_ref(record)).into_iter(), lines)?;
    }
    Ok(())
}

/// The moment `span` before `at`.
fn before(at: Timestamp, span: Duration) -> Timestamp {
    let micros = i64::from(at.micros) - i64::from(span.subsec_micros());
    let borrow = i64::from(micros < 0);
    Timestamp {
        seconds: at.seconds.saturating_sub_unsigned(span.as_secs()) - borrow,
        // 0 to 999 999.
        micros: (micros + borrow * 1_000_000) as u32,
    }
}

/// The keys at one moment.
pub(super) struct Snapshot {
    pub(super) at: Timestamp,
    /// How many keys are selected.
    pub(super) keys: u64,
    /// How many of them are blocked: their next event would be refused.
    pub(super) over: u64,
    /// How many had an event counted since the last snapshot.
    pub(super) active: u64,
    /// Shards that could not be read, damaged records, and overrides and policies that could
    /// not be read.
    pub(super) unread: u64,
    /// The first of them.
    pub(super) records: Vec<KeyState>,
    pub(super) in_force: InForce,
}

/// What a snapshot shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub(super) sort: Sort,
    /// Only keys that are blocked are shown; all are counted.
    pub(super) over: bool,
    /// How many are shown at most.
    pub(super) limit: usize,
    /// When the last snapshot was taken.
    pub(super) last: Timestamp,
}

impl Snapshot {
    /// Reads the database. It is opened again each time, in case it was
    /// replaced.
    pub(super) fn take(
        common: &Rates,
        selection: &mut Selection,
        view: View,
    ) -> Result<Self, Failure> {
        let mut store = common.open()?;
        let (in_force, problems) = InForce::of(&mut *store, &common.directory()?);
        let at = in_force.now;
        let mut first = First::new(view.sort, at, view.limit);
        let (mut keys, mut over, mut active) = (0, 0, 0);
        let left_out = store.for_each(&mut |entry| {
            if !selection.contains(&entry.record_key()) {
                return;
            }
            let record = KeyState::from(entry);
            let is_over = in_force.refuses(&record);
            keys += 1;
            over += u64::from(is_over);
            active += u64::from(record.average.at > view.last);
            if is_over || !view.over {
                first.add(record);
            }
        })?;
        let unread = left_out.damaged + left_out.parts.len() as u64 + problems.len() as u64;
        let records = first.take().collect();
        Ok(Self { at, keys, over, active, unread, records, in_force })
    }

    /// The snapshot in JSON.
    pub(super) fn json(&self) -> SnapshotJson {
        SnapshotJson {
            at: text::iso(self.at),
            keys: self.keys,
            over: self.over,
            active: self.active,
            unread: self.unread,
            records: self.records.iter().map(|record| Listed::of(record, &self.in_force)).collect(),
        }
    }
}

/// A [`Snapshot`] in JSON.
#[derive(Serialize, JsonSchema)]
pub(super) struct SnapshotJson {
    at: String,
    keys: u64,
    over: u64,
    active: u64,
    /// Damaged records, and files that could not be read.
    unread: u64,
    records: Vec<Listed>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_before() {
        let at = Timestamp { seconds: 100, micros: 250_000 };
        let before = |seconds| before(at, Duration::from_secs_f64(seconds));
        assert_eq!(before(2.0), Timestamp { seconds: 98, micros: 250_000 });
        assert_eq!(before(0.5), Timestamp { seconds: 99, micros: 750_000 });
    }

    #[test]
    fn intervals_are_sensible() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "nan", "1e9", "soon", ""] {
            assert!(interval(text).is_err(), "{text}");
        }
    }
}
