//! Recording: one record is appended to the open log.

use crate::sys::clock;
use crate::sys::files::{self, Access};

use super::super::decode;
use super::super::{Envelope, Settings};
use super::cipher::{NONCE_BYTES, Nonce, random};
use super::key::{self, Key};
use super::log::{Fault, Log, STATUS, Status, write_status};
use super::names::{self, Kind, Numbered, OPEN, OPEN_NEW};
use super::options::Options;
use super::{LOCK_TIMEOUT, TraceError, TraceStore, VERSION, record, wire};

/// How often a message is digested anew because the settings have changed
/// meanwhile.
const ATTEMPTS: u32 = 3;
/// A log is full after this part of the time for which messages are kept: its
/// messages are forgotten together, when the last of them may be.
const KEEP_PARTS: u64 = 16;

/// What became of a record.
enum Appended {
    /// It was appended; whether a log became full before.
    Done { rotated: bool },
    /// It was digested by what does not hold any more.
    Stale(Stale),
}

/// What holds now, and was otherwise when the store was opened.
enum Stale {
    Settings(Options),
    /// A key, and the file that it is in.
    Key(Key, Option<(u64, u64)>),
}

/// Requires that there is the memory to decode a message of so many bytes: where
/// it ended halfway, the whole process would, which may be Exim's.
///
/// Four times the message are for its decoded forms side by side; up to three
/// times the most text that is decoded are for text that grows when it is
/// normalised, into a buffer that doubles. Measured, beyond the process itself and
/// with the message: 13 times its length for 2 MiB of U+FDFA, which becomes
/// eleven times as long, 5 for 10 MiB and 4 for 45; 6, 4 and 3 for HTML.
fn require_memory(bytes: usize) -> Result<(), TraceError> {
    let growth = bytes.saturating_mul(12).min(3 * decode::Limits::default().text);
    let wanted = bytes.saturating_mul(4).saturating_add(growth);
    let mut probe = Vec::<u8>::new();
    let reserved = probe.try_reserve_exact(wanted);
    // Or the compiler may leave out what nobody uses.
    std::hint::black_box(&mut probe);
    reserved.map_err(|_| TraceError::Memory { bytes, wanted })
}

impl TraceStore {
    /// Records a message whose headers and body are `message`, as they were
    /// received or sent: with line ends of either kind.
    ///
    /// About once in 16,384 messages, a log is full: then it is sealed as well,
    /// and what is to be forgotten is. What goes wrong with that is told by
    /// [`TraceStore::take_incidents`].
    ///
    /// It does not wait for the disk: after a loss of power, the messages of
    /// the last half minute or so may be gone.
    ///
    /// # Errors
    /// The store cannot be used, or there is no memory; then nothing was
    /// recorded.
    pub fn record(&mut self, envelope: &Envelope, message: &[u8]) -> Result<(), TraceError> {
        require_memory(message.len())?;
        for _ in 0..ATTEMPTS {
            let (digest, whole) = self.digest(message);
            let partial = envelope.partial || !whole;
            let envelope = Envelope { partial, ..envelope.clone() };
            if self.append(&envelope, &digest)? {
                return Ok(());
            }
        }
        Err(crate::sys::secure_dir::DirError::Unsettled {
            path: self.dir.path_of(super::options::SETTINGS),
        }
        .into())
    }

