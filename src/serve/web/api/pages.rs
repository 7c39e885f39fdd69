//! Counts and pages of keys, as routes and streams show them.

use super::state::Api;
use super::types::{Keys, Status};
use crate::serve::web::http::problem::Problem;
use crate::serve::web::look::Ranked;
use crate::text;

impl Api {
    pub(super) async fn status(&self) -> Result<Status, Problem> {
        let snapshot = self.look.snapshot().await?;
        Ok(Status {
            at: text::iso(snapshot.in_force.now),
            keys: snapshot.keys,
            blocked: snapshot.blocked,
            close: snapshot.close,
            unread: snapshot.unread.clone(),
        })
    }

    /// A page of the keys that are blocked or close, of which the page before ends at `after`.
    pub(super) async fn page(
        &self,
        is_blocked: bool,
        search: &str,
        limit: usize,
        after: Option<(u64, Vec<u8>)>,
    ) -> Result<Keys, Problem> {
        let snapshot = self.look.snapshot().await?;
        let search = search.to_lowercase();
        let is_after = |one: &&Ranked| {
            after.as_ref().is_none_or(|(share, stored)| {
                let (own, key) = one.rank();
                own < *share || own == *share && key > &**stored
            })
        };
        let contains = |one: &&Ranked| {
            search.is_empty()
                || String::from_utf8_lossy(one.record.key()).to_lowercase().contains(&search)
        };
        let all = snapshot.ranked.iter().filter(|one| one.is_refused == is_blocked);
        let mut page: Vec<&Ranked> =
            all.filter(is_after).filter(contains).take(limit.saturating_add(1)).collect();
        let more = page.len() > limit;
        page.truncate(limit);
        let last = page.last().filter(|_| more).map(|one| one.rank());
        Ok(Keys {
            at: text::iso(snapshot.in_force.now),
            keys: page.iter().map(|one| snapshot.row(one)).collect(),
            next: last.map(|(share, stored)| format!("{share:016x}{}", text::hex(stored))),
        })
    }
}
