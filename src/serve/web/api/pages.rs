//! Counts and pages of keys, as routes and streams show them.

use super::cursor::{Cursor, Page};
use super::state::Api;
use super::types::{Keys, Status};
use crate::serve::web::http::problem::Problem;
use crate::serve::web::look::snapshot::{ListState, Snapshot};
use crate::serve::web::look::{Seen, Viewer};
use crate::text;

impl Api {
    pub(super) async fn status(&self, seen: &Seen) -> Result<Status, Problem> {
        let snapshot = self.look.snapshot(seen).await?;
        Ok(Status {
            at: text::iso(snapshot.in_force.now),
            keys: snapshot.keys,
            blocked: snapshot.count(ListState::Blocked),
            close: snapshot.count(ListState::Close),
            suspected: snapshot.count(ListState::Suspected),
            denied: snapshot.count(ListState::Denied),
            exempt: snapshot.count(ListState::Exempt),
            unread: snapshot.unread.clone(),
        })
    }

    /// A page of the keys of a state, of which the page before ends at `after`.
    pub(super) async fn page(
        &self,
        state: ListState,
        search: &str,
        limit: usize,
        after: Option<Cursor>,
        viewer: Viewer,
    ) -> Result<Keys, Problem> {
        let search = search.to_lowercase();
        let of = move |snapshot: &Snapshot| {
            let Page { items, next } = snapshot.page(state, &search, limit, after.as_ref());
            Keys { at: text::iso(snapshot.in_force.now), keys: items, next }
        };
        self.look.of_snapshot(viewer, of).await
    }
}
