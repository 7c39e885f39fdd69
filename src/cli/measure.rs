//! `exirate measure`: the rates that keys would have had, from a log.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use regex::Regex;
use serde::Serialize;

use super::exim_log::{self, By, What};
use super::screen::{Screen, note};
use super::table::{Column, Layout};
use super::{Failure, Outcome, input, keys, text};
use crate::rate::{Average, Timestamp};

/// Measure the rates in Exim's log, to choose a limit
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Show the users who sent the most messages in an hour:
    exirate measure 1h /var/log/exim4/mainlog --by auth --top 20
  Show the bytes a day by client address, and which a limit of 100 MB would have hit:
    exirate measure 1d /var/log/exim4/mainlog --by host --count bytes --limit 100000000
  Measure what exigrep finds:
    exigrep @example.org /var/log/exim4/mainlog | exirate measure 1h
  Measure other lines: group 1 of the expression is the key, group 2 the size:
    exirate measure 1h /var/log/exim4/mainlog --match ' <= (\\S+) .* S=(\\d+)'

The rates are those of a strict check of each message that came in (`<=`). Times are as
exact as the log's: log_selector = +millisec improves them. PEAK is the highest rate,
WHEN the time it was reached (in UTC if the log has time zones), OVER how many of the
EVENTS would have been at or over --limit. Lines may be in any order. A good limit is a
little above the highest rate of an honest user.

Exit status: 0 measured; 1 no line could be used; 2 an error.

JSON: an array of objects. `key` is empty where all lines count together.")]
pub(super) struct Measure {
    /// The period, such as 1h, as in a spec
    #[arg(value_name = "PERIOD", value_parser = keys::period)]
    period: f64,

    /// Read these logs; - and the default are standard input
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    files: Vec<PathBuf>,

    /// Count for this identity
    #[arg(long, value_name = "WHO", default_value = "sender", conflicts_with = "pattern")]
    by: By,

    /// Count this
    #[arg(long, value_name = "WHAT", default_value = "messages", conflicts_with = "pattern")]
    count: What,

    /// Use the lines that match: group 1 is the key, group 2 the size
    #[arg(long = "match", value_name = "REGEX", value_parser = pattern)]
    pattern: Option<Regex>,

    /// Count how often this limit would have been reached
    #[arg(long, value_name = "M")]
    limit: Option<f64>,

    /// Show only the first N
    #[arg(long, value_name = "N")]
    top: Option<usize>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// An event of the log.
struct Event {
    at: Timestamp,
    /// Which key, by its number.
    key: u32,
    count: f64,
}

/// What was found of a key.
#[derive(Clone, Debug, Serialize)]
struct Peak {
    key: String,
    peak: f64,
    /// Seconds since 1970.
    #[serde(skip)]
    at: Timestamp,
    when: String,
    events: u64,
    over: Option<u64>,
    #[serde(skip)]
    average: Option<Average>,
}

/// The events of the log, in the order of its lines.
#[derive(Default)]
struct Log {
    events: Vec<Event>,
    keys: HashMap<String, u32>,
    /// Messages whose lines lack what is measured.
    silent: u64,
}

impl Measure {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let mut log = Log::default();
        let stdin = [PathBuf::from("-")];
        let files = if self.files.is_empty() { &stdin[..] } else { &self.files };
        for path in files {
            self.read(path, &mut log)?;
        }
        if log.silent > 0 {
            note(format_args!(
                "{} message(s) without their {} were left out",
                log.silent,
                self.missing()
            ));
        }
        let mut peaks = self.peaks(log);
        peaks.truncate(self.top.unwrap_or(usize::MAX));
        let found = !peaks.is_empty();
        if self.json {
            screen.json(&peaks)?;
        } else if found {
            self.print(screen, &peaks)?;
        } else {
            note("no line was of use: each begins with a time, as in Exim's main log");
        }
        Ok(Outcome::found_if(!found))
    }

