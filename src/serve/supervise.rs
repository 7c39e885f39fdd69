//! What every unit of the daemon does in the same way: it reports to systemd, summarizes
//! its log, reloads, and runs until a signal stops it.

use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval};

use super::config::Checked;
use super::listen::Bound;
use super::log::{Level, Log};
use super::notify::Manager;
use super::socket::Listener;

/// How often the log is summarized, and a new state is sent to systemd.
const TICK: Duration = Duration::from_secs(1);
/// How often, in ticks, the numbers are sent.
const STATUS_TICKS: u32 = 10;
/// Files that are open besides connections.
const OTHER_FILES: u64 = 64;

/// What a unit runs in, and its signals. It is made before anybody can connect: from then on a signal
/// stops the unit as it should.
pub(super) fn start() -> Result<(Runtime, Signals), String> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(cannot_start)?;
    let signals = Signals::within(&runtime).map_err(cannot_start)?;
    Ok((runtime, signals))
}

/// Why a unit does not start, in words.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(super) fn cannot_start(error: io::Error) -> String {
    format!("cannot start: {error}")
}

/// A unit of the daemon.
pub(super) trait Unit {
    /// The state in words, for `systemctl status`.
    fn status(&self) -> String;

    /// The part of it whose change is sent at once.
    fn state(&self) -> String;

    /// Reads the configuration again; one with errors changes nothing.
    fn reload(&mut self);
}

/// The configuration at `path` for [`Unit::reload`], unless it has errors: the log says so.
pub(super) fn read_again<C>(read: Result<Checked<C>, String>, path: &Path, log: &Log) -> Option<C> {
    let read = read.and_then(|checked| checked.logged(path, log));
    let failed = |why: &String| {
        let text = format_args!("{why}; the previous configuration stays in use");
        log.write(Level::Error, text);
    };
    read.inspect_err(failed).ok()
}

/// Says which of these keys have changed, where `false`, that a running unit cannot change.
pub(super) fn need_restart(same: &[(&str, bool)], log: &Log) {
    for (key, _) in same.iter().filter(|(_, same)| !same) {
        let text = format_args!("{key} has changed: restart to use the new value");
        log.write(Level::Warning, text);
    }
}

/// Says that this is so of the configuration that was read again.
pub(super) fn is_in_use(path: &Path, log: &Log) {
    let path = path.display();
    log.write(Level::Notice, format_args!("{path} was read again, and is in use"));
}

/// Why a unit stops in an orderly way.
pub(super) enum Stop {
    /// A signal says so.
    Signal,
    /// A socket was removed or replaced: nobody would find this instance any more. The next
    /// one, which systemd starts, makes a new socket, and its directory.
    Socket(String),
}

impl Stop {
    /// The result of the daemon.
    pub(super) fn result(self) -> Result<(), String> {
        match self {
            Self::Signal => Ok(()),
            Self::Socket(why) => Err(why),
        }
    }
}

/// As [`until_stopped`], for a unit that listens at these sockets; then nobody finds them any more,
/// another instance may start, and `serving` ends, as `stop` says.
pub(super) async fn listen_until_stopped(
    unit: &mut impl Unit,
    signals: &mut Signals,
    log: &Log,
    bound: Vec<Bound>,
    stop: &watch::Sender<bool>,
    mut serving: JoinHandle<()>,
) -> Result<Stop, String> {
    for one in &bound {
        log.write(Level::Notice, format_args!("listening on {}", one.address()));
    }
    let manager = Manager::from_environment();
    let sockets: Vec<_> = bound.iter().filter_map(Bound::unix).collect();
    let why = until_stopped(unit, signals, &manager, log, &sockets, &mut serving).await?;
    drop(bound);
    let _ = stop.send(true);
    serving.await.map_err(|error| format!("the daemon has failed: {error}"))?;
    Ok(why)
}

/// As [`until_stopped`], for a unit whose `work` is done in a thread, which ends after `stop`.
pub(super) fn work_until_stopped(
    (runtime, mut signals): (Runtime, Signals),
    unit: &mut impl Unit,
    manager: &Manager,
    log: &Log,
    work: impl FnOnce() + Send + 'static,
    stop: impl FnOnce(),
) -> Result<(), String> {
    runtime.block_on(async {
        let mut serving = spawn_blocking(work);
        until_stopped(unit, &mut signals, manager, log, &[], &mut serving).await?;
        stop();
        serving.await.map_err(|error| format!("the daemon has failed: {error}"))?;
        log.write(Level::Notice, "stopped");
        Ok(())
    })
}

/// Runs until a signal says to stop, or one of the unit's sockets is lost. An error says that
/// `serving` has ended before.
pub(super) async fn until_stopped(
    unit: &mut impl Unit,
    signals: &mut Signals,
    manager: &Manager,
    log: &Log,
    sockets: &[&Listener],
    serving: &mut JoinHandle<()>,
) -> Result<Stop, String> {
    let mut state = unit.state();
    manager.ready(&unit.status());
    let (mut tick, mut ticks) = (every(TICK), 0);
    let mut watchdog = manager.watchdog_period().map(every);
    loop {
        let alive = async {
            match &mut watchdog {
                Some(watchdog) => watchdog.tick().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            name = signals.next() => match name {
                "SIGHUP" => {
                    manager.reloading();
                    unit.reload();
                    manager.ready(&unit.status());
                }
                _ => {
                    log.write(Level::Notice, format_args!("{name}: stopping"));
                    manager.stopping();
                    return Ok(Stop::Signal);
                }
            },
            _ = alive => manager.alive(),
            _ = tick.tick() => {
                log.summarize();
                if let Some(why) = sockets.iter().find_map(|socket| socket.check().err()) {
                    log.write(Level::Error, format_args!("{why}: stopping, to be started again"));
                    manager.stopping();
                    return Ok(Stop::Socket(why));
                }
                let now = unit.state();
                ticks = (ticks + 1) % STATUS_TICKS;
                if now != state || ticks == 0 {
                    manager.status(&unit.status());
                    state = now;
                }
            }
            ended = &mut *serving => {
                let why = ended.err().map_or_else(String::new, |error| error.to_string());
                return Err(format!("the daemon has ended unexpectedly: {why}"));
            }
        }
    }
}

/// The signals of the daemon.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    reload: Signal,
}

impl Signals {
    /// Takes them over from the system, for tasks of `runtime`.
    fn within(runtime: &Runtime) -> io::Result<Self> {
        let _guard = runtime.enter();
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            reload: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for one, and returns its name.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.reload.recv() => "SIGHUP",
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

fn every(period: Duration) -> tokio::time::Interval {
    let mut interval = interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// Allows this process to have as many files open as it needs, if the system lets it.
pub(super) fn raise_open_files(log: &Log, connections: usize) {
    let wanted = u64::try_from(connections).unwrap_or(u64::MAX).saturating_add(OTHER_FILES);
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    let current = limit.maximum.map_or(wanted, |most| most.min(wanted));
    // Without it, fewer processes can be connected.
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limit });
    if raised.is_err() || current < wanted {
        let current = getrlimit(Resource::Nofile).current.unwrap_or(current);
        let text = format!(
            "may open {current} files, and max_connections = {connections} needs {wanted}: raise \
             LimitNOFILE= of the unit, or lower max_connections"
        );
        log.write(Level::Warning, text);
    }
}
