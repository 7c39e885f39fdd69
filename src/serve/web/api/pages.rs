//! Counts and pages of keys, as routes and streams show them.

use super::cursor::{Cursor, Page};
use super::state::Api;
use super::types::{Keys, Status};
use crate::serve::web::http::problem::Problem;
use crate::serve::web::look::snapshot::State;
use crate::text;

impl Api {
    pub(super) async fn status(&self) -> Result<Status, Problem> {
        let snapshot = self.look.snapshot().await?;
        Ok(Status {
            at: text::iso(snapshot.in_force.now),
            keys: snapshot.keys,
            blocked: snapshot.count(State::Blocked),
            close: snapshot.count(State::Close),
            suspected: snapshot.count(State::Suspected),
            denied: snapshot.count(State::Denied),
            exempt: snapshot.count(State::Exempt),
            unread: snapshot.unread.clone(),
        })
    }

    /// A page of the keys of a state, of which the page before ends at `after`.
    pub(super) async fn page(
        &self,
        state: State,
        search: &str,
        limit: usize,
        after: Option<&Cursor>,
    ) -> Result<Keys, Problem> {
        let snapshot = self.look.snapshot().await?;
        let Page { items, next } = snapshot.page(state, &search.to_lowercase(), limit, after);
        Ok(Keys { at: text::iso(snapshot.in_force.now), keys: items, next })
    }
}
