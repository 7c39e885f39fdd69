//! `exirate habits`: which accounts send unlike themselves, and what their habits are learned from.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::ffi::{CStr, OsString};
use std::hash::BuildHasher as _;
use std::io::Write as _;
use std::time::Duration;

use anstyle::Style;
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::cli::planning::logs::{Logs, notes, notes_of_origin};
use crate::cli::shared::audit_log::AuditLog;
use crate::cli::shared::database::{Common, exclusively, print_incidents, require_owner};
use crate::cli::shared::key_state::second;
use crate::cli::shared::key_text;
use crate::cli::shared::keys::{Narrow, Selection};
use crate::cli::shared::screen::{Screen, complain, note, progress};
use crate::cli::shared::table::{Column, Layout};
use crate::cli::{Failure, Outcome};
use crate::history::habits::{Finished, Senders, Sent, evidence};
use crate::rate::habits::{Alarm, Habits, Sensitivity, Update};
use crate::spool::habits::{SentMessage, habits_key};
use crate::spool::{Options, Spool, SpoolError};
use crate::text;
use crate::text::counted_or_no;
use crate::text::time::now;

/// Show which accounts send unlike themselves
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  Which accounts are nearest to an alarm?
    exirate habits
  Those of one domain:
    exirate habits '*@example.org'
  Learn from the logs of the last weeks, and see who would have been named:
    exirate habits learn /var/log/exim4

An account is compared with its own mail: recipients to whom it has never written, in runs, at
hours and from networks that it never uses. No limit is set by anybody. Nothing is refused.

Exit status: 0 shown; 1 an account had an alarm within a day, or a KEY matches nothing; 2 an
error.

SCORE is a log-likelihood ratio, in nats: how much more likely a thief is than the owner, from the
last messages. At OF an alarm is raised: 16, and more if there was an alarm before. It is forgotten
with a time constant of a week. STRANGERS, MESSAGES, WITHIN and NETWORKS are the evidence since the
score was nearly 0: recipients never written to, the messages, the time from the first to the last
of them, and networks never seen. USUAL is how many new recipients the account has a day, ALARM how
long ago the last alarm was.

The database remembers of each account a few bits of a keyed hash of each of 256 recipients and 8
networks, the active hours of the day, and some counts. `exirate erase` removes them.

KEY is a login such as alice@example.org, local_account:NAME for a local account, or a glob such as
'*@example.org'.

JSON: an array of objects with `key`, `score`, `threshold`, `at` (the last message; seconds since
1970), `messages`, `alarm_at` (null: never), `usual` and `evidence`."
)]
pub(in crate::cli) struct HabitsCommand {
    #[command(subcommand)]
    command: Option<Command>,

    /// Show these accounts or globs; the default is all
    #[arg(value_name = "KEY")]
    keys: Vec<OsString>,

    /// Show at most N accounts
    #[arg(long, value_name = "N", default_value = "20")]
    top: usize,

    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Subcommand)]
enum Command {
    Learn(Learn),
}

/// Learn the habits of accounts from logs
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Learn from the main logs of a directory, also compressed ones:
    exirate habits learn /var/log/exim4
  Only see who would have been named:
    exirate habits learn /var/log/exim4 --dry-run

Messages of a login, and of local accounts, are learned in the order of time, each once: a second
run learns what is new. Of an account, at most one alarm a day is shown.

Exit status: 0 learned; 1 an alarm was raised, or no message was of use; 2 an error.

