//! The program: one file a command.
//!
//! A command is a struct of clap's with a `run` that writes to the [`Screen`]
//! and says whether it found something. A new one is a file here, a line in
//! `Command`, and its name in a group of [`help`]; [`other_words`]
//! has what else people may type for it. What commands share: [`database`] opens
//! and reads, [`keys`] finds the records an argument means, [`screen`],
//! [`table`] and [`text`] show things to people.
//!
//! Exit codes, as those of grep: 0 all is well, 1 something was found, 2 an
//! error, which standard error explains.

mod planning;
mod senders;
mod shared;
mod shell;
mod storage;
mod system;
mod trace;

use std::ffi::OsString;
use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;

use clap::{Args, ColorChoice, CommandFactory as _, FromArgMatches as _, Parser};
use clap_complete::CompleteEnv;
use planning::{check, measure, policy, report, rules, shadow, simulate};
use senders::{
    allow, erase, events, explain, habits, held, list, overrides, set, show, top, unblock, usage,
};
use shared::commands::commands;
use shared::failure::{Failure, Outcome};
use shared::screen::{Screen, complain, note_older_word};
use shared::{complete, times};
use shell::json::Json;
use shell::{completions, help, man, other_words};
use storage::{config, copy, export, import, repair, stats};
use system::{bypass, cluster, doctor, serve, setup, status, web, where_is};

/// Limit how much mail is sent, and show who is limited and why.
#[derive(Debug, Parser)]
#[command(
    name = "exirate",
    version,
    max_term_width = 100,
    after_help = "\
Exit status: 0 success; 1 the command found something, or did not find what was asked for, as its
help says; 2 an error, which standard error explains. A missing database is an error, except for
check --count, set --create, habits learn, import and config set, which create one.

Each command has examples: exirate help list"
)]
struct Program {
    /// Use colours: auto uses them on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: ColorChoice,

    #[command(subcommand)]
    command: Command,
}

commands! {
    enum Command {
        Status(status::StatusCommand),
        Setup(setup::SetupCommand),
        Check(check::Check),
        Rules(rules::Rules),
        Policy(policy::PolicyCommand),
        Doctor(doctor::Doctor),
        Where(where_is::Where),
        List(list::List),
        Show(show::Show),
        Top(top::Top),
        Usage(usage::UsageCommand),
        Habits(habits::HabitsCommand),
        Held(held::HeldCommand),
        Events(events::Events),
        Explain(explain::Explain),
        Allow(allow::Allow),
        Deny(allow::Deny),
        Overrides(overrides::Overrides),
        Unblock(unblock::Unblock),
        Bypass(bypass::BypassCommand),
        Set(set::Set),
        Stats(stats::Stats),
        Verify(repair::Verify),
        Repair(repair::Repair),
        Config(config::Config),
        Cluster(cluster::ClusterCommand),
        Export(export::Export),
        Import(import::Import),
        Copy(copy::Copy),
        Erase(erase::Erase),
        Trace(trace::TraceCommand),
        Serve(serve::Serve),
        Web(web::WebCommand),
        Measure(measure::Measure),
        Simulate(simulate::Simulate),
        Report(report::Report),
        Shadow(shadow::ShadowCommand),
        Completions(completions::Completions),
        Man(man::Man) = manual,
        /// An older word for `exirate unblock --keep-denials`
        #[command(hide = true)]
        Reset(unblock::Unblock) = reset,
        /// An older word for `exirate repair`
        #[command(hide = true)]
        Tidy(repair::Repair) = tidy,
        /// There is no such command any more
        #[command(hide = true)]
        Compact(Compact),
    }
}

#[derive(Debug, Args)]
struct Compact {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Compact {
    fn run(&self, _: &mut Screen<'_>) -> Result<Outcome, Failure> {
        Err(Failure::new(
            "there is no `exirate compact`: checks rebuild the rate database while it is in use, and \
             `exirate repair` drops what has expired now",
        ))
    }
}

fn reset(unblock: &unblock::Unblock, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
    note_older_word("reset", "unblock --keep-denials");
    unblock.reset(screen)
}

fn manual(man: &man::Man, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
    man.run(screen, program())
}

fn tidy(repair: &repair::Repair, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
    note_older_word("tidy", "repair");
    repair.tidy(screen)
}

/// The commands and their options.
fn program() -> clap::Command {
    times::explained(Program::command())
}

/// Runs the program on the arguments of this process.
///
/// clap prints help, and complaints about arguments (exit code 2), by itself.
#[must_use]
pub fn run() -> ExitCode {
    // Ends the process where a shell asks for completions.
    CompleteEnv::with_factory(program).var(complete::VARIABLE).complete();
    let mut arranged = help::arranged(program());
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let matches = arranged
        .try_get_matches_from_mut(&arguments)
        .unwrap_or_else(|error| other_words::suggest(error, &arranged, &arguments).exit());
    let parsed = Program::from_arg_matches(&matches);
    let program = parsed.unwrap_or_else(|error| error.format(&mut arranged).exit());
    let mut screen = Screen::stdout(program.color);
    let result = program.command.run(&mut screen);
    // What was printed before an error is shown as well.
    match screen.flush().map_err(Failure::from).and(result) {
        Ok(outcome) => outcome.into(),
        // The reader has closed the pipe, which is not an error.
        Err(Failure::Output(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            match failure {
                Failure::Said(what) => complain(what),
                Failure::Output(error) => {
                    complain(format_args!("cannot write the output: {error}"));
                }
            }
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_well_formed() {
        program().debug_assert();
    }
}
