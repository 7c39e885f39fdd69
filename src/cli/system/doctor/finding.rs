//! What the doctor found.

use std::io::Write as _;
use std::path::Path;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::cli::Failure;
use crate::cli::shared::screen::Screen;
use crate::mta::command;
pub(super) use crate::mta::command::quoted;
use crate::text::counted;

/// What findings about Exim are about.
pub(in crate::cli) const EXIM: &str = "Exim";
/// Those about the daemon of the mail front ends.
pub(super) const DAEMON: &str = "The daemon";

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// It works.
    Ok,
    /// It works, and is worth knowing.
    Note,
    /// It works, but probably not as intended, or not for long.
    Warning,
    /// Mail is not limited as it should be, or is deferred.
    Problem,
}

/// One thing that was checked.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) about: &'static str,
    pub(super) level: Level,
    pub(super) text: String,
    /// Shell commands that fix it, in order; none if no command does.
    pub(super) fix: Vec<String>,
}

/// All that was found, in the order in which it was checked.
#[derive(Debug, Default)]
pub(super) struct Findings {
    about: &'static str,
    pub(super) list: Vec<Finding>,
    /// Something could not be read by the user who runs this.
    hidden: bool,
}

/// The findings, as JSON has them.
#[derive(Serialize)]
struct Json<'a> {
    problems: usize,
    warnings: usize,
    notes: usize,
    complete: bool,
    findings: &'a [Finding],
}

impl Findings {
    /// What follows is about this.
    pub(super) fn about(&mut self, what: &'static str) {
        self.about = what;
    }

    /// Something works.
    pub(super) fn ok(&mut self, text: impl Into<String>) {
        self.add(Level::Ok, text.into());
    }

    /// Something is worth knowing.
    pub(super) fn note(&mut self, text: impl Into<String>) -> &mut Self {
        self.add(Level::Note, text.into());
        self
    }

    /// Something that only root can check.
    pub(super) fn hidden(&mut self, text: impl Into<String>) {
        self.hidden = true;
        self.note(text);
        if let Some(command) = as_root() {
            self.fix(command);
        }
    }

    /// Whether something could not be checked.
    pub(super) fn is_hidden(&self) -> bool {
        self.hidden
    }

    /// Something probably works otherwise than intended.
    pub(super) fn warning(&mut self, text: impl Into<String>) -> &mut Self {
        self.add(Level::Warning, text.into());
        self
    }

    /// Something is wrong.
    pub(super) fn problem(&mut self, text: impl Into<String>) -> &mut Self {
        self.add(Level::Problem, text.into());
        self
    }

    /// Adds a command that fixes what was found last.
    pub(super) fn fix(&mut self, command: impl Into<String>) -> &mut Self {
        if let Some(last) = self.list.last_mut() {
            last.fix.push(command.into());
        }
        self
    }

    /// Adds several commands that fix it together.
    pub(super) fn fixes(&mut self, commands: impl IntoIterator<Item = String>) -> &mut Self {
        if let Some(last) = self.list.last_mut() {
            last.fix.extend(commands);
        }
        self
    }

    fn add(&mut self, level: Level, text: String) {
        self.list.push(Finding { about: self.about, level, text, fix: Vec::new() });
    }

    /// How many there are of this level.
    pub(super) fn count(&self, level: Level) -> usize {
        self.list.iter().filter(|finding| finding.level == level).count()
    }

    /// Prints them as JSON.
    pub(super) fn json(&self, screen: &mut Screen<'_>) -> Result<(), Failure> {
        screen.json(&Json {
            problems: self.count(Level::Problem),
            warnings: self.count(Level::Warning),
            notes: self.count(Level::Note),
            complete: !self.hidden,
            findings: &self.list,
        })
    }

