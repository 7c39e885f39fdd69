//! The connections of Postfix: a request is read, decided and replied to, then the next. Those
//! of Exim are the same, with one request each.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::reply::{DUNNO, action, reply};
use super::request::{PolicyRequest, Request, RequestFault, RequestParser};
use super::sessions::{Current, KnownMessage, OWN_MAX, Sessions};
use crate::event::AclStage;
use crate::policy::word::Verdict;
use crate::serve::config::Mail;
use crate::serve::listen::{Acceptor, Peer, Peers, Stream};
use crate::serve::log::{Level, Log};
use crate::serve::mail::decider::Decider;
use crate::serve::mail::event::REPLY_MAX;
use crate::serve::mail::exim::EximService;

/// How long a request may take from its first byte to its last, and a reply to be taken.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// How long a connection is looked at for requests that have arrived when the daemon stops.
const LAST_LOOK: Duration = Duration::from_millis(50);
/// What is read at a time.
const CHUNK: usize = 4 << 10;

/// What serves Postfix.
pub struct PolicyService {
    decider: Rc<Decider>,
    sessions: Sessions,
    exim: EximService,
    idle: Cell<Duration>,
    prepend: Cell<bool>,
    log: Rc<Log>,
}

/// Why a connection ends.
enum End {
    /// The peer has closed it, is silent, or is closed for another; or the daemon stops.
    Closed,
    /// A request has begun and does not end.
    Slow,
    /// The peer does not take its reply.
    NotTaken,
    /// What it sends cannot be read.
    Unreadable(RequestFault),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        // The peer was killed.
        Self::Closed
    }
}

impl PolicyService {
    /// One that asks `decider`.
    #[must_use]
    pub fn new(mail: &Mail, decider: Rc<Decider>, log: Rc<Log>) -> Rc<Self> {
        let (idle, prepend) = (Cell::new(mail.idle_timeout), Cell::new(mail.prepend));
        let exim = EximService::new(Rc::clone(&decider));
        Rc::new(Self { decider, sessions: Sessions::default(), exim, idle, prepend, log })
    }

    /// Uses another configuration from now on.
    pub fn set(&self, mail: &Mail) {
        self.idle.set(mail.idle_timeout);
        self.prepend.set(mail.prepend);
    }

    /// Serves those that connect, until `stop` is set: then every request that has arrived
    /// is still replied to.
    pub async fn serve(
        self: Rc<Self>,
        acceptor: Acceptor,
        peers: Rc<Peers>,
        stop: watch::Receiver<bool>,
    ) {
        let stopped = stop.clone();
        let begin = |stream, peer| {
            let connection = Connection {
                service: Rc::clone(&self),
                stream,
                peer,
                stop: stopped.clone(),
                parser: RequestParser::default(),
                unread: Vec::new(),
                current: RefCell::default(),
            };
            spawn_local(connection.serve());
        };
        peers.accept(acceptor, stop, begin).await;
    }

    /// Decides a request; the action. A delay is waited for, unless `stop` is set.
    async fn decide(
        &self,
        request: &PolicyRequest,
        current: &RefCell<Current>,
        stop: &mut watch::Receiver<bool>,
    ) -> Rc<str> {
        let Some(mut event) = request.event() else { return DUNNO.into() };
        let asked = Instant::now();
        let (stage, instance) = (event.stage, request.instance.as_str());
        let question = self.sessions.question(stage, event.event.recipient.as_deref());
        let (known, is_new) = {
            let mut current = current.borrow_mut();
            self.sessions.find(&mut current, instance, &request.client_address, stage)
        };
        let mut known = known.lock().await;
        if is_new {
            known.new_message();
        } else if let Some(action) = known.action(question) {
            return action;
        }
        let recipient = event.event.recipient.clone().filter(|_| stage == AclStage::Rcpt);
        if stage == AclStage::Data {
            event.hold.clone_from(&known.hold);
            if event.recipients.is_empty() {
                event.recipients = std::mem::take(&mut known.recipients);
                let listed = u32::try_from(event.recipients.len()).unwrap_or(u32::MAX);
                event.facts.recipients = event.facts.recipients.max(listed);
            }
        }
        let session = std::mem::take(&mut known.session);
        let (session, verdict) = self.decider.decide(session, event).await;
        known.session = session;
        let header = self.prepend.get() && !known.has_header;
        let action: Rc<str> = action(&verdict, stage, header).into();
        known.has_header |= action.starts_with("PREPEND");
        if verdict.outcome.verdict < Verdict::Defer {
            known.accept(recipient);
        }
        known.hold = known.hold.take().or_else(|| verdict.hold());
        if verdict.unavailable.is_none() {
            let dunno = verdict.outcome.verdict <= Verdict::Delay;
            let kept = if dunno { Rc::from(DUNNO) } else { Rc::clone(&action) };
            known.keep(question, &kept);
        }
        if instance.is_empty() && known.bytes() > OWN_MAX {
            *known = KnownMessage::default();
        }
        self.sessions.measure(instance, &known);
        drop(known);
        let wait = verdict.wait(asked.elapsed(), REPLY_MAX);
        if !wait.is_zero() {
            tokio::select! {
                () = sleep(wait) => {}
                _ = stop.wait_for(|&stop| stop) => {}
            }
        }
        action
    }
}

