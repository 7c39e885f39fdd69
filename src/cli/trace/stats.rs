//! `exirate trace stats`: how much is remembered.

use std::io::Write as _;

use clap::Args;
use serde::Serialize;

use super::super::database::now;
use super::super::screen::Screen;
use super::super::size::bytes;
use super::super::{Failure, Outcome, text};
use super::open::{Common, bar};
use super::{envelope, scheme, tidy};
use crate::trace::{Options, Query, TraceStats, TraceStore};

/// Show message counts and the size of the trace store
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  How many messages are there, and since when?
    exirate trace stats
  How many bytes does a message take?
    exirate trace stats --json | jq .bytes_per_message

Messages are appended to logs; a full log is sealed into a segment, which is smaller.
Folded segments are older, take half of the space, and have more false results. Files of
another key are from before the store's key was replaced: they cannot be queried, and are
removed when they are too old. SHORTEST is the number of bytes from which a text is
found for certain in messages recorded now.

Exit status: 0 counted; 2 an error.

JSON: an object. `keep` is in seconds (null: for ever); `oldest` and `newest` are when
messages passed (null: there are none).")]
pub(super) struct Stats {
    #[command(flatten)]
    common: Common,
}

/// The figures, as JSON has them.
#[derive(Serialize)]
struct Figures {
    messages: u64,
    segments: u64,
    folded: u64,
    logs: u64,
    bytes: u64,
    bytes_per_message: Option<f64>,
    oldest: Option<String>,
    newest: Option<String>,
    other_key: u64,
    damaged: u64,
    lost: u64,
    shortest: usize,
    settings: String,
    keep: Option<u64>,
    max_bytes: u64,
    fill: f64,
}

impl Figures {
    fn of(stats: &TraceStats, times: Option<(i64, i64)>, options: &Options) -> Self {
        Self {
            messages: stats.messages,
            segments: stats.segments,
            folded: stats.folded,
            logs: stats.logs,
            bytes: stats.bytes,
            bytes_per_message: (stats.messages > 0)
                .then(|| stats.bytes as f64 / stats.messages as f64),
            oldest: times.map(|(oldest, _)| envelope::iso(oldest)),
            newest: times.map(|(_, newest)| envelope::iso(newest)),
            other_key: stats.other_key,
            damaged: stats.damaged,
            lost: stats.lost,
            shortest: stats.shortest,
            settings: scheme::described(options.settings),
            keep: options.keep,
            max_bytes: options.max_bytes,
            fill: stats.bytes as f64 / options.max_bytes.max(1) as f64,
        }
    }

    fn tell(&self, screen: &mut Screen<'_>, times: Option<(i64, i64)>) -> std::io::Result<()> {
        let now = now();
        let moment = |time: Option<i64>| match time {
            None => "none".to_owned(),
            Some(time) => {
                let at = envelope::at(time);
                format!("{} ({})", text::local(at), text::rough_age(at, now))
            }
        };
        let each = self
            .bytes_per_message
            .map_or_else(String::new, |each| format!(", {} a message", bytes(each.round() as u64)));
        let folded = match self.folded {
            0 => String::new(),
            n => format!(" ({n} folded)"),
        };
        let lost = match self.lost {
            0 => String::new(),
            n => format!(", and {n} place(s) in logs that were sealed since"),
        };
        let rows = [
            ("messages", self.messages.to_string()),
            ("oldest", moment(times.map(|(oldest, _)| oldest))),
            ("newest", moment(times.map(|(_, newest)| newest))),
            (
                "disk",
                format!(
                    "{}{each}; {} of the {} that it may take",
                    bytes(self.bytes),
                    text::percent(self.fill),
                    bytes(self.max_bytes)
                ),
            ),
            ("files", format!("{} segment(s){folded}, {} log(s)", self.segments, self.logs)),
            ("damaged", format!("{} file(s){lost}", self.damaged)),
            ("other key", format!("{} file(s)", self.other_key)),
            ("kept", format!("{}, in at most {}", tidy::kept(self.keep), bytes(self.max_bytes))),
            ("shortest", format!("{} bytes of text", self.shortest)),
            ("digests", self.settings.clone()),
        ];
        for (name, value) in rows {
            writeln!(screen, "{name:<9}  {value}")?;
        }
        Ok(())
    }
}

/// When the oldest and the newest message passed.
fn times(store: &TraceStore) -> Result<Option<(i64, i64)>, Failure> {
    let mut times: Option<(i64, i64)> = None;
    // Mail of an archive is recorded in any order.
    store.query(&Query::default(), &mut bar("messages"), &mut |answer| {
        let time = answer.envelope.time;
        let (oldest, newest) = times.unwrap_or((time, time));
        times = Some((oldest.min(time), newest.max(time)));
    })?;
    Ok(times)
}

impl Stats {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let (stats, times, options) = match self.common.open_if_there()? {
            Some(store) => (store.stats()?, times(&store)?, *store.options()),
            None => (TraceStats::default(), None, Options::default()),
        };
        let figures = Figures::of(&stats, times, &options);
        if self.common.json {
            screen.json(&figures)?;
        } else {
            figures.tell(screen, times)?;
        }
        Ok(Outcome::Fine)
    }
}
