//! Sends what is new to all receivers.

use std::collections::HashMap;
use std::ffi::CStr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;

use super::alert::{Alert, Head};
use super::cursor::CursorFile;
use super::delivery::{Context, Delivery, Events, ReceiverReport};
use super::known::{AlertContext, Sources};
use super::program::Account;
use super::published::Published;
use super::receiver::{Connect, NAMES, Receiver, SENDMAIL, Stream};
use crate::cluster::ClusterSettings;
use crate::policy::image::{ImageError, PolicyFile};
use crate::policy::model::OnCrossing;
use crate::spool::{
    self, EventKind, EventReader, EventWindow, LoggedEvent, Options, Spool, SpoolError,
};
use crate::standing::databases::StandingError;
use crate::sys::lock::{self, LockKind};
use crate::sys::{files, host_name};
use crate::text;
use crate::text::Voice;
use crate::text::time::now;
use crate::trace::{Access, TraceStore, trace_directory};

/// The key that a test alert is of, which nobody has.
pub(crate) const TEST_KEY: &str = "exirate-test";
/// The file that is locked while events are sent.
const LOCK: &CStr = c"delivery.lock";
/// How long to wait for the details of an event, and how often to look for them.
const DETAILS: (Duration, Duration) = (Duration::from_secs(3), Duration::from_millis(100));
/// Of so many alerts at most, the messages that are recorded are counted.
const COUNTED_MAX: usize = 10;

/// Sends what is new in the journal of a spool directory.
pub(crate) struct Sender<'a> {
    pub(crate) directory: &'a Path,
    /// The spool directory, where the commands in alerts have to name it.
    pub(crate) named: Option<&'a Path>,
    /// The program that sends mail.
    pub(crate) sendmail: &'a str,
    /// Connects to the stream of all servers.
    pub(crate) connect: &'a Connect<'a>,
    pub(crate) voice: &'a dyn Voice,
    /// What it has published before.
    pub(crate) published: Published,
}

/// What was sent.
pub(crate) enum SendOutcome {
    /// Nothing, as this is so.
    Nothing(&'static str),
    /// What each receiver got.
    All(Vec<ReceiverReport>),
}

/// What a test alert did.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Tested {
    pub(crate) receiver: &'static str,
    pub(crate) to: String,
    pub(crate) ok: bool,
    pub(crate) error: Option<String>,
}