    /// Prints them for people.
    pub(super) fn print(&self, screen: &mut Screen<'_>) -> Result<(), Failure> {
        let mut about = "";
        for finding in &self.list {
            if finding.about != about {
                about = finding.about;
                let head = screen.paint(Style::new().bold(), about);
                writeln!(screen, "{head}")?;
            }
            let (word, style) = match finding.level {
                Level::Ok => ("ok      ", AnsiColor::Green.on_default()),
                Level::Note => ("note    ", AnsiColor::Cyan.on_default()),
                Level::Warning => ("warning ", AnsiColor::Yellow.on_default()),
                Level::Problem => ("PROBLEM ", AnsiColor::Red.on_default().bold()),
            };
            let word = screen.paint(style, word);
            writeln!(screen, "  {word} {}", harmless(&finding.text))?;
            for (n, command) in finding.fix.iter().enumerate() {
                let lead = if n == 0 { "fix:" } else { "" };
                writeln!(screen, "           {lead:<5} {}", harmless(command))?;
            }
        }
        let counts = [
            counted(self.count(Level::Problem), "problem", "problems"),
            counted(self.count(Level::Warning), "warning", "warnings"),
            counted(self.count(Level::Note), "note", "notes"),
        ];
        let mut words: Vec<&str> = counts.iter().map(String::as_str).collect();
        words.retain(|count| !count.starts_with("0 "));
        match (self.count(Level::Problem), self.count(Level::Warning)) {
            (0, _) if self.hidden => words.insert(0, "No problem was found"),
            (0, 0) => words.insert(0, "All is well"),
            (0, _) => words.insert(0, "No problem"),
            _ => {}
        }
        writeln!(screen, "{}.", words.join(", "))?;
        Ok(())
    }
}

/// `text` without terminal control characters. Backslashes and quotes stay,
/// so that commands can be copied.
fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '"' | '\'' => shown.push(c),
            _ => shown.extend(c.escape_debug()),
        }
    }
    shown
}

/// The command that runs this again as root; none where an argument is a program that another
/// user can change.
fn as_root() -> Option<String> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if arguments.iter().any(|argument| is_others_program(Path::new(argument))) {
        return None;
    }
    Some(arguments.iter().fold("sudo exirate".to_owned(), |command, argument| {
        format!("{command} {}", quoted(Path::new(argument)))
    }))
}

fn is_others_program(argument: &Path) -> bool {
    let text = argument.to_string_lossy();
    let path = text.strip_prefix("--exim=").map_or(argument, Path::new);
    let absolute = std::path::absolute(path);
    absolute.is_ok_and(|path| command::is_program(&path) && !command::is_only_roots(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_can_be_copied_and_drive_no_terminal() {
        assert_eq!(quoted(Path::new("/var/spool/exim4/00.shard")), "/var/spool/exim4/00.shard");
        assert_eq!(quoted(Path::new("/a b/it's")), "\"/a b/it's\"");
        assert_eq!(quoted(Path::new("/$(x)")), "'/$(x)'");
        assert_eq!(quoted(Path::new("")), "''");
        assert_eq!(harmless(r"'\''"), r"'\''");
        assert_eq!(harmless("a\x1b[2J\n"), r"a\u{1b}[2J\n");
    }

    #[test]
    fn the_verdict_is_in_words() {
        let print = |findings: &Findings| {
            let mut out = Vec::new();
            let mut screen = Screen::plain(&mut out, None);
            findings.print(&mut screen).unwrap();
            drop(screen);
            String::from_utf8(out).unwrap()
        };
        let mut findings = Findings::default();
        findings.about("Exim");
        findings.ok("fine");
        assert_eq!(print(&findings), "Exim\n  ok       fine\nAll is well.\n");
        findings.note("hm");
        findings.problem("bad").fix("one").fix("two");
        assert_eq!(
            print(&findings),
            "Exim\n  ok       fine\n  note     hm\n  PROBLEM  bad\n           fix:  one\n           \
             \u{20}     two\n1 problem, 1 note.\n"
        );
    }
}
