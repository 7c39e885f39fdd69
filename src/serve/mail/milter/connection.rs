//! The connection of a mail server: bytes are read as they come, events decided, and replies
//! written.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep_until, timeout};

use super::dialogue::{Accepted, Dialogue, DialogueFault, Limits, Step};
use super::negotiate::Wants;
use super::packet::{Packets, Piece};
use super::reply::Reply;
use super::room::Room;
use crate::event::AclStage;
use crate::policy::evaluator::PolicySession;
use crate::serve::count::Count;
use crate::serve::listen::Peer;
use crate::serve::log::{Level, Log};
use crate::serve::mail::decider::RECORD_MAX;
use crate::serve::mail::event::{MailEvent, MailVerdict, REPLY_MAX};
use crate::sys::clock;
use crate::trace::Envelope;

/// What is read at a time.
const CHUNK: usize = 16 << 10;
/// What a connection may hold of a packet without room of all connections.
const HELD_FREE: usize = 4 << 10;
/// What the session of a connection may remember without that room.
const SESSION_FREE: usize = 16 << 10;
/// How long a mail server may be silent that has begun: an SMTP client may be silent for so
/// long. It is the time of Sendmail's library for milters.
const SESSION_IDLE: Duration = Duration::from_secs(7210);
/// How long the rest of a packet may take, or the mail server to read a reply.
const PACKET_TIMEOUT: Duration = Duration::from_mins(1);
/// The longest that a decision and its delay take at the end of a message.
const END_REPLY_MAX: Duration = Duration::from_mins(1);
/// How often the mail server then gets a message that the reply comes later.
const PROGRESS: Duration = Duration::from_secs(5);
/// How long the messages that have begun may take to end when the daemon stops.
const STOP_MAX: Duration = Duration::from_secs(4);

/// What decides events and records messages.
pub trait Decide: 'static {
    /// Decides an event; the session goes to a worker and comes back.
    fn decide(
        &self,
        session: PolicySession,
        event: MailEvent,
    ) -> impl Future<Output = (PolicySession, MailVerdict)>;

    /// Records an accepted message. It never fails for the caller.
    fn record(&self, envelope: Envelope, message: Vec<u8>) -> impl Future<Output = ()>;
}

/// What the configuration says of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The most that is kept of a message to be recorded.
    pub max_message: usize,
    /// The most that is kept of all of them.
    pub max_buffered: usize,
    /// How long a mail server may be silent before it begins.
    pub idle_timeout: Duration,
}

/// What all connections share.
pub struct Shared<D> {
    decider: Rc<D>,
    log: Rc<Log>,
    settings: Cell<Settings>,
    packet_timeout: Cell<Duration>,
    room: Room,
    recording: Count,
    /// What was read of the connection that is being looked at.
    chunk: RefCell<Vec<u8>>,
}

impl<D: Decide> Shared<D> {
    /// For connections that begin from now on.
    pub fn new(decider: Rc<D>, settings: Settings, log: Rc<Log>) -> Self {
        Self {
            decider,
            log,
            settings: Cell::new(settings),
            packet_timeout: Cell::new(PACKET_TIMEOUT),
            room: Room::new(settings.max_buffered),
            recording: Count::default(),
            chunk: RefCell::new(vec![0; CHUNK]),
        }
    }

    /// Other settings.
    pub fn set(&self, settings: Settings) {
        self.settings.set(settings);
        self.room.set(settings.max_buffered);
    }

    /// Waits until all accepted messages are recorded.
    pub async fn recorded(&self) {
        while self.recording.get() > 0 {
            self.recording.less().await;
        }
    }

    /// Records an accepted message, when there is time.
    fn record(self: &Rc<Self>, accepted: Accepted) {
        let waiting = self.recording.get();
        if waiting >= RECORD_MAX {
            let text = format_args!("not recorded: {waiting} messages wait to be recorded");
            return self.log.write_seldom("messages not recorded", Level::Warning, text);
        }
        let counted = self.recording.add(1);
        let shared = Rc::clone(self);
        let envelope = Envelope { time: clock::now().0, ..accepted.envelope };
        spawn_local(async move {
            let (bytes, share) = accepted.content.parts();
            shared.decider.record(envelope, bytes).await;
            drop((share, counted));
        });
    }
}

