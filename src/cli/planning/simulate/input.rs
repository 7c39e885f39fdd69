//! Reads logs, as attempts.

use crate::cli::Failure;
use crate::cli::shared::screen::{note, progress};
use crate::history::simulate::{Attempt, Converter, SimulateError, Unshown};
use crate::logs::files::{LogFiles, Stamped};
use crate::logs::item::Item;
use crate::logs::messages::{JoinCounts, JoinSettings, Joiner};
use crate::text::counted_or_no;
use crate::text::printable;

/// What was read.
#[derive(Debug, Default)]
pub(in crate::cli) struct Input {
    /// What the log did not show.
    pub(in crate::cli) unshown: Unshown,
    /// What became of the lines.
    pub(in crate::cli) counts: JoinCounts,
}

impl Input {
    /// Calls `see` with each line of the logs that has a time, and `decide` with all attempts.
    pub(in crate::cli) fn read(
        &mut self,
        files: &LogFiles,
        see: &mut dyn FnMut(&Stamped<'_>),
        decide: &mut dyn FnMut(&Attempt) -> Result<(), SimulateError>,
    ) -> Result<(), Failure> {
        let mut joiner = Joiner::new(JoinSettings::default());
        let mut converter = Converter::default();
        let mut error = None;
        let mut attempts = 0_u64;
        let mut decide = |attempt: &Attempt| {
            attempts += 1;
            if error.is_none() {
                error = decide(attempt).err();
            }
        };
        let bar = progress(files.size(), "bytes");
        let skipped = files.read(
            |line| {
                see(&line);
                joiner.line(&line, &mut |item: Item| converter.add(item, &mut decide));
            },
            |bytes| bar.set_position(bytes),
        )?;
        joiner.finish(&mut |item| converter.add(item, &mut decide));
        converter.finish(&mut decide);
        bar.finish_and_clear();
        if let Some(error) = error {
            return Err(error.into());
        }
        if let Some((place, line)) = &skipped.first {
            note(format_args!(
                "{} without a time at the start, of {}, skipped; the first is {place}: {}",
                counted_or_no(skipped.lines, "line", "lines"),
                counted_or_no(skipped.of, "line", "lines"),
                printable(line.as_bytes())
            ));
        }
        if attempts == 0 {
            return Err(Failure::new(
                "no line shows mail that came in: expected Exim's main log or Postfix's syslog",
            ));
        }
        self.unshown = converter.unshown();
        self.counts = joiner.counts().clone();
        Ok(())
    }
}
