//! `exirate setup`: has the mail server ask exirate.

mod action;
mod alerts;
mod alerts_to;
mod habits;

use std::io::Write as _;
use std::path::Path;

use alerts_to::AlertsTo;
use clap::Args;

use crate::cli::shared::administrator::AuditLog;
use crate::cli::shared::screen::{Screen, note};
use crate::cli::shared::{confirm, hold_queue};
use crate::cli::{Failure, Outcome};
use crate::doctor::uncounted;
use crate::mta::ServerKind;
use crate::mta::held::HeldMail;
use crate::policy::source::FILE;
use crate::policy::word::{OnHabits, Word as _};
use crate::setup::find::{Options, find};
use crate::setup::{self, Absent, DIRECTORY, MailServer, Manifest, Plan, Setup, SetupError, Steps};
use crate::spool::{self, Spool};
use crate::standing::held::HeldMessage;
use crate::text::{printable, shell};

/// Have the mail server of this machine ask exirate
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  What would it change?
    exirate setup --dry-run
  Do it: mail is counted and measured, and nothing is refused yet:
    exirate setup
  After some days: who would have been refused? Then refuse:
    exirate setup --enforce
  Notice stolen accounts by mail unlike their habits, and refuse nothing for it:
    exirate setup --habits observe
  Who is to know when somebody exceeds a limit?
    exirate setup --alerts postmaster@example.org
  Remove exactly what it has added:
    exirate setup --undo

It finds the mail server, shows what it would change as a diff, asks, and does it. Nothing is
refused before --enforce. If anything fails, all is as it was before. It can be run again at any
time: it adds what is missing and nothing else.
--undo names the messages that policies hold in the queue, and refuses without --yes while there are any.

Exit status: 0 done, or nothing to do; 1 something is to be done by hand, or --check has
found that lines are missing; 2 an error: nothing has changed, unless it says otherwise.

What it does: it writes a policy file for this server, adds the lines in every ACL or list of
restrictions before what accepts mail, starts a daemon where one is needed, and has the mail
server read its configuration again, which the mail server has checked before. Then it tries in an
SMTP session whether mail reaches the lines. docs/setup.md lists all changes.

Where it writes the policy file, it asks whether to notice stolen accounts by their habits
(docs/habits.md); with --yes they stay off. The question says what is remembered about people.
--habits answers it for scripts, and changes the line `habits = ` of [policy.outbound.default] in
a file that is there.

It asks for a mail address to which alerts go when somebody exceeds a limit (docs/alerts.md), and
--enforce asks where nobody is alerted; with --yes nobody is. --alerts answers it for scripts, and
changes [on.crossing] of a file that is there; it starts the daemon exirate-alerts and sends a test.

For a configuration of your own it prints the lines and where they go; --check shows whether mail
reaches them.")]
pub(in crate::cli) struct SetupCommand {
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Remove exactly what setup has added
    #[arg(long, conflicts_with_all = ["check", "enforce", "observe", "dry_run"])]
    undo: bool,

    /// Check that mail reaches the lines
    #[arg(long, conflicts_with_all = ["enforce", "observe", "dry_run"])]
    check: bool,

    /// Refuse from now on what is over a limit
    #[arg(long, conflicts_with_all = ["observe"])]
    enforce: bool,

    /// Refuse nothing from now on: only measure and report
    #[arg(long)]
    observe: bool,

    /// Notice stolen accounts by their habits: off, observe, hold or defer their mail
    #[arg(long, value_name = "WHAT", value_parser = on_habits, conflicts_with_all = ["undo", "check", "enforce", "observe"])]
    habits: Option<OnHabits>,

    /// Send alerts to this mail address when somebody exceeds a limit; none: to nobody
    #[arg(long, value_name = "ADDRESS", value_parser = AlertsTo::parse, conflicts_with_all = ["undo", "check", "observe"])]
    alerts: Option<AlertsTo>,

