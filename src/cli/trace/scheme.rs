//! How messages are digested: the options of `exirate trace record`.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};

use super::super::Failure;
use crate::trace::{Parameter, SCHEMES, SchemeTable, Settings, WrongParameter};

/// How messages are digested from now on.
#[derive(Clone, Debug, Default)]
pub(super) struct Scheme {
    scheme: Option<String>,
    /// The names of parameters, and their values.
    parameters: Vec<(&'static str, String)>,
}

/// The parameters that are options, with their schemes.
fn options() -> impl Iterator<Item = (&'static SchemeTable, &'static Parameter)> {
    let of = |table: &'static SchemeTable| table.parameters.iter().map(move |one| (table, one));
    SCHEMES.iter().flat_map(of).filter(|(_, parameter)| !parameter.name.is_empty())
}

/// More about an option.
fn advice(name: &str) -> &'static str {
    match name {
        "bits" => {
            "; winnow with 1.5 takes a sixth more disk, and texts of 64 bytes have little more \
             than a third of the false results; with --gram 8 --window 8 as well, fewer still"
        }
        _ => "",
    }
}

impl Args for Scheme {
    fn augment_args(command: Command) -> Command {
        let heading = "Digests, also of what Exim records from now on";
        let names = PossibleValuesParser::new(SCHEMES.iter().map(|table| table.name));
        let scheme = Arg::new("scheme").long("scheme").value_name("NAME").value_parser(names);
        let help =
            format!("The scheme [in a new store: {}]", SCHEMES.first().map_or("", |one| one.name));
        let command = command.next_help_heading(heading).arg(scheme.help(help));
        let mut names: Vec<&str> = Vec::new();
        options().fold(command, |command, (_, Parameter { name, unit, .. })| {
            if names.contains(name) {
                return command;
            }
            names.push(name);
            let same = options().filter(|(_, parameter)| parameter.name == *name);
            let help = same.map(|(table, parameter)| {
                let first = parameter.written(&(table.default)());
                format!("{}: {} [in a new store: {first}]", table.name, parameter.takes())
            });
            let help = help.collect::<Vec<_>>().join("; ") + advice(name);
            let option = Arg::new(*name).long(*name).value_name(*unit).help(help);
            command.arg(option.allow_negative_numbers(true))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Scheme {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut scheme = Self::default();
        scheme.update_from_arg_matches(matches)?;
        Ok(scheme)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.scheme = matches.get_one("scheme").cloned();
        for (_, Parameter { name, .. }) in options() {
            let value = matches.get_one::<String>(name).cloned();
            if self.parameters.iter().all(|(known, _)| known != name) {
                self.parameters.extend(value.map(|value| (*name, value)));
            }
        }
        Ok(())
    }
}

impl Scheme {
    /// The settings after `before`.
    ///
    /// # Errors
    /// An option belongs to the other scheme, or is out of range.
    pub(super) fn settings(&self, before: Settings) -> Result<Settings, Failure> {
        let named = |table: &&SchemeTable| self.scheme.as_deref() == Some(table.name);
        let before = match SCHEMES.iter().find(named) {
            Some(table) if table.name != before.table().name => (table.default)(),
            _ => before,
        };
        let written: Vec<_> = (self.parameters.iter())
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
            .collect();
        before.with(&written).map_err(|(index, wrong)| {
            let (name, value) = self.parameters.get(index).cloned().unwrap_or_default();
            Failure::new(match wrong {
                WrongParameter::OtherScheme(theirs) => format!(
                    "--{name} belongs to the scheme {theirs}, and the store's is {}: use --scheme \
                     {theirs} as well",
                    before.table().name
                ),
                WrongParameter::Value(parameter) => format!(
                    "--{name} {value} is wrong: --{} takes {}",
                    parameter.name,
                    parameter.takes()
                ),
                WrongParameter::Unknown => format!("--{name} is no parameter of a scheme"),
            })
        })
    }
}

/// Settings for people: as the options that make them.
pub(in crate::cli) fn described(settings: Settings) -> String {
    let table = settings.table();
    let options = table.parameters.iter().filter(|parameter| !parameter.name.is_empty());
    let options = options.map(|one| format!(" --{} {}", one.name, one.written(&settings)));
    format!("--scheme {}{}", table.name, options.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{HbfSettings, WinnowSettings};

    fn given(options: &[&str]) -> Scheme {
        let command = Scheme::augment_args(Command::new("x"));
        let matches = command.try_get_matches_from(["x"].iter().chain(options)).unwrap();
        Scheme::from_arg_matches(&matches).unwrap()
    }

    fn error_of(options: &[&str], before: Settings) -> String {
        let Err(Failure::Said(why)) = given(options).settings(before) else { panic!() };
        why
    }

    #[test]
    fn settings_that_are_not_given_stay() {
        let before = Settings::default();
        assert_eq!(given(&[]).settings(before).unwrap(), before);
        let expected = WinnowSettings { window: 16, ..WinnowSettings::default() };
        let window = given(&["--window", "16"]);
        assert_eq!(window.settings(before).unwrap(), Settings::Winnow(expected));
        let hbf = given(&["--scheme", "hbf", "--block", "64"]);
        let expected = Settings::Hbf(HbfSettings { block: 64, ..HbfSettings::default() });
        assert_eq!(hbf.settings(before).unwrap(), expected);
        assert_eq!(given(&[]).settings(expected).unwrap(), expected);
        let again = described(expected);
        let again: Vec<&str> = again.split(' ').collect();
        assert_eq!(given(&again).settings(before).unwrap(), expected);
    }

    #[test]
    fn settings_out_of_range_are_refused_with_what_would_be_right() {
        let winnow = Settings::default();
        assert!(
            error_of(&["--block", "64"], winnow).starts_with("--block belongs to the scheme hbf")
        );
        let gram = error_of(&["--gram", "8", "--scheme", "hbf"], winnow);
        assert!(gram.starts_with("--gram belongs to the scheme winnow"));
        for bits in ["0", "-1", "NaN", "1e9", "33"] {
            let why = error_of(&["--bits", bits], winnow);
            assert!(why.ends_with("0.25 to 32, such as 1.2"), "{why}");
        }
        assert_eq!(
            error_of(&["--gram", "200"], winnow),
            "--gram 200 is wrong: --gram takes the number of bytes of text that are hashed \
             together: 4 to 32"
        );
        let why = error_of(&["--scheme", "hbf", "--bits", "1024"], winnow);
        assert!(why.starts_with("--bits 1024 is wrong: --capacity takes"), "{why}");
    }

    #[test]
    fn the_help_has_the_defaults() {
        let command = Scheme::augment_args(Command::new("x"));
        for settings in [Settings::default(), Settings::Hbf(HbfSettings::default())] {
            let described = described(settings);
            let words: Vec<&str> = described.split(' ').collect();
            for pair in words.chunks(2).skip(1) {
                let option = pair[0].trim_start_matches('-');
                let argument = command.get_arguments().find(|a| a.get_long() == Some(option));
                let help = argument.unwrap().get_help().unwrap().to_string();
                assert!(
                    help.contains(&format!("[in a new store: {}]", pair[1])),
                    "{option}: {help}"
                );
            }
        }
    }
}
