//! What the routes share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::streams::Streams;
use crate::serve::config::Web;
use crate::serve::log::Log;
use crate::serve::web::asker::{Asker, Askers};
use crate::serve::web::http::connection::Call;
use crate::serve::web::http::problem::{Problem, ProblemKind};
use crate::serve::web::look::{Look, Viewer};

/// The API of a running service.
pub(in crate::serve::web) struct Api {
    pub(in crate::serve::web) web: RefCell<Rc<Web>>,
    pub(in crate::serve::web) askers: Askers,
    pub(super) look: Look,
    pub(in crate::serve::web) streams: Streams,
    /// How many requests there were.
    pub(in crate::serve::web) requests: Cell<u64>,
}

/// What a route is asked.
pub(super) struct Asked {
    pub(super) call: Call,
    pub(super) asker: Option<Asker>,
    /// Whether the browser knows the service by a name of this machine alone.
    pub(super) is_local: bool,
}

impl Asked {
    /// Who looks, and whose identities he may see. Nobody who is not known sees any.
    pub(super) fn viewer(&self) -> Result<Viewer, Problem> {
        let unknown = || Problem::new(ProblemKind::Unknown, "expected a token");
        let asker = self.asker.as_ref().ok_or_else(unknown)?;
        Ok(Viewer { name: Some(asker.name.clone()), seen: asker.scope.clone() })
    }
}

impl Api {
    pub(in crate::serve::web) fn new(web: Web, log: Rc<Log>) -> Result<Self, String> {
        Ok(Self {
            askers: Askers::new(&web, log)?,
            look: Look::new(web.spool.clone()),
            streams: Streams::default(),
            requests: Cell::new(0),
            web: RefCell::new(Rc::new(web)),
        })
    }
}
