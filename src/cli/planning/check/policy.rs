//! `exirate check POLICY`: what policies would make of an event.

use std::io::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, value_parser};

use crate::cli::planning::policy::compiled;
use crate::cli::shared::database::Common;
use crate::cli::shared::screen::{Screen, note};
use crate::cli::shared::table::{self, Column};
use crate::cli::shared::times;
use crate::cli::{Failure, Outcome};
use crate::engine::{Kind, RecordKey};
use crate::event::fields::{EventField, FIELDS, FieldPlace, FieldValue};
use crate::event::{Event, Origin};
use crate::policy::decided::DecisionsJson;
use crate::policy::image::PolicyFile;
use crate::policy::replay::{Decisions, Recipients, Replay, ReplayEvent, Stage, Window};
use crate::policy::word::{Verdict, Word as _};
use crate::rate::Timestamp;
use crate::spool::{Options, Preview, Spool, SpoolError};
use crate::standing::override_state::sentence;
use crate::store::{Memory, Override, deciding};
use crate::text::time::now;
use crate::text::{self, printable};

/// The options of a check by policies.
#[derive(Debug, Args)]
pub(super) struct PolicyOptions {
    #[command(flatten)]
    pub(super) event: EventOptions,

    /// Take this for the size of the message in bytes
    #[arg(long, value_name = "BYTES")]
    size: Option<u64>,

    /// Show the decision at this stage [default: message]
    #[arg(long, value_parser = stages())]
    stage: Option<Stage>,

    /// Decide as of this time
    #[arg(long, value_name = "TIME", visible_alias = "time", value_parser = times::as_of, add = times::Ahead)]
    at: Option<Timestamp>,

    /// Decide by this policy file, not by the policies in use
    #[arg(long, value_name = "FILE", visible_alias = "file", value_hint = clap::ValueHint::FilePath)]
    policy: Option<PathBuf>,
}

/// The stages, as their words.
fn stages() -> impl clap::builder::TypedValueParser<Value = Stage> {
    PossibleValuesParser::new(Stage::words()).map(|word| Stage::of(&word).unwrap_or_default())
}

impl PolicyOptions {
    /// The name of an option that was given, other than the recipients.
    pub(super) fn given(&self) -> Option<&'static str> {
        let given = [
            ("size", self.size.is_some()),
            ("stage", self.stage.is_some()),
            ("at", self.at.is_some()),
            ("policy", self.policy.is_some()),
        ];
        let own = given.into_iter().find_map(|(option, given)| given.then_some(option));
        own.or_else(|| self.event.given())
    }

    /// Decides the event by the policies `names`.
    pub(super) fn check(
        &self,
        names: &str,
        common: &Common,
        screen: &mut Screen<'_>,
    ) -> Result<Outcome, Failure> {
        // Who means a spec that lacks its period.
        let failed =
            |why: String| Failure::new(format!("{why}; a spec has the form m / p / options / key"));
        let directory = match common.directory() {
            Ok(directory) => Some(directory),
            Err(failure) if self.policy.is_none() || common.spool.is_some() => {
                return Err(failure);
            }
            // A machine without Exim.
            Err(_) => None,
        };
        let (given, in_use);
        let image = match &self.policy {
            Some(file) => {
                given = compiled(file)?.1;
                &given
            }
            None => {
                in_use = PolicyFile::open(directory.as_deref().unwrap_or("".as_ref()));
                in_use.image().map_err(|error| failed(error.to_string()))?
            }
        };
        let mut replay = Replay::new(image, names).map_err(failed)?;
        let event = self.event();
        let spool = directory.map(|directory| Spool::open_existing(&directory, Options::default()));
        let (decisions, overrides) = match spool {
            Some(Ok(mut spool)) => {
                let decided = replay.decide(&event, &mut Preview::new(&mut spool));
                let decisions = decided.map_err(|error| Failure::new(error.to_string()))?;
                (decisions, spool.overrides().unwrap_or_default())
            }
            // Where nothing is remembered, an empty store decides the same.
            None | Some(Err(SpoolError::Absent { .. })) => {
                let decided = replay.decide(&event, &mut Memory::new());
                (decided.map_err(|error| Failure::new(error.to_string()))?, Vec::new())
            }
            Some(Err(error)) => return Err(error.into()),
        };
        if common.json {
            screen.json(&DecisionsJson::of(&decisions))?;
        } else {
            print(screen, &decisions, &overrides, event.time)?;
        }
        screen.flush()?;
        if decisions.windows.is_empty() {
            let why = match event.event.is_of_a_system_account() {
                true => {
                    ", which is the mail server's or the system's: see `system` in docs/policy.md"
                }
                false => "",
            };
            note(format_args!("no limit of {names} applies to such an event{why}"));
        }
        Ok(Outcome::found_if(decisions.outcome.verdict >= Verdict::Hold))
    }

    fn event(&self) -> ReplayEvent {
        ReplayEvent {
            time: self.at.unwrap_or_else(now),
            stage: self.stage.unwrap_or_default(),
            session: None,
            event: self.event.event.clone(),
            recipients: Recipients::Addresses(self.event.recipients.clone()),
            size: self.size,
            local: None,
            system: None,
            outcome: None,
        }
    }
}