/// Why a connection ends.
#[derive(Debug)]
enum End {
    /// The mail server has closed it, or the daemon stops.
    Closed,
    /// The mail server is too slow.
    Slow,
    /// What it sends cannot be read.
    Fault(DialogueFault),
    /// A large packet, and there is no room for it.
    NoRoom,
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self::Closed
    }
}

impl From<DialogueFault> for End {
    fn from(fault: DialogueFault) -> Self {
        Self::Fault(fault)
    }
}

/// Serves one connection, until it ends or `stop` is set: then messages that have begun may
/// still end.
pub async fn serve<D: Decide, S: AsyncRead + AsyncWrite + Unpin>(
    shared: Rc<Shared<D>>,
    wants: Wants,
    stream: S,
    stop: watch::Receiver<bool>,
    peer: Peer,
) {
    let settings = shared.settings.get();
    let limits = Limits { max_message: settings.max_message, room: shared.room.clone() };
    let log = Rc::clone(&shared.log);
    let connection = Connection {
        dialogue: Dialogue::new(wants, limits),
        idle_timeout: settings.idle_timeout,
        shared,
        stream,
        output: Vec::new(),
        stop,
        stop_end: None,
        peer,
    };
    // Each reason has a subject of its own, so that a frequent one hides no other.
    let (subject, why) = match connection.run().await {
        End::Closed => return,
        End::Slow => (
            "slow milter connections",
            "a mail server was too slow or silent for too long".to_owned(),
        ),
        End::Fault(fault) => (
            "unreadable milter packets",
            format!("a mail server sent what cannot be read: {fault}"),
        ),
        End::NoRoom => (
            "milter packets without room",
            "max_buffered leaves no room for a large packet".to_owned(),
        ),
    };
    let text = format_args!("milter: {why}: the connection is closed");
    log.write_seldom(subject, Level::Warning, text);
}

struct Connection<D: Decide, S> {
    shared: Rc<Shared<D>>,
    stream: S,
    dialogue: Dialogue,
    idle_timeout: Duration,
    /// Replies to be written.
    output: Vec<u8>,
    stop: watch::Receiver<bool>,
    /// When a message must have ended that had begun when the stop of the daemon began.
    stop_end: Option<Instant>,
    peer: Peer,
}

impl<D: Decide, S: AsyncRead + AsyncWrite + Unpin> Connection<D, S> {
    async fn run(mut self) -> End {
        let Err(end) = self.serve().await;
        end
    }

    async fn serve(&mut self) -> Result<std::convert::Infallible, End> {
        let mut packets = Packets::default();
        let mut session = PolicySession::default();
        let mut session_share = self.shared.room.share();
        let mut input = Vec::new();
        let mut share = self.shared.room.share();
        // When the rest of a packet must have come.
        let mut packet_end = None;
        loop {
            let mut rest = input.as_slice();
            while let Some(piece) = packets.next(&mut rest).map_err(DialogueFault::Packet)? {
                let ends = !matches!(piece, Piece::Part { last: false, .. });
                match self.dialogue.take(piece)? {
                    Step::Nothing => {}
                    Step::Reply(reply) => {
                        self.peer.asks();
                        reply.write(&mut self.output);
                    }
                    Step::Quit => return Err(End::Closed),
                    Step::Decide(event) => {
                        session = self.decide(session, *event).await?;
                        let bytes = session.bytes(|outcome| outcome.text.len());
                        if !session_share.resize(if bytes > SESSION_FREE { bytes } else { 0 }) {
                            // At worst, the connection counts again.
                            session = PolicySession::default();
                            session_share.resize(0);
                        }
                    }
                }
                if ends {
                    packet_end = None;
                }
            }
            let held = packets.held();
            if !share.resize(if held > HELD_FREE { held } else { 0 }) {
                return Err(End::NoRoom);
            }
            self.flush().await?;
            let end = match packet_end {
                _ if packets.is_within() => {
                    *packet_end.get_or_insert(Instant::now() + self.shared.packet_timeout.get())
                }
                _ if self.dialogue.has_agreed() => {
                    Instant::now() + self.idle_timeout.max(SESSION_IDLE)
                }
                _ => Instant::now() + self.idle_timeout,
            };
            // Nothing is held for a connection that is silent.
            input = Vec::new();
            self.read(&mut input, end).await?;
        }
    }

