//! The daemon's log: one line an event, on standard error.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crate::text::duration;

/// For so long only the first event of a subject is logged; the others are counted.
const WINDOW: Duration = Duration::from_mins(1);
/// So many changes of a state are logged in a minute: that it is lost, another reason, and that
/// it is back.
const CHANGES_MAX: u32 = 4;

/// How important a line is: the priorities of syslog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something does not work.
    Error = 3,
    /// Something is wrong, and the daemon goes on without it.
    Warning = 4,
    /// Something that happens seldom.
    Notice = 5,
    /// All is well.
    Info = 6,
}

/// Where the lines go.
#[derive(Debug)]
enum Sink {
    /// The journal of systemd, which reads the priority from the start of each line.
    Journal,
    /// A terminal or a file.
    Plain,
    /// A list, for tests.
    #[cfg(test)]
    List(RefCell<Vec<String>>),
}

/// Events of a subject that are not logged one by one.
#[derive(Debug)]
struct Repeated {
    level: Level,
    since: Instant,
    /// How many lines were written.
    written: u32,
    /// How many were not.
    more: u64,
    /// Of changes of a state, the latest that was not written.
    latest: Option<String>,
}

impl Repeated {
    fn new(level: Level) -> Self {
        Self { level, since: Instant::now(), written: 0, more: 0, latest: None }
    }
}

/// The log.
#[derive(Debug)]
pub struct Log {
    sink: Sink,
    repeated: RefCell<BTreeMap<Cow<'static, str>, Repeated>>,
}

impl Log {
    /// The log of this process on standard error.
    #[must_use]
    pub fn stderr() -> Self {
        let sink = if is_journal() { Sink::Journal } else { Sink::Plain };
        Self { sink, repeated: RefCell::default() }
    }

    /// A log that keeps its lines.
    #[cfg(test)]
    pub(crate) fn kept() -> Self {
        Self { sink: Sink::List(RefCell::default()), repeated: RefCell::default() }
    }

    /// The lines that it has kept.
    #[cfg(test)]
    pub(crate) fn lines(&self) -> Vec<String> {
        match &self.sink {
            Sink::List(lines) => lines.borrow().clone(),
            _ => Vec::new(),
        }
    }

    /// Writes a line.
    pub fn write(&self, level: Level, text: impl Display) {
        let text = one_line(&text.to_string());
        // If standard error cannot be written, there is nowhere to report it.
        let _ = match &self.sink {
            Sink::Journal => writeln!(std::io::stderr(), "<{}>{text}", level as u8),
            Sink::Plain => writeln!(std::io::stderr(), "exirate: {text}"),
            #[cfg(test)]
            Sink::List(lines) => {
                lines.borrow_mut().push(text);
                Ok(())
            }
        };
    }

    /// Writes a line about `subject`, unless there was one in the last minute: then it is
    /// counted for [`Log::summarize`].
    pub fn write_seldom(
        &self,
        subject: impl Into<Cow<'static, str>>,
        level: Level,
        text: impl Display,
    ) {
        self.write_at_most(1, subject, level, text);
    }

    /// Writes a line about `subject`, unless there were `most` in the last minute: then it
    /// is counted for [`Log::summarize`].
    pub fn write_at_most(
        &self,
        most: u32,
        subject: impl Into<Cow<'static, str>>,
        level: Level,
        text: impl Display,
    ) {
        let mut repeated = self.repeated.borrow_mut();
        let known = repeated.entry(subject.into()).or_insert_with(|| Repeated::new(level));
        if known.written < most {
            known.written += 1;
            self.write(level, text);
        } else {
            known.more += 1;
        }
    }

    /// Writes a line about a change of a state of `subject`, unless there were
    /// [`CHANGES_MAX`] in the last minute: then it is counted for [`Log::summarize`], which
    /// has the latest, and stays the only line while there are more every minute.
    pub fn write_change(
        &self,
        subject: impl Into<Cow<'static, str>>,
        level: Level,
        text: impl Display,
    ) {
        let (subject, text) = (subject.into(), text.to_string());
        self.write_at_most(CHANGES_MAX, subject.clone(), level, &text);
        if let Some(known) = self.repeated.borrow_mut().get_mut(&subject) {
            known.latest = Some(text);
        }
    }

