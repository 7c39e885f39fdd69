//! The API: its routes, and what is in their replies.

mod openapi;
mod routes;
pub(super) mod stream;
pub(super) mod types;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use hyper::Method;
use hyper::header::{self, HeaderValue};

use super::asker::{Asker, Askers, check_host, check_origin};
use super::http::connection::Call;
use super::http::problem::{Kind, Problem};
use super::http::reply::{self, Reply};
use super::look::Look;
use crate::serve::config::Web;
use crate::serve::log::Log;
use routes::{ROUTES, Route};
use stream::Streams;

/// The API of a running service.
pub(super) struct Api {
    pub(super) web: RefCell<Rc<Web>>,
    pub(super) askers: Askers,
    look: Look,
    pub(super) streams: Rc<Streams>,
    /// How many requests there were.
    pub(super) requests: Cell<u64>,
}

/// What a route is asked.
struct Asked {
    call: Call,
    asker: Option<Asker>,
    /// Whether the browser knows the service by a name of this machine alone.
    is_local: bool,
}

impl Api {
    pub(super) fn new(web: Web, log: Rc<Log>) -> Result<Self, String> {
        Ok(Self {
            askers: Askers::new(&web, log)?,
            look: Look::new(web.spool.clone()),
            streams: Rc::default(),
            requests: Cell::new(0),
            web: RefCell::new(Rc::new(web)),
        })
    }

    /// Replies to a request.
    pub(super) async fn answer(self: Rc<Self>, call: Call) -> Reply {
        self.requests.set(self.requests.get() + 1);
        self.reply(call).await.unwrap_or_else(|problem| reply::problem(&problem))
    }

    async fn reply(self: Rc<Self>, call: Call) -> Result<Reply, Problem> {
        let web = Rc::clone(&self.web.borrow());
        let is_local = check_host(&web, &call.head)?;
        let path = call.head.uri.path();
        // Without a body, hyper sends none for HEAD.
        let method = match &call.head.method {
            &Method::HEAD => Method::GET,
            method => method.clone(),
        };
        let mut of_path = ROUTES.iter().filter(|route| route.path == path).peekable();
        if of_path.peek().is_none() {
            let detail = "/api/v1/openapi.json has all routes";
            return Err(Problem::new(Kind::NotFound, detail));
        }
        let Some(route) = of_path.clone().find(|route| route.method == method) else {
            let methods: Vec<_> = of_path.map(|route| route.method.as_str()).collect();
            let methods = methods.join(", ");
            let detail = format!("expected {methods}");
            let mut reply = reply::problem(&Problem::new(Kind::Method, detail));
            if let Ok(value) = HeaderValue::from_str(&methods) {
                reply.headers_mut().insert(header::ALLOW, value);
            }
            return Ok(reply);
        };
        let is_change = method != Method::GET;
        if is_change {
            check_origin(&call.head.headers)?;
        }
        let asker = self.asker(&web, route, &call).await?;
        if let (true, Some(asker)) = (is_change, &asker) {
            self.askers.check_forgery(asker, &call.head.headers)?;
        }
        (route.run)(self, Asked { call, asker, is_local }).await
    }

    /// Who asks, where a role is needed, which he has.
    async fn asker(&self, web: &Web, route: &Route, call: &Call) -> Result<Option<Asker>, Problem> {
        use crate::toml_file::Word as _;
        let Some(role) = route.role else { return Ok(None) };
        let asker = self.askers.find(web, call).await?;
        if asker.role < role {
            let (name, role) = (&asker.name, role.word());
            let detail = format!("{name} may look only: the role {role} is needed");
            return Err(Problem::new(Kind::Role, detail));
        }
        Ok(Some(asker))
    }
}

/// The schema of the whole API, as `openapi.json` has it.
#[must_use]
pub(super) fn openapi() -> serde_json::Value {
    openapi::document()
}