    /// Do not ask
    #[arg(long, short)]
    yes: bool,

    /// Set up this one of several mail servers
    #[arg(long, value_enum, value_name = "NAME")]
    server: Option<ServerKind>,

    /// Have Exim ask a daemon over a socket, even where it could load the library
    #[arg(long)]
    socket: bool,

    /// Kill this process after so many steps: for tests
    #[arg(long, hide = true)]
    kill_at: Option<u32>,
}

impl From<SetupError> for Failure {
    fn from(error: SetupError) -> Self {
        Self::new(printable(error.to_string().as_bytes()))
    }
}

impl SetupCommand {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        if !rustix::process::geteuid().is_root() {
            return Err(Failure::new(
                "only root may change the mail server, or read all of its configuration: run this \
                 as root",
            ));
        }
        if self.undo {
            return self.undo(screen);
        }
        let server = self.find()?;
        match () {
            () if self.enforce => self.set_action(screen, &*server, "enforce"),
            () if self.observe => self.set_action(screen, &*server, "observe"),
            () if self.check => Self::check(screen, &*server),
            () if let Some(to) = self.alerts.as_ref().filter(|_| Path::new(FILE).exists()) => {
                self.set_alerts(screen, &*server, to)
            }
            () if let Some(on) = self.habits.filter(|_| Path::new(FILE).exists()) => {
                self.set_habits(screen, &*server, on)
            }
            () => self.set_up(screen, &*server),
        }
    }

    fn find(&self) -> Result<Box<dyn MailServer>, SetupError> {
        find(&Options { server: self.server, socket: self.socket })
    }

    /// One run.
    fn setup<'a>(&self, server: &'a dyn MailServer) -> Setup<'a> {
        Setup { server, state: Path::new(DIRECTORY), steps: Steps::new(self.kill_at) }
    }

    fn set_up(&self, screen: &mut Screen<'_>, server: &dyn MailServer) -> Result<Outcome, Failure> {
        writeln!(screen, "{}", server.name())?;
        let mut plan = server.plan()?;
        let is_finished =
            Manifest::read(Path::new(DIRECTORY))?.is_none_or(|manifest| manifest.is_finished());
        plan.outdated |= !is_finished;
        if plan.is_empty() && plan.by_hand.is_empty() {
            server.is_running()?;
            server.probe()?;
            writeln!(screen, "everything is there already: nothing changes")?;
            return Ok(Outcome::Fine);
        }
        let habits = self.choose_habits(screen, &mut plan)?;
        let alerts = self.choose_alerts(screen, &mut plan)?;
        show(screen, &plan)?;
        if self.dry_run {
            return by_hand(screen, &plan);
        }
        screen.flush()?;
        if !plan.is_empty() {
            if !confirm::plainly(&[], "make these changes", self.yes)? {
                writeln!(screen, "nothing was changed")?;
                return Ok(Outcome::Found);
            }
            self.setup(server).carry_out(&plan)?;
            log(server.spool(), "setup");
        }
        let outcome = by_hand(screen, &plan)?;
        if outcome == Outcome::Fine {
            let until = match Self::is_enforced() {
                true => "what is over a limit is refused: see `exirate status`",
                false => "nothing is refused until `exirate setup --enforce`",
            };
            writeln!(screen, "done: mail is counted, and {until}")?;
        }
        if habits != OnHabits::Off {
            Self::advise_habits(screen)?;
        }
        if alerts.is_some() && outcome == Outcome::Fine {
            Self::test_alerts(screen, server.spool())?;
        }
        if let Some(why) = uncounted(server.spool()) {
            note(why);
        }
        Ok(outcome)
    }

    fn undo(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        if Manifest::read(Path::new(DIRECTORY))?.is_none() {
            setup::clean(Path::new(DIRECTORY));
            writeln!(screen, "setup has added nothing here: nothing changes")?;
            return Ok(Outcome::Fine);
        }
        let server = self.find().unwrap_or_else(|why| {
            note(format_args!("{why}; its files are put back, and it is not reloaded"));
            Box::new(Absent)
        });
        self.refuse_held(screen, server.spool())?;
        if !confirm::plainly(&[], "remove what setup has added", self.yes)? {
            writeln!(screen, "nothing was changed")?;
            return Ok(Outcome::Found);
        }
        let left = self.setup(&*server).undo()?;
        log(server.spool(), "setup --undo");
        for what in &left {
            writeln!(screen, "{}", printable(what.as_bytes()))?;
        }
        writeln!(
            screen,
            "what setup has added is removed{}",
            if left.is_empty() { "" } else { ", except what is named above" }
        )?;
        Ok(Outcome::found_if(!left.is_empty()))
    }

    /// Names what policies hold, which nobody would look for afterwards.
    fn refuse_held(&self, screen: &mut Screen<'_>, spool: &Path) -> Result<(), Failure> {
        let Some(held) = HeldMail::if_readable(spool) else { return Ok(()) };
        if held.messages.is_empty() {
            return Ok(());
        }
        writeln!(screen, "policies hold mail in the queue of the mail server:")?;
        let all: Vec<&HeldMessage> = held.messages.iter().collect();
        hold_queue::print(screen, &all, |words, key| format!("exirate {words} {}", shell(key)))?;
        screen.flush()?;
        match self.yes {
            true => {
                note("it stays held: `exirate held release KEY` has it delivered");
                Ok(())
            }
            false => Err(Failure::new(
                "nothing was changed: release this mail first (`exirate held release KEY`), or \
                 delete it (`exirate held delete KEY`); with --yes it stays held",
            )),
        }
    }

    fn check(screen: &mut Screen<'_>, server: &dyn MailServer) -> Result<Outcome, Failure> {
        writeln!(screen, "{}", server.name())?;
        let plan = server.plan()?;
        if plan.is_empty() && plan.by_hand.is_empty() {
            server.is_running()?;
            server.probe()?;
            writeln!(screen, "mail reaches every line that asks the policies")?;
            if let Some(why) = uncounted(server.spool()) {
                note(why);
                return Ok(Outcome::Found);
            }
            return Ok(Outcome::Fine);
        }
        show(screen, &plan)?;
        by_hand(screen, &plan)?;
        writeln!(screen, "the above is missing: `exirate setup` adds what it can")?;
        Ok(Outcome::Found)
    }
}

