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
use crate::mta::ServerKind;
use crate::policy::model::{Location, Policies};

/// The mail server of this machine, if it is not Exim.
fn other_server() -> Option<ServerKind> {
    let (kind, _) = ServerKind::of_this_machine(None).ok()?;
    (kind != ServerKind::Exim).then_some(kind)
}

/// Where a policy is written that this mail server asks nothing about, and why.
fn needs_exim(policies: &Policies, other: Option<ServerKind>) -> Option<(Location, String)> {
    let (name, policy) = policies.at_delivery().next()?;
    let server = other?.name();
    let why = format!(
        "{name:?} is evaluated when mail is delivered, for which {server} asks no policy: that is for \
         Exim; write at = \"acceptance\" (docs/later.md)"
    );
    Some((policy.at, why))
}

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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::policy::source::compile;

    #[test]
    fn a_policy_at_delivery_needs_exim() {
        let of = |text: &str, other| {
            let none = |_: &Path| Err(String::new());
            let text = format!("version = 1\n[policy.p]\ndefault.recipients = \"9/1h\"\n{text}");
            let policies = compile(Path::new("p"), &text, &none).policies.unwrap();
            needs_exim(&policies, other).map(|(at, why)| (at.line, why))
        };
        let other = Some(ServerKind::Postfix);
        assert_eq!(of("at = \"delivery\"\n", None), None);
        assert_eq!(of("at = \"acceptance\"\n", other), None);
        let (line, why) = of("at = \"delivery\"\n", other).unwrap();
        assert!(line == 2 && why.contains("Postfix asks no policy"), "{line}: {why}");
    }
}
