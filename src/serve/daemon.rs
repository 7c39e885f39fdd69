//! Start, reload and stop of the agent.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use tokio::sync::watch;
use tokio::task::{LocalSet, spawn_local};

use super::agent::{Agent, Backend};
use super::config::{self, Config, exim_group};
use super::log::{Level, Log};
use super::notify::Manager;
use super::socket::{Access, Listener};
use super::supervise::{
    Signals, Unit, cannot_start, is_in_use, raise_open_files, read_again, start, until_stopped,
};
use crate::redis::servers_file;

/// Runs the agent with the configuration at `path` until a signal stops it. It connects to
/// a store of the type `B`, by the settings that `store` takes from the configuration.
///
/// # Errors
/// Why it cannot start, in words.
pub fn run_agent<B: Backend>(
    path: &Path,
    store: impl Fn(&Config) -> B::Settings,
) -> Result<(), String> {
    let log = Rc::new(Log::stderr());
    let config = config::read(path)?.logged(path, &log)?;
    raise_open_files(&log, config.agent.max_connections);
    let (runtime, signals) = start()?;
    let access = Access::of_group(config.agent.socket_group, exim_group());
    let listener = Listener::bind(&config.agent_socket, access);
    let listener = listener.map_err(|error| error.to_string())?;
    if let Some(why) = config.unreachable() {
        log.write(Level::Warning, why);
    }
    let (options, deadline) = (config.agent.clone(), config.redis.deadline);
    let agent = Rc::new(Agent::<B>::new(options, deadline, store(&config), Rc::clone(&log)));
    agent.show_servers_in(servers_file(&config.agent_socket));
    let daemon = AgentDaemon { path: path.to_owned(), store, agent, log, config };
    LocalSet::new().block_on(&runtime, daemon.run(signals, listener))
}

/// A running agent.
struct AgentDaemon<B: Backend, F> {
    path: PathBuf,
    config: Config,
    store: F,
    agent: Rc<Agent<B>>,
    log: Rc<Log>,
}

impl<B: Backend, F: Fn(&Config) -> B::Settings> AgentDaemon<B, F> {
    async fn run(mut self, mut signals: Signals, mut socket: Listener) -> Result<(), String> {
        let listener = socket.take().ok_or("the socket is in use")?;
        let listener = tokio::net::UnixListener::from_std(listener).map_err(cannot_start)?;
        let (stop, stopped) = watch::channel(false);
        let agent = Rc::clone(&self.agent);
        let connecting = spawn_local(async move { agent.keep_connected().await });
        let agent = Rc::clone(&self.agent);
        let mut serving = spawn_local(async move { agent.serve(listener, stopped).await });
        let path = self.config.agent_socket.display().to_string();
        let log = Rc::clone(&self.log);
        log.write(Level::Notice, format_args!("listening on {path}"));
        let manager = Manager::from_environment();
        let sockets = [&socket];
        let why =
            until_stopped(&mut self, &mut signals, &manager, &log, &sockets, &mut serving).await?;
        // From now on a new process finds no socket, and another instance may start.
        drop(socket);
        let _ = stop.send(true);
        let served = serving.await;
        connecting.abort();
        served.map_err(|error| format!("the agent has failed: {error}"))?;
        log.write(Level::Notice, "stopped");
        why.result()
    }
}

impl<B: Backend, F: Fn(&Config) -> B::Settings> Unit for AgentDaemon<B, F> {
    fn status(&self) -> String {
        self.agent.status()
    }

    fn state(&self) -> String {
        self.agent.store_status()
    }

    fn reload(&mut self) {
        let read = config::read(&self.path);
        let Some(config) = read_again(read, &self.path, &self.log) else { return };
        if config.agent_socket != self.config.agent_socket {
            let (old, new) = (self.config.agent_socket.display(), config.agent_socket.display());
            let text = format!("still listening on {old}; restart to listen on {new}");
            self.log.write(Level::Warning, text);
        }
        if config.agent.socket_group != self.config.agent.socket_group {
            self.log
                .write(Level::Warning, "socket_group has changed: restart to use the new value");
        }
        let (options, deadline) = (config.agent.clone(), config.redis.deadline);
        self.agent.set(options, deadline, (self.store)(&config));
        let agent_socket = self.config.agent_socket.clone();
        self.config = Config { agent_socket, ..config };
        is_in_use(&self.path, &self.log);
    }
}
