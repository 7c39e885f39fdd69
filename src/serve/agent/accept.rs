//! The processes that connect.

use std::collections::hash_map::Entry;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use super::connection;
use super::decide::Agent;
use super::link::Backend;
use crate::cluster::wire::{ReplyStatus, write_refusal};
use crate::serve::log::Level;

/// After a failure to accept a connection, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How many connections one process may have, at least: the mail front ends have one for each
/// of their threads. Others must be able to connect beside it.
const PROCESS_MAX: usize = 100;
/// How long connections may take to end when the daemon stops.
const STOP_MAX: Duration = Duration::from_secs(5);

impl<B: Backend> Agent<B> {
    /// Serves the processes that connect to `listener`, until `stop` is set: then every
    /// request that has arrived is still replied to.
    pub async fn serve(self: &Rc<Self>, listener: UnixListener, mut stop: watch::Receiver<bool>) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stop.wait_for(|&stop| stop) => break,
            };
            match accepted {
                Ok((stream, _)) => self.begin(stream, stop.clone()),
                Err(error) => {
                    let text = format_args!("cannot accept a connection: {error}");
                    self.log.write_seldom("failures to accept", Level::Error, text);
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        // Those who have connected, and were not yet accepted: the system knows of all of
        // them, the runtime perhaps not yet.
        if let Ok(listener) = listener.into_std() {
            while let Ok(stream) = rest(&listener) {
                self.begin(stream, stop.clone());
            }
        }
        let ended = async {
            while self.connections.get() > 0 {
                self.connections.less().await;
            }
        };
        if timeout(STOP_MAX, ended).await.is_err() {
            let left = self.connections.get();
            let text = format_args!("{left} connections have not ended, and are closed");
            self.log.write(Level::Warning, text);
        }
    }

    /// Serves a new connection, if there may be one more, and its process may ask.
    fn begin(self: &Rc<Self>, stream: UnixStream, stop: watch::Receiver<bool>) {
        let limits = Rc::clone(&self.limits.borrow());
        if self.connections.get() >= limits.agent.max_connections {
            let most = limits.agent.max_connections;
            let text = format_args!("{most} processes are connected, and no more may");
            self.log.write_seldom("connections refused", Level::Warning, text);
            refuse(&stream, ReplyStatus::Busy, "too many processes are connected");
            return;
        }
        let peer = match stream.peer_cred() {
            Ok(peer) => peer,
            Err(error) => {
                let text = format_args!("cannot see who has connected: {error}");
                self.log.write_seldom("users refused", Level::Warning, text);
                return;
            }
        };
        // 0: one that this process cannot see.
        let process = peer.pid().unwrap_or(0);
        if !limits.agent.peers.allow(peer.uid(), peer.gid()) {
            let why = format!(
                "user {} with group {} may not ask: see users and groups in [agent]",
                peer.uid(),
                peer.gid()
            );
            let text = format_args!("{why} (process {process})");
            self.log.write_seldom("users refused", Level::Warning, text);
            refuse(&stream, ReplyStatus::NotAllowed, &why);
            return;
        }
        let of_process = self.processes.borrow().get(&process).copied().unwrap_or(0);
        if process != 0 && of_process >= PROCESS_MAX.max(limits.agent.max_connections / 8) {
            let text =
                format_args!("process {process} has {of_process} connections, and no more may");
            self.log.write_seldom("connections of processes refused", Level::Warning, text);
            refuse(&stream, ReplyStatus::Busy, "the process has too many connections");
            return;
        }
        *self.processes.borrow_mut().entry(process).or_default() += 1;
        let counted = self.connections.add(1);
        let agent = Rc::clone(self);
        spawn_local(async move {
            connection::serve(Rc::clone(&agent), stream, stop, counted).await;
            agent.disconnected(process);
        });
    }

    /// A connection of the process has ended.
    fn disconnected(&self, process: i32) {
        let mut processes = self.processes.borrow_mut();
        if let Entry::Occupied(mut entry) = processes.entry(process) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

/// The next process that has connected already.
fn rest(listener: &std::os::unix::net::UnixListener) -> io::Result<UnixStream> {
    let (stream, _) = listener.accept()?;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Tells a process that it is not served. Its request need not be read for that.
fn refuse(stream: &UnixStream, status: ReplyStatus, why: &str) {
    let mut reply = Vec::new();
    write_refusal(&mut reply, 0, status, why);
    // A new connection has room for it.
    let _: io::Result<usize> = stream.try_write(&reply);
}
