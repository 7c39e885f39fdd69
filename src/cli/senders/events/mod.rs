//! `exirate events`: the crossings and refusals that were logged.

mod deliver;
mod source;

use std::ffi::OsString;
use std::io::Write as _;
use std::thread;
use std::time::Duration;

use anstyle::Style;
use clap::{Args, Subcommand};

pub(in crate::cli) use self::source::{Event, EventSource};
pub(in crate::cli) use crate::alerts::{EventJson, mark};
use crate::cli::shared::complete;
use crate::cli::shared::keys::{self, Narrow, Selection};
use crate::cli::shared::rates::Rates;
use crate::cli::shared::screen::{Screen, complain, note};
use crate::cli::shared::table::{Column, Layout};
use crate::cli::shared::times;
use crate::cli::{Failure, Json, Outcome};
use crate::spool::{EventKind, LoggedEvent};
use crate::standing::in_force::until;
use crate::standing::key_text;
pub(in crate::cli) use crate::standing::logged::{decisive, key, period};
use crate::text;

/// How often --follow looks for new events.
const POLL: Duration = Duration::from_millis(300);

/// List the crossings of limits, or the refusals
#[derive(Debug, Args)]
#[command(after_help = help())]
#[command(add = Json::when::<EventJson>("For each event"), args_conflicts_with_subcommands = true)]
pub(in crate::cli) struct Events {
    #[command(subcommand)]
    command: Option<EventsCommand>,

    /// List the events of these keys or globs; the default is all keys
    #[arg(value_name = "KEY", add = complete::keys())]
    keys: Vec<OsString>,

    #[command(flatten)]
    narrow: Narrow,

    /// List refusals instead of crossings
    #[arg(long)]
    refusals: bool,

    /// List events since this time
    #[arg(long, value_name = "TIME", value_parser = times::since)]
    since: Option<i64>,

    /// List only the last N
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    limit: Option<usize>,

    /// Keep running, and print each new event
    #[arg(long, short)]
    follow: bool,

    #[command(flatten)]
    common: Rates,
}

#[derive(Debug, Subcommand)]
enum EventsCommand {
    Deliver(deliver::Deliver),
}

/// What the help says besides the options.
fn help() -> String {
    format!(
        "Examples:
  Who has gone over a limit today?
    exirate events --since 1d
  Which mail of alice was refused, and from which addresses?
    exirate events --refusals alice@example.org
  For scripts, one object a line:
    exirate events --json | jq -r 'select(.limit >= 100) | .key'

{key} A crossing is the first over decision after a period without one: a key that stays over a
limit crosses it once. RATE is the rate with the event. A key that was not held to the limit is
marked (observed) or (exempt).

Exit status: 0 listed, also if nothing has happened; 1 no event matches KEY, --mode or
--period; 2 an error.

{manual}

A crossing is an over decision of a leaky or strict check whose record had none during the period
before: a key that stays over a limit crosses it once. RATE is the rate with the event, LIMIT what
it was compared with. Of the refusals of a record, only the first in each second is logged; BEFORE
is the rate before the event. LOGIN, CLIENT, SCRIPT, SENDER, RECIPIENT and MESSAGE are those of
the event, where Exim knew them. A key that crossed a limit and was not held to it is marked:
(observed) where the policy only observes, (exempt) where it exempts the key. Empty columns are
left out, and on a narrow terminal the less important ones. With --follow, each new event is
printed as it happens, until the command is interrupted.

The two logs are files in the database's directory, of limited size (8 MiB for crossings and 16
MiB for refusals, unless set) and age (90 and 14 days): see `exirate config`. Older events are not
shown. `exirate stats` shows how many events could not be written. Events that an override has
denied are not logged. `exirate events deliver` sends crossings to a program, a URL or a mail
address. An alarm of an account's habits is listed as a crossing, at most one a day for each
account: RATE is its score, and what led to it follows the key.

Where limits are shared, the crossings are those of all servers, as far as `exirate events
deliver` has sent them to the shared store, and SERVER is where they happened; --local shows those
of this server. Refusals are always those of this server. With --follow, the command ends with an
error when the shared store can no longer be reached.",
        key = keys::HELP,
        manual = keys::MANUAL
    )
}

