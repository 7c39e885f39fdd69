//! How far each receiver has got: a small file for each, replaced as a whole.

use std::ffi::CString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::rate::Timestamp;
use crate::spool;
use crate::standing::databases::StandingError;
use crate::sys::files::{self, Access};
use crate::sys::secure_dir::SecureDir;
use crate::versions::{OtherVersion, USE_THE_LATER, Versions};

/// The first line of a cursor, before the version of the format.
const HEAD: &str = "exirate delivery ";
const VERSION: u32 = 1;
/// The longest cursor that is read.
const BYTES_MAX: usize = 4096;
/// How many delivered events a cursor names. If the latest one was removed from the
/// journal, an earlier one shows where to go on.
const DONE_MAX: usize = 32;
/// If none of them is in the journal, crossings that are older than the latest one by so
/// many microseconds count as delivered.
const LATE: i64 = 3600 * 1_000_000;
/// How long to wait after the first failed attempt; the wait doubles each time.
const BACKOFF: Duration = Duration::from_secs(30);
/// The longest delay.
const BACKOFF_MAX: Duration = Duration::from_secs(3600);

/// How far a receiver has got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    /// The crossings that were delivered or given up last, in order.
    done: Vec<String>,
    /// The latest time of a delivered crossing, in microseconds.
    latest: i64,
    /// Events of this time or before may have been delivered already, in microseconds.
    marked: i64,
    /// The latest time of a refusal that was delivered because of `repeat`, or given up,
    /// in microseconds.
    repeated: i64,
    /// The event that is being delivered; empty if there is none.
    pending: String,
    /// How often that was attempted, the attempt under way included.
    attempts: u32,
    /// The second from which on it is attempted again.
    next: i64,
}

impl Cursor {
    /// That of a receiver which gets events from the second `from` on. Those until
    /// `marked` may have been delivered already.
    pub(super) fn new(from: i64, marked: i64) -> Self {
        let micros = |seconds: i64| seconds.saturating_mul(1_000_000);
        Self { repeated: micros(from), marked: micros(marked), ..Self::default() }
    }

    /// Whether this crossing was delivered, and is one of the last that were.
    pub(super) fn is_done(&self, id: &str) -> bool {
        self.done.iter().any(|done| done == id)
    }

    /// None of the crossings in `done` is in the journal any more: those of about that
    /// time may have been delivered. Returns the time, in microseconds, before which all
    /// count as delivered.
    pub(super) fn lose_place(&mut self) -> i64 {
        self.marked = self.marked.max(self.latest);
        self.latest.saturating_sub(LATE)
    }

    /// Whether an event may have been delivered by an earlier cursor.
    pub(super) fn is_marked(&self, at: Timestamp) -> bool {
        micros(at) <= self.marked
    }

    /// Marks all events until `at`, if it is given: an attempt with them begins. Returns what
    /// [`Self::unmark`] takes.
    pub(super) fn mark(&mut self, at: Option<Timestamp>) -> i64 {
        let before = self.marked;
        self.marked = before.max(at.map_or(before, micros));
        before
    }

    /// The attempt that [`Self::mark`] has begun has succeeded.
    pub(super) fn unmark(&mut self, before: i64) {
        self.marked = before;
    }

    /// Whether a crossing was delivered that was at most so many seconds before `at`.
    pub(super) fn has_sent_since(&self, at: Timestamp, seconds: i64) -> bool {
        self.latest > micros(at).saturating_sub(seconds.saturating_mul(1_000_000))
    }

    /// Whether an attempt to deliver `id` has begun.
    pub(super) fn is_pending(&self, id: &str) -> bool {
        self.pending == id
    }

    /// Whether the last attempt has failed.
    pub(super) fn is_failing(&self) -> bool {
        self.next > 0
    }

    /// Whether a refusal that repeats an alert was delivered.
    pub(super) fn is_repeated(&self, at: Timestamp) -> bool {
        micros(at) <= self.repeated
    }

    /// No refusal until now is delivered as a repetition.
    pub(super) fn skip_repeats(&mut self, now: Timestamp) {
        self.repeated = micros(now);
    }

    /// Begins an attempt to deliver `id`; returns how many were begun.
    pub(super) fn attempt(&mut self, id: &str) -> u32 {
        if self.pending != id {
            (self.pending, self.attempts) = (id.to_owned(), 0);
        }
        self.attempts = self.attempts.saturating_add(1);
        // If this process is killed, the next one need not wait.
        self.next = 0;
        self.attempts
    }