impl Sender<'_> {
    /// Sends what is new to all receivers.
    ///
    /// # Errors
    /// Nothing could be sent to anybody.
    pub(crate) fn send(&self) -> Result<SendOutcome, StandingError> {
        // A policy may be in use before the first check has created the database.
        let mut spool = match Spool::open_existing(self.directory, Options::default()) {
            Ok(spool) => spool,
            Err(SpoolError::Absent { .. }) => {
                return Ok(SendOutcome::Nothing("there is no rate database yet"));
            }
            Err(error) => return Err(error.into()),
        };
        let account = self.account()?;
        let on = receivers(self.directory)?;
        let mut all = Receiver::all(self.directory, &on, self.sendmail);
        let directory = spool::open_directory(self.directory, false)?;
        if let Some(settings) = ClusterSettings::read(&directory)? {
            all.push(Receiver::Shared(Stream::new(self.connect, settings.config)));
        }
        let file = directory.open_or_create(LOCK, spool::FILE_MODE)?;
        let guard =
            lock::try_lock(&file, LockKind::Exclusive).map_err(directory.failed("lock", LOCK))?;
        let Some(_guard) = guard else {
            return Ok(SendOutcome::Nothing("another process is sending"));
        };
        if let Some(Receiver::Shared(stream)) = all.last() {
            self.published.publish(&mut spool, stream, self.voice);
        }
        // A receiver that is used again later is a new one.
        let is_used = |name: &&str| all.iter().any(|receiver| receiver.name() == *name);
        for name in NAMES.iter().filter(|name| !is_used(name)) {
            CursorFile::open(self.directory, name)?.remove()?;
        }
        if all.is_empty() {
            return Ok(SendOutcome::Nothing(
                "the policies in use have no receiver in [on.crossing]",
            ));
        }
        Ok(SendOutcome::All(self.send_all(&mut spool, &all, &on, account)?))
    }

    /// Sends an alert that is none to each receiver, and passes on what each did.
    ///
    /// # Errors
    /// There is no receiver, or `report` fails.
    pub(crate) fn test<E: From<StandingError>>(
        &self,
        mut report: impl FnMut(Tested) -> Result<(), E>,
    ) -> Result<(), E> {
        let account = self.account()?;
        let on = receivers(self.directory)?;
        let mut all = Receiver::all(self.directory, &on, self.sendmail);
        // No account is over a limit.
        all.retain(|receiver| !matches!(receiver, Receiver::Contact(..)));
        if all.is_empty() {
            let text = "the policies in use have no receiver in [on.crossing]: nobody is alerted";
            return Err(StandingError::Unfit(text.to_owned()).into());
        }
        let host = host_name();
        let at = now();
        let window = EventWindow {
            limit: 100.0,
            period: 3600.0,
            after: 101.0,
            before: 100.0,
            count: 1.0,
            over: true,
            ..EventWindow::default()
        };
        let event = LoggedEvent::invented(format!("1h/per_rcpt/{TEST_KEY}").as_bytes(), window, at);
        let mut known = AlertContext::of(&event, &Sources::of(host));
        known.text = format!(
            "This is a test of the alerts of {host}, sent at {}: nobody is over a limit. The commands \
             are as in an alert, and nobody has this key.",
            text::local(at)
        );
        let id = event.id();
        let head = Head { test: true, ..Head::new(&id, 1, false) };
        let alert = Alert::new(&event, head, host, &known);
        for receiver in &all {
            let error = receiver.send(&alert, account).err();
            let (receiver, to) = (receiver.name(), receiver.destination());
            report(Tested { receiver, to, ok: error.is_none(), error })?;
        }
        Ok(())
    }

    /// The account that programs run as.
    fn account(&self) -> Result<Account, StandingError> {
        let owner = files::info_of(self.directory).map_err(|error| {
            StandingError::Unfit(format!("cannot read {}: {error}", self.directory.display()))
        })?;
        Ok(Account::owner(owner.uid, owner.gid))
    }

    /// Sends what is new to all receivers, none of which waits for another.
    fn send_all(
        &self,
        spool: &mut Spool,
        receivers: &[Receiver<'_>],
        on: &OnCrossing,
        account: Account,
    ) -> Result<Vec<ReceiverReport>, StandingError> {
        let crossings = read(spool, EventKind::Crossings)?;
        // They say how it went on after a crossing, and repeat alerts.
        let is_new = match crossings.last() {
            Some(last) => receivers.iter().any(|one| !one.has_got(self.directory, &last.id())),
            None => false,
        };
        let refusals = match on.repeat.is_some() || is_new {
            true => read(spool, EventKind::Refusals)?,
            false => Vec::new(),
        };
        let events = Events::of(&crossings, &refusals, on);
        let begin = |one| Delivery::begin(self.directory, one, &events, account, self.voice);
        let begun: Vec<Result<Delivery<'_>, StandingError>> = receivers.iter().map(begin).collect();
        let host = host_name();
        let due = begun.iter().flatten().flat_map(Delivery::due);
        let due: HashMap<&str, &LoggedEvent> = due.map(|one| (&*one.id, one.event)).collect();
        let known = self.known(&due, &refusals, host);
        let context = Context { host, known: &known };
        let results: Vec<Result<ReceiverReport, StandingError>> = thread::scope(|scope| {
            let context = &context;
            let run =
                |one: Result<Delivery<'_>, StandingError>| one.and_then(|one| one.run(context));
            let threads: Vec<_> =
                begun.into_iter().map(|one| scope.spawn(move || run(one))).collect();
            let ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
            let fault = || Err(StandingError::Unfit("an internal error".to_owned()));
            ended.map(|one| one.unwrap_or_else(|_| fault())).collect()
        });
        let reports = receivers.iter().zip(results).map(|(receiver, result)| {
            result.unwrap_or_else(|error| {
                self.voice.complain(format_args!("{}: {error}", receiver.name()));
                ReceiverReport::failed(receiver, events.crossings.len())
            })
        });
        Ok(reports.collect())
    }

    /// What is known of the events that are due. How many messages there were is counted only if
    /// these are few.
    fn known<'e>(
        &self,
        due: &HashMap<&'e str, &LoggedEvent>,
        refusals: &[LoggedEvent],
        host: &str,
    ) -> HashMap<&'e str, AlertContext> {
        let mut sources = Sources { spool: self.named, ..Sources::of(host) };
        for event in refusals {
            sources.refusals.entry(&event.stored).or_default().push(event);
        }
        // What cannot be read is not known; other commands say why.
        let open = || TraceStore::open(&trace_directory(self.directory), Access::Read).ok();
        let traces = (1..=COUNTED_MAX).contains(&due.len()).then(open).flatten();
        sources.traces = traces.as_ref();
        due.iter().map(|(id, event)| (*id, AlertContext::of(event, &sources))).collect()
    }
}

/// The receivers of the policies in use: what each is, and where it leads.
///
/// # Errors
/// The policies cannot be read.
pub(crate) fn destinations(spool: &Path) -> Result<Vec<(&'static str, String)>, StandingError> {
    let on = receivers(spool)?;
    let all = Receiver::all(spool, &on, SENDMAIL);
    Ok(all.iter().map(|one| (one.name(), one.destination())).collect())
}

/// `[on.crossing]` of the policies in use.
fn receivers(spool: &Path) -> Result<OnCrossing, StandingError> {
    let file = PolicyFile::open(spool);
    match file.image() {
        Ok(image) => Ok(image.on_crossing()?),
        Err(ImageError::Absent { .. }) => Ok(OnCrossing::default()),
        Err(error) => Err(StandingError::Unfit(error.to_string())),
    }
}

/// All events in a log; of the latest, the details are waited for.
fn read(spool: &mut Spool, kind: EventKind) -> Result<Vec<LoggedEvent>, StandingError> {
    let mut reader = EventReader::new(kind);
    let begun = Instant::now();
    let mut events = spool.read_events(&mut reader, now(), false)?;
    while reader.is_waiting() && begun.elapsed() < DETAILS.0 {
        thread::sleep(DETAILS.1);
        events.extend(spool.read_events(&mut reader, now(), false)?);
    }
    Ok(events)
}
