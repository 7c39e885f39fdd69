//! Start, reload and stop of the web service.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{LocalSet, spawn_local};

use super::api;
use super::api::state::Api;
use super::http::connection;
use crate::serve::config::{self, Web};
use crate::serve::listen::{Bound, CLOSING, Peers};
use crate::serve::log::{Level, Log};
use crate::serve::rates::{Purpose, may_use};
use crate::serve::socket::Access;
use crate::serve::supervise::{
    Signals, Unit, cannot_start, is_in_use, listen_until_stopped, need_restart, raise_open_files,
    read_again, start,
};

/// How long requests may take to end when the daemon stops.
const STOP_MAX: Duration = Duration::from_secs(5);

/// Runs the web service with the configuration at `path` until a signal stops it.
///
/// # Errors
/// Why it cannot start, in words.
pub fn run_web(path: &Path) -> Result<(), String> {
    let log = Rc::new(Log::stderr());
    let web = config::read_web(path)?.logged(path, &log)?;
    may_use(&web.spool, Purpose::Read, "exirate-web")?;
    raise_open_files(&log, web.max_connections.saturating_add(CLOSING));
    let (runtime, signals) = start()?;
    let bound = Bound::bind(&web.listen, Access { mode: 0o660, group: web.group })?;
    let peers = Peers::new(web.max_connections, Rc::clone(&log));
    let api = Rc::new(Api::new(web, Rc::clone(&log))?);
    let daemon = WebDaemon { path: path.to_owned(), api, peers, log };
    LocalSet::new().block_on(&runtime, daemon.run(signals, bound))
}

struct WebDaemon {
    path: PathBuf,
    api: Rc<Api>,
    peers: Rc<Peers>,
    log: Rc<Log>,
}

impl WebDaemon {
    async fn run(mut self, mut signals: Signals, mut bound: Bound) -> Result<(), String> {
        let acceptor = bound.acceptor().map_err(cannot_start)?;
        let (stop, stopped) = watch::channel(false);
        let (api, peers) = (Rc::clone(&self.api), Rc::clone(&self.peers));
        let of_connections = stopped.clone();
        let serving = spawn_local(async move {
            let begin = |stream, peer| {
                let (api, stop) = (Rc::clone(&api), of_connections.clone());
                spawn_local(connection::serve(stream, peer, stop, move |call| {
                    api::answer(Rc::clone(&api), call)
                }));
            };
            peers.accept(acceptor, stopped, begin).await;
        });
        let (log, bound) = (Rc::clone(&self.log), vec![bound]);
        let why =
            listen_until_stopped(&mut self, &mut signals, &log, bound, &stop, serving).await?;
        self.api.streams.end();
        let left = self.peers.ended(STOP_MAX).await;
        if left > 0 {
            let text = format_args!("{left} connections have not ended, and are closed");
            log.write(Level::Warning, text);
        }
        log.write(Level::Notice, "stopped");
        why.result()
    }
}

impl Unit for WebDaemon {
    fn status(&self) -> String {
        format!(
            "{} connected, {} streams, {} requests, {} of somebody unknown",
            self.peers.connected(),
            self.api.streams.open.get(),
            self.api.requests.get(),
            self.api.askers.failures.get()
        )
    }

    fn state(&self) -> String {
        String::new()
    }

    fn reload(&mut self) {
        let read = config::read_web(&self.path);
        let Some(new) = read_again(read, &self.path, &self.log) else { return };
        let old = Rc::clone(&self.api.web.borrow());
        let same = [
            ("listen", old.listen == new.listen),
            ("socket_group", old.group == new.group),
            ("spool", old.spool == new.spool),
        ];
        need_restart(&same, &self.log);
        self.peers.set(new.max_connections);
        raise_open_files(&self.log, new.max_connections.saturating_add(CLOSING));
        self.api.askers.set(&new);
        let Web { listen, group, spool, .. } = (*old).clone();
        *self.api.web.borrow_mut() = Rc::new(Web { listen, group, spool, ..new });
        is_in_use(&self.path, &self.log);
    }
}
