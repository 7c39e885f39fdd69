//! The crossings of all servers, in one stream: `exirate events deliver` appends those of each
//! server's journal, and `exirate events` reads it.

use redis::{Cmd, Value, cmd};

use super::error::RedisError;
use super::settings::Settings;
use super::tool::Tool;

/// The key of the stream.
const STREAM: &str = "exirate:events";
/// About so many events are kept, the latest ones.
const EVENTS_MAX: u32 = 100_000;
/// How many are read at once.
const EVENTS_AT_ONCE: usize = 1000;

/// The stream, and what servers publish beside it.
pub struct SharedEvents(Tool);

/// An event in the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedEvent {
    /// Its place in the stream.
    pub place: String,
    /// The server on which it has happened.
    pub server: String,
    /// What it is called: the same however often it was appended.
    pub id: String,
    /// The event, as the server encodes it.
    pub bytes: Vec<u8>,
}

impl std::fmt::Debug for SharedEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedEvents").finish_non_exhaustive()
    }
}

impl SharedEvents {
    /// Connects.
    ///
    /// # Errors
    /// The servers cannot be reached.
    pub fn connect(settings: &Settings) -> Result<Self, RedisError> {
        Ok(Self(Tool::open(settings)?))
    }

    pub(super) fn send(&self, command: &Cmd) -> Result<(), RedisError> {
        self.0.send(command).map(drop)
    }

    /// Appends an event of a server.
    ///
    /// # Errors
    /// It may have been appended nevertheless.
    pub fn append(&self, server: &str, id: &str, bytes: &[u8]) -> Result<(), RedisError> {
        let mut add = cmd("XADD");
        add.arg(STREAM).arg("MAXLEN").arg("~").arg(EVENTS_MAX).arg("*");
        add.arg("server").arg(server).arg("id").arg(id).arg("event").arg(bytes);
        self.0.send(&add)?;
        Ok(())
    }

    /// The events behind this place, in order; all of them without one.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn read(&self, after: Option<&str>) -> Result<Vec<SharedEvent>, RedisError> {
        let mut events: Vec<SharedEvent> = Vec::new();
        let mut after = after.map(str::to_owned);
        loop {
            let start = after.as_ref().map_or_else(|| "-".to_owned(), |place| format!("({place}"));
            let mut range = cmd("XRANGE");
            range.arg(STREAM).arg(start).arg("+").arg("COUNT").arg(EVENTS_AT_ONCE);
            let Value::Array(entries) = self.0.send(&range)? else { return Err(RedisError::Reply) };
            let is_last = entries.len() < EVENTS_AT_ONCE;
            for entry in &entries {
                let (place, event) = read(entry).ok_or(RedisError::Reply)?;
                after = Some(place);
                events.extend(event);
            }
            if is_last {
                return Ok(events);
            }
        }
    }

    /// Removes events.
    ///
    /// # Errors
    /// Some may remain.
    pub fn remove(&self, events: &[SharedEvent]) -> Result<(), RedisError> {
        for some in events.chunks(EVENTS_AT_ONCE) {
            let mut delete = cmd("XDEL");
            delete.arg(STREAM);
            some.iter().for_each(|event| {
                delete.arg(&event.place);
            });
            self.0.send(&delete)?;
        }
        Ok(())
    }
}

/// An entry of a stream: its place, and the event, if it is one.
fn read(entry: &Value) -> Option<(String, Option<SharedEvent>)> {
    let Value::Array(parts) = entry else { return None };
    let [Value::BulkString(place), Value::Array(fields)] = &parts[..] else { return None };
    let place = String::from_utf8(place.clone()).ok()?;
    let (mut server, mut id, mut bytes) = (None, None, None);
    for pair in fields.chunks(2) {
        let [Value::BulkString(name), Value::BulkString(value)] = pair else { continue };
        let text = || String::from_utf8(value.clone()).ok();
        match &name[..] {
            b"server" => server = text(),
            b"id" => id = text(),
            b"event" => bytes = Some(value.clone()),
            _ => {}
        }
    }
    let event =
        || Some(SharedEvent { place: place.clone(), server: server?, id: id?, bytes: bytes? });
    let event = event();
    Some((place, event))
}