    /// Writes how many events of each subject were not logged in the minute that has passed.
    pub fn summarize(&self) {
        self.summarize_after(WINDOW);
    }

    fn summarize_after(&self, window: Duration) {
        let mut repeated = self.repeated.borrow_mut();
        repeated.retain(|subject, one| {
            let passed = one.since.elapsed();
            if passed < window {
                return true;
            }
            if one.more > 0 {
                let (more, time) = (one.more, duration(passed.as_secs() as f64));
                let latest = one.latest.as_ref();
                let latest = latest.map_or(String::new(), |text| format!(", the latest: {text}"));
                self.write(one.level, format_args!("{subject}: {more} more in {time}{latest}"));
                // The next minute begins as this one ended.
                let written = match one.latest {
                    Some(_) => CHANGES_MAX,
                    None => u32::from(one.written == 1),
                };
                *one = Repeated { written, ..Repeated::new(one.level) };
                return true;
            }
            false
        });
    }
}

/// Whether standard error is a stream to the journal, as the variable says in which systemd
/// names its device and inode.
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let Ok(stat) = rustix::fs::fstat(std::io::stderr().as_fd()) else { return false };
    stream == format!("{}:{}", stat.st_dev, stat.st_ino)
}

/// `text` without characters that would begin a new line or change a terminal.
pub(super) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_event_is_logged_once_and_then_counted() {
        let log = Log::kept();
        for n in 0..5 {
            log.write_seldom("bad requests", Level::Warning, format_args!("bad request {n}"));
        }
        log.summarize();
        assert_eq!(log.lines(), ["bad request 0"]);
        log.summarize_after(Duration::ZERO);
        assert_eq!(log.lines()[1..], ["bad requests: 4 more in 0s"]);
        // After a quiet minute, the next one is logged again.
        log.summarize_after(Duration::ZERO);
        log.write_seldom("bad requests", Level::Warning, "bad request again");
        assert_eq!(log.lines()[2..], ["bad request again"]);
    }

    #[test]
    fn some_lines_a_minute_are_logged_and_the_others_counted() {
        let log = Log::kept();
        let write = |n: u32| log.write_at_most(3, "refusals", Level::Info, n);
        (0..5).for_each(write);
        assert_eq!(log.lines(), ["0", "1", "2"]);
        log.summarize_after(Duration::ZERO);
        assert_eq!(log.lines()[3..], ["refusals: 2 more in 0s"]);
        (5..10).for_each(write);
        assert_eq!(log.lines()[4..], ["5", "6", "7"]);
    }

    #[test]
    fn a_state_that_flaps_is_summarized_with_the_latest() {
        let log = Log::kept();
        let flap = |number: u32| {
            let text = if number.is_multiple_of(2) { "away" } else { "back" };
            log.write_change("changes of it", Level::Error, text);
        };
        (0..20).for_each(flap);
        assert_eq!(log.lines(), ["away", "back", "away", "back"]);
        log.summarize_after(Duration::ZERO);
        (0..7).for_each(flap);
        log.summarize_after(Duration::ZERO);
        let expected = [
            "changes of it: 16 more in 0s, the latest: back",
            "changes of it: 7 more in 0s, the latest: away",
        ];
        assert_eq!(log.lines()[4..], expected);
        log.summarize_after(Duration::ZERO);
        flap(1);
        assert_eq!(log.lines()[6..], ["back"]);
    }

    #[test]
    fn an_event_is_one_line() {
        let log = Log::kept();
        log.write(Level::Info, "a\nb\x1b[1m é");
        assert_eq!(log.lines(), ["a\\nb\\u{1b}[1m é"]);
    }
}