The logs must name the recipients, at the arrival (Exim's log_selector = +received_recipients) or
by their deliveries. Bounces, and mail of root and of the mail server, do not count. Messages no
later than the last one known before this run are left out, and so are those that are dated more
than a day from now: the clock was wrong. A message of the log's last day whose recipients it does
not name yet is left for the next run, with those that its account has sent since. Times without a zone are of this machine's. Logs do not
show which mail is a list's or an automatic reply: that counts as any other. The first messages of
an account raise no alarm easily, as everybody is a stranger to a new one.

The command creates the database if there is none. Only one runs at a time. It is logged to audit.log in the database's
directory, and to syslog (facility mail).

JSON: an object with `messages`, `accounts`, `known` (messages no later than the last one known),
`ahead` (dated more than a day from now), `without_recipients`, `waiting` (left for the next run),
and `alarms`, an array of objects with `key`, `at` (seconds since 1970), `evidence`, and `more`, the
alarms of the same account on the same day.")]
struct Learn {
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

/// An account, in JSON.
#[derive(Serialize)]
struct AccountJson {
    key: String,
    score: f64,
    threshold: f64,
    at: i64,
    messages: u16,
    alarm_at: Option<i64>,
    usual: f64,
    evidence: EvidenceJson,
}

#[derive(Serialize)]
struct EvidenceJson {
    strangers: u32,
    messages: u32,
    seconds: i64,
    networks: u32,
}

impl EvidenceJson {
    fn of(alarm: &Alarm) -> Self {
        let Alarm { strangers, messages, seconds, networks, .. } = *alarm;
        Self { strangers, messages, seconds, networks }
    }
}

/// Of an account, one alarm in so many seconds is shown; a time that is so far ahead is of a clock
/// that was wrong.
const DAY: i64 = 86_400;
/// The file that is locked while habits are learned: two who learn would learn all twice.
const LOCK: &CStr = c"habits.lock";

const COLUMNS: [Column; 10] = [
    Column::numbers("SCORE"),
    Column::numbers("OF"),
    Column::numbers("STRANGERS"),
    Column::numbers("MESSAGES").spare(3),
    Column::words("WITHIN").spare(2),
    Column::numbers("NETWORKS").spare(4),
    Column::numbers("USUAL").spare(1),
    Column::words("ALARM"),
    Column::words("SEEN").spare(5),
    Column::words("KEY"),
];

impl HabitsCommand {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        match &self.command {
            Some(Command::Learn(learn)) => learn.run(screen),
            None => self.list(screen),
        }
    }

    fn list(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let now = now().seconds;
        let mut spool = self.common.spool()?;
        let narrow = Narrow::unselective(false);
        let mut selection = Selection::new(&self.keys, &narrow, &self.common.folding()?)?;
        let mut all: Vec<(String, Habits)> = Vec::new();
        let left_out = spool.for_each_habits(|key, habits| {
            if selection.contains(&key.key()) {
                all.push((key_text::key(key.key().identity()), habits));
            }
        })?;
        left_out.shards.iter().for_each(complain);
        let threshold = |habits: &Habits| habits.threshold(now, Sensitivity::default());
        let share = |habits: &Habits| habits.score(now) / threshold(habits);
        all.sort_by(|(a, of_a), (b, of_b)| {
            share(of_b).total_cmp(&share(of_a)).then_with(|| a.cmp(b))
        });
        let found = all.is_empty() && !self.keys.is_empty()
            || all.iter().any(|(_, habits)| habits.is_suspected(now));
        all.truncate(self.top);
        if self.common.json {
            let all: Vec<_> = all.into_iter().map(|(key, one)| json(key, &one, now)).collect();
            screen.json(&all)?;
        } else if all.is_empty() && self.keys.is_empty() {
            writeln!(screen, "no account is known: `exirate habits learn LOG` learns from logs")?;
        } else if all.is_empty() {
            writeln!(screen, "no account matches")?;
        } else {
            let rows = || all.iter().map(|(key, habits)| cells(key, habits, now));
            let layout = Layout::of(screen, COLUMNS, rows());
            layout.head(screen)?;
            layout.write(screen, Style::new(), rows(), None)?;
        }
        Ok(Outcome::found_if(found))
    }
}

fn json(key: String, habits: &Habits, now: i64) -> AccountJson {
    let evidence = habits.evidence(habits.at());
    AccountJson {
        key,
        score: habits.score(now),
        threshold: habits.threshold(now, Sensitivity::default()),
        at: habits.at(),
        messages: habits.messages(),
        alarm_at: habits.alarm_at(),
        usual: evidence.usual,
        evidence: EvidenceJson::of(&evidence),
    }
}

fn cells(key: &str, habits: &Habits, now: i64) -> [String; 10] {
    let ago = |then: i64| text::rough_age(second(then), second(now));
    let evidence = habits.evidence(habits.at());
    let score = habits.score(now);
    // Of an account that has only sent to people it knows, there is none.
    let shown = |text: String| if score < 1.0 { String::new() } else { text };
    [
        format!("{score:.1}"),
        format!("{:.0}", habits.threshold(now, Sensitivity::default())),
        shown(evidence.strangers.to_string()),
        shown(evidence.messages.to_string()),
        shown(text::duration(evidence.seconds as f64)),
        shown(evidence.networks.to_string()),
        format!("{:.1}", evidence.usual),
        habits.alarm_at().map_or_else(String::new, ago),
        ago(habits.at()),
        key.to_owned(),
    ]
}

/// Where habits are learned.
enum Store {
    Spool(Box<Spool>),
    /// By account; the hashes are under a key of this process.
    Memory(HashMap<String, Habits>, RandomState),
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
            Self::Memory(..) => Ok(None),
        }
    }

    fn learn(&mut self, sent: &Sent, sensitivity: Sensitivity) -> Result<Update, SpoolError> {
        let recipients = sent.recipients.iter().map(String::as_bytes);
        match self {
            Self::Spool(spool) => {
                let mut name = Vec::new();
                let key = habits_key(sent.account.as_bytes(), &mut name);
                let message = SentMessage { at: sent.at, client: sent.client, recipients };
                spool.learn_habits(key, message, sensitivity)
            }
            Self::Memory(all, hasher) => {
                let habits = all.entry(sent.account.clone()).or_default();
                let network = sent.client.and_then(crate::spool::habits::network);
                let network = network.map(|network| hasher.hash_one(network.address()));
                let hashes = recipients.map(|one| hasher.hash_one(one));
                Ok(habits.message(sent.at, network, hashes, sensitivity))
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
#[derive(Serialize)]
struct Named {
    key: String,
    at: i64,
    evidence: String,
    more: u64,
}

/// What was learned, in JSON.
#[derive(Default, Serialize)]
struct Learned {
    messages: u64,
    accounts: usize,
    known: u64,
    ahead: u64,
    without_recipients: u64,
    waiting: u64,
    alarms: Vec<Named>,
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
        let update = self.store.learn(sent, self.sensitivity)?;
        self.learned.messages += 1;
        let Some(alarm) = update.alarm else { return Ok(()) };
        let alarms = &mut self.learned.alarms;
        let last = met.alarm.and_then(|place| alarms.get_mut(place));
        match last.filter(|last| sent.at / DAY == last.at / DAY) {
            Some(last) => last.more += 1,
            None => {
                met.alarm = Some(alarms.len());
                let (key, evidence) = (key_text::key(sent.account.as_bytes()), evidence(&alarm));
                alarms.push(Named { key, at: sent.at, evidence, more: 0 });
            }
        }
        Ok(())
    }
}

impl Learn {
    fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        if self.dry_run {
            return self.learn(Store::Memory(HashMap::new(), RandomState::new()), screen);
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
        for Named { key, at, evidence, more } in &learned.alarms {
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
                "{} not learned yet: the log does not name the recipients of one of the account yet",
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
