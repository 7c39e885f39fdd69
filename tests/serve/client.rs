//! A process that asks the agent.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use exirate::cluster::wire::{
    Reply, ReplyStatus, event_of, message_bytes, read_reply, write_request,
};
use exirate::engine::{Algorithm, Check, Decision, RecordKey, Update};

/// How long a request may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// The check that all tests ask, of this key: its level is the number of events, as hardly
/// anything leaks out of the bucket.
pub(crate) fn check(key: &str) -> Check<'_> {
    let algorithm = Algorithm::Bucket { burst: 1e5, rate: 1e-3 };
    let key = RecordKey { algorithm: algorithm.kind(), ..key.into() };
    let (count, update) = (1.0, Update::Strict);
    Check { count, update, ..Check::new(key, algorithm) }
}

pub(crate) fn request(event: u128, key: &str) -> Vec<u8> {
    let mut message = Vec::new();
    write_request(&mut message, event, DEADLINE.as_micros() as u32, &[check(key)]).unwrap();
    message
}

/// Why a request is not decided.
#[derive(Debug)]
pub(crate) enum NotDecided {
    Refused(ReplyStatus, String),
    /// The connection has ended.
    Closed,
}

impl From<io::Error> for NotDecided {
    fn from(error: io::Error) -> Self {
        let kind = error.kind();
        let timeout = matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        assert!(!timeout, "no reply and no end of the connection");
        Self::Closed
    }
}

pub(crate) struct Client {
    pub(crate) stream: UnixStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(crate::process::TIMEOUT))?;
        stream.set_write_timeout(Some(crate::process::TIMEOUT))?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    /// The bytes of the next reply.
    pub(crate) fn reply(&mut self) -> Result<Vec<u8>, NotDecided> {
        loop {
            match message_bytes(&self.buffer).unwrap() {
                Some(size) if self.buffer.len() >= size => {
                    let after = self.buffer.split_off(size);
                    return Ok(std::mem::replace(&mut self.buffer, after));
                }
                _ => {}
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk)? {
                0 => return Err(NotDecided::Closed),
                bytes => self.buffer.extend_from_slice(&chunk[..bytes]),
            }
        }
    }

    /// The next reply, which is to a request of one check.
    pub(crate) fn decision(&mut self) -> Result<(u128, Decision), NotDecided> {
        let reply = self.reply()?;
        let event = event_of(&reply);
        match read_reply(&reply, event, &[check("x")]).unwrap() {
            Reply::Decided(decisions) => Ok((event, decisions[0])),
            Reply::Refused(status, why) => {
                Err(NotDecided::Refused(status, String::from_utf8_lossy(why).into_owned()))
            }
        }
    }

    /// Counts an event, and returns how many have been counted.
    pub(crate) fn ask(&mut self, key: &str) -> Result<u64, NotDecided> {
        self.ask_as(fresh(), key)
    }

    /// As [`Client::ask`], for the event with this number.
    pub(crate) fn ask_as(&mut self, event: u128, key: &str) -> Result<u64, NotDecided> {
        self.stream.write_all(&request(event, key))?;
        let (replied, decision) = self.decision()?;
        assert_eq!(replied, event);
        Ok(decision.rate.round() as u64)
    }
}

/// A number for an event.
pub(crate) fn fresh() -> u128 {
    use std::hash::{BuildHasher as _, RandomState};
    let half = || u128::from(RandomState::new().hash_one(0));
    half() << 64 | half()
}
