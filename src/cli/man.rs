//! `exirate man`: the manual pages, made from what `--help` says and from
//! transcripts of real sessions.
//!
//! A command's help after its options is a few paragraphs. Those that begin
//! with `Examples:`, `Exit status:` and `JSON:` become sections of the page, the
//! others are its description.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_mangen::Man as Page;
use clap_mangen::roff::{Roff, bold, roman};

use super::screen::Screen;
use super::{Failure, Outcome};

/// What each command's page shows as a session. A test runs them all: see
/// `tests/cli/transcripts.rs`.
const TRANSCRIPTS: [(&str, &str); 25] = [
    ("check", include_str!("../../docs/transcripts/check.txt")),
    ("compact", include_str!("../../docs/transcripts/compact.txt")),
    ("copy", include_str!("../../docs/transcripts/copy.txt")),
    ("doctor", include_str!("../../docs/transcripts/doctor.txt")),
    ("export", include_str!("../../docs/transcripts/export.txt")),
    ("import", include_str!("../../docs/transcripts/import.txt")),
    ("list", include_str!("../../docs/transcripts/list.txt")),
    ("measure", include_str!("../../docs/transcripts/measure.txt")),
    ("repair", include_str!("../../docs/transcripts/repair.txt")),
    ("reset", include_str!("../../docs/transcripts/reset.txt")),
    ("rules", include_str!("../../docs/transcripts/rules.txt")),
    ("set", include_str!("../../docs/transcripts/set.txt")),
    ("show", include_str!("../../docs/transcripts/show.txt")),
    ("stats", include_str!("../../docs/transcripts/stats.txt")),
    ("tidy", include_str!("../../docs/transcripts/tidy.txt")),
    ("top", include_str!("../../docs/transcripts/top.txt")),
    ("trace", include_str!("../../docs/transcripts/trace.txt")),
    ("trace-export", include_str!("../../docs/transcripts/trace-export.txt")),
    ("trace-query", include_str!("../../docs/transcripts/trace-query.txt")),
    ("trace-record", include_str!("../../docs/transcripts/trace-record.txt")),
    ("trace-repair", include_str!("../../docs/transcripts/trace-repair.txt")),
    ("trace-stats", include_str!("../../docs/transcripts/trace-stats.txt")),
    ("trace-tidy", include_str!("../../docs/transcripts/trace-tidy.txt")),
    ("trace-verify", include_str!("../../docs/transcripts/trace-verify.txt")),
    ("verify", include_str!("../../docs/transcripts/verify.txt")),
];

/// Prints manual pages, or writes them to a directory
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Read the page of one command:
    exirate man list | man -l -
  Install them all:
    exirate man --dir /usr/local/share/man/man1

Exit status: 0 all is well; 2 an error.")]
pub(super) struct Man {
    /// The command, such as list or trace query; without it, the page of
    /// exirate itself
    #[arg(value_name = "COMMAND", conflicts_with = "dir")]
    command: Vec<String>,

