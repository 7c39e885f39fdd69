//! The routes. One is stated here alone: what serves it, who may, and the schema that
//! `openapi.json` shows.

use std::rc::Rc;

use hyper::Method;
use hyper::header::{self, HeaderValue};
use serde_json::Value;

use super::route::{Route, Run};
use super::state::{Api, Asked};
use super::types::{Changed, ForATime, Identity, Keys, Me, OfKey, Overrides, Session, Status};
use super::{openapi, stream};
use crate::json_schema::{Schema, Schemas};
use crate::serve::web::asker::COOKIE;
use crate::serve::web::broker::client;
use crate::serve::web::broker::wire::{self, Request, Verb};
use crate::serve::web::http::problem::{Kind, Problem};
use crate::serve::web::http::reply::{self, Reply};
use crate::serve::web::role::Role;
use crate::store::FOREVER;
use crate::text;
use crate::toml_file::Word as _;

/// How many keys a page has, unless the request says so, and at most.
const PAGE: usize = 50;
const PAGE_MAX: usize = 500;

const KEY: (&str, bool, &str) =
    ("key", true, "The key, such as alice@example.org, as `exirate list` prints it.");

/// All of them.
pub(super) const ROUTES: &[Route] = &[
    Route {
        method: Method::GET,
        path: "/api/v1/me",
        role: Some(Role::View),
        about: "Show who asks, and what that may do",
        query: &[],
        body: None,
        reply: Some(Me::schema),
        run: |api, asked| Box::pin(async move { me(&api, &asked) }),
    },
    Route {
        method: Method::GET,
        path: "/api/v1/status",
        role: Some(Role::View),
        about: "Count the keys",
        query: &[],
        body: None,
        reply: Some(Status::schema),
        run: |api, _| Box::pin(async move { reply::json(&api.status().await?) }),
    },
    Route {
        method: Method::GET,
        path: "/api/v1/keys",
        role: Some(Role::View),
        about: "List the keys that are blocked, or close to it",
        query: &[
            ("state", false, "blocked (the default) or close."),
            ("search", false, "Only keys that contain this text, whatever its case."),
            ("limit", false, "How many: 50, or up to 500."),
            ("cursor", false, "What `next` of the page before has."),
        ],
        body: None,
        reply: Some(Keys::schema),
        run: |api, asked| Box::pin(async move { keys(&api, &asked).await }),
    },
    Route {
        method: Method::GET,
        path: "/api/v1/identity",
        role: Some(Role::View),
        about: "Show all of one identity: its rates and limits, and what decides its next event",
        query: &[KEY],
        body: None,
        reply: Some(Identity::schema),
        run: |api, asked| {
            Box::pin(async move {
                let key = asked.needed("key")?;
                reply::json(&api.look.identity(key).await?)
            })
        },
    },
    Route {
        method: Method::GET,
        path: "/api/v1/overrides",
        role: Some(Role::View),
        about: "List the keys that are allowed or denied for a time",
        query: &[],
        body: None,
        reply: Some(Overrides::schema),
        run: |api, _| {
            Box::pin(
                async move { reply::json(&Overrides { overrides: api.look.overrides().await? }) },
            )
        },
    },
    Route {
        method: Method::GET,
        path: "/api/v1/events",
        role: Some(Role::View),
        about: "Send how many keys there are, and the first that are blocked, whenever that is read \
                again: server-sent events, each with the fields of `status` and `keys`",
        query: &[],
        body: None,
        reply: None,
        run: |api, asked| {
            Box::pin(async move { stream::begin(&api, asked.asker.and_then(|one| one.until)) })
        },
    },
    change(
        "/api/v1/unblock",
        "Delete the records of a key, and end denials of it",
        OfKey::schema,
        |api, asked| Box::pin(async move { of_key(&api, &asked, Verb::Unblock).await }),
    ),
    change(
        "/api/v1/allow",
        "Lift the limits of a key for a time",
        ForATime::schema,
        |api, asked| Box::pin(async move { for_seconds(&api, &asked, Verb::Allow).await }),
    ),
    change("/api/v1/deny", "Refuse a key for a time", ForATime::schema, |api, asked| {
        Box::pin(async move { for_seconds(&api, &asked, Verb::Deny).await })
    }),
    change("/api/v1/accept", "Answer an alarm: it was the owner", OfKey::schema, |api, asked| {
        Box::pin(async move { of_key(&api, &asked, Verb::Accept).await })
    }),
    change(
        "/api/v1/stolen",
        "Answer an alarm: the account is stolen; it is denied",
        OfKey::schema,
        |api, asked| Box::pin(async move { of_key(&api, &asked, Verb::Stolen).await }),
    ),
    Route {
        method: Method::POST,
        path: "/api/v1/session",
        role: None,
        about: "Have the browser keep a token as a cookie",
        query: &[],
        body: Some(Session::schema),
        reply: Some(Me::schema),
        run: |api, asked| Box::pin(async move { session(&api, asked).await }),
    },
    Route {
        method: Method::DELETE,
        path: "/api/v1/session",
        role: None,
        about: "Have the browser forget the token",
        query: &[],
        body: None,
        reply: None,
        run: |_, _| {
            Box::pin(async move {
                let mut reply = reply::json(&Value::Null)?;
                set_cookie(&mut reply, &format!("{COOKIE}=; Path=/; Max-Age=0; HttpOnly"));
                Ok(reply)
            })
        },
    },
    Route {
        method: Method::GET,
        path: "/api/v1/openapi.json",
        role: None,
        about: "Show this schema",
        query: &[],
        body: None,
        reply: None,
        run: |_, _| Box::pin(async move { reply::json(&openapi::document(ROUTES)) }),
    },
];

