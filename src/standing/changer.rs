//! Who changes something by hand: an administrator by a command, or somebody who helps by the web.

use std::fmt::Display;

use super::audit_line::BY_WEB;
use super::audit_log;
use crate::store::{Inspect, Override};

/// Somebody who changes how keys stand. Each change is a line in the audit log.
#[derive(Debug)]
pub(crate) struct Changer {
    who: String,
    is_helper: bool,
    unlogged: Option<String>,
}

impl Changer {
    /// An administrator: `who` has one word for each thing that is known of him.
    pub(crate) fn administrator(who: String) -> Self {
        Self { who, is_helper: false, unlogged: None }
    }

    /// Somebody who helps by the web, such as `token:desk`.
    pub(crate) fn helper(name: &str) -> Self {
        Self { who: format!("{BY_WEB}{name}"), is_helper: true, unlogged: None }
    }

    /// As overrides and the log have him.
    pub(crate) fn who(&self) -> &str {
        &self.who
    }

    /// Whether he must leave this override alone: who helps may end no denial of an administrator.
    pub(crate) fn must_leave(&self, one: &Override) -> bool {
        self.is_helper && one.overridden.is_denial() && !one.who.starts_with(BY_WEB)
    }

    /// Logs a change, as [`audit_log::log`]. The change stands where that fails.
    pub(crate) fn log(&mut self, store: &mut dyn Inspect, what: impl Display) {
        if let Err(error) = audit_log::log(store, &self.who, what) {
            self.unlogged.get_or_insert(format!("the change is not logged: {error}"));
        }
    }

    /// A change was made, and `why` not all that belongs to it.
    pub(crate) fn incomplete(&mut self, why: String) {
        self.unlogged.get_or_insert(why);
    }

    /// That a log could not be written, if that was not asked before.
    pub(crate) fn unlogged(&mut self) -> Option<String> {
        self.unlogged.take()
    }
}
