//! Lines that Exim writes twice by syslog.

use super::files::Stamped;
use super::sources::Source;
use crate::hash::FastMap;

/// At most so many processes are remembered.
const PROCESSES_MAX: usize = 16_384;

/// Refusals that Exim writes twice by syslog: for the main log and for the reject log
/// (`syslog_duplication`). The second line follows the first, of each refusal.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// The last refusal of each process that had no copy.
    last: FastMap<(u32, u32), (i64, String)>,
    /// Of each program: whether its refusals have copies.
    written_twice: FastMap<u32, bool>,
}

impl Copies {
    /// Whether a refusal is the copy of the one before.
    pub(super) fn is_copy(&mut self, source: Source, pid: Option<u32>, line: &Stamped<'_>) -> bool {
        let Some(pid) = pid else { return false };
        let service = source.service;
        if self.written_twice.get(&service) == Some(&false) {
            return false;
        }
        if self.last.len() >= PROCESSES_MAX {
            self.last.clear();
        }
        match self.last.remove(&(service, pid)) {
            // The second one may have the headers of the message as well.
            Some((at, text)) if at == line.at.seconds && line.rest.starts_with(&text) => {
                self.written_twice.insert(service, true);
                return true;
            }
            Some(_) => _ = self.written_twice.insert(service, false),
            None => {}
        }
        self.last.insert((service, pid), (line.at.seconds, line.rest.to_owned()));
        false
    }
}