    /// Writes all pages to DIR: exirate.1, and one for each command
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Man {
    pub(super) fn run(
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
            "" | "exirate" => &program,
            _ => commands.find(|command| short_name(command) == name).ok_or_else(|| {
                let names: Vec<&str> = program.get_subcommands().map(Command::get_name).collect();
                Failure::new(format!(
                    "there is no command {name}; the commands are {}",
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
    program.get_subcommands().flat_map(|command| [vec![command], all(command)].concat()).collect()
}

/// `list`, or `trace-query` for a command of a command.
fn short_name(command: &Command) -> &str {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    name.strip_prefix("exirate-").unwrap_or(name)
}

/// Writes all pages to `dir`, and gives their paths.
fn write_all(program: &Command, dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |action: &str, path: &Path, error: std::io::Error| {
        Failure::new(format!("cannot {action} {}: {error}", path.display()))
    };
    fs::create_dir_all(dir).map_err(|error| failed("make the directory", dir, error))?;
    let mut paths = Vec::new();
    for command in std::iter::once(program).chain(all(program)) {
        let path = dir.join(Page::new(command.clone()).get_filename());
        fs::write(&path, page(command, program)?).map_err(|error| failed("write", &path, error))?;
        paths.push(path);
    }
    Ok(paths)
}

/// The manual page of `command`, of `program` or that itself.
fn page(command: &Command, program: &Command) -> Result<Vec<u8>, Failure> {
    let help = command.get_after_help().map_or_else(String::new, ToString::to_string);
    let help = Help::of(&help);
    let version = program.get_version().unwrap_or_default();
    let page = Page::new(command.clone()).source(format!("exirate {version}")).manual("exirate");
    let mut bytes = Vec::new();
    page.render_title(&mut bytes)?;
    page.render_name_section(&mut bytes)?;
    page.render_synopsis_section(&mut bytes)?;
    page.render_description_section(&mut bytes)?;
    let mut roff = Roff::new();
    help.description.iter().for_each(|text| paragraph(&mut roff, text));
    roff.to_writer(&mut bytes)?;
    page.render_options_section(&mut bytes)?;
    if command.has_subcommands() {
        page.render_subcommands_section(&mut bytes)?;
    }
    let mut roff = Roff::new();
    for (title, text) in [("EXIT STATUS", help.exit_status), ("JSON", help.json)] {
        if let Some(text) = text {
            roff.control("SH", [title]);
            paragraph(&mut roff, &sentence(text));
        }
    }
    let name = short_name(command);
    let transcript = TRANSCRIPTS.iter().find(|(of, _)| *of == name).map(|(_, text)| *text);
    if help.examples.is_some() || transcript.is_some() {
        roff.control("SH", ["EXAMPLES"]);
        help.examples.iter().for_each(|text| verbatim(&mut roff, text));
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

fn paragraph(roff: &mut Roff, text: &str) {
    roff.control("PP", []);
    text.lines().for_each(|line| {
        roff.text([roman(line)]);
    });
}

/// `text` with a capital letter.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

/// Lines that stay as they are.
fn verbatim(roff: &mut Roff, text: &str) {
    roff.control("nf", []);
    text.lines().for_each(|line| {
        roff.text([roman(line)]);
    });
    roff.control("fi", []);
}

/// The other pages: those of the commands beside this one, and above it.
fn see_also(roff: &mut Roff, command: &Command, program: &Command) {
    roff.control("SH", ["SEE ALSO"]);
    let is = |other: &Command| short_name(other) == short_name(command);
    let above = program.get_subcommands().find(|above| above.get_subcommands().any(is));
    let beside = above.unwrap_or(program).get_subcommands();
    let pages = std::iter::once(program)
        .chain(above)
        .chain(beside)
        .filter(|other| !is(other))
        .map(|other| other.get_display_name().unwrap_or_else(|| other.get_name()));
    let mut line = Vec::new();
    for page in pages {
        line.extend([bold(page), roman("(1), ")]);
    }
    line.extend([bold("exim"), roman("(8)")]);
    roff.text(line);
}

/// The parts of a command's help after its options.
#[derive(Debug, Default, PartialEq)]
struct Help<'a> {
    description: Vec<&'a str>,
    examples: Option<&'a str>,
    exit_status: Option<&'a str>,
    json: Option<&'a str>,
}

impl<'a> Help<'a> {
    fn of(text: &'a str) -> Self {
        let mut help = Self::default();
        for part in text.split("\n\n") {
            if let Some(examples) = part.strip_prefix("Examples:\n") {
                help.examples = Some(examples);
            } else if let Some(status) = part.strip_prefix("Exit status: ") {
                help.exit_status = Some(status);
            } else if let Some(json) = part.strip_prefix("JSON: ") {
                help.json = Some(json);
            } else if !part.is_empty() {
                help.description.push(part);
            }
        }
        help
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_falls_into_its_parts() {
        let help =
            Help::of("Examples:\n  exirate x\n\nIt is.\n\nExit status: 0 fine.\n\nJSON: no.");
        let expected = Help {
            description: vec!["It is."],
            examples: Some("  exirate x"),
            exit_status: Some("0 fine."),
            json: Some("no."),
        };
        assert_eq!(help, expected);
        assert_eq!(Help::of(""), Help::default());
    }
}
