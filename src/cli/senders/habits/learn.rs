//! `exirate habits learn`: learns the habits of accounts from logs.

use std::ffi::CStr;
use std::io::Write as _;
use std::time::Duration;

use clap::Args;

use crate::cli::planning::logs::Logs;
use crate::cli::shared::administrator::AuditLog;
use crate::cli::shared::database::{Common, print_incidents};
use crate::cli::shared::screen::{Screen, bytes_read, note};
use crate::cli::{Failure, Json, Outcome};
use crate::history::habits::{Finished, Senders};
use crate::logs::notes::{notes, notes_of_origin};
use crate::rate::habits::Sensitivity;
use crate::spool::{Options, Spool};
use crate::standing::databases::{exclusively, require_owner};
use crate::standing::learn::{Learned, LearnedIn, Learner, NamedAlarm};
use crate::store::Memory;
use crate::text::{self, counted_or_no};

/// Learn the habits of accounts from logs
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Learn from the main logs of a directory, also compressed ones:
    exirate habits learn /var/log/exim4
  Only show which accounts would have raised an alarm:
    exirate habits learn /var/log/exim4 --dry-run

Messages of a login, and of local accounts, are learned in the order of time, each once: a second
run learns what is new. For each account, at most one alarm a day is shown.

Exit status: 0 learned; 1 an alarm was raised, or no message was of use; 2 an error.

The logs must name the recipients, at the arrival (Exim's log_selector = +received_recipients) or
by their deliveries. Bounces, and mail of root and of the mail server, do not count. Messages no
later than the last one known before this run are left out, and so are those that are dated more
than a day from now: the clock was wrong. A message of the log's last day whose recipients it does
not name yet is left for the next run, with those that its account has sent since. Times without a
zone are in that of this machine. Logs do not show which mail is from a mailing list or an
automatic reply: it counts like any other. A new account does not easily raise an alarm, although
all its recipients are new.

The command creates the database if there is none. Only one runs at a time. The run is logged to
audit.log in the database's directory, and to syslog (facility mail).")]
#[command(add = Json::of::<Learned>())]
pub(super) struct Learn {
    #[command(flatten)]
    logs: Logs,

    /// Change nothing: compare the messages of the logs only with each other
    #[arg(long)]
    dry_run: bool,

    /// How early an alarm is raised: at 20, 16 or 12
    #[arg(long, value_name = "HOW", default_value = "normal", value_parser = sensitivity)]
    sensitivity: Sensitivity,

    #[command(flatten)]
    common: Common,
}

/// The sensitivity that is written so.
fn sensitivity(text: &str) -> Result<Sensitivity, String> {
    let found = Sensitivity::ALL.into_iter().find(|one| one.word() == text);
    found.ok_or_else(|| "expected low, normal or high".to_owned())
}

/// The file that is locked while habits are learned: two who learn would learn all twice.
const LOCK: &CStr = c"habits.lock";

impl Learn {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        if self.dry_run {
            return self.learn(LearnedIn::Memory(Box::new(Memory::new())), screen);
        }
        let directory = self.common.directory()?;
        require_owner(&directory)?;
        let spool = Box::new(Spool::open(&directory, Options::default())?);
        let learn = || self.learn(LearnedIn::Spool(spool), screen);
        let learned = exclusively(&directory, LOCK, Duration::ZERO, learn)?;
        learned.ok_or_else(|| Failure::new("another `exirate habits learn` is running".to_owned()))
    }

    fn learn(&self, store: LearnedIn, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let folding = self.common.folding()?;
        let files = self.logs.open()?;
        let mut learner = Learner::new(store, self.sensitivity);
        let mut senders = Senders::new(folding);
        let mut read = files.read_while(
            |line| {
                senders.line(&line, &mut |sent| learner.add(&sent));
                learner.failure.is_none()
            },
            bytes_read(&files),
        )?;
        let will_go_on = !self.dry_run && !self.logs.has_cursor();
        let Finished { counts, without_recipients, waiting } =
            senders.finish(will_go_on, &mut |sent| learner.add(&sent));
        let Learner { mut store, met, mut learned, failure, .. } = learner;
        learned.accounts = met.len();
        (learned.without_recipients, learned.waiting) = (without_recipients, waiting);
        if let LearnedIn::Spool(spool) = &mut store {
            let Learned { messages, accounts, .. } = learned;
            let done = format_args!("habits learn messages={messages} accounts={accounts}");
            AuditLog::new().add(&mut **spool, done);
            print_incidents(&mut **spool);
        }
        if let Some(error) = failure {
            return Err(error.into());
        }
        // The times are those of the zone.
        read.nights.clear();
        notes(&read, &counts.unused).iter().for_each(note);
        let origin = notes_of_origin(counts.without_origin, counts.ambiguous, counts.before);
        origin.iter().for_each(note);
        screen.show(self.common.json, &learned, |screen, it| self.print(screen, it))?;
        if !self.dry_run {
            self.logs.keep_cursor(read.cursor.as_deref())?;
        }
        Ok(Outcome::found_if(!learned.alarms.is_empty() || learned.messages == 0))
    }

    fn print(&self, screen: &mut Screen<'_>, learned: &Learned) -> Result<(), Failure> {
        for NamedAlarm { key, at, evidence, more } in &learned.alarms {
            let at = text::time::local_second(*at);
            let more = match more {
                0 => String::new(),
                _ => format!("; {more} more on this day"),
            };
            writeln!(screen, "{at}  {key} may be stolen: {evidence}{more}")?;
        }
        let of = |count: u64| counted_or_no(count, "message", "messages");
        if learned.without_recipients > 0 {
            note(format_args!(
                "{} without a recipient (neither `for` nor a delivery): not learned",
                of(learned.without_recipients)
            ));
        }
        if learned.waiting > 0 {
            note(format_args!(
                "{} not learned yet: the log does not yet name all recipients of their accounts",
                of(learned.waiting)
            ));
        }
        if learned.ahead > 0 {
            note(format_args!(
                "{} dated more than a day from now: left out, as the clock was wrong",
                of(learned.ahead)
            ));
        }
        let known = match learned.known {
            0 => String::new(),
            known => format!("; {} not later than the last known one: left out", of(known)),
        };
        writeln!(
            screen,
            "{}: {} of {}{known}",
            if self.dry_run { "compared" } else { "learned" },
            of(learned.messages),
            counted_or_no(learned.accounts, "account", "accounts")
        )?;
        Ok(())
    }
}
