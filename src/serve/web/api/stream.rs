//! The streams of events: all have the same, which is read once for all while there is one.

use std::rc::Rc;
use std::time::Duration;

use hyper::body::Bytes;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use super::state::Api;
use crate::serve::web::http::problem::{Kind, Problem};
use crate::serve::web::http::reply::{self, Reply};
use crate::serve::web::look::snapshot::State;
use crate::text::time::now;

/// How often the database is read for streams; more seldom where that takes long.
const TICK: Duration = Duration::from_secs(2);
/// After so long without news a stream has a comment, so that proxies keep it.
const QUIET: Duration = Duration::from_secs(15);
/// How many keys an event has.
const KEYS: usize = 50;

/// Begins a stream, which ends when the token of who has asked ends.
pub(super) fn begin(api: &Rc<Api>, until: Option<i64>) -> Result<Reply, Problem> {
    let streams = &api.streams;
    let most = api.web.borrow().max_streams;
    if streams.open.get() >= most {
        let detail = format!("{most} streams are open, and no more may");
        return Err(Problem::new(Kind::Busy, detail));
    }
    if streams.open.get() == 0 {
        let api = Rc::clone(api);
        spawn_local(async move { read(&api).await });
    }
    let counted = streams.open.add(1);
    // One event may wait for a peer that is slow. It has the latest after that.
    let (sender, receiver) = mpsc::channel(1);
    let mut latest = streams.latest.subscribe();
    latest.mark_changed();
    spawn_local(async move {
        let _counted = counted;
        while until.is_none_or(|until| now().seconds < until) {
            let changed = tokio::select! {
                changed = timeout(QUIET, latest.changed()) => changed,
                () = sender.closed() => return,
            };
            let bytes = match changed {
                Ok(Ok(())) => match latest.borrow_and_update().clone() {
                    Some(event) => event,
                    None => return,
                },
                Ok(Err(_)) => return,
                Err(_) => Bytes::from_static(b":\n\n"),
            };
            if !bytes.is_empty() && sender.send(bytes).await.is_err() {
                return;
            }
        }
    });
    Ok(reply::events(receiver))
}

/// Reads the database while there are streams.
async fn read(api: &Api) {
    while api.streams.open.get() > 0 {
        let event = match (api.status().await, api.page(State::Blocked, "", KEYS, None).await) {
            (Ok(status), Ok(keys)) => json!({ "status": status, "keys": keys }),
            (Err(problem), _) | (_, Err(problem)) => json!({ "problem": problem.detail }),
        };
        let event = Bytes::from(format!("event: state\ndata: {event}\n\n"));
        api.streams.latest.send_if_modified(|latest| {
            let is_new = latest.as_ref().is_some_and(|latest| *latest != event);
            if is_new {
                *latest = Some(event);
            }
            is_new
        });
        sleep(TICK).await;
    }
    // The next stream begins with what is then.
    api.streams.latest.send_if_modified(|latest| {
        if let Some(latest) = latest {
            *latest = Bytes::new();
        }
        false
    });
}
