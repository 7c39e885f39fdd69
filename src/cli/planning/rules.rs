//! `exirate rules`: what Exim's configuration limits.

use std::io::Write as _;
use std::path::PathBuf;

use anstyle::{AnsiColor, Style};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::shared::screen::{Screen, complain, note};
use crate::cli::shared::table::{self, Column};
use crate::cli::{Failure, Json, Outcome};
use crate::mta::exim::{self, Position, Rule, Rules as Found, RulesError};
use crate::text::printable;

/// List what Exim's configuration limits, and where
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  What is limited on this machine?
    exirate rules
  With the keys, for scripts:
    exirate rules --json | jq '.rules[] | {file, line, key, limits}'
  Which lines are to be deleted before exirate is removed?
    exirate rules --references

Each call of ratelimit and ratelimit_all is a line; --all lists those of the other functions too.
USED BY is the option that leads to the ACL of the call; where nothing does, Exim never reaches
it.

Exit status: 0 something is limited, and no call has an error; 1 nothing is limited,
or a call cannot work; 2 an error. With --references: 0 there are no such lines; 1 there are.

The configuration is read as Exim reads it: files that it includes, conditions such
as .ifdef, and macros. Each call of ratelimit and ratelimit_all is a line; with
--all, so is each call of the other functions.

USED BY is the option that leads to the ACL of the call, such as acl_smtp_rcpt; where nothing
does, Exim never reaches the call. `acl_smtp_rcpt?` stands for a name of an ACL that only Exim
knows and that may be this one. LIMIT is `m / p`: `?` stands for what is known only when Exim
expands it, and a file of limits gives one line for each limit in it. Errors and warnings follow
on standard error; `exirate doctor` has them too.

If what Exim prints of its configuration (`exim -bP config`) differs from what was read in the
files, it decides, and a note says so.

--references prints all lines that use exirate, as FILE:LINE: TEXT: calls and what is left
of their statements, macros, and includes of its files; of Debian's configuration, those
of the files that it is generated from. It needs no valid configuration.")]
#[command(add = Json::of::<RulesJson<'_>>().or::<ReferencesJson<'_>>("With --references"))]
pub(in crate::cli) struct Rules {
    /// List the calls of the other functions as well
    #[arg(long)]
    all: bool,

    /// Print the lines that use exirate
    #[arg(long, conflicts_with = "all")]
    references: bool,

    /// Read this configuration file of Exim, not the usual one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Ask this Exim for its configuration
    #[arg(long, value_name = "PROGRAM")]
    exim: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A line, such as a `ratelimit` condition of Exim's own, as JSON has it.
#[derive(Serialize, JsonSchema)]
struct JsonLine<'a> {
    #[serde(flatten)]
    position: &'a Position,
    text: &'a str,
}

impl<'a> JsonLine<'a> {
    fn of((position, text): &'a (Position, String)) -> Self {
        Self { position, text }
    }
}

/// With --references.
#[derive(Serialize, JsonSchema)]
struct ReferencesJson<'a> {
    references: Vec<JsonLine<'a>>,
}

/// Everything, as JSON has it.
#[derive(Serialize, JsonSchema)]
struct RulesJson<'a> {
    rules: Vec<&'a Rule>,
    /// Exim's own ratelimit conditions.
    native: Vec<JsonLine<'a>>,
}

const COLUMNS: [Column; 6] = [
    Column::words("LIMIT"),
    Column::words("MODE").spare(2),
    Column::words("KEY").spare(1),
    Column::words("ACL").spare(3),
    Column::words("USED BY"),
    Column::words("WHERE"),
];

