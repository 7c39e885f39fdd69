//! `--help` and `exirate help`: the commands in groups, and what the help of a command shows.
//!
//! The `after_help` of a command is its text, in paragraphs. Those that begin with `Examples:` and
//! `Exit status:` are what they say. Of the others, those before the exit status are
//! a summary for the help; those after it are for the manual page, which has the summary where
//! there are none.
//!
//! The help begins with the first session of the command's transcript, and its examples.

use clap::Command;

use super::json::Json;
use super::transcripts;

/// The commands by what people want to do. A command is in one of these groups, or all of its
/// own commands are.
const GROUPS: &[(&str, &[&str])] = &[
    ("Set up", &["setup", "doctor", "where"]),
    (
        "Every day",
        &[
            "status",
            "list",
            "show",
            "explain",
            "events",
            "top",
            "usage",
            "habits",
            "held",
            "unblock",
            "allow",
            "deny",
            "overrides",
            "bypass",
        ],
    ),
    ("Choose limits", &["policy", "check", "measure", "simulate", "report", "rules", "shadow"]),
    (
        "Upkeep",
        &[
            "stats",
            "verify",
            "repair",
            "config",
            "set",
            "copy",
            "export",
            "import",
            "erase",
            "serve mail",
            "serve alerts",
            "serve follow",
            "serve web",
            "serve broker",
            "serve held",
            "web token",
            "completions",
            "man",
        ],
    ),
    ("Trace messages", &["trace query", "trace record", "trace export"]),
    (
        "Several servers",
        &["cluster join", "cluster status", "cluster leave", "cluster forget", "serve agent"],
    ),
];

/// The program, with the help of each command as people read it.
pub(in crate::cli) fn arranged(mut program: Command) -> Command {
    let groups = groups(&program);
    program = program.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{}\n{{options}}{{after-help}}",
        heading(&Command::default(), "Options")
    ));
    program.mut_subcommands(|command| arranged_below(command, "exirate"))
}

/// A command below `above`, and those below it.
fn arranged_below(command: Command, above: &str) -> Command {
    let name = format!("{above}-{}", command.get_name());
    let text = command.get_after_help().map_or_else(String::new, ToString::to_string);
    let text = Text::of(&text);
    let mut template = "{about-with-newline}\n".to_owned();
    let short = name.strip_prefix("exirate-").unwrap_or(&name);
    if let Some(session) = transcripts::of(short).and_then(|all| first_session(all, short)) {
        template += &format!("{session}\n");
    }
    if let Some(examples) = text.examples {
        template += &format!("{}\n{examples}\n\n", heading(&command, "Examples"));
    }
    template += "{usage-heading} {usage}\n\n{all-args}{after-help}";
    let mut after: Vec<String> = text.summary.iter().map(|text| one_line(text)).collect();
    after.extend(text.exit_status.map(|status| one_line(&format!("Exit status: {status}"))));
    after.push(match command.get::<Json>() {
        Some(_) => format!("man {name} has the details, and the fields of --json."),
        None => format!("man {name} has the details."),
    });
    command
        .help_template(template)
        .after_help(after.join("\n\n"))
        .mut_subcommands(|below| arranged_below(below, &name))
}

/// The lines of the groups: each command with what it does.
fn groups(program: &Command) -> String {
    let width = GROUPS.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max();
    let mut lines = String::new();
    for (title, names) in GROUPS {
        lines += &format!("{}\n", heading(program, title));
        for name in *names {
            let about = find(program, name).and_then(Command::get_about);
            let about = about.map_or_else(String::new, ToString::to_string);
            let literal = program.get_styles().get_literal();
            let width = width.unwrap_or_default();
            lines += &format!("  {literal}{name:width$}{literal:#}  {about}\n");
        }
        lines += "\n";
    }
    lines
}

/// The command with this name, of a command too: `trace query`.
pub(super) fn find<'a>(program: &'a Command, name: &str) -> Option<&'a Command> {
    name.split(' ').try_fold(program, |above, name| above.find_subcommand(name))
}

/// A heading, as clap prints its own.
fn heading(command: &Command, title: &str) -> String {
    let header = command.get_styles().get_header();
    format!("{header}{title}:{header:#}")
}

/// The first command of a transcript that is of the command whose page has this name, and what it
/// prints.
fn first_session(transcript: &str, page: &str) -> Option<String> {
    let own = format!("exirate {}", page.replace('-', " "));
    let sessions = transcript.split("\n\n$ ").map(|one| one.trim_start_matches("$ "));
    let mut own =
        sessions.filter(|session| session.lines().next().is_some_and(|l| l.contains(&own)));
    own.next().map(|session| format!("$ {}\n", session.trim_end()))
}

/// A paragraph as one line, which is wrapped at the width of the terminal. A list stays as it is.
fn one_line(paragraph: &str) -> String {
    let is_list = paragraph.starts_with(' ');
    if is_list { paragraph.to_owned() } else { paragraph.replace('\n', " ") }
}

/// `list`, or `trace-query` for a command of a command.
pub(super) fn short_name(command: &Command) -> &str {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    name.strip_prefix("exirate-").unwrap_or(name)
}

/// The parts of a command's text.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Text<'a> {
    pub(super) examples: Option<&'a str>,
    pub(super) summary: Vec<&'a str>,
    pub(super) exit_status: Option<&'a str>,
    pub(super) manual: Vec<&'a str>,
}

impl<'a> Text<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let mut parts = Self::default();
        for part in text.split("\n\n") {
            if let Some(examples) = part.strip_prefix("Examples:\n") {
                parts.examples = Some(examples);
            } else if let Some(status) = part.strip_prefix("Exit status: ") {
                parts.exit_status = Some(status);
            } else if part.is_empty() {
            } else if parts.exit_status.is_none() {
                parts.summary.push(part);
            } else {
                parts.manual.push(part);
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Program;

    #[test]
    fn a_text_falls_into_its_parts() {
        let text = Text::of("Examples:\n  exirate x\n\nIt is.\n\nExit status: 0 fine.\n\nMore.");
        let expected = Text {
            examples: Some("  exirate x"),
            summary: vec!["It is."],
            exit_status: Some("0 fine."),
            manual: vec!["More."],
        };
        assert_eq!(text, expected);
        assert_eq!(Text::of(""), Text::default());
    }

    #[test]
    fn every_command_is_in_one_group() {
        let program = Program::command();
        let names: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        for name in &names {
            assert!(find(&program, name).is_some(), "{name} is no command");
            assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{name}");
        }
        for command in program.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            let is_listed =
                |below: &Command| names.contains(&format!("{name} {}", below.get_name()).as_str());
            let all_below = command.has_subcommands() && command.get_subcommands().all(is_listed);
            assert_ne!(names.contains(&name), all_below, "{name} belongs in a group, once");
        }
    }

    #[test]
    fn a_session_is_the_first_of_its_command() {
        let transcript =
            "$ exirate policy apply\nin use\n\n$ exirate list\nA\n\nB\n\n$ exirate list x\n";
        assert_eq!(first_session(transcript, "list").unwrap(), "$ exirate list\nA\n\nB\n");
        assert_eq!(first_session(transcript, "top"), None);
    }
}
