//! Sends alerts as crossings happen: `exirate serve alerts`.
//!
//! One thread looks whether the journal has changed, and sends; the other has the signals. Started
//! as root, the daemon goes on as the owner of the database before it reads anything of it.

use std::fmt::Arguments;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::config::{self, Config};
use super::log::{Level, Log};
use super::notify::Manager;
use super::supervise::{Unit, start, work_until_stopped};
use crate::alerts::{Connect, Published, SendOutcome, Sender};
use crate::cluster::ClusterSettings;
use crate::place;
use crate::redis::SharedEvents;
use crate::spool::crossings_file;
use crate::sys::users::{become_user, name_of};
use crate::text;
use crate::text::Voice;
use crate::text::time::now;

/// How often it looks whether the journal has changed.
const POLL: Duration = Duration::from_millis(500);
/// How long it waits then: what crosses a limit meanwhile is sent together.
const PAUSE: Duration = Duration::from_secs(5);
/// How often it sends what must be sent again.
const AGAIN: Duration = Duration::from_mins(1);

/// Sends alerts of the spool directory `spool`, or that of this machine, until a signal stops it.
///
/// # Errors
/// Why it cannot start, in words.
pub fn run_alerts(spool: Option<&Path>, sendmail: &str) -> Result<(), String> {
    let log = Rc::new(Log::stderr());
    let directory = match spool {
        Some(spool) => spool.to_owned(),
        None => place::find().ok_or_else(place::missing)?.0,
    };
    // Only root may read the password, and connect to the socket of `start-stop-daemon`.
    let agent = shared_limits(&directory);
    let manager = Manager::from_environment();
    let user = become_owner(&directory)?;
    let started = start()?;
    let shared = Arc::new(SharedByThreads::default());
    let work = Work {
        directory: directory.clone(),
        named: spool.map(Path::to_owned),
        sendmail: sendmail.to_owned(),
        agent,
    };
    let mut daemon = AlertsDaemon { shared: Arc::clone(&shared), log: Rc::clone(&log) };
    let shown = directory.display();
    log.write(Level::Notice, format_args!("alerts of the database in {shown}, as {user}"));
    let sending = Arc::clone(&shared);
    let work = move || work.run(&sending);
    work_until_stopped(started, &mut daemon, &manager, &log, work, || shared.stop())
}

/// The agent's configuration, where limits are shared and it can be read.
fn shared_limits(spool: &Path) -> Option<Config> {
    let settings = ClusterSettings::of(spool).ok()?.1?;
    config::read(&settings.config).ok()?.config
}

/// Goes on as the owner of the spool directory, if this is root; the name of the user.
fn become_owner(spool: &Path) -> Result<String, String> {
    let (uid, gid) = place::owner(spool)?;
    let own = rustix::process::geteuid();
    let name =
        |uid| name_of(uid).map_or_else(|| uid.to_string(), |name| name.display().to_string());
    if own.is_root() && uid != 0 {
        let failed = |error| format!("cannot go on as {}: {error}", name(uid));
        become_user(uid, gid).map_err(failed)?;
    } else if own.as_raw() != uid {
        return Err(format!(
            "{} belongs to {}, and this is {}: start it as root, or as that user",
            spool.display(),
            name(uid),
            name(own.as_raw())
        ));
    }
    Ok(name(uid))
}

/// What is sent, and how.
struct Work {
    directory: PathBuf,
    named: Option<PathBuf>,
    sendmail: String,
    agent: Option<Config>,
}

impl Work {
    /// Sends until it is to stop.
    fn run(&self, shared: &SharedByThreads) {
        let connect = |file: &Path| self.connect(file);
        let sender = Sender {
            directory: &self.directory,
            named: self.named.as_deref(),
            sendmail: &self.sendmail,
            connect: &connect as &Connect<'_>,
            voice: &AlertsLog,
            published: Published::default(),
        };
        let file = crossings_file(&self.directory);
        let (mut seen, mut last) = (None, None::<Instant>);
        while !shared.lock().stop {
            let state = state_of(&file);
            let is_due = last.is_none_or(|last| last.elapsed() >= AGAIN);
            if state == seen && !is_due {
                shared.wait(POLL);
                continue;
            }
            if state != seen && last.is_some() {
                shared.wait(PAUSE);
            }
            // What is logged from here on is seen the next time.
            (seen, last) = (state_of(&file), Some(Instant::now()));
            shared.show(sender.send().map_err(|error| error.to_string()));
        }
    }

