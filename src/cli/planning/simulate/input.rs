//! Reads logs, as attempts.

use crate::cli::Failure;
use crate::cli::shared::screen::progress;
use crate::history::simulate::{Attempt, Converter, SimulateError, Unshown};
use crate::logs::files::{LogFiles, Read, Stamped};
use crate::logs::item::Item;
use crate::logs::messages::{JoinCounts, JoinSettings, Joiner};

/// What was read.
#[derive(Debug, Default)]
pub(in crate::cli) struct Input {
    /// What the log did not show.
    pub(in crate::cli) unshown: Unshown,
    /// What became of the lines.
    pub(in crate::cli) counts: JoinCounts,
    /// What was read of the logs.
    pub(in crate::cli) read: Read,
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
        self.read = files.read(
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
        self.unshown = converter.unshown();
        self.counts = joiner.counts().clone();
        self.counts.unused.join(std::mem::take(&mut self.read.unused));
        if attempts == 0 {
            return Err(Failure::new(
                "no line shows mail that came in: expected the main log of Exim, or the log of \
                 Postfix or Sendmail",
            ));
        }
        Ok(())
    }
}
