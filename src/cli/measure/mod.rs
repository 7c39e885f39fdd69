//! `exirate measure`: the rates that keys would have had, from a log.

mod events;
mod period;
mod suggest;

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;

use clap::Args;
use regex::Regex;
use serde::Serialize;

use self::events::{By, Count, Event, Events, Measured};
use self::period::{Period, Periods};
use self::suggest::Suggestion;
use super::policy::many;
use super::screen::{Screen, note, progress};
use super::table::{Column, Layout};
use super::{Failure, Outcome, text};
use crate::logs::files::LogFiles;
use crate::rate::{Average, Timestamp};

/// Measure the rates in Exim's log, to choose a limit
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Show the users who sent the most messages in an hour:
    exirate measure 1h /var/log/exim4/mainlog --by auth --top 20
  Show the bytes a day by client address, and which a limit of 100 MB would have hit, in
  all main logs that are kept:
    exirate measure 1d /var/log/exim4 --by host --count bytes --limit 100000000
  Which limits do the past days suggest, for an hour and for a day?
    exirate measure 1h,1d /var/log/exim4 --by auth --count recipients --suggest
  Measure what exigrep finds:
    exigrep @example.org /var/log/exim4/mainlog | exirate measure 1h
  Measure other lines: group 1 of the expression is the key, group 2 the size:
    exirate measure 1h /var/log/exim4/mainlog --match ' <= (\\S+) .* S=(\\d+)'

Files may be compressed by gzip, xz, bzip2 or zstd. A directory stands for the files in it
with `main` in their name, and a pattern such as 'mainlog*' for those that match. They are
read in the order of time. Lines begin with Exim's time or with syslog's; those without a
time are skipped and counted.

The rates are those of a strict check of each message that came in (`<=`). Times are as
exact as the log's: log_selector = +millisec improves them. PEAK is the highest rate,
WHEN the time it was reached (in UTC if the log has time zones), OVER how many of the
EVENTS would have been at or over --limit. Lines may be in any order. A good limit is a
little above the highest rate of an honest user.

--suggest shows how high the keys have peaked, how many keys and events some limits would
have hit, and a limit: a little above the peaks of all keys but those few (at most 1 %)
whose peaks are three times as high or more. Look at these before you choose it.

Exit status: 0 measured; 1 no line could be used; 2 an error.

JSON: an array of objects. `key` is empty where all lines count together; `period`, in
seconds, is there if several are measured. With --suggest, there is one for each period:
`peaks` has the highest peak of each share of the keys, `limits` the keys and events that
each limit would have hit, and `suggested` a limit, with its `reason`.")]
pub(super) struct Measure {
    /// The period, such as 1h, as in a spec; several are separated by commas
    #[arg(value_name = "PERIOD", value_parser = Periods::parse)]
    periods: Periods,

    /// Read these logs, also compressed; of a directory, the main logs; - and the default
    /// are standard input
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    files: Vec<PathBuf>,

    /// Count for this identity
    #[arg(long, value_name = "WHO", default_value = "sender", conflicts_with = "pattern")]
    by: By,

    /// Count this
    #[arg(long, value_name = "WHAT", default_value = "messages", conflicts_with = "pattern")]
    count: Count,

    /// Use the lines that match: group 1 is the key, group 2 the size
    #[arg(long = "match", value_name = "REGEX", value_parser = pattern)]
    pattern: Option<Regex>,

    /// Count how often this limit would have been reached
    #[arg(long, value_name = "M")]
    limit: Option<f64>,

    /// Show only the first N
    #[arg(long, value_name = "N")]
    top: Option<usize>,

