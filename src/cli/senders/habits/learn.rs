//! `exirate habits learn`: learns the habits of accounts from logs.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::CStr;
use std::io::Write as _;
use std::time::Duration;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::planning::logs::{Logs, notes, notes_of_origin};
use crate::cli::shared::administrator::AuditLog;
use crate::cli::shared::database::{Common, exclusively, print_incidents, require_owner};
use crate::cli::shared::screen::{Screen, note, progress};
use crate::cli::{Failure, Json, Outcome};
use crate::history::habits::{Finished, Senders, Sent};
use crate::rate::Timestamp;
use crate::rate::habits::{Alarm, Sensitivity};
use crate::spool::habits::SentMessage;
use crate::spool::{Options, Spool, SpoolError};
use crate::standing::key_text;
use crate::store::{
    Learn as Learning, Memory, Sending, SendingStage, Store as _, habits_key, habits_network_hash,
};
use crate::text;
use crate::text::counted_or_no;
use crate::text::time::now;

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

/// Of an account, one alarm in so many seconds is shown; a time that is so far ahead is of a clock
/// that was wrong.
const DAY: i64 = 86_400;
/// The file that is locked while habits are learned: two who learn would learn all twice.
const LOCK: &CStr = c"habits.lock";

/// Where habits are learned.
enum Store {
    Spool(Box<Spool>),
    Memory(Box<Memory>),
}

impl Store {
    /// When the account sent last, if it is known.
    fn last(&mut self, account: &str) -> Result<Option<i64>, SpoolError> {
        match self {
            Self::Spool(spool) => {
                let mut name = Vec::new();
                let known = spool.habits(habits_key(account.as_bytes(), &mut name))?;
                Ok(known.map(|habits| habits.at()))
            }
            Self::Memory(_) => Ok(None),
        }
    }

    /// Learns a message; the alarm that it raises.
    fn learn(
        &mut self,
        sent: &Sent,
        sensitivity: Sensitivity,
    ) -> Result<Option<Alarm>, SpoolError> {
        let mut name = Vec::new();
        let key = habits_key(sent.account.as_bytes(), &mut name);
        let recipients = sent.recipients.iter().map(String::as_bytes);
        match self {
            Self::Spool(spool) => {
                let message = SentMessage { at: sent.at, client: sent.client, recipients };
                Ok(spool.learn_habits(key, message, sensitivity)?.alarm)
            }
            Self::Memory(memory) => {
                let hash = |text: &[u8]| memory.habits_hash(text);
                let network = sent.client.and_then(|client| habits_network_hash(client, hash));
                let recipients: Vec<u64> = recipients.map(hash).collect();
                let (stage, learn) = (SendingStage::Sent, Learning::Always);
                let sending =
                    Sending { key, network, recipients: &recipients, sensitivity, stage, learn };
                let at = Timestamp { seconds: sent.at, micros: 0 };
                let Ok(judged) = memory.learn(&sending, || at);
                Ok(judged.alarm)
            }
        }
    }
}

/// An account that was met in the logs.
struct Met {
    /// Messages up to this second were learned before.
    known_until: Option<i64>,
    /// The place of its last alarm.
    alarm: Option<usize>,
}

/// An alarm, in JSON.
#[derive(Serialize, JsonSchema)]
struct NamedAlarm {
    key: String,
    /// In seconds since 1970.
    at: i64,
    evidence: String,
    /// The alarms of the same account on the same day.
    more: u64,
}

/// What was learned, in JSON.
#[derive(Default, Serialize, JsonSchema)]
struct Learned {
    messages: u64,
    accounts: usize,
    /// Messages no later than the last one known.
    known: u64,
    /// Dated more than a day from now.
    ahead: u64,
    without_recipients: u64,
    /// Left for the next run.
    waiting: u64,
    alarms: Vec<NamedAlarm>,
}

/// Learns messages.
struct Learner {
    store: Store,
    sensitivity: Sensitivity,
    met: HashMap<String, Met>,
    learned: Learned,
    failure: Option<SpoolError>,
}

impl Learner {
    fn add(&mut self, sent: &Sent) {
        if self.failure.is_none()
            && !sent.is_bounce
            && let Err(error) = self.learn(sent)
        {
            self.failure = Some(error);
        }
    }

    fn learn(&mut self, sent: &Sent) -> Result<(), SpoolError> {
        let latest = now().seconds + DAY;
        if sent.at > latest {
            self.learned.ahead += 1;
            return Ok(());
        }
        let met = match self.met.entry(sent.account.clone()) {
            Entry::Occupied(met) => met.into_mut(),
            Entry::Vacant(place) => {
                let known_until = self.store.last(&sent.account)?.filter(|last| *last <= latest);
                place.insert(Met { known_until, alarm: None })
            }
        };
        if met.known_until.is_some_and(|last| sent.at <= last) {
            self.learned.known += 1;
            return Ok(());
        }
        let alarm = self.store.learn(sent, self.sensitivity)?;
        self.learned.messages += 1;
        let Some(alarm) = alarm else { return Ok(()) };
        let alarms = &mut self.learned.alarms;
        let last = met.alarm.and_then(|place| alarms.get_mut(place));
        match last.filter(|last| sent.at / DAY == last.at / DAY) {
            Some(last) => last.more += 1,
            None => {
                met.alarm = Some(alarms.len());
                let (key, evidence) = (key_text::key(sent.account.as_bytes()), alarm.to_string());
                alarms.push(NamedAlarm { key, at: sent.at, evidence, more: 0 });
            }
        }
        Ok(())
    }
}

impl Learn {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        if self.dry_run {
            return self.learn(Store::Memory(Box::new(Memory::new())), screen);
        }
        let directory = self.common.directory()?;
        require_owner(&directory)?;
        let spool = Box::new(Spool::open(&directory, Options::default())?);
        let learn = || self.learn(Store::Spool(spool), screen);
        let learned = exclusively(&directory, LOCK, Duration::ZERO, learn)?;
        learned.ok_or_else(|| Failure::new("another `exirate habits learn` is running".to_owned()))
    }

    fn learn(&self, store: Store, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let folding = self.common.folding()?;
        let files = self.logs.open()?;
        let mut learner = Learner {
            store,
            sensitivity: self.sensitivity,
            met: HashMap::new(),
            learned: Learned::default(),
            failure: None,
        };
        let mut senders = Senders::new(folding);
        let bar = progress(files.size(), "bytes");
        let mut read = files.read_while(
            |line| {
                senders.line(&line, &mut |sent| learner.add(&sent));
                learner.failure.is_none()
            },
            |bytes| bar.set_position(bytes),
        )?;
        let will_go_on = !self.dry_run && !self.logs.has_cursor();
        let Finished { counts, without_recipients, waiting } =
            senders.finish(will_go_on, &mut |sent| learner.add(&sent));
        bar.finish_and_clear();
        let Learner { mut store, met, mut learned, failure, .. } = learner;
        learned.accounts = met.len();
        (learned.without_recipients, learned.waiting) = (without_recipients, waiting);
        if let Store::Spool(spool) = &mut store {
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
        if self.common.json {
            screen.json(&learned)?;
        } else {
            self.print(screen, &learned)?;
        }
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
