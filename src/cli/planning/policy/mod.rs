//! `exirate policy`: the policy file and the policies in use.

mod apply;
mod decided;
mod diff;
mod file;
mod lint;
mod requalify;
mod run;
mod show;
mod users;

use clap::{Args, Subcommand};

pub(in crate::cli) use apply::apply_file;
pub(in crate::cli) use decided::{DecidingLimit, DecisionsJson};
pub(in crate::cli) use file::{compiled, measured_by};

use super::check;
use crate::cli::shared::screen::{Screen, note_older_word};
use crate::cli::{Failure, Outcome};

/// Apply, show, compare and try policies
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Can the policy file be used, and does it do what is meant?
    exirate policy lint /etc/exirate/policy.toml
  Put it into use:
    exirate policy apply /etc/exirate/policy.toml
  What may a user do, and which rule says so?
    exirate policy show --user news@example.org
  Would the next message of a user be accepted?
    exirate check outbound --auth news@example.org --recipient bob@example.net
  What would a new file change?
    exirate policy diff /etc/exirate/policy.toml policy.toml

A policy file has limits as tables: by default, for packages, domains and users.

Exit status: as the help of each command says.

A policy file has limits as tables: by default, for packages, domains and users.
docs/policy.md describes it.")]
pub(in crate::cli) struct PolicyCommand {
    #[command(subcommand)]
    command: PolicyAction,
}

#[derive(Debug, Subcommand)]
enum PolicyAction {
    Apply(apply::Apply),
    Run(run::Run),
    Lint(lint::Lint),
    #[command(visible_alias = "list")]
    Show(show::Show),
    Diff(diff::Diff),
    /// An older word for `exirate check`
    #[command(hide = true)]
    Check(Box<check::Check>),
}

impl PolicyCommand {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        match &self.command {
            PolicyAction::Apply(apply) => apply.run(screen),
            PolicyAction::Run(run) => run.run(screen),
            PolicyAction::Lint(lint) => lint.run(screen),
            PolicyAction::Show(show) => show.run(screen),
            PolicyAction::Diff(diff) => diff.run(screen),
            PolicyAction::Check(check) => {
                note_older_word("policy check", "check");
                check.run(screen)
            }
        }
    }
}
