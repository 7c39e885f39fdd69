//! `exirate measure`: the rates that keys would have had, from a log.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::Args;
use regex::Regex;

use super::logs::{Logs, print_unused};
use super::policy::measured_by;
use crate::calendar::{Zone, load};
use crate::cli::shared::screen::{Screen, bytes_read, note};
use crate::cli::shared::spool_dir;
use crate::cli::shared::table::{self, Column};
use crate::cli::{Failure, Json, Outcome};
use crate::history::measure::{
    By, Count, CountMode, CountedEvents, Events, KeyPeak, Limit, Lines, Measured, Peak,
    PeaksWanted, Period, Periods, RatesReport, Suggestion, Suggestions,
};
use crate::logs::files::{Read, Stamped};
use crate::logs::notes::{LineCounts, notes, notes_of_origin};
use crate::standing::accounts;
use crate::text::{self, counted, counted_or_no};

/// Measure the rates in the mail log, to choose a limit
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Show the users who sent the most messages in an hour:
    exirate measure 1h /var/log/exim4/mainlog --by auth --top 20
  Show the bytes a day by client address, and which a limit of 100 MB would have hit, in
  all main logs that are kept:
    exirate measure 1d /var/log/exim4 --by host --count bytes --limit 100000000
  Which limits of different recipients do the past days suggest, for an hour and a day?
    exirate measure 1h,1d /var/log/exim4 --by auth --count different --suggest
  The same for everything that can be counted, in one pass:
    exirate measure 1h,1d /var/log/exim4 --count messages,recipients,different,bytes --suggest
  Which limits do the past days suggest for an hour, and for a calendar day?
    exirate measure 1h,daily /var/log/exim4 --by auth --suggest
  Which customers sent the most recipients a day?
    exirate measure 1d /var/log/exim4 --by customer --policy policy.toml --count recipients
  Measure what exigrep finds:
    exigrep @example.org /var/log/exim4/mainlog | exirate measure 1h
  Measure other lines: group 1 of the expression is the key, group 2 the size:
    exirate measure 1h /var/log/exim4/mainlog --match ' <= (\\S+) .* S=(\\d+)'

PEAK is the highest rate of a key, WHEN the time it was reached, OVER how many of the EVENTS would
have been at or over --limit. A good limit is a little above the highest rate of an honest user;
--suggest looks for one. Logs of Exim, Postfix and Sendmail are read, also compressed.

Exit status: 0 measured; 1 there is nothing to count; 2 an error.

Files may be compressed by gzip, xz, bzip2 or zstd. A directory stands for the files in it
with `main` in their name, and a pattern such as 'mainlog*' for those that match. They are
read in the order of time. Lines begin with Exim's time or with syslog's; those without a
time are skipped and counted.

The logs of Postfix and Sendmail are read as syslog writes them. --journal reads the journal of
systemd, and with --cursor only what has been added since the last time. --unused shows the lines
that were not used.

The rates are those of a strict check of each message that came in (`<=`). Times are as
exact as the log's: log_selector = +millisec improves them. PEAK is the highest rate,
WHEN the time it was reached (in UTC if the log has time zones), OVER how many of the
EVENTS would have been at or over --limit. Lines may be in any order. A good limit is a
little above the highest rate of an honest user.

hourly, daily, weekly (from Monday) and monthly are limits by the calendar, as a policy has them:
PEAK is the highest count, and OVER counts what is above --limit. They begin by the log's clock
or, if its times have zones, by that of this server.

--by domain counts the users of a domain together, by their logins; --by customer those of a customer
(`users` and `domains`), also local users. Without --policy, /etc/exirate/policy.toml is used if it
is there. What has none is not counted.

--count different counts each recipient of a key once a period, as `per_addr` does. With several
counts, COUNT says what was counted, and --limit cannot be used.

--suggest shows how high the keys have peaked, which rates the messages met, how many keys,
events and messages some limits would have hit, and a limit: a little above the peaks of
all keys but those few (at most 1 %) whose peaks are three times as high or more. It names
these, to be exempted or to have a limit of their own.

