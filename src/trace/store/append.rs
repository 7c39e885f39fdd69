//! Recording: one record is appended to the open log.

use crate::sys::clock;
use crate::sys::files::{self, Access};
use crate::versions::{OtherVersion, Versions};

use super::super::decode;
use super::super::{Envelope, Settings};
use super::cipher::{NONCE_BYTES, Nonce, random};
use super::key::{self, DerivedKeys};
use super::log::{Log, LogExtent, LogFault};
use super::names::{self, FileKind, Numbered, OPEN, OPEN_NEW};
use super::options::Options;
use super::{LOCK_TIMEOUT, TraceError, TraceStore, record, wire};

/// How often a message is digested again because the settings have changed in
/// the meantime.
const ATTEMPTS: u32 = 3;
/// A log is full after this fraction of the retention time, and a segment spans no more: all
/// of its messages are removed together, when the last one has expired.
pub(super) const KEEP_PARTS: u64 = 16;
/// A log is full after so many seconds: a day.
const AGE_MAX: u64 = 86_400;

/// A message of at most so many bytes is small.
const SMALL: usize = 32 << 10;

/// The result of appending a record.
enum Appended {
    /// It was appended; whether a full log was renamed first.
    Done { rotated: bool },
    /// The settings or the key have changed since it was digested.
    Stale(Stale),
}

/// What has changed since the store was opened.
enum Stale {
    Settings(Options),
    /// A new key, and the file that contains it.
    Key(DerivedKeys, Option<(u64, u64)>),
}

/// Checks that there is enough memory to decode a message of so many bytes:
/// running out of it halfway would end the whole process, which may be Exim.
///
/// Four times the size of the message is for its decoded forms; up to three
/// times the limit of decoded text is for text that grows when it is
/// normalised, into a buffer that doubles. Measured, in addition to the process
/// itself and including the message: 13 times its length for 2 MiB of U+FDFA,
/// which grows elevenfold, 5 for 10 MiB and 4 for 45; 6, 4 and 3 for HTML.
///
/// Small messages are not checked, as that would take longer than all their
/// allocations. If there is not even memory for one of them, the process ends.
fn require_memory(bytes: usize) -> Result<(), TraceError> {
    if bytes <= SMALL {
        return Ok(());
    }
    let growth = bytes.saturating_mul(12).min(3 * decode::Limits::default().text);
    let wanted = bytes.saturating_mul(4).saturating_add(growth);
    let mut probe = Vec::<u8>::new();
    let reserved = probe.try_reserve_exact(wanted);
    // Keeps the compiler from removing the unused allocation.
    std::hint::black_box(&mut probe);
    reserved.map_err(|_| TraceError::Memory { bytes, wanted })
}

impl TraceStore {
    /// Records a message whose header and body are `message`, as received or
    /// sent, with either kind of line ends.
    ///
    /// About once in 256 messages, a log is full. Then it is also sealed, small segments are
    /// merged, and expired messages are removed. Errors of that are returned by
    /// [`TraceStore::take_incidents`].
    ///
    /// It does not wait for the disk: after a power failure, the messages of
    /// the last half minute or so may be lost.
    ///
    /// # Errors
    /// The store cannot be used, or there is not enough memory; nothing was
    /// recorded.
    pub fn record(&mut self, envelope: &Envelope, message: &[u8]) -> Result<(), TraceError> {
        require_memory(message.len())?;
        for _ in 0..ATTEMPTS {
            let (digest, whole) = self.digest(message);
            let partial = (!whole).then(|| Envelope { partial: true, ..envelope.clone() });
            if self.append(partial.as_ref().unwrap_or(envelope), &digest)? {
                return Ok(());
            }
        }
        Err(crate::sys::secure_dir::DirError::Unsettled {
            path: self.dir.path_of(super::options::SETTINGS),
        }
        .into())
    }

    /// Records a message that was digested with the settings in
    /// [`TraceStore::options`]. Returns false if the settings or the key have
    /// changed: `self` has the new ones then, and the message must be digested
    /// again.
    ///
    /// # Errors
    /// The store cannot be used; nothing was recorded.
    pub(super) fn append(
        &mut self,
        envelope: &Envelope,
        digest: &[u8],
    ) -> Result<bool, TraceError> {
        self.require_writable()?;
        self.after_fork()?;
        let age = clock::now().0.saturating_sub(envelope.time).max(0).unsigned_abs();
        if let Some(keep) = self.options.keep.filter(|&keep| age > keep) {
            return Err(TraceError::TooOld { seconds: age, keep });
        }
        let before = self.open_log.take();
        let (appended, log) = self.append_record(before, &wire::encode(envelope), digest)?;
        self.open_log = log;
        match appended {
            Appended::Done { rotated } => {
                if rotated {
                    self.seal_after_recording();
                }
                Ok(true)
            }
            Appended::Stale(stale) => {
                match stale {
                    Stale::Settings(options) => self.options = options,
                    Stale::Key(key, file) => (self.key, self.key_file) = (key, file),
                }
                Ok(false)
            }
        }
    }

