//! Start, reload and stop of the broker, and of the daemon that releases held messages: each answers a
//! line with a line.

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::task::{LocalSet, spawn_blocking, spawn_local};
use tokio::time::timeout;

use super::decide::Broker;
use super::queue;
use super::wire::{Done, Line as _, Reply, Request, Why, read, write};
use crate::serve::config::{self, Address, Web};
use crate::serve::listen::{Bound, Peer, Peers, Stream};
use crate::serve::log::{Level, Log};
use crate::serve::rates::{Purpose, may_use};
use crate::serve::socket::Access;
use crate::serve::supervise::{
    Signals, Unit, cannot_start, is_in_use, listen_until_stopped, need_restart, read_again, start,
};
use crate::standing::held::HoldQueue;
use crate::sys::{files, users};
use crate::text::time::now;

/// How many may be connected: the web service has few at a time.
const CONNECTIONS_MAX: usize = 64;
/// How long a request or a reply may take.
const SLOW: Duration = Duration::from_secs(5);
/// How long changes may take to end when the daemon stops.
const STOP_MAX: Duration = Duration::from_secs(15);

/// Answers a line, in a thread of its own: the reply, or why the line is no request.
type Answer = Arc<dyn Fn(&[u8]) -> Result<Vec<u8>, String> + Send + Sync>;
/// Uses another configuration from now on; which keys need a restart, if `false`.
type Reload = Box<dyn FnMut(Web) -> Vec<(&'static str, bool)>>;

/// The reply to what is no request.
type Malformed = Box<dyn Fn(&str) -> Vec<u8>>;

/// Runs the broker with the configuration at `path` until a signal stops it.
///
/// # Errors
/// Why it cannot start, in words.
pub fn run_broker(path: &Path) -> Result<(), String> {
    run(path, |web| {
        let (user, socket) = (web.user, web.broker.clone());
        let (group, line_max) = (web.user.and_then(users::group_of), Request::MAX);
        let broker = Arc::new(Mutex::new(Broker::new(web)?));
        let again = Arc::clone(&broker);
        let reload: Reload = Box::new(move |web| {
            let mut broker = again.lock().unwrap_or_else(PoisonError::into_inner);
            let state = web.state == broker.web().state;
            broker.set(web);
            vec![("state", state)]
        });
        let answer: Answer = Arc::new(move |line| {
            let request: Request = read(line)?;
            let mut broker = broker.lock().unwrap_or_else(PoisonError::into_inner);
            let (reply, later) = broker.answer(&request, now().seconds);
            // Others need not wait for what is in logs and queues.
            drop(broker);
            let reply = match (reply, later) {
                (Reply::Done(done), Some(later)) => later(done),
                (reply, _) => reply,
            };
            write(&reply).or_else(|_| write(&shortened(reply)))
        });
        let malformed = |why: &str| Reply::refused(Why::Malformed, why);
        let failed = || Reply::refused(Why::Database, "it has failed");
        Ok(Served {
            user,
            group,
            socket,
            line_max,
            answer,
            reload,
            malformed: Box::new(move |why| write(&malformed(why)).unwrap_or_default()),
            failed: write(&failed()).unwrap_or_default(),
        })
    })
}

/// A reply without what is too much to say.
fn shortened(reply: Reply) -> Reply {
    match reply {
        Reply::Done(done) => {
            let said = vec!["what was done is in audit.log".to_owned()];
            Reply::Done(Done { said, sent: None, held: Vec::new(), ..done })
        }
        Reply::Refused(refused) => Reply::refused(refused.why, "see the log"),
    }
}

/// Opens the mail server's queue, with what is noted in this spool directory.
pub(crate) type OpenQueue = fn(&Path) -> Result<Box<dyn HoldQueue>, String>;

/// Runs the daemon that shows, releases and deletes held messages, with the configuration at `path`,
/// until a signal stops it. The owner of the database may ask, who runs the broker.
///
/// # Errors
/// Why it cannot start, in words.
pub(crate) fn run_held(path: &Path, open: OpenQueue) -> Result<(), String> {
    run(path, |web| {
        let (spool, socket) = (web.spool.clone(), web.held.clone());
        let info = files::info_of(&spool.join("exirate"));
        let info = info.or_else(|_| files::info_of(&spool));
        let (user, group) = match info {
            Ok(info) => (Some(info.uid), Some(info.gid)),
            Err(error) => return Err(format!("{}: {error}", spool.display())),
        };
        let was = spool.clone();
        let answer: Answer = Arc::new(move |line| {
            let reply = queue::answer(open(&spool), read(line)?);
            write(&reply).or_else(|why| write(&queue::QueueReply::Failed(why)))
        });
        Ok(Served {
            user,
            group,
            socket,
            line_max: queue::QueuedRequest::MAX,
            answer,
            reload: Box::new(move |web| vec![("spool", web.spool == was)]),
            malformed: Box::new(|why| {
                write(&queue::QueueReply::Failed(why.to_owned())).unwrap_or_default()
            }),
            failed: write(&queue::QueueReply::Failed("it has failed".to_owned()))
                .unwrap_or_default(),
        })
    })
}

/// What a daemon serves.
struct Served {
    /// Who may ask, besides root.
    user: Option<u32>,
    /// The group of the socket.
    group: Option<u32>,
    socket: PathBuf,
    line_max: usize,
    answer: Answer,
    reload: Reload,
    /// The reply to what is no request.
    malformed: Malformed,
    /// The reply where the thread has failed.
    failed: Vec<u8>,
}

fn run(path: &Path, make: impl FnOnce(Web) -> Result<Served, String>) -> Result<(), String> {
    let log = Rc::new(Log::stderr());
    let web = config::read_web(path)?.logged(path, &log)?;
    may_use(&web.spool, Purpose::Change, "exirate-broker")?;
    let (runtime, signals) = start()?;
    let read = web.clone();
    let mut served = make(web)?;
    let access = Access::of_group(None, served.group);
    let bound = Bound::bind(&Address::Unix(served.socket.clone()), access)?;
    let reload = std::mem::replace(&mut served.reload, Box::new(|_| Vec::new()));
    let asked = Rc::new(Cell::new(0));
    let daemon =
        BrokerDaemon { path: path.to_owned(), read, served: Rc::new(served), reload, asked, log };
    LocalSet::new().block_on(&runtime, daemon.run(signals, bound))
}

struct BrokerDaemon {
    path: PathBuf,
    /// The configuration at the start.
    read: Web,
    served: Rc<Served>,
    reload: Reload,
    asked: Rc<Cell<u64>>,
    log: Rc<Log>,
}

impl BrokerDaemon {
    async fn run(mut self, mut signals: Signals, mut bound: Bound) -> Result<(), String> {
        let acceptor = bound.acceptor().map_err(cannot_start)?;
        let (stop, stopped) = watch::channel(false);
        let peers = Peers::new(CONNECTIONS_MAX, Rc::clone(&self.log));
        let (log, served) = (Rc::clone(&self.log), Rc::clone(&self.served));
        let (all, asked) = (Rc::clone(&peers), Rc::clone(&self.asked));
        let serving = spawn_local(async move {
            let begin = |stream: Stream, peer: Peer| {
                let (log, served, asked) = (Rc::clone(&log), Rc::clone(&served), Rc::clone(&asked));
                let uid = stream.peer().map(|(uid, _)| uid);
                if !uid.is_some_and(|uid| uid == 0 || Some(uid) == served.user) {
                    let uid = uid.map_or_else(|| "?".to_owned(), |uid| uid.to_string());
                    let text = format_args!("user {uid} may not ask");
                    log.write_seldom("users refused", Level::Warning, text);
                    return;
                }
                asked.set(asked.get() + 1);
                spawn_local(async move { serve(stream, peer, &served, &log).await });
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

impl Unit for BrokerDaemon {
    fn status(&self) -> String {
        format!("{} requests", self.asked.get())
    }

    fn state(&self) -> String {
        String::new()
    }

    fn reload(&mut self) {
        let read = config::read_web(&self.path);
        let Some(web) = read_again(read, &self.path, &self.log) else { return };
        let mut same = vec![
            ("broker", web.broker == self.read.broker),
            ("held", web.held == self.read.held),
            ("user", web.user == self.read.user),
        ];
        same.extend((self.reload)(web));
        need_restart(&same, &self.log);
        is_in_use(&self.path, &self.log);
    }
}

/// Serves one request.
async fn serve(mut stream: Stream, peer: Peer, served: &Served, log: &Log) {
    let line = {
        let waiting = peer.waits();
        tokio::select! {
            line = timeout(SLOW, line(&mut stream, served.line_max)) => line,
            () = waiting.closed() => return,
        }
    };
    let bytes = match line {
        Ok(Ok(line)) => {
            peer.asks();
            let answer = Arc::clone(&served.answer);
            match spawn_blocking(move || answer(&line)).await {
                Ok(Ok(reply)) => reply,
                Ok(Err(why)) => {
                    let text = format_args!("not a request: {why}");
                    log.write_seldom("requests refused", Level::Warning, text);
                    (served.malformed)(&why)
                }
                Err(_) => served.failed.clone(),
            }
        }
        // The peer is gone, or too slow.
        Ok(Err(_)) | Err(_) => return,
    };
    let written = async {
        stream.write_all(&bytes).await?;
        stream.shutdown().await
    };
    let _ = timeout(SLOW, written).await;
}

/// Reads a line, of which `most` bytes at most are kept.
async fn line(stream: &mut Stream, most: usize) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    loop {
        let mut part = [0; 512];
        let length = stream.read(&mut part).await?;
        let part = part.get(..length).unwrap_or_default();
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.extend_from_slice(part);
        if line.len() > most || part.contains(&b'\n') {
            return Ok(line);
        }
    }
}
