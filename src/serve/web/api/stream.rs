//! The streams of events: those that may see the same have the same, which is read once for all of them while there is one.

use std::rc::Rc;
use std::time::Duration;

use hyper::body::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::SendError;
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::news::Place;
use super::state::Api;
use super::streams::Feed;
use super::types::Missed;
use crate::serve::web::asker::Asker;
use crate::serve::web::http::problem::{Problem, ProblemKind};
use crate::serve::web::http::reply::{self, Reply};
use crate::serve::web::look::Viewer;
use crate::serve::web::look::news_reader::NewsReader;
use crate::serve::web::look::snapshot::ListState;
use crate::text::json;
use crate::text::time::now;

/// How often the database is read for streams; more seldom where that takes long.
const TICK: Duration = Duration::from_secs(2);
/// After so long without news a stream has a comment, so that proxies keep it.
const QUIET: Duration = Duration::from_secs(15);
/// How many keys an event has.
const KEYS: usize = 50;

/// The part of all streams that one token or person may have.
const PART: usize = 10;
/// But at least so many, for the pages that somebody has open.
const PART_MIN: usize = 4;

/// Begins a stream of `asker`, which ends when his token ends or is removed. `last` is the id of the last event
/// of the stream that it continues.
pub(super) fn begin(api: &Rc<Api>, asker: &Asker, last: Option<String>) -> Result<Reply, Problem> {
    let streams = &api.streams;
    let most = api.web.borrow().max_streams;
    if streams.open.get() >= most {
        let detail = format!("{most} streams are open, and no more may");
        return Err(Problem::new(ProblemKind::Busy, detail));
    }
    let (part, own) = ((most / PART).max(PART_MIN), streams.of(&asker.name));
    if own.get() >= part {
        let detail = format!("{} has {part} streams open, and may have no more", asker.name);
        return Err(Problem::new(ProblemKind::Busy, detail));
    }
    let feed = streams.feed(&asker.scope);
    if feed.open.get() == 0 {
        let (api, feed) = (Rc::clone(api), Rc::clone(&feed));
        spawn_local(async move { read(&api, &feed).await });
    }
    let counted = [streams.open.add(1), own.add(1), feed.open.add(1)];
    let (api, asker) = (Rc::clone(api), asker.clone());
    // One event may wait for a peer that is slow.
    let (sender, receiver) = mpsc::channel(1);
    spawn_local(async move {
        let _counted = counted;
        let may_look = || api.askers.is_still(&api.web.borrow(), &asker);
        // It ends when the peer does, or the service.
        let _ = serve(&feed, sender, may_look, last.as_deref()).await;
    });
    Ok(reply::events(receiver))
}

/// Sends what is new until the peer or the service ends, or whoever looks may no longer.
async fn serve(
    feed: &Feed,
    sender: mpsc::Sender<Bytes>,
    may_look: impl Fn() -> bool,
    last: Option<&str>,
) -> Result<(), SendError<Bytes>> {
    let mut heard = feed.heard.subscribe();
    heard.mark_changed();
    let mut place: Option<Place> = None;
    let mut states = 0;
    loop {
        let changed = tokio::select! {
            changed = timeout(QUIET, heard.changed()) => changed,
            () = sender.closed() => return Ok(()),
        };
        if !may_look() {
            return Ok(());
        }
        match changed {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Ok(()),
            Err(_) => {
                sender.send(Bytes::from_static(b":\n\n")).await?;
                continue;
            }
        }
        let Some(latest) = heard.borrow_and_update().clone() else { return Ok(()) };
        if !feed.news.borrow().is_read {
            continue;
        }
        let is_first = place.is_none();
        let mut here = place.unwrap_or_else(|| feed.news.borrow().resume(last));
        loop {
            if std::mem::take(&mut here.missed) {
                sender.send(missed()).await?;
            }
            let next = feed.news.borrow().get(here.next);
            match next {
                Ok(Some(bytes)) => {
                    sender.send(bytes).await?;
                    here.next += 1;
                }
                Ok(None) => break,
                Err(again) => here = again,
            }
        }
        place = Some(here);
        if is_first {
            // Only from here on it knows what it has had.
            let id = feed.news.borrow().id_at_end(now());
            sender.send(Bytes::from(format!("id: {id}\n\n"))).await?;
        }
        if latest.states != states && !latest.state.is_empty() {
            sender.send(latest.state.clone()).await?;
            states = latest.states;
        }
    }
}

/// Reads what has happened, and how keys stand.
async fn read_state(api: &Api, feed: &Feed) -> Result<Value, Problem> {
    let is_again = feed.news.borrow().is_known();
    // It is lost where a thread of this process fails: all that is kept is void then.
    let reader = feed.reader.take().unwrap_or_else(|| NewsReader::new(is_again));
    let viewer = Viewer { name: None, seen: feed.seen.clone() };
    let (reader, batch) = api.look.news(reader, viewer.clone()).await?;
    feed.reader.replace(Some(reader));
    let batch = batch?;
    let is_new = {
        let mut latest = feed.news.borrow_mut();
        latest.is_read = true;
        latest.add(batch, now())
    };
    if is_new {
        feed.heard.send_modify(|_| {});
    }
    let status = api.status(&feed.seen).await?;
    let keys = api.page(ListState::Blocked, "", KEYS, None, viewer).await?;
    Ok(json!({ "status": status, "keys": keys }))
}

fn missed() -> Bytes {
    let detail = "some crossings and changes are left out: they are too old, or too many; the lists \
                  of both have what is still known";
    event("missed", &Missed { detail: detail.to_owned() })
}

fn event(name: &str, what: &impl Serialize) -> Bytes {
    let json = json(what).unwrap_or_default();
    Bytes::from(format!("event: {name}\ndata: {json}\n\n"))
}

/// Reads the database while there are feed.
async fn read(api: &Api, feed: &Feed) {
    while feed.open.get() > 0 {
        let state = read_state(api, feed).await;
        let state = state.unwrap_or_else(|problem| json!({ "problem": problem.detail }));
        let state = event("state", &state);
        feed.heard.send_if_modified(|heard| heard.as_mut().is_some_and(|heard| heard.hear(state)));
        let _ = timeout(TICK, feed.wake.notified()).await;
    }
    feed.news.borrow_mut().is_read = false;
    // The next stream begins with what is then.
    feed.heard.send_if_modified(|heard| {
        if let Some(heard) = heard {
            heard.hear(Bytes::new());
        }
        false
    });
}
