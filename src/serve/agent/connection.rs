//! The connection of one process that asks: its requests are read as they come, decided at
//! the same time, and replied to in the order in which they are decided.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout, timeout_at};

use super::decide::{Agent, Timeouts};
use super::link::Backend;
use crate::cluster::wire::{ReplyStatus, event_of, message_bytes, write_refusal};
use crate::serve::count::CountGuard;
use crate::serve::log::Level;

/// How many requests of one connection may be undecided or not yet replied to. More stay
/// unread in the socket.
const PIPELINE_MAX: usize = 64;
/// What is read at a time.
const CHUNK: usize = 4 << 10;
/// How long a connection is looked at for requests that have arrived when the daemon stops.
const LAST_LOOK: Duration = Duration::from_millis(20);
/// A message of this size needs room among those of all connections.
const LARGE: usize = 16 << 10;

/// A reply, which takes one of [`PIPELINE_MAX`] places until it is written.
struct Ready {
    bytes: Vec<u8>,
    _place: OwnedSemaphorePermit,
    /// Nothing that follows in the connection can be read.
    last: bool,
}

/// Why a large request is refused.
const NO_ROOM: &str = "too many large requests";

/// Why reading ends.
enum ReadEnd {
    /// The peer has closed the connection, or the daemon stops.
    Closed,
    /// A request has begun and does not end.
    Slow,
    /// Too many large requests are there for one more.
    NoRoom,
}

impl From<io::Error> for ReadEnd {
    fn from(_: io::Error) -> Self {
        // The peer was killed.
        Self::Closed
    }
}

pub(super) async fn serve<B: Backend>(
    agent: Rc<Agent<B>>,
    stream: UnixStream,
    stop: watch::Receiver<bool>,
    _counted: CountGuard,
) {
    let (reader, writer) = stream.into_split();
    let (ready, replies) = mpsc::unbounded_channel();
    let log = Rc::clone(&agent.log);
    let timeouts = agent.timeouts;
    let input = Input {
        agent,
        reader,
        ready,
        places: Arc::new(Semaphore::new(PIPELINE_MAX)),
        buffer: Vec::new(),
        room: None,
    };
    let mut writing = spawn_local(write(writer, replies, timeouts));
    let end = tokio::select! {
        end = input.read(stop) => Some(end),
        // The peer takes no replies, or its messages cannot be told apart.
        _ = &mut writing => None,
    };
    // Each reason has a subject of its own, so that a frequent one hides no other.
    let closed = |subject, why: &str| {
        let text = format_args!("{why}: the connection is closed");
        log.write_seldom(subject, Level::Warning, text);
    };
    match end {
        Some(ReadEnd::Slow) => {
            let seconds = timeouts.message.as_secs_f64();
            closed("slow requests", &format!("a request was not complete after {seconds}s"));
        }
        Some(ReadEnd::NoRoom) => closed("large requests refused", NO_ROOM),
        Some(ReadEnd::Closed) | None => {}
    }
    // What is still being decided is replied to.
    if !writing.is_finished() {
        let _ = writing.await;
    }
}

/// The side of a connection that is read.
struct Input<B: Backend> {
    agent: Rc<Agent<B>>,
    reader: OwnedReadHalf,
    ready: mpsc::UnboundedSender<Ready>,
    places: Arc<Semaphore>,
    /// What has arrived of the next messages.
    buffer: Vec<u8>,
    /// For a large message.
    room: Option<CountGuard>,
}

impl<B: Backend> Input<B> {
    /// Reads requests until the connection ends.
    async fn read(mut self, mut stop: watch::Receiver<bool>) -> ReadEnd {
        let timeouts = self.agent.timeouts;
        loop {
            let more = tokio::select! {
                more = self.more(timeouts) => more,
                _ = stop.wait_for(|&stop| stop) => {
                    return self.rest().await.err().unwrap_or(ReadEnd::Closed);
                }
            };
            if let Err(end) = more {
                return end;
            }
            if let Err(end) = self.take().await {
                return end;
            }
        }
    }