fn print(
    screen: &mut Screen<'_>,
    decisions: &Decisions,
    overrides: &[Override],
    at: Timestamp,
) -> Result<(), Failure> {
    let outcome = &decisions.outcome;
    let mut line = outcome.verdict.word().to_owned();
    if outcome.measured != outcome.verdict {
        let why = if outcome.exempt { "exempt" } else { "observed" };
        line = format!("{line} ({why}; else {})", outcome.measured.word());
    }
    if !outcome.text.is_empty() {
        line = format!("{line}: {}", outcome.text);
    }
    writeln!(screen, "{}", printable(line.as_bytes()))?;
    if let (Some(policy), Some(reason)) = (&decisions.policy, &outcome.reason) {
        let limit = format!("{} {} of {}", reason.window(), reason.unit.word(), reason.key());
        for (name, value) in [("policy", &**policy), ("rule", &reason.rule), ("by", &limit)] {
            writeln!(screen, "  {name:<10}  {}", printable(value.as_bytes()))?;
        }
    }
    if outcome.delay > 0.0 {
        writeln!(screen, "  {:<10}  {}", "delay", text::duration(outcome.delay.ceil()))?;
    }
    if decisions.refused_recipients > 1 {
        writeln!(screen, "  {:<10}  {} recipients", "refused", decisions.refused_recipients)?;
    }
    let mut shown: Vec<String> = Vec::new();
    for window in &decisions.windows {
        let record = record_key(window);
        if let Some(one) = deciding(overrides, &record, at.seconds) {
            let line = format!("  {:<10}  {}", "override", sentence(one));
            if !shown.contains(&line) {
                writeln!(screen, "{line}")?;
                shown.push(line);
            }
        }
    }
    if !decisions.windows.is_empty() {
        table(screen, &decisions.windows)?;
    }
    Ok(())
}

fn record_key(window: &Window) -> RecordKey<'_> {
    RecordKey {
        name: window.record().as_bytes(),
        identity_start: window.record().len().saturating_sub(window.key().len()),
        kind: Kind::Policy,
        algorithm: window.decision.algorithm,
    }
}

fn table(screen: &mut Screen<'_>, windows: &[Window]) -> std::io::Result<()> {
    let words = |text: &str| printable(text.as_bytes());
    let columns: [table::Shows<'_, Window>; 9] = [
        (Column::words("WINDOW"), &|window| words(window.text())),
        (Column::words("UNIT"), &|window| window.unit.word().to_owned()),
        (Column::words("KEY"), &|window| words(window.key())),
        (Column::numbers("RATE"), &|window| format!("{:.1}", window.decision.rate)),
        (Column::numbers("LIMIT"), &|window| text::number(window.decision.limit)),
        (
            Column::numbers("LEFT"),
            &|Window { decision, .. }| match decision.remaining(decision.at) {
                left if left.is_finite() => format!("{left:.0}"),
                _ => "unlimited".to_owned(),
            },
        ),
        (Column::words("NEXT"), &|Window { decision, .. }| {
            text::short_wait(decision.retry_after(decision.at))
        }),
        (Column::words("RULE"), &|window| words(&window.rule)),
        (Column::words("RECORD").spare(1), &|window| words(window.record())),
    ];
    table::print(screen, windows, columns)
}

/// The field that may be given several times.
const RECIPIENT: &str = "recipient";

/// An event, as options say it.
#[derive(Clone, Debug, Default)]
pub(super) struct EventOptions {
    /// Without its recipients.
    pub(super) event: Event<String>,
    pub(super) recipients: Vec<String>,
}

fn option(field: &'static EventField) -> Arg {
    let arg = Arg::new(field.name).long(field.option).value_name(field.value);
    let help = format!("Take this for {}", field.help);
    match Event::<String>::default().places().find(|(other, _)| *other == field) {
        Some((_, FieldPlace::Client(_))) => arg.value_parser(value_parser!(IpAddr)).help(help),
        _ if field.name == RECIPIENT => arg
            .action(ArgAction::Append)
            .allow_hyphen_values(true)
            .help(format!("{help}; may be given several times")),
        _ => arg.help(help),
    }
}

impl EventOptions {
    /// The option of a field that is known, other than the recipients.
    pub(super) fn given(&self) -> Option<&'static str> {
        let known = |value: &FieldValue<'_, String>| match value {
            FieldValue::Text(text) => text.is_some(),
            FieldValue::Client(origin) => origin.address().is_some(),
        };
        let mut values = self.event.values();
        values.find_map(|(field, value)| known(&value).then_some(field.option))
    }
}

impl Args for EventOptions {
    fn augment_args(command: Command) -> Command {
        FIELDS.iter().fold(command, |command, field| command.arg(option(field)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for EventOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut options = Self::default();
        options.update_from_arg_matches(matches)?;
        Ok(options)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        let all = matches.get_many::<String>(RECIPIENT).into_iter().flatten();
        self.recipients = all.cloned().collect();
        let event = &mut self.event;
        for (field, place) in event.places().filter(|(field, _)| field.name != RECIPIENT) {
            match place {
                FieldPlace::Text(text) => *text = matches.get_one::<String>(field.name).cloned(),
                FieldPlace::Client(client) => {
                    *client = Origin::of_client(matches.get_one::<IpAddr>(field.name).copied());
                }
            }
        }
        Ok(())
    }
}