/// A connection.
struct Connection {
    service: Rc<PolicyService>,
    stream: Stream,
    peer: Peer,
    stop: watch::Receiver<bool>,
    parser: RequestParser,
    /// What has arrived after the latest request.
    unread: Vec<u8>,
    current: RefCell<Current>,
}

impl Connection {
    async fn serve(mut self) {
        let end = loop {
            let request = match self.next().await {
                Ok(Some(request)) => request,
                Ok(None) => break self.rest().await.err().unwrap_or(End::Closed),
                Err(end) => break end,
            };
            if let Err(end) = self.answer(&request).await {
                break end;
            }
        };
        // Each reason has a subject of its own, so that a frequent one hides no other.
        let (subject, why) = match end {
            End::Closed => return,
            End::Slow => {
                let seconds = REQUEST_TIME.as_secs();
                ("slow requests", format!("a request was not complete after {seconds}s"))
            }
            End::NotTaken => ("replies not taken", "a peer does not take its reply".to_owned()),
            End::Unreadable(fault) => {
                let why = format!("a request for a policy decision cannot be read: {fault}");
                ("unreadable requests", why)
            }
        };
        let text = format_args!("{why}: the connection is closed");
        self.service.log.write_seldom(subject, Level::Warning, text);
    }

    /// Decides a request, and writes the reply.
    async fn answer(&mut self, request: &Request) -> Result<(), End> {
        self.peer.asks();
        let reply = match request {
            Request::Postfix(request) => {
                reply(&self.service.decide(request, &self.current, &mut self.stop).await)
            }
            Request::Exim(request) => {
                let reply = self.service.exim.decide(request).await;
                reply.map_err(|fault| End::Unreadable(RequestFault::Exim(fault)))?
            }
        };
        // The peer reads that there is no decision.
        if reply.is_empty() {
            return Err(End::Closed);
        }
        let written = timeout(REQUEST_TIME, self.stream.write_all(&reply)).await;
        match written {
            Ok(written) => Ok(written?),
            Err(_) => Err(End::NotTaken),
        }
    }

    /// Waits for the next request; `None` if the daemon stops.
    async fn next(&mut self) -> Result<Option<Request>, End> {
        if let Some(request) = self.parse()? {
            return Ok(Some(request));
        }
        // Nothing is allocated for a connection that is silent.
        self.unread = Vec::new();
        let Self { service, stream, peer, stop, parser, unread, .. } = self;
        let waiting = peer.waits();
        let idle = service.idle.get();
        let mut end = Instant::now() + if parser.has_begun() { REQUEST_TIME } else { idle };
        loop {
            tokio::select! {
                biased;
                () = waiting.closed() => return Err(End::Closed),
                ready = timeout_at(end, stream.readable()) => match ready {
                    Ok(ready) => ready?,
                    Err(_) if parser.has_begun() => return Err(End::Slow),
                    Err(_) => return Err(End::Closed),
                },
                _ = stop.wait_for(|&stop| stop) => return Ok(None),
            }
            let had_begun = parser.has_begun();
            if let Some(request) = read(stream, parser, unread)? {
                return Ok(Some(request));
            }
            if !had_begun && parser.has_begun() {
                end = Instant::now() + REQUEST_TIME;
            }
        }
    }

    /// The next request of those bytes that have been read.
    fn parse(&mut self) -> Result<Option<Request>, End> {
        parse(&mut self.parser, &mut self.unread)
    }

    /// The daemon stops: replies to the requests that have arrived.
    async fn rest(&mut self) -> Result<(), End> {
        // Of a connection that is new, it is not yet known whether there is anything.
        let end = Instant::now() + LAST_LOOK;
        loop {
            let request = match self.parse()? {
                Some(request) => Some(request),
                None => match timeout_at(end, self.stream.readable()).await {
                    Ok(ready) => {
                        ready?;
                        read(&self.stream, &mut self.parser, &mut self.unread)?
                    }
                    Err(_) => return Ok(()),
                },
            };
            if let Some(request) = request {
                self.answer(&request).await?;
            }
        }
    }
}

/// Reads what is there.
fn read(
    stream: &Stream,
    parser: &mut RequestParser,
    unread: &mut Vec<u8>,
) -> Result<Option<Request>, End> {
    let mut chunk = [0; CHUNK];
    match stream.try_read(&mut chunk) {
        Ok(0) => Err(End::Closed),
        Ok(bytes) => {
            unread.extend_from_slice(chunk.get(..bytes).unwrap_or_default());
            parse(parser, unread)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The next request of `unread`, which is then what follows it.
fn parse(parser: &mut RequestParser, unread: &mut Vec<u8>) -> Result<Option<Request>, End> {
    let mut rest = &unread[..];
    let request = parser.take(&mut rest).map_err(End::Unreadable)?;
    let taken = unread.len() - rest.len();
    unread.drain(..taken);
    Ok(request)
}
