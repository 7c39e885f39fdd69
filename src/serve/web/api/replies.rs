//! What serves the routes.

use std::rc::Rc;

use hyper::header::{self, HeaderValue};
use serde_json::Value;

use super::cursor::Cursor;
use super::state::{Api, Asked};
use super::stream;
use super::types::{
    Changed, ForATime, HeldMail, Identities, Me, OfHeld, OfKey, OfThief, Session, ThiefMail,
    WithHeld,
};
use crate::serve::web::asker::{Asker, cookie_name};
use crate::serve::web::broker::client;
use crate::serve::web::broker::wire::{self, Request, Verb};
use crate::serve::web::http::problem::{Problem, ProblemKind};
use crate::serve::web::http::reply::{self, Reply};
use crate::serve::web::look::snapshot::ListState;
use crate::standing::held::HeldJson;
use crate::standing::scope::Scope;
use crate::store::FOREVER;
use crate::text;
use crate::toml_file::Word as _;

/// How many keys a page has, unless the request says so, and at most.
const PAGE: usize = 50;
const PAGE_MAX: usize = 500;
/// How many identities one request may ask for.
const IDENTITIES_MAX: usize = 100;

impl Asked {
    /// All values of a parameter of the query.
    fn all(&self, name: &str) -> impl Iterator<Item = String> {
        let query = self.call.head.uri.query().unwrap_or_default();
        let all = form_urlencoded::parse(query.as_bytes());
        all.filter(move |(known, _)| known == name).map(|(_, value)| value.into_owned())
    }

    /// A parameter of the query.
    fn query(&self, name: &str) -> Option<String> {
        self.all(name).next()
    }

    pub(super) fn needed(&self, name: &str) -> Result<String, Problem> {
        let missing = || malformed(format!("the parameter {name} is missing"));
        self.query(name).filter(|value| !value.is_empty()).ok_or_else(missing)
    }

    /// How many are asked for: `usual`, or up to `most`.
    fn limit(&self, usual: usize, most: usize) -> Result<usize, Problem> {
        let Some(text) = self.query("limit") else { return Ok(usual) };
        let limit = text.parse().ok().filter(|limit| (1..=most).contains(limit));
        limit.ok_or_else(|| malformed(format!("limit: expected a number from 1 to {most}")))
    }

    /// Where the page before ends.
    fn cursor(&self) -> Result<Option<Cursor>, Problem> {
        let Some(text) = self.query("cursor") else { return Ok(None) };
        let wrong = || malformed("cursor: expected the value of `next` of a page");
        Cursor::parse(&text).map(Some).ok_or_else(wrong)
    }

    /// The body.
    fn body<'b, T: serde::Deserialize<'b>>(&'b self) -> Result<T, Problem> {
        let kind = self.call.head.headers.get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.split(';').next().is_none_or(|kind| kind.trim() != "application/json") {
            let detail = "expected Content-Type: application/json";
            return Err(Problem::new(ProblemKind::MediaType, detail));
        }
        let wrong = |error: serde_json::Error| malformed(error.to_string());
        serde_json::from_slice(&self.call.body).map_err(wrong)
    }
}

fn malformed(detail: impl Into<String>) -> Problem {
    Problem::new(ProblemKind::Malformed, detail)
}

fn end(until: Option<i64>) -> Option<String> {
    until.filter(|until| *until != FOREVER).map(text::iso_second)
}

pub(super) fn me(api: &Api, asked: &Asked) -> Result<Reply, Problem> {
    let Some(asker) = &asked.asker else {
        return Err(Problem::new(ProblemKind::Unknown, "expected a token"));
    };
    reply::json(&me_of(api, asker))
}

fn me_of(api: &Api, asker: &Asker) -> Me {
    let web = Rc::clone(&api.web.borrow());
    Me {
        name: asker.name.clone(),
        role: asker.role.word(),
        scope: asker.scope.as_ref().map(Scope::to_string),
        until: end(asker.until),
        csrf: api.askers.against_forgery(asker),
        longest: web.longest,
        changes_a_day: web.changes_a_day.into(),
        release: env!("CARGO_PKG_VERSION"),
    }
}

pub(super) async fn session(api: &Api, asked: Asked) -> Result<Reply, Problem> {
    let Session { token } = asked.body()?;
    let asker = api.askers.of_secret(&token).await?;
    let mut reply = reply::json(&me_of(api, &asker))?;
    set_cookie(&mut reply, asked.is_local, &token, "");
    Ok(reply)
}

pub(super) fn forget_session(asked: &Asked) -> Result<Reply, Problem> {
    let mut reply = reply::json(&Value::Null)?;
    set_cookie(&mut reply, asked.is_local, "", "; Max-Age=0");
    Ok(reply)
}

fn set_cookie(reply: &mut Reply, is_local: bool, token: &str, age: &str) {
    let (name, secure) = (cookie_name(is_local), if is_local { "" } else { "; Secure" });
    let cookie = format!("{name}={token}; Path=/; HttpOnly; SameSite=Strict{secure}{age}");
    if let Ok(mut value) = HeaderValue::from_str(&cookie) {
        value.set_sensitive(true);
        reply.headers_mut().insert(header::SET_COOKIE, value);
    }
}

