//! Options that describe an event: one for each of its fields.

use std::net::IpAddr;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, value_parser};

use crate::event::fields::{EventField, FIELDS, FieldPlace, FieldValue};
use crate::event::{Event, Origin};

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