    /// Show which limit the rates suggest, and how many keys and events some limits would
    /// have hit
    #[arg(long, conflicts_with_all = ["limit", "top"])]
    suggest: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was found of a key.
#[derive(Clone, Debug, Serialize)]
struct Peak {
    key: String,
    /// In seconds; of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    period: Option<f64>,
    #[serde(skip)]
    period_text: String,
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

impl Measure {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let stdin = [PathBuf::from("-")];
        let files = if self.files.is_empty() { &stdin[..] } else { &self.files };
        let files = LogFiles::find(files)?;
        if files.has_standard_input() && io::stdin().is_terminal() {
            note("reading what is typed; Ctrl-D ends it");
        }
        let measured = match &self.pattern {
            Some(pattern) => Measured::Lines(pattern),
            None => Measured::Arrivals(self.by, self.count),
        };
        let mut events = Events::new(measured);
        let bar = progress(files.size(), "bytes");
        let skipped = files.read(|line| events.add(line), |bytes| bar.set_position(bytes))?;
        bar.finish_and_clear();
        if let Some((place, line)) = &skipped.first {
            note(format_args!(
                "{} without a time at the start, of {}, skipped; the first is {place}: {}",
                many(skipped.lines, "line", "lines"),
                many(skipped.of, "line", "lines"),
                text::printable(line.as_bytes())
            ));
        }
        let (events, keys, lacking) = events.sorted();
        if lacking > 0 {
            note(format_args!(
                "{} without {}: not counted",
                many(lacking, "message", "messages"),
                self.missing()
            ));
        }
        let found = !keys.is_empty();
        if !found && !self.json {
            note("no line was of use: expected Exim's main log");
        } else if self.suggest {
            self.suggest(screen, &events, keys.len())?;
        } else {
            let each = self.periods.0.iter().map(|period| self.peaks(&events, &keys, period));
            let mut peaks: Vec<Peak> = each.flatten().collect();
            peaks.sort_by(|a, b| b.peak.total_cmp(&a.peak).then_with(|| a.key.cmp(&b.key)));
            peaks.truncate(self.top.unwrap_or(usize::MAX));
            if self.json { screen.json(&peaks)? } else { self.print(screen, &peaks)? }
        }
        Ok(Outcome::found_if(!found))
    }

    /// Shows what the events suggest for each period.
    fn suggest(
        &self,
        screen: &mut Screen<'_>,
        events: &[Event],
        keys: usize,
    ) -> Result<(), Failure> {
        let mode = match (&self.pattern, self.count) {
            (Some(_), _) => "",
            (None, Count::Messages) => " / per_mail",
            (None, Count::Recipients) => " / per_rcpt",
            (None, Count::Bytes) => " / per_byte",
        };
        let periods = if keys > 0 { &self.periods.0[..] } else { &[] };
        let of = |period| Suggestion::of(events, keys, period, mode);
        let suggestions: Vec<Suggestion> = periods.iter().map(of).collect();
        if self.json {
            return screen.json(&suggestions);
        }
        for (number, suggestion) in suggestions.iter().enumerate() {
            if number > 0 {
                writeln!(screen)?;
            }
            suggestion.print(screen)?;
        }
        Ok(())
    }

    /// What these lines lack.
    fn missing(&self) -> &'static str {
        match (self.by, self.count) {
            (By::Auth, Count::Messages) => "an authenticated user (A=)",
            (By::Host, Count::Messages) => "a client (H=)",
            (By::User, Count::Messages) => "a user (U=)",
            (By::Auth | By::Host | By::User, Count::Bytes) => "such an identity or a size (S=)",
            (By::Auth | By::Host | By::User, Count::Recipients) => {
                "such an identity or a recipient (neither `for` nor a delivery)"
            }
            (By::Sender | By::All, Count::Recipients) => {
                "a recipient (neither `for` nor a delivery)"
            }
            (By::Sender | By::All, _) => "a size (S=)",
        }
    }

    /// What the events come to in this period.
    fn peaks(&self, events: &[Event], keys: &[String], period: &Period) -> Vec<Peak> {
        let mut peaks: Vec<Peak> = keys
            .iter()
            .map(|key| Peak {
                key: key.clone(),
                period: (self.periods.0.len() > 1).then_some(period.seconds),
                period_text: period.text.clone(),
                peak: 0.0,
                at: Timestamp::default(),
                when: String::new(),
                events: 0,
                over: self.limit.map(|_| 0),
                average: None,
            })
            .collect();
        for event in events {
            if let Some(peak) = peaks.get_mut(event.key as usize) {
                peak.add(event, period.seconds, self.limit);
            }
        }
        for peak in &mut peaks {
            peak.when = text::iso(peak.at).replace('T', " ").replace('Z', "");
        }
        peaks
    }

    fn print(&self, screen: &mut Screen<'_>, peaks: &[Peak]) -> io::Result<()> {
        let columns = [
            Column::numbers("PEAK"),
            Column::numbers("EVENTS"),
            Column::numbers("OVER"),
            Column::words("PERIOD"),
            Column::words("WHEN").spare(1),
            Column::words("KEY"),
        ];
        let cells = || {
            peaks.iter().map(|peak| {
                [
                    format!("{:.1}", peak.peak),
                    peak.events.to_string(),
                    peak.over.map_or_else(String::new, |over| over.to_string()),
                    peak.period.map_or_else(String::new, |_| peak.period_text.clone()),
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
