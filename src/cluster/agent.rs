//! A process's connection to the agent.

use std::fmt;
use std::io::{self, ErrorKind};
use std::time::Instant;

use rand::TryRng as _;
use rand::rngs::SysRng;

use super::settings::ClusterSettings;
use super::wire::{self, Reply, ReplyStatus, WireFault};
use crate::engine::{Check, Decision};
use crate::sys::fork;
use crate::sys::unix_stream::UnixStream;

/// How much is read at once: more than the reply to most requests.
const READ_BYTES: usize = 1024;

/// Why the agent has decided nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    /// It cannot be connected to.
    #[error("cannot connect to it: {0}")]
    Connect(io::Error),
    /// A process of another user listens on its socket.
    #[error("a process of user {found} listens there, not the agent's user")]
    User {
        /// That user.
        found: u32,
    },
    /// The connection is broken.
    #[error("the connection broke: {0}")]
    Broken(io::Error),
    /// There was no reply in time.
    #[error("no reply in time")]
    NoReply,
    /// The checks do not fit into a request, or the reply cannot be read.
    #[error("{0}")]
    Message(WireFault),
    /// It has refused the request.
    #[error(fmt = refused)]
    Refused(ReplyStatus, String),
    /// There is no random number for the event.
    #[error("no random number: {0}")]
    Random(rand::rngs::SysError),
}

impl AskError {
    fn of(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::TimedOut => Self::NoReply,
            _ => Self::Broken(error),
        }
    }

    /// Whether other keys may be decided: everybody goes on asking.
    pub(super) fn is_of_keys(&self) -> bool {
        matches!(self, Self::Refused(ReplyStatus::KeysAway, _))
    }

    /// Whether the agent may have ended, and another one listens already.
    fn is_closed(&self) -> bool {
        let Self::Broken(error) = self else { return false };
        matches!(
            error.kind(),
            ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
        )
    }
}

/// That it has refused the request, and why.
fn refused(status: &ReplyStatus, reason: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let status = match status {
        ReplyStatus::Decided => "it has decided",
        ReplyStatus::Unavailable => "the shared store cannot be used",
        ReplyStatus::Busy => "it is busy",
        ReplyStatus::NotAllowed => "this process may not ask it",
        ReplyStatus::BadRequest => "it cannot read the request",
        ReplyStatus::OtherVersion => "it is of another release",
        ReplyStatus::KeysAway => "a part of the shared store cannot be used",
    };
    f.write_str(status)?;
    if reason.is_empty() { Ok(()) } else { write!(f, ": {reason}") }
}

/// The connection, which is made when it is needed.
#[derive(Debug, Default)]
pub(super) struct AgentConnection {
    stream: Option<UnixStream>,
    /// The process that has made it: a child must not use its parent's.
    process: u32,
    /// The number of the latest event: random in its upper half.
    event: u128,
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl AgentConnection {
    /// Asks the agent to decide these checks until `deadline`.
    pub(super) fn ask(
        &mut self,
        settings: &ClusterSettings,
        checks: &[Check<'_>],
        deadline: Instant,
    ) -> Result<Vec<Decision>, AskError> {
        if self.process != fork::process() {
            self.stream = None;
            self.process = fork::process();
            let random = SysRng.try_next_u64().map_err(AskError::Random)?;
            self.event = u128::from(random) << 64;
        }
        self.event = self.event.wrapping_add(1);
        let left = deadline.saturating_duration_since(Instant::now()).as_micros();
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        self.request.clear();
        wire::write_request(&mut self.request, self.event, left, checks)
            .map_err(AskError::Message)?;
        let was_open = self.stream.is_some();
        let mut asked = self.once(settings, checks, deadline);
        if was_open && asked.as_ref().is_err_and(AskError::is_closed) {
            // The event has a number, so that it is not counted twice.
            asked = self.once(settings, checks, deadline);
        }
        asked
    }

    /// Sends the request and reads the reply. After an error the connection is closed: a
    /// late reply must not be taken for that to another request.
    fn once(
        &mut self,
        settings: &ClusterSettings,
        checks: &[Check<'_>],
        deadline: Instant,
    ) -> Result<Vec<Decision>, AskError> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => connect(settings, deadline)?,
        };
        stream.write_all(&self.request, deadline).map_err(AskError::of)?;
        self.reply.clear();
        let bytes = loop {
            match wire::message_bytes(&self.reply).map_err(AskError::Message)? {
                Some(bytes) if self.reply.len() >= bytes => break bytes,
                _ => {}
            }
            if stream.read(&mut self.reply, READ_BYTES, deadline).map_err(AskError::of)? == 0 {
                return Err(AskError::Broken(ErrorKind::UnexpectedEof.into()));
            }
        };
        if self.reply.len() > bytes {
            return Err(AskError::Message(WireFault::OtherEvent));
        }
        match wire::read_reply(&self.reply, self.event, checks).map_err(AskError::Message)? {
            Reply::Decided(decisions) => {
                self.stream = Some(stream);
                Ok(decisions)
            }
            Reply::Refused(status, reason) => {
                self.stream = Some(stream);
                Err(AskError::Refused(status, String::from_utf8_lossy(reason).into_owned()))
            }
        }
    }
}

fn connect(settings: &ClusterSettings, deadline: Instant) -> Result<UnixStream, AskError> {
    let stream = UnixStream::connect(&settings.socket, deadline).map_err(AskError::Connect)?;
    match stream.peer_user().map_err(AskError::Connect)? {
        user if user == settings.agent_user || user == 0 => Ok(stream),
        found => Err(AskError::User { found }),
    }
}
