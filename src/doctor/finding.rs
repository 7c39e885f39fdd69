//! What the doctor found.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::mta::command;
pub(super) use crate::mta::command::quoted;

/// What findings about Exim are about.
pub(crate) const EXIM: &str = "Exim";
/// Those about the daemon of the mail front ends.
pub(super) const DAEMON: &str = "The daemon";

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
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
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Finding {
    pub(crate) about: &'static str,
    /// ok, note, warning or problem.
    pub(crate) level: Level,
    pub(crate) text: String,
    /// Shell commands that fix it, in order; none if no command does.
    pub(crate) fix: Vec<String>,
}

/// All that was found, in the order in which it was checked.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    about: &'static str,
    pub(crate) list: Vec<Finding>,
    /// Something could not be read by the user who runs this.
    hidden: bool,
}

impl Findings {
    /// What follows is about this.
    pub(crate) fn about(&mut self, what: &'static str) {
        self.about = what;
    }

    /// Something works.
    pub(crate) fn ok(&mut self, text: impl Into<String>) {
        self.add(Level::Ok, text.into());
    }

    /// Something is worth knowing.
    pub(crate) fn note(&mut self, text: impl Into<String>) -> &mut Self {
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
    pub(crate) fn is_hidden(&self) -> bool {
        self.hidden
    }

    /// Something probably works otherwise than intended.
    pub(super) fn warning(&mut self, text: impl Into<String>) -> &mut Self {
        self.add(Level::Warning, text.into());
        self
    }

    /// Something is wrong.
    pub(crate) fn problem(&mut self, text: impl Into<String>) -> &mut Self {
        self.add(Level::Problem, text.into());
        self
    }

    /// Adds a command that fixes what was found last.
    pub(crate) fn fix(&mut self, command: impl Into<String>) -> &mut Self {
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
    pub(crate) fn count(&self, level: Level) -> usize {
        self.list.iter().filter(|finding| finding.level == level).count()
    }
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
    fn commands_can_be_copied() {
        assert_eq!(quoted(Path::new("/var/spool/exim4/00.shard")), "/var/spool/exim4/00.shard");
        assert_eq!(quoted(Path::new("/a b/it's")), "\"/a b/it's\"");
        assert_eq!(quoted(Path::new("/$(x)")), "'/$(x)'");
        assert_eq!(quoted(Path::new("")), "''");
    }
}