/// A change, which the broker makes.
const fn change(
    path: &'static str,
    about: &'static str,
    body: fn(&mut Schemas) -> Value,
    run: Run,
) -> Route {
    let (role, body, reply) = (Some(Role::Help), Some(body), Some(Changed::schema as _));
    Route { method: Method::POST, path, role, about, query: &[], body, reply, run }
}

impl Asked {
    /// A parameter of the query.
    fn query(&self, name: &str) -> Option<String> {
        let query = self.call.head.uri.query()?;
        let mut all = form_urlencoded::parse(query.as_bytes());
        all.find(|(known, _)| known == name).map(|(_, value)| value.into_owned())
    }

    fn needed(&self, name: &str) -> Result<String, Problem> {
        let detail = || Problem::new(Kind::Malformed, format!("the parameter {name} is missing"));
        self.query(name).filter(|value| !value.is_empty()).ok_or_else(detail)
    }

    /// The body.
    fn body<'b, T: serde::Deserialize<'b>>(&'b self) -> Result<T, Problem> {
        let kind = self.call.head.headers.get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.split(';').next().is_none_or(|kind| kind.trim() != "application/json") {
            let detail = "expected Content-Type: application/json";
            return Err(Problem::new(Kind::MediaType, detail));
        }
        let wrong = |error: serde_json::Error| Problem::new(Kind::Malformed, error.to_string());
        serde_json::from_slice(&self.call.body).map_err(wrong)
    }
}

fn end(until: Option<i64>) -> Option<String> {
    until.filter(|until| *until != FOREVER).map(text::iso_second)
}

fn me(api: &Api, asked: &Asked) -> Result<Reply, Problem> {
    let Some(asker) = &asked.asker else {
        return Err(Problem::new(Kind::Unknown, "expected a token"));
    };
    reply::json(&me_of(api, asker))
}

fn me_of(api: &Api, asker: &crate::serve::web::asker::Asker) -> Me {
    let web = Rc::clone(&api.web.borrow());
    Me {
        name: asker.name.clone(),
        role: asker.role.word(),
        until: end(asker.until),
        csrf: api.askers.against_forgery(asker),
        longest: web.longest,
        changes_a_day: web.changes_a_day.into(),
        release: env!("CARGO_PKG_VERSION"),
    }
}

async fn session(api: &Api, asked: Asked) -> Result<Reply, Problem> {
    let Session { token } = asked.body()?;
    let asker = api.askers.of_secret(&token).await?;
    let mut reply = reply::json(&me_of(api, &asker))?;
    let secure = if asked.is_local { "" } else { "; Secure" };
    set_cookie(&mut reply, &format!("{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict{secure}"));
    Ok(reply)
}

