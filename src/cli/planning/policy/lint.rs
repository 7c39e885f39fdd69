//! `exirate policy lint` and `diff`: what is wrong with a policy file, and what two differ in.

use std::io::Write as _;
use std::path::PathBuf;

use anstyle::AnsiColor;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::file::{front_ends, needs_exim, open, other_server, sound};
use crate::cli::shared::diagnostics;
use crate::cli::shared::screen::{Screen, note};
use crate::cli::{Failure, Json, Outcome};
use crate::policy::changes::settings;
use crate::policy::lint::lint;
use crate::policy::needs::{of_delivery, unseen};
use crate::policy::source::FILE;
use crate::text::time::now;
use crate::text::{counted_or_no, printable};
use crate::toml_file::diagnostic::{Diagnostic, Severity};

/// Check a policy file
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Can the policy file be used, and does it do what is meant?
    exirate policy lint /etc/exirate/policy.toml
  Another one, before it is installed:
    exirate policy lint policy.toml
  For scripts:
    exirate policy lint --json policy.toml | jq .errors

With an error, the file cannot be used. A warning is of what is valid but probably not meant, such as
an exemption that has expired, or an identity that strangers can claim.

Exit status: 0 nothing was found; 1 errors or warnings; 2 the command failed.

Each line is an error, with which the file cannot be used, or a warning: such as an
exemption that has expired, a limit that never matters, or an identity that
strangers can claim. Notes on standard error name what the front ends for other mail
servers cannot see, such as failed logins.", add = Json::of::<LintJson<'_>>())]
pub(super) struct Lint {
    /// The policy file
    #[arg(value_name = "FILE", default_value = FILE)]
    file: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A diagnostic, as JSON has it.
#[derive(Serialize, JsonSchema)]
struct JsonDiagnostic<'a> {
    file: String,
    line: u32,
    column: u32,
    /// error or warning.
    severity: String,
    message: &'a str,
}

/// Everything, as JSON has it.
#[derive(Serialize, JsonSchema)]
struct LintJson<'a> {
    files: Vec<String>,
    /// How many; null if there is an error.
    policies: Option<usize>,
    /// How many; null if there is an error.
    users: Option<usize>,
    errors: usize,
    warnings: usize,
    diagnostics: Vec<JsonDiagnostic<'a>>,
}

impl Lint {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let mut compiled = open(&self.file)?;
        if let Some(policies) = &compiled.policies {
            lint(policies, now().seconds, &mut compiled.diagnostics);
            let other = needs_exim(policies, other_server());
            let is_sound = other.is_none();
            if let Some((at, why)) = other {
                compiled.diagnostics.error(at, why);
            }
            compiled.policies = compiled.policies.filter(|_| is_sound);
        }
        let files = compiled.diagnostics.files.clone();
        let list = compiled.diagnostics.sorted();
        let errors = list.iter().filter(|one| one.severity == Severity::Error).count();
        let warnings = list.len() - errors;
        let policies = compiled.policies.as_ref();
        let users = policies.map(|all| all.policies.values().map(|one| one.users.len()).sum());
        if self.json {
            screen.json(&LintJson {
                files: files.iter().map(|file| file.display().to_string()).collect(),
                policies: policies.map(|all| all.policies.len()),
                users,
                errors,
                warnings,
                diagnostics: list.iter().map(|one| json(&files, one)).collect(),
            })?;
        } else {
            diagnostics::print(screen, &files, &list)?;
            if let Some(all) = policies {
                let (file, count) = (self.file.display().to_string(), all.policies.len());
                let file = printable(file.as_bytes());
                let (policies, users) =
                    (counted_or_no(count, "policy", "policies"), users.unwrap_or(0));
                let (users, found) = (
                    counted_or_no(users, "user", "users"),
                    counted_or_no(warnings, "warning", "warnings"),
                );
                writeln!(screen, "{file}: {policies}, {users}; no error, {found}")?;
                for what in unseen(&all.policies, front_ends()) {
                    note(what);
                }
                for (unit, names) in of_delivery(all) {
                    let (unit, names) = (unit.word(), names.join(", "));
                    note(format!("{unit} of {names} are counted by `exirate serve follow`"));
                }
            }
        }
        Ok(Outcome::found_if(!list.is_empty()))
    }
}

fn json<'a>(files: &[PathBuf], one: &'a Diagnostic) -> JsonDiagnostic<'a> {
    let file = files.get(usize::from(one.at.file));
    JsonDiagnostic {
        file: file.map(|file| file.display().to_string()).unwrap_or_default(),
        line: one.at.line,
        column: one.at.column,
        severity: one.severity.to_string(),
        message: &one.message,
    }
}

/// Show how two policy files differ
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  What would a new policy file change?
    exirate policy diff /etc/exirate/policy.toml policy.toml

A line that starts with `-` is a setting of the old file, one with `+` of the new one. Only what a
file means is compared: not order, comments, or the way a period is written.

Exit status: 0 both mean the same; 1 they differ; 2 an error.

A line that starts with `-` is a setting of the old file, one with `+` of the new
one. Only what a file means is compared: not the order, comments, or whether a
period is written as 60m or as 1h. A setting that is not written has its default.")]
pub(super) struct Diff {
    /// The old policy file
    #[arg(value_name = "OLD")]
    old: PathBuf,

    /// The new policy file
    #[arg(value_name = "NEW")]
    new: PathBuf,
}

impl Diff {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let old = settings(&sound(&self.old)?);
        let new = settings(&sound(&self.new)?);
        let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
        names.sort();
        names.dedup();
        let mut differ = false;
        for name in names {
            let (before, after) = (old.get(name), new.get(name));
            if before == after {
                continue;
            }
            differ = true;
            for (sign, value, color) in
                [("-", before, AnsiColor::Red), ("+", after, AnsiColor::Green)]
            {
                let Some(value) = value else { continue };
                let line = printable(format!("{sign} {name} = {value}").as_bytes());
                let line = screen.paint(color.on_default(), line);
                writeln!(screen, "{line}")?;
            }
        }
        Ok(Outcome::found_if(differ))
    }
}