    /// Records a message whose digest was made by the settings in
    /// [`TraceStore::options`]; false where others have been chosen meanwhile, which
    /// these are then, or another key: the message is to be digested anew.
    ///
    /// # Errors
    /// The store cannot be used; then nothing was recorded.
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
        let before = self.latest.take();
        let (appended, log) = self.append_record(before, &wire::encode(envelope), digest)?;
        self.latest = log;
        match appended {
            Appended::Done { rotated } => {
                if rotated {
                    self.settle();
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

    /// Appends a record to the open log, which may be the one `before`; that log
    /// is returned.
    fn append_record(
        &self,
        before: Option<Log>,
        envelope: &[u8],
        digest: &[u8],
    ) -> Result<(Appended, Option<Log>), TraceError> {
        // A system call for both.
        let [nonce, status_nonce] = two_nonces()?;
        let record = record::make(&self.key, nonce, envelope, digest)?;
        let _guard = self.dir.lock_directory(LOCK_TIMEOUT)?;
        let (log, status, rotated) = match self.usable_log(before)? {
            Usable::Log(log, status) => (log, status, false),
            Usable::Stale(stale) => return Ok((Appended::Stale(stale), None)),
            Usable::None { rotated } => {
                let options = Options::read(&self.dir)?;
                if options.settings != self.options.settings {
                    return Ok((Appended::Stale(Stale::Settings(options)), None));
                }
                let log = self.begin_log(options.settings)?;
                let status = log.status.unwrap_or(Status { end: log.size, messages: 0 });
                (log, status, rotated)
            }
        };
        let end = status.end.saturating_add(record.len() as u64);
        let after = Status { end, messages: status.messages.saturating_add(1) };
        let after = write_status(&after, &self.key, status_nonce);
        files::write_at(&log.file, status.end, &record)
            .and_then(|()| files::write_at(&log.file, STATUS as u64, &after))
            .map_err(self.dir.failed("write", OPEN))?;
        Ok((Appended::Done { rotated }, Some(log)))
    }

    /// The open log, if another record can be appended to it; one that is full
    /// or unusable gets its number. The directory is locked.
    fn usable_log(&self, before: Option<Log>) -> Result<Usable, TraceError> {
        // Whoever has destroyed the key wants nothing more recorded under it.
        if self.key_file != key::identity(&self.dir) {
            let key = Key::open_locked(&self.dir)?;
            return Ok(Usable::Stale(Stale::Key(key, key::identity(&self.dir))));
        }
        let found = match before.map(|log| log.again(&self.dir, &self.key, OPEN)) {
            Some(Some(log)) => Some(Ok(log)),
            _ => Log::open(&self.dir, &self.key, OPEN, Access::Write)?,
        };
        match found {
            None => return Ok(Usable::None { rotated: false }),
            Some(Err(Fault::Version(found))) => {
                let path = self.dir.path_of(OPEN);
                return Err(TraceError::Version { path, found, known: VERSION });
            }
            Some(Ok(log)) if log.head.decode > decode::VERSION => {
                let path = self.dir.path_of(OPEN);
                let (found, known) = (log.head.decode.into(), decode::VERSION.into());
                return Err(TraceError::Version { path, found, known });
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
            Some(Err(Fault::Damaged | Fault::OtherKey)) => {}
        }
        self.rotate()?;
        Ok(Usable::None { rotated: true })
    }

    /// Whether another record can be appended to a log, `now`.
    pub(super) fn has_room(&self, log: &Log, status: Status, now: i64) -> bool {
        let span = self.options.keep.map_or(i64::MAX, |keep| (keep / KEEP_PARTS) as i64);
        let age = now.saturating_sub(log.head.created);
        log.is_sound()
            && log.head.decode == decode::VERSION
            && status.messages < self.limits.messages
            && status.end < self.limits.bytes
            && age < span
    }

    /// Gives the open log a number: nobody appends to it any more. The
    /// directory is locked.
    pub(super) fn rotate(&self) -> Result<(), TraceError> {
        let full = Numbered { number: names::next(&self.dir)?, kind: Kind::Log }.name();
        let renamed = files::rename_at(self.dir.directory(), OPEN, &full);
        Ok(renamed.map_err(self.dir.failed("rename", OPEN))?)
    }

    /// Makes a new open log. The directory is locked.
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
    /// This one, which goes so far.
    Log(Log, Status),
    /// No; whether there was one before.
    None { rotated: bool },
    /// It is not known: something else holds now.
    Stale(Stale),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_for_which_there_is_no_memory_is_refused() {
        assert!(require_memory(0).is_ok());
        assert!(require_memory(1 << 20).is_ok());
        // More than there are addresses, and more than a number can tell.
        for bytes in [1 << 50, usize::MAX / 2] {
            let error = require_memory(bytes).unwrap_err().to_string();
            assert!(error.starts_with(&format!("no memory to decode a message of {bytes} bytes")));
        }
    }
}
