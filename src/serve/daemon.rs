//! Start, reload and stop.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{MissedTickBehavior, interval};

use super::agent::{Agent, Backend};
use super::config::{self, Config};
use super::log::{Level, Log};
use super::notify::Manager;
use super::socket::Listener;
use crate::toml_file::diagnostic::{Severity, place};

/// How often the log is summarized, and a new state of the store is sent to systemd.
const TICK: Duration = Duration::from_secs(1);
/// How often, in ticks, the number of decisions is sent.
const STATUS_TICKS: u32 = 10;
/// Files that are open besides connections.
const OTHER_FILES: u64 = 64;

/// Runs the agent with the configuration at `path` until it is told to stop. It connects to
/// a store of the type `B`, by the settings that `store` takes from the configuration.
///
/// # Errors
/// Why it cannot start, in words.
pub fn run_agent<B: Backend>(
    path: &Path,
    store: impl Fn(&Config) -> B::Settings,
) -> Result<(), String> {
    let log = Rc::new(Log::stderr());
    let config = read(path, &log)?;
    raise_open_files(&log, config.agent.max_connections);
    let listener = Listener::bind(&config.agent_socket).map_err(|error| error.to_string())?;
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    let (options, deadline) = (config.agent.clone(), config.redis.deadline);
    let agent = Rc::new(Agent::<B>::new(options, deadline, store(&config), Rc::clone(&log)));
    let manager = Manager::from_environment();
    let daemon = Daemon { path: path.to_owned(), manager, store, agent, log, config };
    LocalSet::new().block_on(&runtime, daemon.run(listener))
}

/// A running agent.
struct Daemon<B: Backend, F> {
    path: PathBuf,
    config: Config,
    manager: Manager,
    store: F,
    agent: Rc<Agent<B>>,
    log: Rc<Log>,
}

impl<B: Backend, F: Fn(&Config) -> B::Settings> Daemon<B, F> {
    async fn run(mut self, mut socket: Listener) -> Result<(), String> {
        let cannot = |error: io::Error| format!("cannot start: {error}");
        let mut signals = Signals::new().map_err(cannot)?;
        let listener = socket.take().ok_or("the socket is in use")?;
        let listener = tokio::net::UnixListener::from_std(listener).map_err(cannot)?;
        let (stop, stopped) = watch::channel(false);
        let agent = Rc::clone(&self.agent);
        let connecting = spawn_local(async move { agent.keep_connected().await });
        let agent = Rc::clone(&self.agent);
        let mut serving = spawn_local(async move { agent.serve(listener, stopped).await });
        let path = self.config.agent_socket.display().to_string();
        self.log.write(Level::Notice, format_args!("listening on {path}"));
        let mut store = self.agent.store_status();
        self.manager.ready(&self.agent.status());
        let (mut tick, mut ticks) = (every(TICK), 0);
        let mut watchdog = self.manager.watchdog_period().map(every);
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
                        self.reload();
                        self.manager.ready(&self.agent.status());
                    }
                    _ => {
                        self.log.write(Level::Notice, format_args!("{name}: stopping"));
                        break;
                    }
                },
                _ = alive => self.manager.alive(),
                _ = tick.tick() => {
                    self.log.summarize();
                    let now = self.agent.store_status();
                    ticks = (ticks + 1) % STATUS_TICKS;
                    if now != store || ticks == 0 {
                        self.manager.status(&self.agent.status());
                        store = now;
                    }
                }
                ended = &mut serving => {
                    let why = ended.err().map_or_else(String::new, |error| error.to_string());
                    return Err(format!("the agent has ended unexpectedly: {why}"));
                }
            }
        }
        self.manager.stopping();
        // From now on a new process finds no socket, and another instance may start.
        drop(socket);
        let _ = stop.send(true);
        let served = serving.await;
        connecting.abort();
        served.map_err(|error| format!("the agent has failed: {error}"))?;
        self.log.write(Level::Notice, "stopped");
        Ok(())
    }

    /// Reads the configuration again; one with errors changes nothing.
    fn reload(&mut self) {
        self.manager.reloading();
        let config = match read(&self.path, &self.log) {
            Ok(config) => config,
            Err(why) => {
                let text = format_args!("{why}; the configuration of before stays in use");
                return self.log.write(Level::Error, text);
            }
        };
        if config.agent_socket != self.config.agent_socket {
            let (old, new) = (self.config.agent_socket.display(), config.agent_socket.display());
            let text = format!("still listening on {old}; restart to listen on {new}");
            self.log.write(Level::Warning, text);
        }
        let (options, deadline) = (config.agent.clone(), config.redis.deadline);
        self.agent.set(options, deadline, (self.store)(&config));
        let agent_socket = self.config.agent_socket.clone();
        self.config = Config { agent_socket, ..config };
        let path = self.path.display();
        self.log.write(Level::Notice, format_args!("{path} was read again, and is in use"));
    }
}

/// The signals of the daemon.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    reload: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
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

/// Reads the configuration; what is wrong with it is in the log.
fn read(path: &Path, log: &Log) -> Result<Config, String> {
    let checked = config::read(path)?;
    let files = checked.diagnostics.files.clone();
    for one in checked.diagnostics.sorted() {
        let level = match one.severity {
            Severity::Error => Level::Error,
            Severity::Warning => Level::Warning,
        };
        let at = place(&files, one.at);
        log.write(level, format_args!("{at}: {}: {}", one.severity, one.message));
    }
    checked.config.ok_or_else(|| format!("{} cannot be used: see above", path.display()))
}

/// Allows this process to have as many files open as it needs, if the system lets it.
fn raise_open_files(log: &Log, connections: usize) {
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