    /// Decides an event, and adds the reply to those to be written.
    async fn decide(
        &mut self,
        mut session: PolicySession,
        event: MailEvent,
    ) -> Result<PolicySession, End> {
        let begun = self.dialogue.begun();
        if begun.connection {
            session = PolicySession::default();
        } else if begun.message {
            session.new_message();
        }
        let at_end = matches!(event.stage, AclStage::Data | AclStage::NotSmtp);
        let asked = Instant::now();
        let (session, verdict) = self.shared.decider.decide(session, event).await;
        let most = if at_end { END_REPLY_MAX } else { REPLY_MAX };
        self.delay(verdict.wait(asked.elapsed(), most), at_end).await?;
        let (reply, accepted) = self.dialogue.decided(&verdict);
        reply.write(&mut self.output);
        if let Some(accepted) = accepted {
            // The mail server waits for no more than the verdict.
            self.flush().await?;
            self.shared.record(accepted);
        }
        Ok(session)
    }

    /// Waits so long, unless the daemon stops.
    async fn delay(&mut self, delay: Duration, at_end: bool) -> Result<(), End> {
        if delay.is_zero() {
            return Ok(());
        }
        let end = Instant::now() + delay;
        loop {
            let next = end.min(Instant::now() + PROGRESS);
            tokio::select! {
                () = sleep_until(next) => {}
                _ = self.stop.wait_for(|&stop| stop) => return Ok(()),
            }
            if next == end {
                return Ok(());
            }
            if at_end {
                Reply::Progress.write(&mut self.output);
                self.flush().await?;
            }
        }
    }

    async fn flush(&mut self) -> Result<(), End> {
        if self.output.is_empty() {
            return Ok(());
        }
        let output = std::mem::take(&mut self.output);
        let written = async {
            self.stream.write_all(&output).await?;
            self.stream.flush().await
        };
        timeout(self.shared.packet_timeout.get(), written)
            .await
            .map_err(|_| End::Slow)?
            .map_err(End::from)
    }

    /// Waits for bytes until `end`.
    async fn read(&mut self, input: &mut Vec<u8>, end: Instant) -> Result<(), End> {
        let Self { shared, stream, stop, stop_end, dialogue, peer, .. } = self;
        let read = poll_fn(|context| {
            let mut chunk = shared.chunk.borrow_mut();
            let mut buffer = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer))?;
            input.extend_from_slice(buffer.filled());
            Poll::Ready(io::Result::Ok(buffer.filled().len()))
        });
        if stop_end.is_some_and(|end| end <= Instant::now()) {
            return Err(End::Closed);
        }
        let has_message = dialogue.has_message();
        if has_message && *stop.borrow() {
            stop_end.get_or_insert(Instant::now() + STOP_MAX);
        }
        let stopped = async {
            // Without its other end, the daemon is gone.
            let _ = stop.wait_for(|&stop| stop).await;
            if has_message {
                sleep_until(*stop_end.get_or_insert(Instant::now() + STOP_MAX)).await;
            }
        };
        let waits = peer.waits();
        let bytes = tokio::select! {
            // What has arrived is looked at first.
            biased;
            bytes = read => bytes?,
            () = stopped => return Err(End::Closed),
            // It was silent for longest, and another wants to connect.
            () = waits.closed() => return Err(End::Closed),
            () = sleep_until(end) => return Err(End::Slow),
        };
        if bytes == 0 { Err(End::Closed) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
