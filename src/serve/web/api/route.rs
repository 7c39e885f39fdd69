//! A route.

use std::pin::Pin;
use std::rc::Rc;

use hyper::Method;

use super::state::{Api, Asked};
use crate::json_schema::SchemaOf;
use crate::serve::web::http::problem::Problem;
use crate::serve::web::http::reply::Reply;
use crate::serve::web::role::Role;

/// What serves a route.
pub(super) type Run = fn(Rc<Api>, Asked) -> Pin<Box<dyn Future<Output = Result<Reply, Problem>>>>;

/// A parameter of the query: the name, whether it is needed, and what it is.
pub(super) type Parameter = (&'static str, bool, &'static str);

/// A method of a resource.
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    /// Who may; anybody if none.
    pub(super) role: Option<Role>,
    /// What it does.
    pub(super) about: &'static str,
    pub(super) query: &'static [Parameter],
    /// The schema of the body.
    pub(super) body: Option<SchemaOf>,
    /// The schema of the reply, if it is one in JSON.
    pub(super) reply: Option<SchemaOf>,
    pub(super) run: Run,
}
