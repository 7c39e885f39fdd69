//! Statistics of the store.

use super::sources::Source;
use super::{TraceError, TraceStore, names};

/// Statistics of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceStats {
    /// Messages that can be queried.
    pub messages: u64,
    /// Sealed segments.
    pub segments: u64,
    /// Logs: the open one, and those to be sealed.
    pub logs: u64,
    /// Bytes of all logs and segments.
    pub bytes: u64,
    /// Messages in sealed segments.
    pub sealed: u64,
    /// Bytes of sealed segments.
    pub sealed_bytes: u64,
    /// Bytes of digests in sealed segments.
    pub digest_bytes: u64,
    /// Damaged parts of logs that were lost when the logs were sealed.
    pub lost: u64,
    /// The time of the oldest message in a sealed segment, in seconds since
    /// 1970.
    pub oldest: Option<i64>,
    /// Files that were written with another key and cannot be queried.
    pub other_key: u64,
    /// Files too damaged to be queried.
    pub damaged: u64,
    /// Files that could not be read and were quarantined by a repair.
    pub quarantined: u64,
    /// The shortest excerpt, in bytes of normalised text, that is always found
    /// in messages recorded now.
    pub shortest: usize,
}

impl TraceStore {
    /// Computes statistics from the heads of the files.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn stats(&self) -> Result<TraceStats, TraceError> {
        let sources = self.sources()?;
        let mut stats = TraceStats {
            other_key: sources.other_key,
            damaged: sources.problems.len() as u64,
            shortest: self.options.settings.scheme(&self.key.digest).shortest(),
            ..TraceStats::default()
        };
        let quarantined = names::list_all(&self.dir)?;
        stats.quarantined =
            quarantined.iter().filter(|numbered| numbered.kind.is_quarantined()).count() as u64;
        for (_, source) in &sources.list {
            stats.messages += source.messages();
            stats.bytes += source.bytes();
            match source {
                Source::Log(_) => stats.logs += 1,
                Source::Segment(segment) => {
                    stats.segments += 1;
                    stats.lost += u64::from(segment.head.lost);
                    stats.sealed += source.messages();
                    stats.sealed_bytes += source.bytes();
                    stats.digest_bytes += segment.head.body;
                    let oldest = segment.head.times[0];
                    stats.oldest = Some(stats.oldest.map_or(oldest, |known| known.min(oldest)));
                }
            }
        }
        Ok(stats)
    }
}
