//! The thread that records messages in the trace store.

use std::path::{Path, PathBuf};

use crate::trace::{Access, Envelope, TraceStore, trace_directory};

/// What it records with.
pub(super) struct Recorder {
    directory: PathBuf,
    trace: Option<TraceStore>,
}

impl Recorder {
    /// One for the spool directory `spool`. The store is opened when it is needed.
    pub(super) fn new(spool: &Path) -> Self {
        Self { directory: trace_directory(spool), trace: None }
    }

    /// Records a message. Returns what is to be logged: why it is not recorded, and damage.
    pub(super) fn record(&mut self, envelope: &Envelope, message: &[u8]) -> Vec<String> {
        #[cfg(test)]
        assert!(envelope.id != "panic", "a test");
        let open = self.trace.take().filter(TraceStore::is_current);
        let opened = open.map_or_else(|| TraceStore::open(&self.directory, Access::Write), Ok);
        let mut trace = match opened {
            Ok(trace) => trace,
            Err(error) => return vec![not_recorded(&error)],
        };
        let recorded = trace.record(envelope, message);
        let mut lines: Vec<String> =
            trace.take_incidents().iter().map(ToString::to_string).collect();
        match recorded {
            Ok(()) => self.trace = Some(trace),
            // The error may be gone when it is opened again.
            Err(error) => lines.push(not_recorded(&error)),
        }
        lines
    }
}

/// The line about a message that is not recorded.
pub(super) fn not_recorded(why: &dyn std::fmt::Display) -> String {
    format!("a message is not recorded: {why}")
}
