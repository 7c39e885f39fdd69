//! Lines that Exim writes twice by syslog.

use super::files::Stamped;
use super::sources::LogWriter;
use crate::hash::FastMap;
use crate::rate::Timestamp;

/// At most so many processes are remembered.
const PROCESSES_MAX: usize = 16_384;
/// A copy comes within so many microseconds: nobody is refused twice so fast.
const AT_ONCE: i64 = 500;

/// Refusals that Exim writes twice by syslog: for the main log and for the reject log
/// (`syslog_duplication`). The second line follows the first, of each refusal.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// The last refusal of each process that had no copy.
    last: FastMap<(u32, u32), (Timestamp, String)>,
    /// Of each program: whether its refusals have copies.
    written_twice: FastMap<u32, bool>,
}

impl Copies {
    /// Whether a refusal, or a login that failed, is the copy of the one before. Of equal logins in
    /// one second, this shows only where the refusals of the program have copies.
    pub(super) fn is_copy(
        &mut self,
        source: LogWriter,
        pid: u32,
        line: &Stamped<'_>,
        is_login: bool,
    ) -> bool {
        let service = source.service;
        let known = self.written_twice.get(&service).copied();
        if known == Some(false) || is_login && known.is_none() {
            return false;
        }
        if self.last.len() >= PROCESSES_MAX {
            self.last.clear();
        }
        match self.last.remove(&(service, pid)) {
            // The second one may have the headers of the message as well.
            Some((at, text)) if is_at_once(at, line.at) && line.rest.starts_with(&text) => {
                self.written_twice.insert(service, true);
                return true;
            }
            Some(_) if !is_login => _ = self.written_twice.insert(service, false),
            _ => {}
        }
        self.last.insert((service, pid), (line.at, line.rest.to_owned()));
        false
    }
}

/// Whether one line directly follows the other, as far as their times show it.
fn is_at_once(one: Timestamp, other: Timestamp) -> bool {
    let is_whole = one.micros == 0 && other.micros == 0;
    let apart = other.as_micros().saturating_sub(one.as_micros());
    if is_whole { apart == 0 } else { (0..AT_ONCE).contains(&apart) }
}