pub(super) fn events(api: &Rc<Api>, asked: &Asked) -> Result<Reply, Problem> {
    let unknown = || Problem::new(ProblemKind::Unknown, "expected a token");
    let asker = asked.asker.as_ref().ok_or_else(unknown)?;
    let last = asked.call.head.headers.get("last-event-id");
    let last = last.map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned());
    stream::begin(api, asker, last.filter(|id| !id.is_empty()))
}

pub(super) async fn keys(api: &Api, asked: &Asked) -> Result<Reply, Problem> {
    let state = match asked.query("state") {
        None => ListState::Blocked,
        Some(word) => ListState::of(&word).ok_or_else(|| {
            malformed(format!("state: expected {}", ListState::words().join(", ")))
        })?,
    };
    let (limit, after) = (asked.limit(PAGE, PAGE_MAX)?, asked.cursor()?);
    let search = asked.query("search").unwrap_or_default();
    reply::json(&api.page(state, &search, limit, after, asked.viewer()?).await?)
}

pub(super) async fn search(api: &Api, asked: &Asked) -> Result<Reply, Problem> {
    let text = asked.needed("q")?;
    let limit = asked.limit(PAGE, PAGE)?;
    reply::json(&api.look.search(text, limit, asked.viewer()?).await?)
}

pub(super) async fn identities(api: &Api, asked: &Asked) -> Result<Reply, Problem> {
    let keys: Vec<String> = asked.all("key").filter(|key| !key.is_empty()).collect();
    if !(1..=IDENTITIES_MAX).contains(&keys.len()) {
        return Err(malformed(format!("key: expected 1 to {IDENTITIES_MAX} of them")));
    }
    reply::json(&Identities { identities: api.look.identities(keys, asked.viewer()?).await? })
}

pub(super) async fn crossings(api: &Api, asked: &Asked) -> Result<Reply, Problem> {
    let (limit, after) = (asked.limit(PAGE, PAGE_MAX)?, asked.cursor()?);
    let key = asked.query("key");
    reply::json(&api.look.crossings(key, limit, after, asked.viewer()?).await?)
}

pub(super) async fn changes(api: &Api, asked: &Asked) -> Result<Reply, Problem> {
    let (limit, after) = (asked.limit(PAGE, PAGE_MAX)?, asked.cursor()?);
    let key = asked.query("key");
    reply::json(&api.look.changes(key, limit, after, asked.viewer()?).await?)
}

pub(super) async fn held(api: &Api, asked: &Asked) -> Result<Reply, Problem> {
    let key = asked.query("key").unwrap_or_default();
    let request = request(asked, Verb::Held, key)?;
    let done = api.look.queue(asked.viewer()?, ask_broker(api, request)).await?;
    let held: Vec<HeldJson> = done.held.iter().map(HeldJson::of).collect();
    let is_known = !held.is_empty() || done.said.is_empty();
    let messages = is_known.then_some(done.messages);
    reply::json(&HeldMail { held, messages, unread: done.said })
}

pub(super) async fn of_key(api: &Api, asked: &Asked, verb: Verb) -> Result<Reply, Problem> {
    let OfKey { key } = asked.body()?;
    change(api, request(asked, verb, key)?).await
}

pub(super) async fn stolen(api: &Api, asked: &Asked) -> Result<Reply, Problem> {
    let OfThief { key, held } = asked.body()?;
    let delete = held == Some(WithHeld::Delete);
    change(api, Request { delete, ..request(asked, Verb::Stolen, key)? }).await
}

pub(super) async fn release(api: &Api, asked: &Asked) -> Result<Reply, Problem> {
    let OfHeld { key, id } = asked.body()?;
    change(api, Request { id, ..request(asked, Verb::Release, key)? }).await
}

pub(super) async fn for_seconds(api: &Api, asked: &Asked, verb: Verb) -> Result<Reply, Problem> {
    let ForATime { key, seconds, reason, reply } = asked.body()?;
    let request = request(asked, verb, key)?;
    change(api, Request { seconds: Some(seconds), reason, reply, ..request }).await
}

/// What the broker is asked for.
fn request(asked: &Asked, verb: Verb, key: String) -> Result<Request, Problem> {
    let Some(asker) = &asked.asker else {
        return Err(Problem::new(ProblemKind::Unknown, "expected a token"));
    };
    let (who, reason) = (asker.who.clone(), String::new());
    Ok(Request { who, verb, key, seconds: None, reply: None, reason, id: None, delete: false })
}

/// Asks the broker.
async fn ask_broker(api: &Api, request: Request) -> Result<wire::Done, Problem> {
    let broker = api.web.borrow().broker.clone();
    let reply = client::ask(&broker, &request).await;
    match reply.map_err(|why| Problem::new(ProblemKind::Unavailable, why))? {
        wire::Reply::Done(done) => Ok(done),
        wire::Reply::Refused(refused) => Err(refused.into()),
    }
}

/// Asks the broker for a change.
async fn change(api: &Api, request: Request) -> Result<Reply, Problem> {
    let done = ask_broker(api, request).await?;
    api.look.forget();
    api.streams.wake();
    let until = end(done.until);
    let sent = done.sent.map(|sent| ThiefMail {
        since: text::iso_second(sent.since),
        messages: sent.messages,
        recipients: sent.recipients,
        people: sent.people,
        clients: sent.clients,
    });
    let (said, records, messages) = (done.said, done.records, done.messages);
    reply::json(&Changed { said, records, messages, until, sent })
}
