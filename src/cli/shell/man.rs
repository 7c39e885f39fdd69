//! `exirate man`: the manual pages, made from the text of each command (see [`super::help`]) and from
//! transcripts of real sessions.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Arg, Args, Command};
use clap_mangen::Man as Page;
use clap_mangen::roff::{Roff, bold, italic, roman};

use super::help::{Text, short_name};
use super::json::{Json, sentence};
use super::transcripts;
use crate::cli::shared::output_file;
use crate::cli::shared::screen::Screen;
use crate::cli::{Failure, Outcome};

/// Everybody may read the pages.
const PUBLIC: u32 = 0o666;

/// The page of the functions that Exim calls, which are no commands.
const FUNCTIONS: (&str, &str) =
    ("exirate-functions.7", include_str!("../../../docs/man/exirate-functions.7"));
/// The manual section of the program: system administration.
const SECTION: &str = "8";

/// Print manual pages, or write them to a directory
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Read the page of one command:
    exirate man list | man -l -
  Read that of the functions for Exim's configuration:
    exirate man functions | man -l -
  Write all pages to a directory:
    exirate man --dir /tmp/pages

Exit status: 0 printed or written; 2 an error.")]
pub(in crate::cli) struct Man {
    /// Print the page of this command, such as list or trace query, or of
    /// functions; the default is that of exirate
    #[arg(value_name = "COMMAND", conflicts_with = "dir")]
    command: Vec<String>,

