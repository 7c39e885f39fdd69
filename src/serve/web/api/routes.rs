//! The routes. One is stated here alone: what serves it, who may, and the schema that
//! `openapi.json` shows.

use std::sync::LazyLock;

use hyper::Method;
use schemars::SchemaGenerator;
use serde_json::Value;

use super::openapi;
use super::replies::{
    changes, crossings, events, for_seconds, forget_session, held, identities, keys, me, of_key,
    release, search, session, stolen,
};
use super::route::{Parameter, Route, Run};
use super::types::{
    Changed, Changes, Crossings, ForATime, Found, HeldMail, Identities, Identity, Keys, Me, OfHeld,
    OfKey, OfThief, Overrides, PoliciesInUse, SentOfKey, Session, Status,
};
use crate::json_schema::SchemaOf;
use crate::serve::web::broker::wire::Verb;
use crate::serve::web::http::reply;
use crate::serve::web::role::Role;

const KEY: Parameter =
    ("key", true, "The key, such as alice@example.org, as `exirate list` prints it.");
const OF_KEY: Parameter = ("key", false, "Only of this key.");
const LIMIT: Parameter = ("limit", false, "How many: 50, or up to 500.");
const CURSOR: Parameter = ("cursor", false, "The value of `next` on the previous page.");

/// The document of all routes: anybody may ask for it, so it is made once.
static SCHEMA: LazyLock<Value> = LazyLock::new(|| openapi::document(ROUTES));

