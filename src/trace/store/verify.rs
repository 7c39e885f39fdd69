//! Verifying the store.

use std::path::PathBuf;

use super::error::Problem;
use super::key::{KEY, KeyFile};
use super::log::Log;
use super::mirrored::{self, MirroredCopy};
use super::options::{OptionsFile, SETTINGS};
use super::segment::{Messages, Segment, Wanted, Words};
use super::sources::Source;
use super::{TraceError, TraceStore, wire};

/// The result of [`TraceStore::verify`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Files checked.
    pub files: u64,
    /// Sound messages.
    pub messages: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Problems found.
    pub problems: u64,
}

impl TraceStore {
    /// Checks every byte that can be checked, and repairs nothing. `progress`
    /// is called with the number of messages checked so far and their total.
    ///
    /// Traces that a killed process leaves by design are not problems: an
    /// incomplete record at the end of a log, or a log that is sealed but not
    /// removed.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn verify(
        &self,
        progress: &mut dyn FnMut(u64, u64),
        problem: &mut dyn FnMut(Problem),
    ) -> Result<Verified, TraceError> {
        let sources = self.sources()?;
        let mut verified = Verified::default();
        let mut report = |verified: &mut Verified, path: PathBuf, what: String| {
            verified.problems += 1;
            problem(Problem { path, what });
        };
        for what in self.check_small_files()? {
            report(&mut verified, what.path, what.what);
        }
        verified.files = (sources.list.len() + sources.problems.len()) as u64 + sources.other_key;
        for problem in sources.problems {
            report(&mut verified, problem.path, problem.what);
        }
        if sources.other_key > 0 {
            let what = format!(
                "{} of its files were written with another key, and cannot be queried",
                sources.other_key
            );
            report(&mut verified, self.directory().to_path_buf(), what);
        }
        let of = sources.list.iter().map(|(_, source)| source.messages()).sum();
        for (name, source) in &sources.list {
            let mut say = |what: String| report(&mut verified, self.dir.path_of(name), what);
            let messages = match source {
                Source::Log(log) => self.check_log(log, &mut say),
                Source::Segment(segment) => self.check_segment(segment, &mut say),
            };
            verified.messages += messages;
            verified.bytes += source.bytes();
            progress(verified.messages, of);
        }
        Ok(verified)
    }

    /// Checks the key and the settings.
    fn check_small_files(&self) -> Result<Vec<Problem>, TraceError> {
        let mut problems = self.access_faults()?;
        let mut say = |name, what: &str| {
            problems.push(Problem { path: self.dir.path_of(name), what: what.to_owned() });
        };
        if let MirroredCopy::Sound(_, false) = mirrored::read::<KeyFile>(&self.dir, KEY)? {
            say(KEY, "one of its two copies is damaged: run `exirate repair`");
        }
        match mirrored::read::<OptionsFile>(&self.dir, SETTINGS)? {
            MirroredCopy::Sound(_, false) => say(SETTINGS, "one of its two copies is damaged"),
            MirroredCopy::Damaged => say(
                SETTINGS,
                "it is damaged: until it is repaired or set again, the defaults are used, but \
                 messages are kept forever",
            ),
            _ => {}
        }
        Ok(problems)
    }

    /// Checks a log; returns the number of readable messages.
    fn check_log(&self, log: &Log, say: &mut dyn FnMut(String)) -> u64 {
        if !log.whole {
            say("one of the copies of its head is damaged".to_owned());
        }
        let records = match log.read() {
            Ok(bytes) => log.records(bytes, &self.key),
            Err(error) => {
                say(format!("it cannot be read: {error}"));
                return 0;
            }
        };
        if let Some(problem) = log.damage(&records) {
            say(problem.what);
        }
        let all = records.sound.len();
        let readable =
            records.sound.iter().filter(|r| wire::decode(records.envelope(r)).is_some()).count();
        if readable < all {
            say(format!("{} of its envelopes are invalid", all - readable));
        }
        readable as u64
    }

    /// Checks a segment; returns the number of readable messages.
    fn check_segment(&self, segment: &Segment, say: &mut dyn FnMut(String)) -> u64 {
        let has_right_checksum = segment.has_right_checksum();
        if !has_right_checksum {
            say("its checksum is wrong".to_owned());
        } else if !segment.is_sound() {
            say("its checksum is right, but tags in it are wrong: it was changed on purpose".into());
        }
        if !segment.whole {
            say("one of the copies of its head is damaged, or its length is wrong".to_owned());
        }
        if !segment.tables_are_whole() {
            say("one of the copies of its tables is damaged".to_owned());
        }
        let scheme = segment.settings.scheme(&self.key.digest);
        let wrong = segment.wrong_blocks();
        if let Some(first) = wrong.first() {
            let (wrong, all) = (wrong.len(), segment.body_blocks());
            say(format!(
                "{wrong} of its {all} blocks of digests are damaged, the first at byte {first}"
            ));
        } else if let Err(what) = segment.check_body(scheme.as_ref()) {
            say(format!("its digests are damaged: {what}"));
        }
        let (Some(words), Some(messages)) = (Words::of(segment), Messages::of(segment)) else {
            say("both copies of a table are damaged: its envelopes cannot be read".to_owned());
            return 0;
        };
        if !words.check() {
            say("some of its addresses, clients or names are damaged".to_owned());
        }
        if !messages.check_positions() {
            say("the order of its messages is damaged".to_owned());
        }
        let [first, last] = segment.head.times;
        let (mut readable, mut before, mut wrong) = (0, first, 0_u64);
        let unread = messages.read(&words, &Wanted::default(), &mut |row| {
            readable += 1;
            let time = row.envelope.time;
            wrong += u64::from(row.damaged || !(before..=last).contains(&time));
            before = time;
        });
        for range in unread.damaged {
            say(format!(
                "the envelopes of its messages {} to {} are damaged",
                range.start, range.end
            ));
        }
        if wrong > 0 {
            say(format!("{wrong} of its envelopes cannot be read, or are out of order"));
        }
        readable
    }
}
