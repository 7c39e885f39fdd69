//! What was logged of crossings and refusals.

use std::collections::HashSet;
use std::path::Path;

use super::sighted::Sighted;
use crate::history::explain::rule;
use crate::identity::fold::Folding;
use crate::rate::{Timestamp, Wait};
use crate::serve::rates::{self, Purpose};
use crate::serve::web::api::cursor::{Cursor, Page};
use crate::serve::web::api::types::{Client, Crossing, Crossings};
use crate::serve::web::http::problem::{Problem, unavailable};
use crate::spool::{Enforcement, EventKind, EventReader, LoggedEvent, Spool};
use crate::standing::in_force::until;
use crate::standing::key_state::later;
use crate::standing::key_text;
use crate::standing::logged::{LoggedLimits, by, decisive, key};
use crate::standing::one_key::OneKey;
use crate::store::DetailTexts;
use crate::text;

/// How many clients are named.
const CLIENTS: usize = 10;

/// What was logged.
struct Logged {
    /// Crossings, alarms and refusals, the latest first.
    events: Vec<LoggedEvent>,
    oldest: Option<Timestamp>,
}

impl Logged {
    /// Reads both logs, of the events that are `wanted`.
    fn read(own: &mut Spool, wanted: impl Fn(&LoggedEvent) -> bool) -> Result<Self, Problem> {
        let now = text::time::now();
        let (mut events, mut refused, mut oldest) = (Vec::new(), HashSet::new(), None);
        for kind in [EventKind::Refusals, EventKind::Crossings] {
            let mut read =
                own.read_events(&mut EventReader::new(kind), now, true).map_err(unavailable)?;
            if kind == EventKind::Crossings {
                oldest = read.first().map(|event| event.at);
            }
            read.retain(|event| wanted(event));
            // A refusal may be a crossing as well, and says more.
            let id = |event: &LoggedEvent| (event.at.as_micros(), key(event).to_vec());
            match kind {
                EventKind::Refusals => refused.extend(read.iter().map(id)),
                EventKind::Crossings => read.retain(|event| !refused.contains(&id(event))),
            }
            events.extend(read);
        }
        events.sort_by(|a, b| b.at.cmp(&a.at).then_with(|| a.id().cmp(&b.id())));
        Ok(Self { events, oldest })
    }

    /// From where they came, the latest first.
    fn clients(&self) -> Vec<Client> {
        let mut all: Vec<Client> = Vec::new();
        for event in self.events.iter().filter(|event| !event.texts.client.is_empty()) {
            let client = text::printable(&event.texts.client);
            if let Some(one) = all.iter_mut().find(|one| one.client == client) {
                one.events += 1;
            } else if all.len() < CLIENTS {
                all.push(Client { client, events: 1, last: text::iso(event.at) });
            }
        }
        all
    }
}

impl OneKey {
    /// Whether an event is of this key: also what the total of a domain or a customer has refused
    /// of it.
    pub(super) fn is_of(&self, event: &LoggedEvent, folding: &Folding) -> bool {
        let is_enforced = event.enforcement == Enforcement::Enforced;
        let sender = || is_enforced.then(|| rule::of_sender(event, folding)).flatten();
        self.pattern.matches(&event.record_key())
            || sender().is_some_and(|sender| self.pattern.matches(&sender.key()))
    }
}

/// A page of those of a key, or of all.
pub(super) fn of_key(
    spool: &Path,
    argument: Option<&str>,
    limit: usize,
    after: Option<&Cursor>,
    sighted: &Sighted,
) -> Result<Crossings, Problem> {
    let (folding, sight) = (&sighted.folding, sighted.sight());
    let wanted_key = argument.map(|key| sighted.one_key(key)).transpose()?;
    let mut own = rates::own(spool, Purpose::Read).map_err(unavailable)?;
    let wanted = |event: &LoggedEvent| {
        sight.has_event(event) && wanted_key.as_ref().is_none_or(|key| key.is_of(event, folding))
    };
    let logged = Logged::read(&mut own, wanted)?;
    let oldest = match sight.is_of_all() {
        true => logged.oldest,
        // When the log begins depends on others.
        false => logged.events.last().map(|event| event.at),
    };
    let cursor = |event: &&LoggedEvent| Cursor {
        at: 0,
        rank: u64::try_from(event.at.as_micros()).unwrap_or(0),
        key: event.id().into_bytes(),
    };
    let is_after = |event: &&LoggedEvent| {
        let Cursor { rank, key, .. } = cursor(event);
        after.is_none_or(|after| after.is_before(rank, &key))
    };
    let Page { items, next } = Page::of(logged.events.iter().filter(is_after), limit, cursor);
    Ok(Crossings {
        crossings: items.into_iter().map(crossing).collect(),
        next,
        oldest: oldest.map(text::iso),
        clients: logged.clients(),
    })
}

/// An event as the API has it.
pub(super) fn crossing(event: &LoggedEvent) -> Crossing {
    let counted = key(event);
    let limits = LoggedLimits::of(event);
    let wait = limits.wait().and_then(Wait::whole_seconds);
    let at = Timestamp { micros: 0, ..event.at };
    let known = |text: &Vec<u8>| (!text.is_empty()).then(|| text::printable(text));
    let DetailTexts { login, client, sender, recipient, message_id, script, evidence, .. } =
        event.texts.map(known);
    let is_alarm = event.is_alarm();
    let window = (!is_alarm).then(|| decisive(event));
    Crossing {
        id: event.id(),
        event: match event.kind {
            _ if is_alarm => "alarm",
            EventKind::Crossings => "crossing",
            EventKind::Refusals => "refusal",
        },
        at: text::iso(at),
        shown: key_text::shown(counted),
        pasted: key_text::key(counted),
        refused: match (event.kind, event.enforcement) {
            (EventKind::Refusals, _) => Some(true),
            (_, Enforcement::Enforced) => None,
            _ => Some(false),
        },
        enforcement: event.enforcement.word(),
        by: if is_alarm { "habits".to_owned() } else { by(event) },
        text: match evidence {
            Some(evidence) if is_alarm => vec![evidence],
            Some(evidence) if event.is_overdue() => vec![format!("waited too long: {evidence}")],
            _ => {
                let blocked = event.blocked().map(|block| format!("blocked {}", until(block)));
                let measured = limits.measured().map(|(measured, _)| measured.to_string());
                measured.chain(blocked).collect()
            }
        },
        rate: window.map(|window| window.after),
        limit: window.map(|window| window.limit),
        period: window.map(|window| window.period),
        passes_at: wait.filter(|_| !is_alarm).map(|wait| text::iso(later(at, wait + 1))),
        login,
        client,
        sender,
        recipient,
        message_id,
        script,
    }
}
