//! Reads logs, as attempts.

use super::attempt::Attempt;
use super::convert::{Converter, Unshown};
use super::decided::SimulateError;
use crate::logs::files::{LogFiles, Read, Stamped};
use crate::logs::item::Item;
use crate::logs::messages::{JoinCounts, JoinSettings, Joiner};

/// What was read.
#[derive(Debug, Default)]
pub struct Input {
    /// What the log did not show.
    pub unshown: Unshown,
    /// What became of the lines.
    pub counts: JoinCounts,
    /// What was read of the logs.
    pub read: Read,
}

impl Input {
    /// Calls `see` with each line of the logs that has a time, `decide` with all attempts, and
    /// `progress` with how many bytes have been read.
    ///
    /// # Errors
    /// The logs cannot be read, `decide` fails, or there is no attempt.
    pub fn read(
        &mut self,
        files: &LogFiles,
        see: &mut dyn FnMut(&Stamped<'_>),
        decide: &mut dyn FnMut(&Attempt) -> Result<(), SimulateError>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), SimulateError> {
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
        self.read = files.read(
            |line| {
                see(&line);
                joiner.line(&line, &mut |item: Item| converter.add(item, &mut decide));
            },
            progress,
        )?;
        joiner.finish(&mut |item| converter.add(item, &mut decide));
        converter.finish(&mut decide);
        if let Some(error) = error {
            return Err(error);
        }
        self.unshown = converter.unshown();
        self.counts = joiner.counts().clone();
        self.counts.unused.join(std::mem::take(&mut self.read.unused));
        if attempts == 0 {
            return Err(SimulateError::NoMail);
        }
        Ok(())
    }
}