    /// The attempt has failed; returns how many seconds the next one must wait.
    pub(super) fn fail(&mut self, now: Timestamp) -> u64 {
        let factor = 1 << self.attempts.saturating_sub(1).min(16);
        let wait = BACKOFF.saturating_mul(factor).min(BACKOFF_MAX).as_secs();
        self.next = now.seconds.saturating_add_unsigned(wait);
        wait
    }

    /// Whether it is too early to attempt `id` again. A clock that was set back does not
    /// make it wait longer than the longest delay.
    pub(super) fn must_wait(&self, id: &str, now: Timestamp) -> bool {
        let most = now.seconds.saturating_add_unsigned(BACKOFF_MAX.as_secs());
        self.pending == id && now.seconds < self.next && self.next <= most
    }

    /// The crossing `id` of the time `at` was delivered or given up.
    pub(super) fn finish(&mut self, id: &str, at: Timestamp) {
        let excess = (self.done.len() + 1).saturating_sub(DONE_MAX);
        self.done.drain(..excess);
        self.done.push(id.to_owned());
        self.latest = self.latest.max(micros(at));
        self.end_attempts();
    }

    /// The refusal of the time `at`, which repeats an alert, was delivered or given up.
    pub(super) fn finish_repeat(&mut self, at: Timestamp) {
        self.repeated = self.repeated.max(micros(at));
        self.end_attempts();
    }

    fn end_attempts(&mut self) {
        self.pending.clear();
        (self.attempts, self.next) = (0, 0);
    }

    fn to_text(&self) -> String {
        let Self { done, latest, marked, repeated, pending, attempts, next } = self;
        let done = done.join(" ");
        let body = format!(
            "{HEAD}{VERSION}\ndone={done}\nlatest={latest}\nmarked={marked}\nrepeated={repeated}\n\
             pending={pending}\nattempts={attempts}\nnext={next}\n"
        );
        let sum = crc32fast::hash(body.as_bytes());
        format!("{body}checksum={sum:08x}\n")
    }

    /// Reads a cursor; `None` if it is damaged. In all versions, the first line and the checksum
    /// at the end are the same.
    fn of_text(text: &str) -> Result<Option<Self>, OtherVersion> {
        let Some((version, body)) = checked(text) else { return Ok(None) };
        Versions::only(VERSION).known().check(version)?;
        Ok(Self::of_lines(body.lines().skip(1)))
    }

    fn of_lines<'a>(mut lines: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix('=');
        Some(Self {
            done: value("done")?.split_whitespace().map(str::to_owned).collect(),
            latest: value("latest")?.parse().ok()?,
            marked: value("marked")?.parse().ok()?,
            repeated: value("repeated")?.parse().ok()?,
            pending: value("pending")?.to_owned(),
            attempts: value("attempts")?.parse().ok()?,
            next: value("next")?.parse().ok()?,
        })
    }
}

/// The version of a cursor whose checksum is right, and what the checksum covers.
fn checked(text: &str) -> Option<(u32, &str)> {
    let (body, sum) = text.split_once("checksum=")?;
    let sum = u32::from_str_radix(sum.trim_end(), 16).ok()?;
    let version = Versions::read(HEAD, body.lines().next()?)?;
    (sum == crc32fast::hash(body.as_bytes())).then_some((version, body))
}

/// Microseconds since 1970.
pub(super) fn micros(at: Timestamp) -> i64 {
    at.seconds.saturating_mul(1_000_000).saturating_add(i64::from(at.micros))
}

/// What the file of a receiver holds.
pub(super) enum SavedCursor {
    /// There is none yet.
    Nothing,
    /// It is damaged; when it was written, in seconds since 1970.
    Damaged(i64),
    /// A cursor.
    Cursor(Cursor),
}

/// A receiver's file.
pub(super) struct CursorFile {
    dir: SecureDir,
    name: CString,
    new: CString,
}

impl CursorFile {
    pub(super) fn open(spool: &Path, receiver: &str) -> Result<Self, StandingError> {
        let name = |ending: &str| {
            CString::new(format!("delivery.{receiver}{ending}"))
                .map_err(|error| StandingError::Unfit(error.to_string()))
        };
        let dir = spool::open_directory(spool, false)?;
        Ok(Self { dir, name: name("")?, new: name(".new")? })
    }