    /// Waits for more bytes.
    async fn more(&mut self, timeouts: Timeouts) -> Result<(), ReadEnd> {
        if self.buffer.is_empty() {
            // Nothing is allocated for a connection that is silent.
            self.buffer = Vec::new();
            self.room = None;
            match timeout(timeouts.idle, self.reader.readable()).await {
                Ok(ready) => ready?,
                Err(_) => return Err(ReadEnd::Closed),
            }
            self.buffer.reserve(CHUNK);
            return match self.reader.try_read_buf(&mut self.buffer) {
                Ok(0) => Err(ReadEnd::Closed),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error.into()),
                Ok(_) | Err(_) => Ok(()),
            };
        }
        // A message has begun, and must end.
        let whole = async {
            loop {
                let size = message_bytes(&self.buffer).ok().flatten().unwrap_or(CHUNK);
                self.buffer.reserve(size.saturating_sub(self.buffer.len()).max(1));
                if self.reader.read_buf(&mut self.buffer).await? == 0 {
                    return Err(ReadEnd::Closed);
                }
                match message_bytes(&self.buffer) {
                    Ok(Some(size)) if self.buffer.len() < size => {}
                    Ok(None) => {}
                    _ => return Ok(()),
                }
            }
        };
        timeout(timeouts.message, whole).await.unwrap_or(Err(ReadEnd::Slow))
    }

    /// The daemon stops: takes the requests that have arrived.
    async fn rest(&mut self) -> Result<(), ReadEnd> {
        // Of a connection that is new, it is not yet known whether there is anything.
        let end = Instant::now() + LAST_LOOK;
        while let Ok(Ok(())) = timeout_at(end, self.reader.readable()).await {
            self.buffer.reserve(CHUNK);
            match self.reader.try_read_buf(&mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => break,
                Ok(_) => self.take().await?,
            }
        }
        Ok(())
    }

    /// Begins to decide each whole message in the buffer.
    async fn take(&mut self) -> Result<(), ReadEnd> {
        loop {
            let size = match message_bytes(&self.buffer) {
                Ok(Some(size)) => size,
                Ok(None) => return Ok(()),
                Err(fault) => {
                    let message = std::mem::take(&mut self.buffer);
                    let mut bytes = Vec::new();
                    self.agent.refuse_bad(&message, fault, &mut bytes);
                    self.reply(bytes, true).await;
                    return Err(ReadEnd::Closed);
                }
            };
            if size > LARGE && self.room.is_none() {
                self.room = self.agent.room(size);
                if self.room.is_none() {
                    let mut bytes = Vec::new();
                    write_refusal(&mut bytes, event_of(&self.buffer), ReplyStatus::Busy, NO_ROOM);
                    self.reply(bytes, true).await;
                    return Err(ReadEnd::NoRoom);
                }
            }
            if self.buffer.len() < size {
                return Ok(());
            }
            let after = self.buffer.split_off(size);
            let message = std::mem::replace(&mut self.buffer, after);
            self.begin(message).await;
        }
    }

    /// Begins to decide a message.
    async fn begin(&mut self, message: Vec<u8>) {
        let Some(in_flight) = self.agent.place() else {
            let mut bytes = Vec::new();
            let why = "too many requests at the same time";
            write_refusal(&mut bytes, event_of(&message), ReplyStatus::Busy, why);
            return self.reply(bytes, false).await;
        };
        let Ok(place) = Arc::clone(&self.places).acquire_owned().await else { return };
        let (agent, ready, room) = (Rc::clone(&self.agent), self.ready.clone(), self.room.take());
        spawn_local(async move {
            let mut bytes = Vec::new();
            let readable = agent.decide(&message, &mut bytes).await;
            drop((in_flight, room, message));
            // Without the writer, the peer is gone.
            let _ = ready.send(Ready { bytes, _place: place, last: !readable });
        });
    }

    /// Replies at once.
    async fn reply(&mut self, bytes: Vec<u8>, last: bool) {
        let Ok(place) = Arc::clone(&self.places).acquire_owned().await else { return };
        let _ = self.ready.send(Ready { bytes, _place: place, last });
    }
}

/// Writes replies until there will be no more, the peer takes none, or the one that was the
/// last is written.
async fn write(
    mut writer: OwnedWriteHalf,
    mut replies: mpsc::UnboundedReceiver<Ready>,
    timeouts: Timeouts,
) {
    let mut bytes = Vec::new();
    let mut places = Vec::new();
    while let Some(ready) = replies.recv().await {
        let mut next = Some(ready);
        let mut last = false;
        while let Some(ready) = next {
            bytes.extend_from_slice(&ready.bytes);
            last = ready.last;
            places.push(ready._place);
            next = if last { None } else { replies.try_recv().ok() };
        }
        let written = timeout(timeouts.message, writer.write_all(&bytes)).await;
        if last || !matches!(written, Ok(Ok(()))) {
            return;
        }
        bytes.clear();
        places.clear();
    }
}