    fn connect(&self, file: &Path) -> Result<(SharedEvents, String), String> {
        let read = || {
            let config = config::read(file)?.config;
            config.ok_or_else(|| format!("{} has errors", file.display()))
        };
        let config = match &self.agent {
            Some(config) => config.clone(),
            // Limits are shared since it was started.
            None => read().map_err(|why| format!("{why}; restart exirate-alerts"))?,
        };
        let stream = SharedEvents::connect(&config.redis)
            .map_err(|error| format!("{} cannot be used: {error}", config.redis))?;
        Ok((stream, config.agent.server_name))
    }
}

/// What changes when something is logged.
fn state_of(file: &Path) -> Option<(u64, SystemTime)> {
    let info = file.metadata().ok()?;
    Some((info.len(), info.modified().ok()?))
}

/// The log of the daemon, from any thread.
struct AlertsLog;

impl Voice for AlertsLog {
    fn complain(&self, what: Arguments<'_>) {
        Log::stderr().write(Level::Warning, what);
    }

    fn note(&self, what: Arguments<'_>) {
        Log::stderr().write(Level::Notice, what);
    }
}

/// What the two threads share.
#[derive(Default)]
struct SharedByThreads {
    state: Mutex<AlertsState>,
    changed: Condvar,
}

#[derive(Default)]
struct AlertsState {
    stop: bool,
    sent: usize,
    /// When something was last sent.
    last: Option<String>,
    /// What is in the way, in words.
    fault: Option<String>,
}

impl SharedByThreads {
    fn lock(&self) -> MutexGuard<'_, AlertsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        self.lock().stop = true;
        self.changed.notify_all();
    }

    fn wait(&self, time: Duration) {
        let _ = self.changed.wait_timeout_while(self.lock(), time, |state| !state.stop);
    }

    /// Keeps what a run has done; a fault that lasts is logged once.
    fn show(&self, done: Result<SendOutcome, String>) {
        let mut state = self.lock();
        let fault = match done {
            Ok(SendOutcome::Nothing(why)) => Some(why.to_owned()),
            Err(why) => {
                if state.fault.as_ref() != Some(&why) {
                    Log::stderr().write(Level::Error, format_args!("nothing is sent: {why}"));
                }
                Some(why)
            }
            Ok(SendOutcome::All(reports)) => {
                let sent: usize = reports.iter().map(|report| report.sent).sum();
                if sent > 0 {
                    state.sent += sent;
                    state.last = Some(text::local(now()));
                }
                let failed = reports.iter().filter(|report| report.failed);
                let failed: Vec<&str> = failed.map(|report| report.receiver).collect();
                (!failed.is_empty()).then(|| format!("{} failed", failed.join(", ")))
            }
        };
        state.fault = fault;
    }
}

/// The running daemon.
struct AlertsDaemon {
    shared: Arc<SharedByThreads>,
    log: Rc<Log>,
}

impl Unit for AlertsDaemon {
    fn status(&self) -> String {
        let state = self.shared.lock();
        let last = state.last.as_ref().map(|last| format!(", the last {last}"));
        let sent = text::counted_or_no(state.sent, "alert", "alerts");
        let fault = state.fault.as_ref().map(|fault| format!("; {fault}"));
        format!("{sent} sent{}{}", last.unwrap_or_default(), fault.unwrap_or_default())
    }

    fn state(&self) -> String {
        self.status()
    }

    fn reload(&mut self) {
        // Each run reads the policies.
        self.log.write(Level::Notice, "the policies are read at each run: nothing to read again");
    }
}