Memory is bounded: events beyond two million are kept in temporary files in $TMPDIR, 29 bytes
each; there may be at most four million keys.")]
#[command(add = Json::of::<RatesReport<'_>>()
    .or::<Suggestions<'_>>("With --suggest")
    .or::<Vec<LineCounts<'_>>>("With --unused"))]
pub(in crate::cli) struct Measure {
    /// The period, such as 1h, as in a spec, or hourly, daily, weekly or monthly; several are
    /// separated by commas
    #[arg(value_name = "PERIOD", value_parser = Periods::parse)]
    periods: Periods,

    #[command(flatten)]
    logs: Logs,

    /// Count for this identity
    #[arg(long, value_name = "WHO", default_value = "sender", conflicts_with = "pattern")]
    by: By,

    /// With --by domain or customer, know users and customers by this policy file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    policy: Option<PathBuf>,

    /// Count this; several are separated by commas
    #[arg(
        long,
        value_name = "WHAT",
        default_value = "messages",
        value_delimiter = ',',
        conflicts_with = "pattern"
    )]
    count: Vec<Count>,

    /// Use the lines that match: group 1 is the key, group 2 the size
    #[arg(long = "match", value_name = "REGEX", value_parser = pattern)]
    pattern: Option<Regex>,

    /// Count how often this limit would have been reached
    #[arg(long, value_name = "M")]
    limit: Option<f64>,

    /// Show only the first N, of several counts the first N of each
    #[arg(long, value_name = "N")]
    top: Option<usize>,

    /// Show which limit the rates suggest, and how many keys and events some limits would
    /// have hit
    #[arg(long, conflicts_with_all = ["limit", "top"])]
    suggest: bool,

    /// Show the lines that are not used, by reason and with examples, instead of the rates
    #[arg(long, conflicts_with_all = ["limit", "top", "suggest"])]
    unused: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Measure {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let counts = self.counts();
        if counts.len() > 1 && self.limit.is_some() {
            return Err(Failure::new("--limit needs one --count: which is it a limit of?"));
        }
        let files = self.logs.open()?;
        let measured = match &self.pattern {
            Some(pattern) => Measured::Lines(pattern),
            None => Measured::Arrivals(measured_by(self.by, self.policy.as_deref())?, counts),
        };
        let mut events = Events::new(&measured);
        let mut has_zone = false;
        let see = |line: Stamped<'_>| {
            has_zone |= line.has_zone;
            events.add(&line)
        };
        let mut read = files.read_while(see, bytes_read(&files))?;
        let (mut counted, keys, mut lines) = events.finish()?;
        lines.read = read.lines;
        lines.unused.join(std::mem::take(&mut read.unused));
        if self.unused {
            let outcome = print_unused(screen, lines.used, &lines.unused, self.json)?;
            self.logs.keep_cursor(read.cursor.as_deref())?;
            return Ok(outcome);
        }
        self.note_lines(&lines, &counted, &read);
        // The times of a log without zones are those of the clock on the wall.
        let zone = match has_zone && self.periods.have_calendar() {
            true => load(None).map_err(|why| Failure::new(why.to_string()))?,
            false => Zone::default(),
        };
        let periods = self.periods.in_zone(&zone).0;
        let found = !keys.is_empty();
        if !found && !self.json {
            note(match lines.used {
                0 => {
                    "no line could be used: expected the main log of Exim, or the log of Postfix or \
                     Sendmail"
                }
                _ => "nothing to count in these lines; --unused shows how they were taken",
            });
        } else if self.suggest {
            self.suggest(screen, &mut counted, &keys, &periods, &lines)?;
        } else {
            self.peaks(screen, &mut counted, &keys, &periods, &lines)?;
        }
        self.logs.keep_cursor(read.cursor.as_deref())?;
        Ok(Outcome::found_if(!found))
    }

    /// What is counted, each once.
    fn counts(&self) -> Vec<Count> {
        let mut counts = Vec::new();
        self.count.iter().for_each(|count| {
            if !counts.contains(count) {
                counts.push(*count);
            }
        });
        counts
    }

    /// Says which lines and messages could not be used.
    fn note_lines(&self, lines: &Lines, counted: &[CountedEvents], read: &Read) {
        notes(read, &lines.unused).iter().for_each(note);
        let Lines { messages_without_origin, messages_ambiguous, messages_before, .. } = *lines;
        let origin = notes_of_origin(messages_without_origin, messages_ambiguous, messages_before);
        origin.iter().for_each(note);
        let messages = |count: u64| counted_or_no(count as usize, "message", "messages");
        for CountedEvents { count, lacking, .. } in counted.iter().filter(|one| one.lacking > 0) {
            let what =
                if counted.len() > 1 { format!(" as {}", count.word()) } else { String::new() };
            let lacking = messages(*lacking);
            note(format_args!("{lacking} without {}: not counted{what}", count.lacking(self.by)));
        }
        if lines.messages_given_up > 0 {
            note(format_args!(
                "{} not followed until their end, as too many were not complete: recipients of \
                 later deliveries are not counted (log_selector = +received_recipients logs them \
                 on arrival)",
                messages(lines.messages_given_up)
            ));
        }
    }

    /// Says how different recipients were told apart, if that was not exact.
    fn note_approximate(is_approximate: bool) {
        if is_approximate {
            note(
                "there are so many different recipients that they were told apart by a Bloom \
                 filter, as a limiter does: a few may have been taken for another",
            );
        }
    }

    /// Shows what the events suggest for each period.
    fn suggest(
        &self,
        screen: &mut Screen<'_>,
        counted: &mut [CountedEvents],
        keys: &[String],
        periods: &[Period],
        lines: &Lines,
    ) -> Result<(), Failure> {
        let is_one_of_several = counted.len() > 1;
        let mut suggestions = Vec::new();
        for CountedEvents { count, runs, .. } in
            counted.iter_mut().filter(|one| !one.runs.is_empty())
        {
            let mode = if self.pattern.is_some() { "" } else { count.mode() };
            let what = CountMode { count: is_one_of_several.then_some(*count), mode };
            let (of, is_approximate) = Suggestion::of(runs, keys, periods, what)?;
            Self::note_approximate(is_approximate);
            suggestions.extend(of);
        }
        if self.json {
            return screen.json(&Suggestions { lines, periods: &suggestions });
        }
        let suspected = spool_dir::find(None)
            .map_or_else(|_| BTreeSet::new(), |dir| accounts::suspected_names(&dir));
        for (number, suggestion) in suggestions.iter().enumerate() {
            if number > 0 {
                writeln!(screen)?;
            }
            print_suggestion(suggestion, &suspected, screen)?;
        }
        Ok(())
    }

    /// Shows what the events come to, of each count and in each period.
    fn peaks(
        &self,
        screen: &mut Screen<'_>,
        counted: &mut [CountedEvents],
        keys: &[String],
        periods: &[Period],
        lines: &Lines,
    ) -> Result<(), Failure> {
        let is_one_of_several = counted.len() > 1;
        let mut rows = Vec::new();
        for CountedEvents { count, runs, .. } in counted {
            let count = is_one_of_several.then_some(*count);
            let wanted = PeaksWanted { periods, count, limit: self.limit, top: self.top };
            let (peaks, is_approximate) = wanted.of(runs, keys)?;
            Self::note_approximate(is_approximate);
            rows.extend(peaks);
        }
        match self.json {
            true => screen.json(&RatesReport { lines, rates: &rows }),
            false => Ok(Self::print(screen, &rows)?),
        }
    }

    fn print(screen: &mut Screen<'_>, peaks: &[Peak<'_>]) -> io::Result<()> {
        let columns: [table::Shows<'_, Peak<'_>>; 7] = [
            (Column::numbers("PEAK"), &|peak| format!("{:.1}", peak.peak)),
            (Column::numbers("EVENTS"), &|peak| peak.events.to_string()),
            (Column::numbers("OVER"), &|peak| {
                peak.over.map_or_else(String::new, |over| over.to_string())
            }),
            (Column::words("COUNT"), &|peak| {
                peak.count.map_or_else(String::new, |count| count.word().to_owned())
            }),
            (Column::words("PERIOD"), &|peak| {
                peak.period.map_or_else(String::new, |_| peak.period_text.to_owned())
            }),
            (Column::words("WHEN").spare(1), &|peak| peak.when.clone()),
            (Column::words("KEY"), &|peak| text::printable(peak.key.as_bytes())),
        ];
        table::print(screen, peaks, columns)
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

/// Shows what is suggested for a count and a period.
/// `suspected` accounts are not proposed for an exemption.
fn print_suggestion(
    suggestion: &Suggestion,
    suspected: &BTreeSet<String>,
    screen: &mut Screen<'_>,
) -> io::Result<()> {
    let period = &suggestion.of.text;
    let keys = counted_or_no(suggestion.keys, "key", "keys");
    let events = counted_or_no(suggestion.events as usize, "event", "events");
    let count = suggestion.count.map(|count| format!("{}, ", count.word())).unwrap_or_default();
    writeln!(screen, "{count}period {period}: {keys}, {events}")?;
    let peaks: Vec<String> = suggestion
        .peaks
        .iter()
        .map(|of| match of.share {
            1.0 => format!("highest {:.1}", of.peak),
            share => format!("{} % at most {:.1}", text::number(share * 100.0), of.peak),
        })
        .collect();
    writeln!(screen, "peaks: {}", peaks.join(", "))?;
    let rates: Vec<String> = suggestion
        .message_rates
        .iter()
        .map(|of| format!("{} % at most {:.1}", text::number(of.share * 100.0), of.rate))
        .collect();
    let messages = counted_or_no(suggestion.messages as usize, "message", "messages");
    writeln!(screen, "rates at {messages}: {}\n", rates.join(", "))?;
    // Of most counts, an event is a message.
    let shows_messages = suggestion.messages != suggestion.events;
    let columns: [table::Shows<'_, Limit>; 4] = [
        (Column::numbers("LIMIT"), &|limit| text::number(limit.limit)),
        (Column::numbers("KEYS HIT"), &|limit| limit.keys.to_string()),
        (Column::numbers("EVENTS HIT"), &|limit| limit.events.to_string()),
        (Column::numbers("MESSAGES HIT"), &|limit| match shows_messages {
            true => limit.messages.to_string(),
            false => String::new(),
        }),
    ];
    table::print(screen, &suggestion.limits, columns)?;
    let Suggestion { suggested, mode, reason, hits, .. } = suggestion;
    let limit = text::number(*suggested);
    // By the calendar, it is a limit of a policy.
    let (limit, mode) = match suggestion.every {
        None => (format!("{limit} / {period}"), *mode),
        Some(every) => (format!("{limit} {every}"), ""),
    };
    writeln!(screen, "\nsuggested: {limit}{mode}")?;
    writeln!(screen, "  {reason}")?;
    let hit = suggestion.limits.iter().find(|limit| limit.limit == *suggested);
    let others = hit.map_or(0, |limit| limit.keys).saturating_sub(hits.len());
    if hits.is_empty() {
        return Ok(());
    }
    let (stolen, hits): (Vec<&KeyPeak>, Vec<&KeyPeak>) =
        hits.iter().partition(|hit| suspected.contains(&hit.key));
    let named = |all: &[&KeyPeak]| {
        all.iter().map(|hit| text::printable(hit.key.as_bytes())).collect::<Vec<_>>().join(", ")
    };
    if !stolen.is_empty() {
        let names = named(&stolen);
        writeln!(screen, "  do not exempt {names}: may be stolen, see `exirate habits`")?;
    }
    if hits.is_empty() {
        return Ok(());
    }
    let others = match others {
        0 => String::new(),
        count => format!(" and {}", counted(count as u64, "other", "others")),
    };
    writeln!(
        screen,
        "  exempt {}{others}: then {limit} hits {}",
        named(&hits),
        if stolen.is_empty() { "nobody" } else { "nobody else" }
    )
}
