//! Words that people type for commands of other names: what is suggested in place of each.

use std::ffi::OsString;

use clap::Command;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// Words, and the commands that do what they say; with an option where that does it.
const WORDS: &[(&[&str], &[&str])] = &[
    (&["ban", "block", "blacklist", "blocklist", "denylist", "lock", "suspend"], &["deny"]),
    (&["allowlist", "exempt", "permit", "unlimit", "whitelist"], &["allow"]),
    (&["blocked", "over"], &["list --over"]),
    (&["clients", "keys", "ls", "senders", "users", "who"], &["list"]),
    (&["accounts", "limit", "limits", "policies", "packages"], &["policy show", "rules"]),
    (&["configure", "init", "install"], &["setup"]),
    (&["enable", "enforce", "on", "refuse", "start"], &["setup --enforce"]),
    (&["dry-run", "monitor", "observe"], &["setup --observe"]),
    (&["disable", "off", "pause", "stop"], &["bypass", "setup --observe"]),
    (&["revert", "undo", "uninstall"], &["setup --undo"]),
    (&["apply", "load", "reload", "restart"], &["policy apply"]),
    (&["edit", "lint", "validate"], &["policy lint"]),
    (&["test", "try"], &["check", "simulate", "setup --check"]),
    (&["alerts", "audit", "crossings", "history", "log", "logs", "refusals"], &["events"]),
    (&["reason", "why"], &["explain"]),
    (&["diagnose", "health"], &["doctor"]),
    (&["state", "summary"], &["status"]),
    (&["frozen", "hold", "quarantine", "queue"], &["held"]),
    (&["free", "release", "unban", "unlock"], &["unblock", "held release"]),
    (&["clear", "delete", "forget", "remove", "rm"], &["unblock", "overrides --remove", "erase"]),
    (&["daemon"], &["serve mail", "serve agent"]),
    (&["find", "grep", "search"], &["trace query"]),
    (&["record"], &["trace record"]),
    (&["backup", "dump"], &["copy", "export"]),
    (&["restore"], &["import"]),
    (&["fix"], &["repair", "doctor"]),
    (&["get", "info"], &["show"]),
    (&["join", "leave", "servers"], &["cluster join", "cluster status", "cluster leave"]),
];

/// The error of clap for `arguments`, which suggests what does the work of a word that is known.
pub(in crate::cli) fn suggest(
    mut error: Error,
    program: &Command,
    arguments: &[OsString],
) -> Error {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return error;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    // Of `exirate policy block` nothing is known.
    let mut before = arguments.iter().skip(1).take_while(|argument| *argument != &**word);
    if before.any(|argument| program.find_subcommand(argument).is_some_and(|one| !is_help(one))) {
        return error;
    }
    let tips: Vec<StyledStr> = commands(&word.to_lowercase())
        .iter()
        .filter_map(|line| Some(format!("`exirate {line}`: {}", about(program, line)?).into()))
        .collect();
    if !tips.is_empty() {
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

fn is_help(command: &Command) -> bool {
    command.get_name() == "help"
}

/// What does the work of `word`.
fn commands(word: &str) -> &'static [&'static str] {
    let found = WORDS.iter().find(|(words, _)| words.contains(&word));
    found.map_or(&[], |(_, commands)| *commands)
}

/// What a command does, or the option that follows it.
fn about(program: &Command, line: &str) -> Option<String> {
    let (names, option) = match line.split_once(" --") {
        Some((names, option)) => (names, Some(option)),
        None => (line, None),
    };
    let command = super::help::find(program, names)?;
    let about = match option {
        None => command.get_about(),
        Some(option) => {
            let of = |argument: &&clap::Arg| argument.get_long() == Some(option);
            command.get_arguments().find(of)?.get_help()
        }
    };
    about.map(ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_stated_once_and_names_what_exists() {
        let program = crate::cli::program();
        let mut all: Vec<&str> = WORDS.iter().flat_map(|(words, _)| *words).copied().collect();
        for word in &all {
            assert!(program.find_subcommand(word).is_none(), "{word} is a command");
        }
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count, "{all:?}");
        for line in WORDS.iter().flat_map(|(_, commands)| *commands) {
            assert!(about(&program, line).is_some(), "{line}");
        }
    }

    #[test]
    fn a_known_word_has_a_suggestion_of_its_own() {
        let said = |line: &str| {
            let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let mut program = crate::cli::program();
            let error = program.try_get_matches_from_mut(&arguments).unwrap_err();
            suggest(error, &program, &arguments).to_string()
        };
        for (line, command) in [
            ("exirate block alice", "deny"),
            ("exirate --color never Ban alice", "deny"),
            ("exirate help whitelist", "allow"),
            ("exirate enforce", "setup --enforce"),
            ("exirate why alice", "explain"),
        ] {
            let said = said(line);
            assert!(said.contains(&format!("tip: `exirate {command}`: ")), "{line}: {said}");
            assert!(!said.contains("similar"), "{line}: {said}");
        }
        assert!(said("exirate unblok x").contains("similar subcommand exists: 'unblock'"));
        assert!(!said("exirate policy enforce").contains("setup"));
    }
}