/// All of them.
pub(super) const ROUTES: &[Route] = &[
    Route {
        method: Method::GET,
        path: "/api/v1/me",
        role: Some(Role::View),
        about: "Show who asks, and what they may do",
        query: &[],
        body: None,
        reply: Some(SchemaGenerator::subschema_for::<Me>),
        run: |api, asked| Box::pin(async move { me(&api, &asked) }),
    },
    Route {
        method: Method::GET,
        path: "/api/v1/status",
        role: Some(Role::View),
        about: "Count the keys",
        query: &[],
        body: None,
        reply: Some(SchemaGenerator::subschema_for::<Status>),
        run: |api, asked| {
            Box::pin(async move { reply::json(&api.status(&asked.viewer()?.seen).await?) })
        },
    },
    Route {
        method: Method::GET,
        path: "/api/v1/keys",
        role: Some(Role::View),
        about: "List the keys that are blocked, close to it, suspected, denied or exempt",
        query: &[
            ("state", false, "blocked (the default), close, suspected, denied or exempt."),
            ("search", false, "Only keys that contain this text, whatever its case."),
            LIMIT,
            CURSOR,
        ],
        body: None,
        reply: Some(SchemaGenerator::subschema_for::<Keys>),
        run: |api, asked| Box::pin(async move { keys(&api, &asked).await }),
    },
    Route {
        method: Method::GET,
        path: "/api/v1/search",
        role: Some(Role::View),
        about: "Find identities by a part of their names, as somebody types it: the best first",
        query: &[
            ("q", true, "The part, whatever its case."),
            ("limit", false, "How many: 50, or fewer."),
        ],
        body: None,
        reply: Some(SchemaGenerator::subschema_for::<Found>),
        run: |api, asked| Box::pin(async move { search(&api, &asked).await }),
    },
    Route {
        method: Method::GET,
        path: "/api/v1/identity",
        role: Some(Role::View),
        about: "Show all of one identity: its rates and limits, and what decides its next event",
        query: &[KEY],
        body: None,
        reply: Some(SchemaGenerator::subschema_for::<Identity>),
        run: |api, asked| {
            Box::pin(async move {
                let key = asked.needed("key")?;
                reply::json(&api.look.identities(vec![key], asked.viewer()?).await?.pop())
            })
        },
    },
    Route {
        method: Method::GET,
        path: "/api/v1/usage",
        role: Some(Role::View),
        about: "Show what a key has sent by day and by hour; of a domain or a customer, its accounts today",
        query: &[KEY],
        body: None,
        reply: Some(SchemaGenerator::subschema_for::<SentOfKey>),
        run: |api, asked| {
            Box::pin(async move {
                let key = asked.needed("key")?;
                reply::json(&api.look.sent(key, asked.viewer()?).await?)
            })
        },
    },
    Route {
        method: Method::GET,
        path: "/api/v1/identities",
        role: Some(Role::View),
        about: "Show all of several identities, such as the mailboxes that a panel lists",
        query: &[("key", true, "A key; up to 100 of them.")],
        body: None,
        reply: Some(SchemaGenerator::subschema_for::<Identities>),
        run: |api, asked| Box::pin(async move { identities(&api, &asked).await }),
    },
    Route {
        method: Method::GET,
        path: "/api/v1/crossings",
        role: Some(Role::View),
        about: "List what was logged of crossings of limits, refusals and alarms, the latest first",
        query: &[OF_KEY, LIMIT, CURSOR],
        body: None,
        reply: Some(SchemaGenerator::subschema_for::<Crossings>),
        run: |api, asked| Box::pin(async move { crossings(&api, &asked).await }),
    },
    Route {
        method: Method::GET,
        path: "/api/v1/changes",
        role: Some(Role::View),
        about: "List who changed what by hand, the latest first",
        query: &[OF_KEY, LIMIT, CURSOR],
        body: None,
        reply: Some(SchemaGenerator::subschema_for::<Changes>),
        run: |api, asked| Box::pin(async move { changes(&api, &asked).await }),
    },
    Route {
        method: Method::GET,
        path: "/api/v1/policies",
        role: Some(Role::View),
        about: "Show the policies in use",
        query: &[],
        body: None,
        reply: Some(SchemaGenerator::subschema_for::<PoliciesInUse>),
        run: |api, asked| {
            Box::pin(async move { reply::json(&api.look.policies(asked.viewer()?).await?) })
        },
    },
    Route {
        method: Method::GET,
        path: "/api/v1/overrides",
        role: Some(Role::View),
        about: "List the keys that are allowed or denied for a time",
        query: &[],
        body: None,
        reply: Some(SchemaGenerator::subschema_for::<Overrides>),
        run: |api, asked| {
            Box::pin(async move {
                let overrides = api.look.overrides(asked.viewer()?).await?;
                reply::json(&Overrides { overrides })
            })
        },
    },
    Route {
        method: Method::GET,
        path: "/api/v1/held",
        role: Some(Role::View),
        about: "List the messages that policies hold in the mail server's queue, and those that wait there",
        query: &[OF_KEY],
        body: None,
        reply: Some(SchemaGenerator::subschema_for::<HeldMail>),
        run: |api, asked| Box::pin(async move { held(&api, &asked).await }),
    },
    Route {
        method: Method::GET,
        path: "/api/v1/events",
        role: Some(Role::View),
        about: "Stream the state of the keys whenever it is read again, and what happens: server-sent events, `state` with the fields `status` and `keys`, `crossing` with a Crossing, \
                `change` with a Change, and `missed` with a Missed, if the stream could not continue \
                after Last-Event-ID",
        query: &[],
        body: None,
        reply: None,
        run: |api, asked| Box::pin(async move { events(&api, &asked) }),
    },
    change(
        "/api/v1/unblock",
        "Delete the records of a key, and end denials of it",
        SchemaGenerator::subschema_for::<OfKey>,
        |api, asked| Box::pin(async move { of_key(&api, &asked, Verb::Unblock).await }),
    ),
    change(
        "/api/v1/allow",
        "Lift the limits of a key for a time",
        SchemaGenerator::subschema_for::<ForATime>,
        |api, asked| Box::pin(async move { for_seconds(&api, &asked, Verb::Allow).await }),
    ),
    change(
        "/api/v1/deny",
        "Refuse a key for a time",
        SchemaGenerator::subschema_for::<ForATime>,
        |api, asked| Box::pin(async move { for_seconds(&api, &asked, Verb::Deny).await }),
    ),
    change(
        "/api/v1/end",
        "End the override of a key",
        SchemaGenerator::subschema_for::<OfKey>,
        |api, asked| Box::pin(async move { of_key(&api, &asked, Verb::End).await }),
    ),
    change(
        "/api/v1/accept",
        "Answer an alarm: it was the owner; what was held for it is released",
        SchemaGenerator::subschema_for::<OfKey>,
        |api, asked| Box::pin(async move { of_key(&api, &asked, Verb::Accept).await }),
    ),
    change(
        "/api/v1/stolen",
        "Answer an alarm: the account is stolen; it is denied",
        SchemaGenerator::subschema_for::<OfThief>,
        |api, asked| Box::pin(async move { stolen(&api, &asked).await }),
    ),
    change(
        "/api/v1/release",
        "Release held messages of a key",
        SchemaGenerator::subschema_for::<OfHeld>,
        |api, asked| Box::pin(async move { release(&api, &asked).await }),
    ),
    Route {
        method: Method::POST,
        path: "/api/v1/session",
        role: None,
        about: "Have the browser keep a token as a cookie",
        query: &[],
        body: Some(SchemaGenerator::subschema_for::<Session>),
        reply: Some(SchemaGenerator::subschema_for::<Me>),
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
        run: |_, asked| Box::pin(async move { forget_session(&asked) }),
    },
    Route {
        method: Method::GET,
        path: "/api/v1/openapi.json",
        role: None,
        about: "Show this schema",
        query: &[],
        body: None,
        reply: None,
        run: |_, _| Box::pin(async move { reply::json(&*SCHEMA) }),
    },
];

/// A change, which the broker makes.
const fn change(path: &'static str, about: &'static str, body: SchemaOf, run: Run) -> Route {
    let (role, body, reply) =
        (Some(Role::Help), Some(body), Some(SchemaGenerator::subschema_for::<Changed> as _));
    Route { method: Method::POST, path, role, about, query: &[], body, reply, run }
}

#[cfg(test)]
mod tests {
    use super::*;

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
