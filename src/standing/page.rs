//! The state of the rate database, as the page of `exirate report` has it.

use std::path::Path;

use super::databases::StandingError;
use super::in_force::InForce;
use super::key_state::KeyState;
use super::logged::{decisive, in_period, key};
use crate::history::explain::crossing::{Crossing, Sender};
use crate::history::page::{Live, LiveCrossing, LiveKey, LiveRefusal, LiveTrace};
use crate::rate::Timestamp;
use crate::spool::{EventKind, EventReader, LoggedEvent, Spool};
use crate::store::Inspect;
use crate::text::{self, Voice};
use crate::trace::{Access, TraceStore};

/// From which share of its limit on a key is close to it.
const CLOSE: f64 = 0.8;
/// So many keys, and so many events, of each kind are in the page.
const KEYS_MAX: usize = 1000;
const EVENTS_MAX: usize = 1000;
/// Of so many crossings, the messages are looked up.
const JUDGED_MAX: usize = 25;
/// How far back events are shown, in seconds.
const DAYS: i64 = 30 * 86_400;

/// The state of the rates in `store`, and of the database `spool` in `directory`.
///
/// # Errors
/// They cannot be used.
pub(crate) fn live(
    store: &mut dyn Inspect,
    spool: &mut Spool,
    directory: &Path,
    voice: &dyn Voice,
) -> Result<Live, StandingError> {
    let in_force = voice.noted(InForce::of(store, directory));
    let now = in_force.now;
    let mut live = Live { at: text::local(now), ..Live::default() };
    let (mut over, mut close) = (Vec::new(), Vec::new());
    let unread = store.for_each(&mut |entry| {
        live.keys += 1;
        let state = KeyState::from(entry);
        if in_force.refuses(&state) {
            keep(&mut over, of_key(&state, &in_force));
        } else if state.share(now) >= CLOSE || state.is_over(now) {
            keep(&mut close, of_key(&state, &in_force));
        }
    })?;
    voice.complaints(&unread.parts);
    for list in [&mut over, &mut close] {
        sort(list);
        list.truncate(KEYS_MAX);
    }
    (live.over, live.close) = (over, close);
    let traces = TraceStore::open_if_any(directory, Access::Read)?;
    if let Some(traces) = &traces {
        let stats = traces.stats()?;
        live.trace = Some(LiveTrace { messages: stats.messages, bytes: stats.bytes });
    }
    let crossings = latest(spool, EventKind::Crossings, now)?;
    for (number, event) in crossings.iter().enumerate() {
        let traces = traces.as_ref().filter(|_| number < JUDGED_MAX);
        live.crossings.push(of_crossing(event, traces)?);
    }
    let refusals = latest(spool, EventKind::Refusals, now)?;
    live.refusals = refusals.iter().map(of_refusal).collect();
    Ok(live)
}

/// The latest events of the last days, the newest first.
fn latest(
    spool: &mut Spool,
    kind: EventKind,
    now: Timestamp,
) -> Result<Vec<LoggedEvent>, StandingError> {
    let mut events = spool.read_events(&mut EventReader::new(kind), now, true)?;
    events.retain(|event| event.at.seconds >= now.seconds - DAYS && !event.is_alarm());
    events.reverse();
    events.truncate(EVENTS_MAX);
    Ok(events)
}

/// Adds a key, and drops those with the lowest shares if there are far too many.
fn keep(list: &mut Vec<LiveKey>, key: LiveKey) {
    list.push(key);
    if list.len() >= 4 * KEYS_MAX {
        sort(list);
        list.truncate(KEYS_MAX);
    }
}

fn sort(list: &mut [LiveKey]) {
    let share = |one: &LiveKey| one.share.unwrap_or(f64::INFINITY);
    list.sort_by(|a, b| share(b).total_cmp(&share(a)).then_with(|| a.key.cmp(&b.key)));
}

fn of_key(state: &KeyState, in_force: &InForce) -> LiveKey {
    let (next, now) = (in_force.next(state), in_force.now);
    let share = state.share(now);
    let what = [state.mode(), state.period_text()].into_iter().flatten();
    LiveKey {
        key: String::from_utf8_lossy(state.key()).into_owned(),
        what: what.collect::<Vec<_>>().join(" in "),
        rate: state.rate(now),
        limit: state.limit,
        share: share.is_finite().then_some(share),
        free: next.wait(state, now).map(text::short_wait).unwrap_or_default(),
        why: next.why().unwrap_or_default(),
    }
}

fn of_crossing(
    event: &LoggedEvent,
    traces: Option<&TraceStore>,
) -> Result<LiveCrossing, StandingError> {
    let window = decisive(event);
    let judgement = match (traces, Sender::of_event(event)) {
        (Some(traces), Some(sender)) => {
            Crossing::of_event(traces, &sender, event, &window)?.judgement()
        }
        _ => String::new(),
    };
    Ok(LiveCrossing {
        when: text::local(event.at),
        key: String::from_utf8_lossy(key(event)).into_owned(),
        enforcement: event.enforcement.word(),
        limit: format!("{} {}", text::number(window.limit), in_period(event, &window)),
        rate: window.after,
        judgement,
    })
}

fn of_refusal(event: &LoggedEvent) -> LiveRefusal {
    let window = decisive(event);
    let texts = event.texts.map(|text| String::from_utf8_lossy(text).into_owned());
    LiveRefusal {
        when: text::local(event.at),
        key: String::from_utf8_lossy(key(event)).into_owned(),
        limit: format!("{} {}", text::number(window.limit), in_period(event, &window)),
        rate: window.after,
        policy: texts.policy,
        rule: texts.rule,
        login: texts.login,
        client: texts.client,
        sender: texts.sender,
        recipient: texts.recipient,
        message_id: texts.message_id,
    }
}
