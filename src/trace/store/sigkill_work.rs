//! The workers that `sigkill_tests.rs` kills.
//!
//! Each records in a mapped file what it starts and what it has completed.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use crate::sys::mapping::Mapping;
use crate::sys::secure_dir::DirError;

use super::tests::{TOGETHER, envelope, for_ever, secret, text};
use super::*;

/// The number of workers.
pub(super) const WORKERS: u32 = 4;
/// Messages of one worker: message `n` of worker `w` is `w * OF_ONE + n`.
pub(super) const OF_ONE: u32 = 10_000_000;
/// The number of messages in a full log here.
const FULL: u32 = 8;

/// The words in the notes of a worker.
pub(super) const BEGUN: usize = 0;
pub(super) const DONE: usize = 1;
pub(super) const AT_WORK: usize = 2;
/// The operation other than recording that it is running.
pub(super) const OPERATION: usize = 3;
/// The last message that it may record.
pub(super) const MAY: usize = 4;
const WORDS: usize = 5;

/// The notes of the workers, in a mapped file.
pub(super) struct Notes(Mapping);

impl Notes {
    pub(super) fn make(folder: &Path) -> Self {
        std::fs::write(folder.join("notes"), vec![0; WORKERS as usize * WORDS * 8]).unwrap();
        Self::of(folder)
    }

    fn of(folder: &Path) -> Self {
        let file = File::options().read(true).write(true).open(folder.join("notes")).unwrap();
        Self(Mapping::of(&file, true).unwrap())
    }

    pub(super) fn get(&self, worker: u32, word: usize) -> u64 {
        self.0.u64((worker as usize * WORDS + word) * 8).unwrap()
    }

    pub(super) fn set(&mut self, worker: u32, word: usize, value: u64) {
        self.0.set_u64((worker as usize * WORDS + word) * 8, value).unwrap();
    }
}

/// Message `n`: some are so long that a record takes several sectors.
pub(super) fn message(n: u32) -> String {
    let filler = match n % 8 {
        0 => 400,
        1 => 40,
        _ => 0,
    };
    (0..filler).fold(text(n), |all, word| all + &secret(n ^ word << 8) + "\n")
}

/// Repeats an operation until no other process blocks it.
fn until_unlocked(mut work: impl FnMut() -> Result<(), TraceError>) {
    loop {
        match work() {
            Err(TraceError::Directory(DirError::Busy { .. })) => {}
            result => return result.unwrap(),
        }
    }
}

/// The main loop of a worker, which ends only by a kill.
pub(super) fn work(folder: &Path, worker: u32, little: bool) -> ! {
    let mut notes = Notes::of(folder);
    let mut trace = TraceStore::open(&trace_directory(folder), Access::Write).unwrap();
    trace.limits.messages = FULL;
    trace.limits.merged = 4 * FULL;
    trace.limits.together = TOGETHER;
    loop {
        let n = notes.get(worker, BEGUN) as u32 + 1;
        while u64::from(n) > notes.get(worker, MAY) {
            std::thread::sleep(Duration::from_micros(50));
        }
        notes.set(worker, AT_WORK, 1);
        notes.set(worker, BEGUN, n.into());
        let number = worker * OF_ONE + n;
        until_unlocked(|| trace.record(&envelope(number), message(number).as_bytes()));
        notes.set(worker, DONE, n.into());
        // By the number of the message, so that a worker that is killed often gets there too.
        notes.set(worker, OPERATION, u64::from(matches!(n % 16, 3 | 7 | 11)));
        match n % 16 {
            3 if worker == 0 => until_unlocked(|| trace.tidy(0).map(drop)),
            3 | 7 => until_unlocked(|| trace.seal()),
            11 if !little => {
                let gram = 8 + (n / 16 % 2) as u8;
                let settings = crate::trace::WinnowSettings { gram, ..Default::default() };
                let settings = crate::trace::Settings::Winnow(settings);
                until_unlocked(|| trace.set_options(Options { settings, ..for_ever() }));
            }
            _ => {}
        }
        notes.set(worker, OPERATION, 0);
    }
}
