//! Start, reload and stop of the broker.

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::{LocalSet, spawn_blocking, spawn_local};
use tokio::time::timeout;

use super::decide::Broker;
use super::wire::{Done, LINE_MAX, Reply, Request, Why, read, write};
use crate::serve::config::{self, Address};
use crate::serve::listen::{Bound, Peer, Peers, Stream};
use crate::serve::log::{Level, Log};
use crate::serve::socket::Access;
use crate::serve::supervise::{
    Signals, Unit, is_in_use, listen_until_stopped, need_restart, read_again,
};
use crate::sys::users;
use crate::text::time::now;

/// How many may be connected: the web service has few at a time.
const CONNECTIONS_MAX: usize = 64;
/// How long a request or a reply may take.
const SLOW: Duration = Duration::from_secs(5);
/// How long changes may take to end when the daemon stops.
const STOP_MAX: Duration = Duration::from_secs(15);

/// Runs the broker with the configuration at `path` until a signal stops it.
///
/// # Errors
/// Why it cannot start, in words.
pub fn run_broker(path: &Path) -> Result<(), String> {
    let log = Rc::new(Log::stderr());
    let web = config::read_web(path)?.logged(path, &log)?;
    let cannot = |error: io::Error| format!("cannot start: {error}");
    let runtime = Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    let signals = Signals::within(&runtime).map_err(cannot)?;
    let group = web.user.and_then(users::group_of);
    let access = Access::of_group(None, group);
    let bound = Bound::bind(&Address::Unix(web.broker.clone()), access)?;
    let (user, socket) = (web.user, web.broker.clone());
    let broker = Arc::new(Mutex::new(Broker::new(web)?));
    let asked = Rc::new(Cell::new(0));
    let daemon = Daemon { path: path.to_owned(), broker, user, socket, asked, log };
    LocalSet::new().block_on(&runtime, daemon.run(signals, bound))
}

struct Daemon {
    path: PathBuf,
    broker: Arc<Mutex<Broker>>,
    /// Who may ask, besides root.
    user: Option<u32>,
    socket: PathBuf,
    asked: Rc<Cell<u64>>,
    log: Rc<Log>,
}

impl Daemon {
    async fn run(mut self, mut signals: Signals, mut bound: Bound) -> Result<(), String> {
        let acceptor = bound.acceptor().map_err(|error| format!("cannot start: {error}"))?;
        let (stop, stopped) = watch::channel(false);
        let peers = Peers::new(CONNECTIONS_MAX, Rc::clone(&self.log));
        let (log, broker, user) = (Rc::clone(&self.log), Arc::clone(&self.broker), self.user);
        let (all, asked) = (Rc::clone(&peers), Rc::clone(&self.asked));
        let serving = spawn_local(async move {
            let begin = |stream: Stream, peer: Peer| {
                let (log, broker, asked) =
                    (Rc::clone(&log), Arc::clone(&broker), Rc::clone(&asked));
                let uid = stream.peer().map(|(uid, _)| uid);
                if !uid.is_some_and(|uid| uid == 0 || Some(uid) == user) {
                    let uid = uid.map_or_else(|| "?".to_owned(), |uid| uid.to_string());
                    let text = format_args!("user {uid} may not ask");
                    log.write_seldom("users refused", Level::Warning, text);
                    return;
                }
                asked.set(asked.get() + 1);
                spawn_local(async move { serve(stream, peer, broker, &log).await });
            };
            all.accept(acceptor, stopped, begin).await;
        });
        let (log, bound) = (Rc::clone(&self.log), vec![bound]);
        let why =
            listen_until_stopped(&mut self, &mut signals, &log, bound, &stop, serving).await?;
        if peers.ended(STOP_MAX).await > 0 {
            log.write(Level::Warning, "some changes have not ended");
        }
        log.write(Level::Notice, "stopped");
        why.result()
    }
}

impl Unit for Daemon {
    fn status(&self) -> String {
        format!("{} requests", self.asked.get())
    }

    fn state(&self) -> String {
        String::new()
    }

    fn reload(&mut self) {
        let read = config::read_web(&self.path);
        let Some(web) = read_again(read, &self.path, &self.log) else { return };
        let mut broker = self.broker.lock().unwrap_or_else(PoisonError::into_inner);
        let same = [
            ("broker", web.broker == self.socket),
            ("user", web.user == self.user),
            ("state", web.state == broker.web().state),
        ];
        need_restart(&same, &self.log);
        broker.set(web);
        is_in_use(&self.path, &self.log);
    }
}

/// Serves one request.
async fn serve(mut stream: Stream, peer: Peer, broker: Arc<Mutex<Broker>>, log: &Log) {
    let line = {
        let waiting = peer.waits();
        tokio::select! {
            line = timeout(SLOW, line(&mut stream)) => line,
            () = waiting.closed() => return,
        }
    };
    let reply = match line {
        Ok(Ok(line)) => match read::<Request>(&line) {
            Ok(request) => {
                peer.asks();
                let answered = spawn_blocking(move || {
                    let mut broker = broker.lock().unwrap_or_else(PoisonError::into_inner);
                    let (reply, thief) = broker.answer(&request, now().seconds);
                    // Others need not wait for what is in logs.
                    drop(broker);
                    match (reply, thief) {
                        (Reply::Done(done), Some(thief)) => Reply::Done(thief.look_up(done)),
                        (reply, _) => reply,
                    }
                });
                answered.await.unwrap_or_else(|_| Reply::refused(Why::Database, "it has failed"))
            }
            Err(why) => {
                let text = format_args!("not a request: {why}");
                log.write_seldom("requests refused", Level::Warning, text);
                Reply::refused(Why::Malformed, why)
            }
        },
        // The peer is gone, or too slow.
        Ok(Err(_)) | Err(_) => return,
    };
    let bytes = write(&reply).or_else(|_| {
        // Too much to say.
        let reply = match reply {
            Reply::Done(done) => {
                let said = vec!["what was done is in audit.log".to_owned()];
                Reply::Done(Done { said, sent: None, ..done })
            }
            Reply::Refused(refused) => Reply::refused(refused.why, "see the log"),
        };
        write(&reply)
    });
    let written = async {
        stream.write_all(&bytes.unwrap_or_default()).await?;
        stream.shutdown().await
    };
    let _ = timeout(SLOW, written).await;
}

/// Reads a line, of which [`LINE_MAX`] bytes at most are kept.
async fn line(stream: &mut Stream) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    loop {
        let mut part = [0; 512];
        let length = stream.read(&mut part).await?;
        let part = part.get(..length).unwrap_or_default();
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.extend_from_slice(part);
        if line.len() > LINE_MAX || part.contains(&b'\n') {
            return Ok(line);
        }
    }
}