    /// The cursor.
    pub(super) fn read(&self) -> Result<SavedCursor, StandingError> {
        let opened = self.dir.open_file(Access::Read, &self.name)?;
        let Some((file, info)) = opened else { return Ok(SavedCursor::Nothing) };
        let mut bytes = vec![0; BYTES_MAX];
        let size =
            files::read_start(&file, &mut bytes).map_err(self.dir.failed("read", &self.name))?;
        bytes.truncate(size);
        let cursor = std::str::from_utf8(&bytes).map_or(Ok(None), Cursor::of_text);
        let other = |version: OtherVersion| version.error(USE_THE_LATER);
        let cursor =
            cursor.map_err(|version| self.dir.failed("read", &self.name)(other(version)))?;
        Ok(cursor.map_or(SavedCursor::Damaged(info.modified), SavedCursor::Cursor))
    }

    /// Removes it, if there is one: the receiver is not in use.
    pub(super) fn remove(&self) -> Result<(), StandingError> {
        match files::remove_at(self.dir.directory(), &self.name) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(self.dir.failed("remove", &self.name)(error).into())
            }
            _ => Ok(()),
        }
    }

    /// Where it is.
    pub(super) fn path(&self) -> PathBuf {
        self.dir.path_of(&self.name)
    }

    /// Replaces the cursor; it is on the disk afterwards.
    pub(super) fn write(&self, cursor: &Cursor) -> Result<(), StandingError> {
        let file = self.dir.create_file(&self.new, spool::FILE_MODE)?;
        files::write_start(&file, cursor.to_text().as_bytes())
            .and_then(|()| files::sync(&file))
            .and_then(|()| files::rename_at(self.dir.directory(), &self.new, &self.name))
            .and_then(|()| files::sync(self.dir.directory()))
            .map_err(|error| self.dir.failed("write", &self.name)(error).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versions::as_the_next;

    const NOW: Timestamp = Timestamp { seconds: 1000, micros: 5 };

    #[test]
    fn a_cursor_is_read_as_written_and_damage_is_noticed() {
        let mut cursor = Cursor::new(4, 5);
        cursor.finish("a-1-3.000000", NOW);
        cursor.finish("c-1-3.000000", NOW);
        cursor.attempt("b-1-4.000000");
        let text = cursor.to_text();
        assert_eq!(Cursor::of_text(&text), Ok(Some(cursor.clone())));
        for place in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[place] ^= 1;
            // The line's end after the checksum is of no consequence.
            let read =
                std::str::from_utf8(&bytes).ok().and_then(|text| Cursor::of_text(text).unwrap());
            assert!(read.is_none() || place + 1 == text.len(), "{place}");
            let cut = Cursor::of_text(&text[..place]).unwrap();
            assert!(cut.is_none_or(|_| place + 1 == text.len()));
        }
        let (body, _) = text.split_once("checksum=").unwrap();
        let later = body.replacen("delivery 1", "delivery 2", 1);
        let later = format!("{later}checksum={:08x}\n", crc32fast::hash(later.as_bytes()));
        assert!(Cursor::of_text(&later).unwrap_err().is_later());
        assert_eq!(as_the_next(|| Cursor::of_text(&later)), Ok(Some(cursor)));
    }

    #[test]
    fn a_full_cursor_can_be_read() {
        // The longest id of a crossing, and of a refusal.
        let id = |n: u32| format!("{:016x}11-{}-{}.999999", u64::MAX, u32::MAX - n, i64::MAX);
        let mut cursor = Cursor::new(i64::MAX, i64::MAX);
        (0..100).for_each(|n| cursor.finish(&id(n), NOW));
        cursor.attempt(&format!("r{}", id(0)));
        assert_eq!(cursor.done.len(), DONE_MAX);
        assert!(cursor.is_done(&id(99)) && cursor.is_done(&id(68)) && !cursor.is_done(&id(67)));
        let text = cursor.to_text();
        assert!(text.len() < BYTES_MAX, "{}", text.len());
        assert_eq!(Cursor::of_text(&text), Ok(Some(cursor)));
    }

    #[test]
    fn attempts_are_delayed_longer_and_longer() {
        let mut cursor = Cursor::default();
        let mut waits = Vec::new();
        for _ in 0..9 {
            cursor.attempt("a");
            assert!(!cursor.must_wait("a", NOW));
            cursor.fail(NOW);
            assert!(cursor.must_wait("a", NOW) && !cursor.must_wait("b", NOW));
            let at = |seconds| Timestamp { seconds, micros: 0 };
            assert!(!cursor.must_wait("a", at(cursor.next)));
            assert!(!cursor.must_wait("a", at(-cursor.next - 3600)), "the clock was set back");
            waits.push(cursor.next - NOW.seconds);
        }
        assert_eq!(waits, [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]);
        cursor.attempt("b");
        assert_eq!((cursor.attempts, cursor.next), (1, 0));
    }
}
