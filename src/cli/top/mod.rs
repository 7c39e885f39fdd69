//! `exirate top`: the busiest keys, live.

mod look;
mod terminal;

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _, stdin, stdout};
use std::time::{Duration, Instant};

use anstyle::Style;
use clap::Args;

use super::database::Common;
use super::keys::{self, Narrow, Selection};
use super::list::{COLUMNS, OVER, Sort, cells};
use super::record;
use super::screen::Screen;
use super::table::Layout;
use super::{Failure, Outcome, text};
use crate::rate::Timestamp;
use look::{Look, Wanted};
use terminal::{Terminal, Wish};

/// Watches the busiest keys, live
#[derive(Debug, Args)]
#[command(after_help = help())]
pub(super) struct Top {
    /// Keys or globs; without any, all keys
    #[arg(value_name = "KEY")]
    keys: Vec<OsString>,

    #[command(flatten)]
    narrow: Narrow,

    /// Only keys of which one more event would be refused
    #[arg(long)]
    over: bool,

    /// What comes first
    #[arg(long, value_name = "BY", default_value = "share")]
    sort: Sort,

    /// At most N keys; without it, as many as there is room for
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    limit: Option<usize>,

    /// Looks every so many seconds
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "2",
        value_parser = interval,
        allow_negative_numbers = true
    )]
    interval: Duration,

    /// Looks once, and ends
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    common: Common,
}

/// What the help says besides the options.
fn help() -> String {
    format!(
        "Examples:
  What goes on?
    exirate top
  Who is blocked, of one domain, every ten seconds?
    exirate top '*@example.org' --over --interval 10
  One look, for a script or a mail to myself:
    exirate top --once --limit 10

Keys: q, Esc or ^C ends; o shows only those over their limits, or all again; s
sorts by share of the limit, r by rate, t by time, the latest first, k by key;
Enter looks at once; ^Z stops for a while. Where standard output is no terminal,
and with --json, it looks once.

The first line tells how many keys there are, how many are over their limits
now, and how many were active since the last look: had an event counted. Those
are bold. The columns are those of `exirate list`. A look at a large database
takes its time: the next one waits at least four times as long as that took.

{}

Exit status: 0 all is well; 1 a KEY is not remembered; 2 an error.

JSON: an object with `at`, `keys`, `over`, `active`, `unread` (damaged records, and
files that could not be read) and `records`, as those of `exirate list`. {}",
        keys::HELP,
        record::JSON_HELP
    )
}

/// How many keys are shown where nothing bounds them.
const MOST: usize = 20;
/// Lines of the live view that are no keys: two above, and the heads.
const OTHER_LINES: usize = 3;
/// A look may take this part of the time.
const PATIENCE: u32 = 4;

/// A time between looks: not so short that looking is all that is done.
fn interval(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.1..=86_400.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "it takes a number of seconds from 0.1 to 86400".to_owned())
}

