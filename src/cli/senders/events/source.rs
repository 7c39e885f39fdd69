//! Where events are read from: the logs of this server, or the stream of all servers.

use std::collections::HashSet;

use crate::cli::Failure;
use crate::cli::shared::rates::Rates;
use crate::cli::shared::screen::note;
use crate::redis::SharedEvents;
use crate::serve::servers;
use crate::spool::{EventKind, EventReader, LoggedEvent, Spool};
use crate::text::counted;
use crate::text::time::now;

/// An event, and the server on which it has happened; empty where that is this one.
pub(in crate::cli) type Event = (LoggedEvent, String);

/// Where events are read from.
pub(in crate::cli) enum EventSource {
    /// The log of this server.
    Own(Box<Spool>, EventReader),
    /// The crossings of all servers.
    Shared {
        stream: Box<SharedEvents>,
        /// What messages call the servers of the stream.
        name: String,
        /// What this server is called in the stream.
        own: String,
        /// How far it has been read.
        place: Option<String>,
        /// The events that were read, by server and id: one may be in the stream twice.
        known: HashSet<(String, String)>,
    },
}

impl EventSource {
    /// Opens the log of these events; that of crossings is the stream, where this server shares
    /// its limits.
    pub(in crate::cli) fn open(rates: &Rates, kind: EventKind) -> Result<Self, Failure> {
        let shared = if kind == EventKind::Crossings { rates.shared()? } else { None };
        let Some(settings) = shared else { return Ok(Self::own(rates.spool()?, kind)) };
        let said = |why| Failure::new(format!("{why}; --local shows the crossings of this server"));
        let config = servers::configuration(&settings.config).map_err(said)?;
        let name = config.redis.to_string();
        let stream = SharedEvents::connect(&config.redis).map_err(|error| {
            Failure::new(format!(
                "the crossings of all servers at {name} cannot be read: {error}; --local shows \
                 those of this server"
            ))
        })?;
        let own = config.agent.server_name;
        Ok(Self::Shared { stream: Box::new(stream), name, own, place: None, known: HashSet::new() })
    }

    /// The log of these events of this server.
    pub(in crate::cli) fn own(spool: Spool, kind: EventKind) -> Self {
        Self::Own(Box::new(spool), EventReader::new(kind))
    }

    /// What this server is called in the stream of all servers, if that is read.
    pub(in crate::cli) fn own_server(&self) -> Option<&str> {
        match self {
            Self::Own(..) => None,
            Self::Shared { own, .. } => Some(own),
        }
    }

    /// The events since the last call, of the log also those that may still get details if
    /// `all`. Notes what had to be left out.
    pub(in crate::cli) fn next(&mut self, all: bool) -> Result<Vec<Event>, Failure> {
        match self {
            Self::Own(spool, reader) => {
                let before = reader.damaged();
                let events = spool.read_events(reader, now(), all)?;
                report_damage(reader, before);
                Ok(events.into_iter().map(|event| (event, String::new())).collect())
            }
            Self::Shared { stream, name, place, known, .. } => {
                let read = stream.read(place.as_deref()).map_err(|error| {
                    Failure::new(format!("{name}: the crossings cannot be read: {error}"))
                })?;
                let mut events = Vec::new();
                let mut unknown = 0_u64;
                for one in read {
                    *place = Some(one.place);
                    match LoggedEvent::decode(&one.bytes) {
                        Some(event) if known.insert((one.server.clone(), one.id)) => {
                            events.push((event, one.server));
                        }
                        Some(_) => {}
                        None => unknown += 1,
                    }
                }
                if unknown > 0 {
                    let events = counted(unknown, "event", "events");
                    note(format_args!("left out {events} in {name} that this exirate cannot read"));
                }
                events.sort_by_key(|(event, _)| event.at);
                Ok(events)
            }
        }
    }
}

/// Notes bytes that were skipped, if there are more than `before`.
fn report_damage(reader: &EventReader, before: u64) {
    let damaged = reader.damaged() - before;
    if damaged > 0 {
        let bytes = counted(damaged, "byte of the log that is", "bytes of the log that are");
        note(format_args!("skipped {bytes} no event"));
    }
}