impl Rules {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        if self.references {
            return self.print_references(screen);
        }
        let (exim, _) =
            exim::find(self.exim.as_deref(), self.config.as_deref()).map_err(Failure::new)?;
        let settings = exim.settings().map_err(Failure::new)?;
        let mut found = match exim.rules(&settings.config) {
            Ok(found) => found,
            Err(RulesError::Hidden(text)) => {
                return Err(Failure::new(format!("{text}; run this as root")));
            }
            Err(RulesError::Failed(text)) => return Err(Failure::new(text)),
        };
        found.try_dry(&exim);
        let found = found;
        let rules: Vec<&Rule> =
            found.rules.iter().filter(|rule| self.all || rule.call.limits()).collect();
        if self.json {
            let native = found.native.iter().map(JsonLine::of).collect();
            screen.json(&RulesJson { rules, native })?;
        } else {
            self.print(screen, &rules, &found)?;
        }
        let broken = found.rules.iter().any(|rule| rule.is_used() && !rule.errors.is_empty())
            || found.acls.faults().next().is_some()
            || !found.acls.unknown.is_empty()
            || found.dry_errors().next().is_some();
        Ok(Outcome::found_if(broken || found.limiting().next().is_none()))
    }

    fn print_references(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = if self.exim.is_none() && exim::installed(&path).is_empty() {
            Vec::new()
        } else {
            let (exim, _) =
                exim::find(self.exim.as_deref(), self.config.as_deref()).map_err(Failure::new)?;
            exim.references().map_err(Failure::new)?
        };
        if self.json {
            let references: Vec<JsonLine<'_>> = found.iter().map(JsonLine::of).collect();
            screen.json(&ReferencesJson { references })?;
        } else {
            for (Position { file, line, .. }, text) in &found {
                let text = format!("{}:{line}: {text}", file.display());
                writeln!(screen, "{}", printable(text.as_bytes()))?;
            }
        }
        Ok(Outcome::found_if(!found.is_empty()))
    }

    fn print(
        &self,
        screen: &mut Screen<'_>,
        rules: &[&Rule],
        found: &Found,
    ) -> Result<(), Failure> {
        let rows: Vec<(Style, [String; 6])> = rules.iter().flat_map(|rule| cells(rule)).collect();
        if !rows.is_empty() {
            table::styled(screen, COLUMNS, &rows)?;
        }
        for (position, text) in &found.native {
            let text = printable(text.as_bytes());
            writeln!(screen, "Exim's own ratelimit, counted apart: {text} ({position})")?;
        }
        screen.flush()?;
        if found.source.unplaced {
            note(
                "Exim reads its configuration differently from exirate: this is what Exim reads \
                 (`exim -bP config`), and line numbers may be those of nearby lines",
            );
        }
        if found.limiting().next().is_none() {
            let nothing = match found.native.is_empty() {
                true => "nothing is limited",
                false => "exirate limits nothing",
            };
            complain(format!(
                "{nothing}: Exim reaches no call of ratelimit; `exirate setup` adds the lines, and \
                 `exirate doctor` says more"
            ));
        }
        for fault in found.acls.faults() {
            complain(printable(fault.as_bytes()));
        }
        for (position, name) in &found.acls.unknown {
            let name = printable(name.as_bytes());
            complain(format!("{position}: there is no ACL {name:?}: Exim defers with 451"));
        }
        for error in found.dry_errors() {
            let error = printable(error.as_bytes());
            complain(format!("Exim answers 451 in a dry session (`exim -bh`): {error}"));
        }
        for rule in &found.rules {
            let at = &rule.position;
            if rule.is_doubtful {
                note(printable(
                    format!(
                        "{at}: whether mail comes to this line cannot be known: dry sessions of \
                         Exim (`exim -bh`) show otherwise than what was read"
                    )
                    .as_bytes(),
                ));
            }
            for error in &rule.errors {
                complain(printable(format!("{at}: {error}").as_bytes()));
            }
            for warning in &rule.warnings {
                note(printable(format!("{at}: {warning}").as_bytes()));
            }
        }
        Ok(())
    }
}

/// The lines of a rule: one for each of its limits.
fn cells(rule: &Rule) -> Vec<(Style, [String; 6])> {
    let shown = |text: &str| printable(text.as_bytes());
    let style = match () {
        () if !rule.errors.is_empty() => AnsiColor::Red.on_default(),
        () if !rule.is_used() => Style::new().dimmed(),
        () => Style::new(),
    };
    let doubt = if rule.is_doubtful { "?" } else { "" };
    let surely = rule.used_by.iter().map(|option| format!("{option}{doubt}"));
    let perhaps = rule.perhaps_used_by.iter().map(|option| format!("{option}?"));
    let used_by: Vec<String> = match &rule.ending {
        Some(_) => Vec::new(),
        None => surely.chain(perhaps).collect(),
    };
    let used_by = if used_by.is_empty() { "nothing".to_owned() } else { used_by.join(", ") };
    let key = rule.key_text().unwrap_or_default();
    let acl = rule.acl.as_deref().unwrap_or_default();
    let row = |limit: &str, mode: &str| {
        let cells = [
            shown(limit),
            mode.to_owned(),
            shown(&key),
            shown(acl),
            shown(&used_by),
            shown(&rule.position.to_string()),
        ];
        (style, cells)
    };
    match &rule.limits[..] {
        [] if rule.errors.is_empty() => vec![row(&rule.call.function, "")],
        [] => vec![row("error", "")],
        limits => limits.iter().map(|limit| row(&limit.limit, &limit.mode)).collect(),
    }
}