    /// Write all pages to DIR: exirate.8, one for each command, and
    /// exirate-functions.7
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Man {
    pub(in crate::cli) fn run(
        &self,
        screen: &mut Screen<'_>,
        program: Command,
    ) -> Result<Outcome, Failure> {
        let mut program = program.disable_help_subcommand(true);
        // Gives the commands their full names.
        program.build();
        if let Some(dir) = &self.dir {
            for path in write_all(&program, dir)? {
                writeln!(screen, "{}", path.display())?;
            }
            return Ok(Outcome::Fine);
        }
        // As in the name of its page.
        let name = self.command.join("-");
        let name = name.strip_prefix("exirate-").unwrap_or(&name);
        let mut commands = all(&program).into_iter();
        let command = match name {
            "functions" => {
                screen.write_all(FUNCTIONS.1.as_bytes())?;
                return Ok(Outcome::Fine);
            }
            "" | "exirate" => &program,
            _ => commands.find(|command| short_name(command) == name).ok_or_else(|| {
                let names: Vec<&str> = shown(&program).map(Command::get_name).collect();
                Failure::new(format!(
                    "there is no command {name}; the commands are {}, and functions",
                    names.join(", ")
                ))
            })?,
        };
        screen.write_all(&page(command, &program)?)?;
        Ok(Outcome::Fine)
    }
}

/// All commands, those of commands behind these.
fn all(program: &Command) -> Vec<&Command> {
    shown(program).flat_map(|command| [vec![command], all(command)].concat()).collect()
}

/// The commands of `program` that have a page: an older word for one has none.
fn shown(program: &Command) -> impl Iterator<Item = &Command> {
    program.get_subcommands().filter(|command| !command.is_hide_set())
}

/// Writes all pages to `dir`, and gives their paths.
fn write_all(program: &Command, dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |action: &str, path: &Path, error: std::io::Error| {
        Failure::new(format!("cannot {action} {}: {error}", path.display()))
    };
    fs::create_dir_all(dir).map_err(|error| failed("make the directory", dir, error))?;
    let mut paths = Vec::new();
    for command in std::iter::once(program).chain(all(program)) {
        let path = dir.join(Page::new(command.clone()).section(SECTION).get_filename());
        let page = page(command, program)?;
        output_file::replace(&path, PUBLIC, |out| Ok(out.write_all(&page)?))?;
        paths.push(path);
    }
    let path = dir.join(FUNCTIONS.0);
    output_file::replace(&path, PUBLIC, |out| Ok(out.write_all(FUNCTIONS.1.as_bytes())?))?;
    paths.push(path);
    Ok(paths)
}

/// The manual page of `command`, of `program` or that itself.
fn page(command: &Command, program: &Command) -> Result<Vec<u8>, Failure> {
    let text = command.get_after_help().map_or_else(String::new, ToString::to_string);
    let text = Text::of(&text);
    let version = program.get_version().unwrap_or_default();
    let page = Page::new(command.clone())
        .section(SECTION)
        .source(format!("exirate {version}"))
        .manual("exirate");
    let mut bytes = Vec::new();
    page.render_title(&mut bytes)?;
    page.render_name_section(&mut bytes)?;
    let mut roff = Roff::new();
    synopsis(&mut roff, command);
    roff.to_writer(&mut bytes)?;
    page.render_description_section(&mut bytes)?;
    let mut roff = Roff::new();
    let description = if text.manual.is_empty() { &text.summary } else { &text.manual };
    description.iter().for_each(|text| paragraph(&mut roff, text));
    roff.to_writer(&mut bytes)?;
    page.render_options_section(&mut bytes)?;
    if command.has_subcommands() {
        page.render_subcommands_section(&mut bytes)?;
    }
    let mut roff = Roff::new();
    if let Some(status) = text.exit_status {
        roff.control("SH", ["EXIT STATUS"]);
        paragraph(&mut roff, &sentence(status));
    }
    if let Some(json) = command.get::<Json>() {
        json.write(&mut roff);
    }
    let transcript = transcripts::of(short_name(command));
    if text.examples.is_some() || transcript.is_some() {
        roff.control("SH", ["EXAMPLES"]);
        text.examples.iter().for_each(|text| verbatim(&mut roff, text));
    }
    if let Some(transcript) = transcript {
        roff.control("PP", []);
        roff.text([roman("A session:")]);
        roff.control("PP", []);
        verbatim(&mut roff, transcript);
    }
    see_also(&mut roff, command, program);
    roff.to_writer(&mut bytes)?;
    Ok(bytes)
}

/// The synopsis, with the names of the options' values.
fn synopsis(roff: &mut Roff, command: &Command) {
    let mut line = vec![bold(command.get_bin_name().unwrap_or_else(|| command.get_name()))];
    let is_usual = |option: &Arg| matches!(option.get_id().as_str(), "help" | "version");
    let options = command
        .get_arguments()
        .filter(|option| !option.is_positional() && !option.is_hide_set() && !is_usual(option));
    let (required, others): (Vec<_>, Vec<_>) = options.partition(|option| option.is_required_set());
    for option in others.into_iter().chain(required) {
        let brackets = if option.is_required_set() { ["", ""] } else { ["[", "]"] };
        let name = match (option.get_long(), option.get_short()) {
            (Some(long), _) => format!("--{long}"),
            (None, Some(short)) => format!("-{short}"),
            (None, None) => continue,
        };
        line.extend([roman(" "), roman(brackets[0]), bold(name)]);
        let takes_none = option.get_num_args().is_some_and(|range| range.max_values() == 0);
        let may_lack = option.get_num_args().is_some_and(|range| range.min_values() == 0);
        for value in option.get_value_names().unwrap_or_default() {
            match (takes_none, may_lack) {
                (true, _) => {}
                (false, true) => line.extend([roman(" ["), italic(value.as_str()), roman("]")]),
                (false, false) => line.extend([roman(" "), italic(value.as_str())]),
            }
        }
        line.push(roman(brackets[1]));
    }
    for argument in command.get_positionals() {
        let value = argument.get_value_names().and_then(<[_]>::first);
        let value = value.map_or(argument.get_id().as_str(), |value| value.as_str());
        let brackets = if argument.is_required_set() { [" ", ""] } else { [" [", "]"] };
        line.extend([roman(brackets[0]), italic(value), roman(brackets[1])]);
        if argument.get_num_args().is_some_and(|range| range.max_values() > 1) {
            line.push(roman("..."));
        }
    }
    roff.control("SH", ["SYNOPSIS"]);
    if command.has_subcommands() && command.is_args_conflicts_with_subcommands_set() {
        roff.text(line);
        roff.control("br", []);
        line = vec![bold(command.get_bin_name().unwrap_or_else(|| command.get_name()))];
    }
    if command.has_subcommands() {
        line.extend([roman(" "), italic("COMMAND"), roman(" ...")]);
    }
    roff.text(line);
}

fn paragraph(roff: &mut Roff, text: &str) {
    roff.control("PP", []);
    text.lines().for_each(|line| {
        roff.text([roman(line)]);
    });
}

/// Lines that stay as they are.
fn verbatim(roff: &mut Roff, text: &str) {
    roff.control("nf", []);
    text.lines().for_each(|line| {
        roff.text([roman(line)]);
    });
    roff.control("fi", []);
}

/// The other pages: those of the commands of the same group, and of the group above.
fn see_also(roff: &mut Roff, command: &Command, program: &Command) {
    roff.control("SH", ["SEE ALSO"]);
    let is = |other: &Command| short_name(other) == short_name(command);
    let above = shown(program).find(|above| above.get_subcommands().any(is));
    let beside = shown(above.unwrap_or(program));
    let pages = std::iter::once(program)
        .chain(above)
        .chain(beside)
        .filter(|other| !is(other))
        .map(|other| other.get_display_name().unwrap_or_else(|| other.get_name()));
    let mut line = Vec::new();
    for page in pages {
        line.extend([bold(page), roman("(8), ")]);
    }
    line.extend([bold("exirate-functions"), roman("(7), "), bold("exim"), roman("(8)")]);
    roff.text(line);
}
