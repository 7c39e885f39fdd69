//! The API: its routes, and what is in their replies.

pub(super) mod cursor;
mod news;
mod openapi;
mod pages;
mod replies;
mod route;
mod routes;
pub(super) mod state;
mod stream;
mod streams;
pub(super) mod types;

use std::rc::Rc;

use hyper::Method;
use hyper::header::{self, HeaderValue};

use super::asker::{Asker, check_host, check_origin};
use super::http::connection::{Call, ToSomebodyKnown};
use super::http::problem::{Problem, ProblemKind};
use super::http::reply::{self, Reply};
use super::page::FILES;
use super::role::Role;
use crate::serve::config::Web;
use crate::toml_file::Word as _;
use routes::ROUTES;
use state::{Api, Asked};

/// Replies to a request.
pub(super) async fn answer(api: Rc<Api>, call: Call) -> Reply {
    api.requests.set(api.requests.get() + 1);
    reply_to(api, call).await.unwrap_or_else(|problem| reply::problem(&problem))
}

async fn reply_to(api: Rc<Api>, call: Call) -> Result<Reply, Problem> {
    let web = Rc::clone(&api.web.borrow());
    let is_local = check_host(&web, &call.head)?;
    let path = call.head.uri.path();
    // Without a body, hyper sends none for HEAD.
    let method = match &call.head.method {
        &Method::HEAD => Method::GET,
        method => method.clone(),
    };
    if let Some(file) = FILES.iter().find(|file| file.path == path) {
        let is_get = method == Method::GET;
        return Ok(if is_get { reply::file(file.kind, file.text) } else { wrong_method("GET") });
    }
    let mut of_path = ROUTES.iter().filter(|route| route.path == path).peekable();
    if of_path.peek().is_none() {
        let detail = "/api/v1/openapi.json has all routes";
        return Err(Problem::new(ProblemKind::NotFound, detail));
    }
    let Some(route) = of_path.clone().find(|route| route.method == method) else {
        let methods: Vec<_> = of_path.map(|route| route.method.as_str()).collect();
        return Ok(wrong_method(&methods.join(", ")));
    };
    let is_change = method != Method::GET;
    // It could not see the reply, and would have the database read, or streams opened.
    if is_change || route.role.is_some() {
        check_origin(&call.head.headers)?;
    }
    let asker = match route.role {
        Some(role) => Some(find_asker(&api, &web, role, &call, is_local).await?),
        None => None,
    };
    if let (true, Some(asker)) = (is_change, &asker) {
        api.askers.check_forgery(asker, &call.head.headers)?;
    }
    let is_known = asker.is_some();
    let reply = (route.run)(api, Asked { call, asker, is_local }).await;
    let mut reply = reply.unwrap_or_else(|problem| reply::problem(&problem));
    if is_known {
        reply.extensions_mut().insert(ToSomebodyKnown);
    }
    Ok(reply)
}

/// The reply to a method that a resource does not have, which has these.
fn wrong_method(methods: &str) -> Reply {
    let mut reply =
        reply::problem(&Problem::new(ProblemKind::Method, format!("expected {methods}")));
    if let Ok(value) = HeaderValue::from_str(methods) {
        reply.headers_mut().insert(header::ALLOW, value);
    }
    reply
}

/// Who asks, and has the role that is needed.
async fn find_asker(
    api: &Api,
    web: &Web,
    role: Role,
    call: &Call,
    is_local: bool,
) -> Result<Asker, Problem> {
    let asker = api.askers.find(web, call, is_local).await?;
    if asker.role < role {
        let (name, role) = (&asker.name, role.word());
        let detail = format!("{name} may look only: the role {role} is needed");
        return Err(Problem::new(ProblemKind::Role, detail));
    }
    Ok(asker)
}