impl Events {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        if let Some(EventsCommand::Deliver(deliver)) = &self.command {
            return deliver.run(screen);
        }
        let mut selection = Selection::new(&self.keys, &self.narrow, &self.common.folding()?)?;
        let kind = if self.refusals { EventKind::Refusals } else { EventKind::Crossings };
        let mut source = EventSource::open(&self.common, kind)?;
        let mut events = source.next(!self.follow)?;
        events.retain(|(event, _)| self.is_wanted(event, &mut selection));
        let most = self.limit.unwrap_or(usize::MAX);
        events.drain(..events.len().saturating_sub(most));
        let layout = self.print(screen, &events, None)?;
        if self.follow {
            self.follow(screen, &mut source, &mut selection, layout)?;
        }
        let narrowed = !self.keys.is_empty() || self.narrow.arguments().next().is_some();
        screen.flush()?;
        let what = if self.refusals { "refusal" } else { "crossing" };
        let missing = events.is_empty() && narrowed;
        if missing {
            let mut arguments: Vec<String> =
                self.keys.iter().map(|key| text::printable(key.as_encoded_bytes())).collect();
            arguments.extend(self.narrow.arguments());
            complain(format_args!("no {what} matches {}", arguments.join(" ")));
        } else if events.is_empty() && !self.common.json {
            note(format_args!("no {what} is logged"));
        }
        Ok(Outcome::found_if(missing))
    }

    /// Prints new events until the output is closed.
    fn follow(
        &self,
        screen: &mut Screen<'_>,
        source: &mut EventSource,
        selection: &mut Selection,
        mut layout: Option<Layout<{ COLUMNS.len() }>>,
    ) -> Result<(), Failure> {
        loop {
            screen.flush()?;
            thread::sleep(POLL);
            let mut events = source.next(false)?;
            events.retain(|(event, _)| self.is_wanted(event, selection));
            layout = self.print(screen, &events, layout)?;
        }
    }

    fn is_wanted(&self, event: &LoggedEvent, selection: &mut Selection) -> bool {
        self.since.is_none_or(|since| event.at.seconds >= since)
            && selection.contains(&event.record_key())
    }

    /// Prints events, with heads unless there is a layout.
    fn print(
        &self,
        screen: &mut Screen<'_>,
        events: &[Event],
        layout: Option<Layout<{ COLUMNS.len() }>>,
    ) -> Result<Option<Layout<{ COLUMNS.len() }>>, Failure> {
        if self.common.json {
            let json = |(event, server): &Event| EventJson::on(server, event);
            events.iter().try_for_each(|event| screen.json(&json(event)))?;
            return Ok(layout);
        }
        if events.is_empty() {
            return Ok(layout);
        }
        let rows = || events.iter().map(cells);
        let layout = match layout {
            // What comes later may have texts in columns that were empty.
            Some(layout) => layout,
            None => {
                let layout = Layout::of(screen, COLUMNS, rows());
                layout.head(screen)?;
                layout
            }
        };
        layout.write(screen, Style::new(), rows(), None)?;
        Ok(Some(layout))
    }
}

const COLUMNS: [Column; 13] = [
    Column::words("TIME"),
    Column::words("SERVER").spare(2),
    Column::numbers("BEFORE").spare(3),
    Column::numbers("RATE"),
    Column::numbers("LIMIT"),
    Column::words("PERIOD"),
    Column::words("LOGIN").spare(4),
    Column::words("CLIENT").spare(1),
    Column::words("SCRIPT").spare(8),
    Column::words("SENDER").spare(5),
    Column::words("RECIPIENT").spare(6),
    Column::words("MESSAGE").spare(7),
    Column::words("KEY"),
];

/// What follows the key of an account of which habits have raised an alarm, or which is blocked.
fn what_follows(event: &LoggedEvent, evidence: &str) -> String {
    match event.blocked() {
        Some(block) => format!(" blocked {}", until(block)),
        None if evidence.is_empty() => String::new(),
        None if event.is_overdue() => format!(" has waited too long: {evidence}"),
        None => format!(" may be stolen: {evidence}"),
    }
}

fn cells((event, server): &Event) -> [String; COLUMNS.len()] {
    let window = decisive(event);
    let texts = event.texts.map(|text| text::printable(text));
    let before = match event.kind {
        EventKind::Refusals => format!("{:.1}", window.before),
        EventKind::Crossings => String::new(),
    };
    [
        text::local(event.at),
        text::printable(server.as_bytes()),
        before,
        format!("{:.1}", window.after),
        text::number(window.limit),
        period(event, &window),
        texts.login,
        texts.client,
        texts.script,
        texts.sender,
        texts.recipient,
        texts.message_id,
        key_text::shown(key(event)) + &mark(event) + &what_follows(event, &texts.evidence),
    ]
}