/// What to do with the mail of suspected accounts.
fn on_habits(text: &str) -> Result<OnHabits, String> {
    OnHabits::of(text).ok_or_else(|| "expected off, observe, hold or defer".to_owned())
}

/// Prints what would change.
fn show(screen: &mut Screen<'_>, plan: &Plan) -> Result<(), Failure> {
    let text = plan.to_string();
    for line in text.lines() {
        writeln!(screen, "{}", printable(line.as_bytes()))?;
    }
    if plan.outdated && !plan.is_empty() {
        writeln!(screen, "have the mail server read its configuration as it is now")?;
    }
    Ok(())
}

/// Prints what the administrator has to do.
fn by_hand(screen: &mut Screen<'_>, plan: &Plan) -> Result<Outcome, Failure> {
    if plan.by_hand.is_empty() {
        return Ok(Outcome::Fine);
    }
    writeln!(screen, "\nAdd these lines to the mail server's configuration and reload it:")?;
    for line in &plan.by_hand {
        writeln!(screen, "\n{line}")?;
    }
    writeln!(screen, "\nThen run `exirate setup --check`.")?;
    Ok(Outcome::Found)
}

/// Logs a change, in the database's own log where there is one.
fn log(directory: &Path, what: &str) {
    let mut log = AuditLog::new();
    let opened =
        Spool::require(directory).and_then(|()| Spool::open(directory, spool::Options::default()));
    match opened {
        Ok(mut store) => log.add(&mut store, what),
        Err(_) => log.add_without_store(what),
    }
}
