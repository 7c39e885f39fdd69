//! `exirate policy`: the policy file and the policies in use.

mod apply;
mod file;
mod lint;
mod run;
mod show;

use clap::Args;

pub(in crate::cli) use apply::apply_file;
pub(in crate::cli) use file::{compiled, measured_by};

use super::check;
use crate::cli::shared::commands::commands;
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

commands! {
    enum PolicyAction {
        Apply(apply::Apply),
        Run(run::Run),
        Lint(lint::Lint),
        #[command(visible_alias = "list")]
        Show(show::Show),
        Diff(lint::Diff),
        /// An older word for `exirate check`
        #[command(hide = true)]
        Check(Box<check::Check>) = older_check,
    }
}

impl PolicyCommand {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        self.command.run(screen)
    }
}

fn older_check(check: &check::Check, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
    note_older_word("policy check", "check");
    check.run(screen)
}