impl Top {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let mut selection = Selection::new(&self.keys, &self.narrow)?;
        let mut spool = self.common.open()?;
        if self.keys.is_empty() {
            drop(spool);
        } else {
            selection.keys(&mut spool)?;
            if selection.report_missing(&mut spool)? {
                return Ok(Outcome::Found);
            }
        }
        let terminal = stdout().is_terminal() && stdin().is_terminal();
        if self.once || self.common.json || !terminal {
            self.look_once(screen, &mut selection)?;
        } else {
            self.watch(screen, &mut selection)?;
        }
        Ok(Outcome::Fine)
    }

    fn look_once(&self, screen: &mut Screen<'_>, selection: &mut Selection) -> Result<(), Failure> {
        let wanted = Wanted {
            sort: self.sort,
            over: self.over,
            most: self.limit.unwrap_or(MOST),
            last: before(super::database::now(), self.interval),
        };
        let look = Look::take(&self.common, selection, wanted)?;
        if self.common.json {
            return screen.json(&look.facts());
        }
        writeln!(screen, "{}\n", summary(&look, wanted))?;
        Ok(table(screen, &look, wanted, None)?)
    }

    /// Looks again and again, until the user has seen enough.
    fn watch(&self, screen: &mut Screen<'_>, selection: &mut Selection) -> Result<(), Failure> {
        let terminal = Terminal::take()?;
        let (mut sort, mut over) = (self.sort, self.over);
        let mut last = before(super::database::now(), self.interval);
        loop {
            let started = Instant::now();
            let (width, height) = terminal.size()?;
            let room = usize::from(height).saturating_sub(OTHER_LINES);
            let wanted = Wanted { sort, over, most: self.limit.unwrap_or(room).min(room), last };
            let look = Look::take(&self.common, selection, wanted);
            let mut bytes = Vec::new();
            {
                let mut page = screen.page(&mut bytes, width);
                match &look {
                    Ok(look) => draw(&mut page, look, wanted)?,
                    // It may be back at the next look.
                    Err(Failure::Said(what)) => writeln!(page, "{}", page.paint(OVER, what))?,
                    Err(Failure::Output(error)) => writeln!(page, "{error}")?,
                }
            }
            let lines = bytes.split(|&b| b == b'\n').take(usize::from(height));
            terminal.draw(screen, lines)?;

            let pause = self.interval.max(started.elapsed() * PATIENCE);
            match terminal.wait(Instant::now() + pause)? {
                Wish::Quit => return Ok(()),
                Wish::Key('o') => over = !over,
                Wish::Key('s') => sort = Sort::Share,
                Wish::Key('r') => sort = Sort::Rate,
                Wish::Key('t') => sort = Sort::Seen,
                Wish::Key('k') => sort = Sort::Key,
                Wish::Key(_) | Wish::Redraw => {}
                Wish::Nothing => {
                    if let Ok(look) = look {
                        last = look.at;
                    }
                }
            }
        }
    }
}

/// Writes a page of the live view.
fn draw(page: &mut Screen<'_>, look: &Look, wanted: Wanted) -> Result<(), Failure> {
    let sorted = match wanted.sort {
        Sort::Share => "share of the limit",
        Sort::Rate => "rate",
        Sort::Seen => "time",
        Sort::Key => "key",
    };
    let only = if wanted.over { "only those over their limits, " } else { "" };
    let first = page.paint(Style::new().bold(), summary(look, wanted));
    writeln!(page, "{first}")?;
    writeln!(page, "{only}by {sorted}; q quit, o only over, sort: s share r rate t time k key")?;
    Ok(table(page, look, wanted, Some(1))?)
}

/// `exirate 14:05:12  1024 keys, 3 over, 12 active in the last 2 s`.
fn summary(look: &Look, wanted: Wanted) -> String {
    let span = (look.at.as_seconds() - wanted.last.as_seconds()).max(0.0).round();
    let unread = match look.unread {
        0 => String::new(),
        unread => format!(", {unread} UNREADABLE (exirate verify)"),
    };
    format!(
        "exirate {}  {} keys, {} over, {} active in the last {}{unread}",
        text::clock(look.at),
        look.keys,
        look.over,
        look.active,
        text::duration(span),
    )
}

/// Writes the table of a look; `lines` a key at most.
fn table(
    screen: &mut Screen<'_>,
    look: &Look,
    wanted: Wanted,
    lines: Option<usize>,
) -> std::io::Result<()> {
    if look.records.is_empty() {
        return Ok(());
    }
    let rows = |records: &'_ [record::Record]| -> Vec<_> {
        records.iter().map(|record| cells(record, look.at)).collect()
    };
    let layout = Layout::of(screen, COLUMNS, rows(&look.records).into_iter());
    layout.head(screen)?;
    for record in &look.records {
        let style = if record.is_over(look.at) { OVER } else { Style::new() };
        let active = record.average.at > wanted.last;
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
