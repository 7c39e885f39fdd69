//! What has happened: crossings of limits, alarms, and what was changed by hand, as streams have it.

use std::path::Path;

use hyper::body::Bytes;
use serde::Serialize;

use super::sighted::{Seen, Sighted};
use super::{changes, crossings};
use crate::rate::Timestamp;
use crate::serve::rates::{self, Purpose};
use crate::serve::web::http::problem::{Problem, unavailable};
use crate::spool::{EventKind, EventReader};
use crate::standing::audit_line::AuditLine;
use crate::text;

/// How far both logs have been read.
pub(in crate::serve::web) struct NewsReader {
    crossings: EventReader,
    /// Where the last line of `audit.log` ends that was read.
    changes: Option<(u64, u64)>,
    /// The next batch is a break.
    is_break: bool,
    /// What is read next comes after what was read before.
    has_read: bool,
}

/// Something that has happened.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::serve::web) struct News {
    pub(in crate::serve::web) at: Timestamp,
    /// A stable ID.
    pub(in crate::serve::web) id: String,
    /// As streams have it.
    pub(in crate::serve::web) bytes: Bytes,
}

/// What was read.
#[derive(Debug)]
pub(in crate::serve::web) struct Batch {
    /// In the order in which it has happened.
    pub(in crate::serve::web) news: Vec<News>,
    /// Something that was read before was erased, or is not known: all that is kept is void.
    pub(in crate::serve::web) is_break: bool,
    /// What is older has been removed since.
    pub(in crate::serve::web) oldest: Timestamp,
    /// What is older than the logs may be gone.
    pub(in crate::serve::web) since: Timestamp,
}

impl News {
    fn of(at: Timestamp, name: &str, event: &str, what: &impl Serialize) -> Option<Self> {
        let id = format!("{name}-{}.{:06}", at.seconds, at.micros);
        let json = text::json(what).ok()?;
        let bytes = Bytes::from(format!("event: {event}\nid: {id}\ndata: {json}\n\n"));
        Some(Self { at, id, bytes })
    }
}

impl NewsReader {
    /// From the oldest that is known; again, where another one has read it before.
    pub(in crate::serve::web) fn new(is_again: bool) -> Self {
        let crossings = EventReader::new(EventKind::Crossings);
        Self { crossings, changes: None, is_break: is_again, has_read: false }
    }

    /// What was logged since the last call, and somebody may see.
    pub(super) fn read(&mut self, spool: &Path, seen: Seen) -> Result<Batch, Problem> {
        let (now, sighted) = (text::time::now(), Sighted::of(spool, seen)?);
        let sight = sighted.sight();
        let mut own = rates::own(spool, Purpose::Read).map_err(unavailable)?;
        let events = own.read_events(&mut self.crossings, now, false).map_err(unavailable)?;
        let oldest =
            own.events_kept_since(EventKind::Crossings, now.seconds).map_err(unavailable)?;
        let oldest = Timestamp { seconds: oldest, micros: 0 };
        let lines = own.changes_logged().map_err(unavailable)?;
        let known = self.changes.map(|place| lines.iter().position(|line| line.place == place));
        // A log that was removed, with what comes after what is known.
        let has_read = std::mem::replace(&mut self.has_read, true);
        let mut is_break = std::mem::take(&mut self.is_break) || known == Some(None);
        let new = known.flatten().map_or(0, |at| at + 1);
        self.changes = lines.last().map(|line| line.place).or(self.changes);
        let mut since = oldest;
        if own.events_begun_again(EventKind::Crossings) {
            since = events.first().map_or(now, |event| event.at).max(since);
        }
        if own.changes_begun_again() {
            let first = lines.iter().find_map(|line| AuditLine::parse(&line.text)?.time());
            since = first.unwrap_or(now).max(since);
        }
        let mut news: Vec<News> = events
            .iter()
            .filter(|event| sight.has_event(event))
            // With its own time, which is in its name.
            .filter_map(|event| {
                let crossing = crossings::crossing(event);
                News::of(event.at, &event.id(), "crossing", &crossing)
            })
            .collect();
        for (number, line) in lines.iter().enumerate().skip(new) {
            let Some(read) = AuditLine::parse(&line.text) else { continue };
            is_break |= has_read && read.is_of_erasure();
            let Some(at) = read.time().filter(|_| read.is_seen(&sight, &sighted.folding)) else {
                continue;
            };
            let id = text::hex(&changes::id_of(&lines, number));
            news.extend(News::of(at, &id, "change", &changes::change(read)));
        }
        news.sort_by_key(|one| one.at);
        news.retain(|one| one.at >= oldest);
        Ok(Batch { news, is_break, oldest, since })
    }
}