    /// Appends a record to the open log, which may be `before`; returns that
    /// log.
    fn append_record(
        &self,
        before: Option<Log>,
        envelope: &[u8],
        digest: &[u8],
    ) -> Result<(Appended, Option<Log>), TraceError> {
        // One system call for both.
        let [nonce, status_nonce] = two_nonces()?;
        let record = record::make(&self.key, nonce, envelope, digest)?;
        let _guard = self.dir.lock_directory(LOCK_TIMEOUT)?;
        let (mut log, status, rotated) = match self.usable_log(before)? {
            Usable::Log(log, status) => (log, status, false),
            Usable::Stale(stale) => return Ok((Appended::Stale(stale), None)),
            Usable::None { rotated } => {
                let options = Options::read(&self.dir)?;
                if options.settings != self.options.settings {
                    return Ok((Appended::Stale(Stale::Settings(options)), None));
                }
                let log = self.begin_log(options.settings)?;
                let status = log.status.unwrap_or(LogExtent { end: log.size, messages: 0 });
                (log, status, rotated)
            }
        };
        log.append(status, record, &self.key, status_nonce)
            .map_err(self.dir.failed("write", OPEN))?;
        Ok((Appended::Done { rotated }, Some(log)))
    }

    /// The open log, if another record can be appended to it. A full or
    /// unusable log is renamed to its number. The directory is locked.
    fn usable_log(&self, before: Option<Log>) -> Result<Usable, TraceError> {
        // If the key was destroyed, nothing more may be recorded with it.
        if self.key_file != key::identity(&self.dir) {
            let key = DerivedKeys::open_locked(&self.dir)?;
            return Ok(Usable::Stale(Stale::Key(key, key::identity(&self.dir))));
        }
        let found = match before.map(|log| log.refresh(&self.dir, &self.key, OPEN)) {
            Some(Some(log)) => Some(Ok(log)),
            _ => Log::open(&self.dir, &self.key, OPEN, Access::Write)?,
        };
        match found {
            None => return Ok(Usable::None { rotated: false }),
            Some(Err(LogFault::Version(version))) => {
                return Err(TraceError::Version { path: self.dir.path_of(OPEN), version });
            }
            Some(Ok(log)) if log.head.decode > decode::VERSION => {
                let path = self.dir.path_of(OPEN);
                let known = Versions::only(decode::VERSION.into());
                let version = OtherVersion { found: log.head.decode.into(), known };
                return Err(TraceError::Digests { path, version });
            }
            Some(Ok(log)) if log.settings != self.options.settings => {
                let options = Options::read(&self.dir)?;
                if options.settings != self.options.settings {
                    return Ok(Usable::Stale(Stale::Settings(options)));
                }
            }
            Some(Ok(log)) => match log.status {
                Some(status) if self.has_room(&log, status, clock::now().0) => {
                    return Ok(Usable::Log(log, status));
                }
                _ => {}
            },
            Some(Err(LogFault::Damaged | LogFault::OtherKey)) => {}
        }
        self.rotate()?;
        Ok(Usable::None { rotated: true })
    }

    /// Whether another record can be appended to a log at the time `now`.
    pub(super) fn has_room(&self, log: &Log, status: LogExtent, now: i64) -> bool {
        let span = self.options.keep.map_or(AGE_MAX, |keep| AGE_MAX.min(keep / KEEP_PARTS));
        let age = now.saturating_sub(log.head.created);
        log.is_sound()
            && log.head.decode == decode::VERSION
            && !self.limits.reached(status, &log.settings)
            && age < span as i64
    }

    /// Renames the open log to its number, after which nothing is appended to
    /// it. The directory is locked.
    pub(super) fn rotate(&self) -> Result<(), TraceError> {
        let full = Numbered { number: names::next(&self.dir)?, kind: FileKind::Log }.name();
        let renamed = files::rename_at(self.dir.directory(), OPEN, &full);
        Ok(renamed.map_err(self.dir.failed("rename", OPEN))?)
    }

    /// Creates a new open log. The directory is locked.
    fn begin_log(&self, settings: Settings) -> Result<Log, TraceError> {
        let log = Log::create(&self.dir, &self.key, OPEN_NEW, settings, clock::now().0)?;
        files::rename_at(self.dir.directory(), OPEN_NEW, OPEN)
            .map_err(self.dir.failed("create", OPEN))?;
        Ok(log)
    }
}

/// Two nonces.
fn two_nonces() -> Result<[Nonce; 2], TraceError> {
    let bytes: [u8; 2 * NONCE_BYTES] = random()?;
    let (nonces, _) = bytes.as_chunks();
    Ok([nonces[0], nonces[1]])
}

/// Whether there is a log to append to.
enum Usable {
    /// This log, with this status.
    Log(Log, LogExtent),
    /// No; whether there was one before.
    None { rotated: bool },
    /// Unknown: the settings or the key have changed.
    Stale(Stale),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_exceeds_the_memory_is_refused() {
        assert!(require_memory(0).is_ok());
        assert!(require_memory(1 << 20).is_ok());
        // More than the address space, and more than a number can hold.
        for bytes in [1 << 50, usize::MAX / 2] {
            let error = require_memory(bytes).unwrap_err().to_string();
            assert!(error.starts_with(&format!("no memory to decode a message of {bytes} bytes")));
        }
    }
}