fn set_cookie(reply: &mut Reply, cookie: &str) {
    if let Ok(mut value) = HeaderValue::from_str(cookie) {
        value.set_sensitive(true);
        reply.headers_mut().insert(header::SET_COOKIE, value);
    }
}

async fn keys(api: &Api, asked: &Asked) -> Result<Reply, Problem> {
    let wrong = |detail: &str| Problem::new(Kind::Malformed, detail);
    let is_blocked = match asked.query("state").as_deref() {
        None | Some("blocked") => true,
        Some("close") => false,
        Some(_) => return Err(wrong("state: expected blocked or close")),
    };
    let limit = match asked.query("limit") {
        None => PAGE,
        Some(text) => {
            let limit = text.parse().ok().filter(|limit| (1..=PAGE_MAX).contains(limit));
            limit.ok_or_else(|| wrong("limit: expected a number from 1 to 500"))?
        }
    };
    let after = match asked.query("cursor") {
        None => None,
        Some(text) => {
            let cursor = read_cursor(&text);
            Some(cursor.ok_or_else(|| wrong("cursor: expected what next of a page has"))?)
        }
    };
    let search = asked.query("search").unwrap_or_default();
    reply::json(&api.page(is_blocked, &search, limit, after).await?)
}

/// Where a page ends: the bits of the share, and the stored key, in hexadecimal.
fn read_cursor(text: &str) -> Option<(u64, Vec<u8>)> {
    if !text.bytes().all(|b| b.is_ascii_hexdigit()) || !text.len().is_multiple_of(2) {
        return None;
    }
    let (share, stored) = text.split_at_checked(16)?;
    let byte = |at| u8::from_str_radix(stored.get(at..at + 2)?, 16).ok();
    let stored: Option<Vec<u8>> = (0..stored.len()).step_by(2).map(byte).collect();
    Some((u64::from_str_radix(share, 16).ok()?, stored?))
}

async fn of_key(api: &Api, asked: &Asked, verb: Verb) -> Result<Reply, Problem> {
    let OfKey { key } = asked.body()?;
    ask(api, asked, (verb, key, None, String::new())).await
}

async fn for_seconds(api: &Api, asked: &Asked, verb: Verb) -> Result<Reply, Problem> {
    let ForATime { key, seconds, reason } = asked.body()?;
    ask(api, asked, (verb, key, Some(seconds), reason)).await
}

/// Asks the broker.
async fn ask(
    api: &Api,
    asked: &Asked,
    (verb, key, seconds, reason): (Verb, String, Option<i64>, String),
) -> Result<Reply, Problem> {
    let Some(asker) = &asked.asker else {
        return Err(Problem::new(Kind::Unknown, "expected a token"));
    };
    let request = Request { who: asker.who.clone(), verb, key, seconds, reason };
    let broker = api.web.borrow().broker.clone();
    let reply = client::ask(&broker, &request).await;
    match reply.map_err(|why| Problem::new(Kind::Unavailable, why))? {
        wire::Reply::Done(done) => {
            api.look.forget().await;
            let until = end(done.until);
            reply::json(&Changed { said: done.said, records: done.records, until })
        }
        wire::Reply::Refused(refused) => Err(refused.into()),
    }
}

#[cfg(test)]
mod tests {
    use quickcheck::quickcheck;

    use super::*;

    quickcheck! {
        fn a_cursor_is_read_back(share: u64, stored: Vec<u8>) -> bool {
            let text = format!("{share:016x}{}", text::hex(&stored));
            read_cursor(&text) == Some((share, stored))
        }

        fn no_text_panics(text: String) -> bool {
            let _ = read_cursor(&text);
            true
        }
    }

    #[test]
    fn each_route_is_there_once_and_each_change_needs_help() {
        for (at, route) in ROUTES.iter().enumerate() {
            let same = |other: &&Route| other.path == route.path && other.method == route.method;
            assert_eq!(ROUTES.iter().position(|other| same(&other)), Some(at), "{}", route.path);
            let is_session = route.path == "/api/v1/session";
            if route.method != Method::GET && !is_session {
                assert_eq!(route.role, Some(Role::Help), "{}", route.path);
            }
        }
    }
}
