//! `exirate trace repair`: repair what `verify` finds.

use std::io::Write as _;

use clap::Args;
use serde::Serialize;

use super::super::screen::{Screen, complain};
use super::super::{Failure, Outcome, text};
use super::open::{Common, bar};
use crate::trace::Problem;

/// Repair the trace store
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Repair what can be repaired:
    exirate trace repair
  What is damaged? Nothing is changed:
    exirate trace verify

Exim may run meanwhile. What is stored twice (the key, the settings, the heads and tables
of segments) is written again from the copy that is sound. A damaged log is sealed with
all messages that are sound in it. Owners and modes of files are corrected. A file that
cannot be read at all is renamed to *.damaged, and is removed when it is older than
messages are kept. A segment of which a part is lost stays as it is: the rest of it can
still be queried.

Exit status: 0 there was nothing to repair; 1 something was repaired, or is still damaged;
2 an error.

JSON: an object; `done` is what was done, `left` what is still wrong; arrays of texts.")]
pub(super) struct Repair {
    #[command(flatten)]
    common: Common,
}

/// What was done, as JSON has it.
#[derive(Serialize)]
struct Report {
    done: Vec<String>,
    left: Vec<String>,
}

impl Repair {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let mut store = self.common.open_to_change()?;
        let repaired = store.repair(&mut bar("messages"))?;
        let texts = |problems: &[Problem]| problems.iter().map(Problem::to_string).collect();
        let report = Report { done: texts(&repaired.done), left: texts(&repaired.left) };
        if self.common.json {
            screen.json(&report)?;
        } else {
            for done in &report.done {
                writeln!(screen, "{}", text::printable(done.as_bytes()))?;
            }
            report.left.iter().for_each(complain);
            match (report.done.len(), report.left.len()) {
                (0, 0) => writeln!(screen, "sound: nothing to repair")?,
                (done, left) => writeln!(screen, "{done} repair(s), {left} problem(s) left")?,
            }
        }
        Ok(Outcome::found_if(!report.done.is_empty() || !report.left.is_empty()))
    }
}