    /// What these lines lack.
    fn missing(&self) -> &'static str {
        match (self.by, self.count) {
            (By::Auth, What::Messages) => "authenticated user (A=)",
            (By::Host, What::Messages) => "host (H=)",
            (By::User, What::Messages) => "user (U=)",
            (_, What::Recipients) => "recipients (log_selector = +received_recipients adds them)",
            (_, What::Bytes) => "user, host or size (S=)",
            _ => "sender",
        }
    }

    fn read(&self, path: &Path, log: &mut Log) -> Result<(), Failure> {
        let (mut input, name) = input::open(path)?;
        let failed = |error| input::failed(&name, &error);
        let mut line = Vec::new();
        while input.read_until(b'\n', &mut line).map_err(failed)? > 0 {
            self.see(&String::from_utf8_lossy(&line), log);
            line.clear();
        }
        Ok(())
    }

    /// Considers a line.
    fn see(&self, line: &str, log: &mut Log) {
        let line = line.trim_end_matches(['\n', '\r']);
        let Some((at, rest)) = exim_log::time(line) else { return };
        let (key, count) = if let Some(pattern) = &self.pattern {
            let Some(found) = pattern.captures(line) else { return };
            let key = found.get(1).map_or("", |key| key.as_str());
            (Some(key), found.get(2).map_or(Some(1.0), |size| size.as_str().parse().ok()))
        } else {
            let Some(received) = exim_log::received(rest) else { return };
            (exim_log::key(received, self.by), exim_log::count(received, self.count))
        };
        let Some((key, count)) = key.zip(count).filter(|(_, count)| *count >= 0.0) else {
            log.silent += 1;
            return;
        };
        let next = u32::try_from(log.keys.len()).unwrap_or(u32::MAX);
        let key = match log.keys.get(key) {
            Some(&key) => key,
            None => *log.keys.entry(key.to_owned()).or_insert(next),
        };
        log.events.push(Event { at, key, count });
    }

    /// What the events come to, the highest peak first.
    fn peaks(&self, mut log: Log) -> Vec<Peak> {
        // exigrep, for one, shows message after message; and several files may
        // come in any order.
        log.events.sort_by_key(|event| event.at);
        let mut keys: Vec<(String, u32)> = log.keys.into_iter().collect();
        keys.sort_unstable_by_key(|&(_, number)| number);
        let mut peaks: Vec<Peak> = keys
            .into_iter()
            .map(|(key, _)| Peak {
                key,
                peak: 0.0,
                at: Timestamp::default(),
                when: String::new(),
                events: 0,
                over: self.limit.map(|_| 0),
                average: None,
            })
            .collect();
        for event in &log.events {
            if let Some(peak) = peaks.get_mut(event.key as usize) {
                peak.add(event, self.period, self.limit);
            }
        }
        for peak in &mut peaks {
            peak.when = text::iso(peak.at).replace('T', " ").replace('Z', "");
        }
        peaks.sort_by(|a, b| b.peak.total_cmp(&a.peak).then_with(|| a.key.cmp(&b.key)));
        peaks
    }

    fn print(&self, screen: &mut Screen<'_>, peaks: &[Peak]) -> io::Result<()> {
        let columns = [
            Column::numbers("PEAK"),
            Column::numbers("EVENTS"),
            Column::numbers("OVER"),
            Column::words("WHEN").spare(1),
            Column::words("KEY"),
        ];
        let cells = || {
            peaks.iter().map(|peak| {
                [
                    format!("{:.1}", peak.peak),
                    peak.events.to_string(),
                    peak.over.map_or_else(String::new, |over| over.to_string()),
                    peak.when.clone(),
                    text::printable(peak.key.as_bytes()),
                ]
            })
        };
        let layout = Layout::of(screen, columns, cells());
        layout.head(screen)?;
        layout.write(screen, anstyle::Style::new(), cells(), None)
    }
}

impl Peak {
    fn add(&mut self, event: &Event, period: f64, limit: Option<f64>) {
        let average = match self.average {
            Some(average) => average.next(event.at, period, event.count),
            None => Average::first(event.at, event.count),
        };
        self.average = Some(average);
        self.events += 1;
        if self.events == 1 || average.rate > self.peak {
            (self.peak, self.at) = (average.rate, event.at);
        }
        if let Some((over, limit)) = self.over.as_mut().zip(limit)
            && average.rate >= limit
        {
            *over += 1;
        }
    }
}

/// A regular expression with at most two groups.
fn pattern(text: &str) -> Result<Regex, String> {
    let pattern = Regex::new(text).map_err(|error| error.to_string())?;
    match pattern.captures_len() - 1 {
        0..=2 => Ok(pattern),
        n => Err(format!(
            "it has {n} groups: the first is the key, the second the size; (?:…) is none"
        )),
    }
}
