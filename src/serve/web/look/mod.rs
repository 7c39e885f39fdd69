//! What the database has, read when somebody asks: each look opens it again, in a thread of its
//! own, and changes nothing.

mod changes;
mod crossings;
mod identity;
mod index;
mod latest;
pub(super) mod news_reader;
mod places;
mod policies;
mod row;
mod search;
pub(super) mod snapshot;
mod suspicion;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::api::cursor::Cursor;
use super::api::types::{Changes, Crossings, Found, Identity, PoliciesInUse};
use super::http::problem::{Problem, unavailable};
use crate::serve::rates::{self, Purpose};
use crate::standing::override_state::OverrideJson;
use crate::text;
use latest::Latest;
use news_reader::{Batch, NewsReader};
use places::Places;
use snapshot::Snapshot;

/// Reads the database.
pub(super) struct Look {
    spool: PathBuf,
    latest: Latest,
    places: Places,
}

impl Look {
    pub(super) fn new(spool: PathBuf) -> Self {
        let places = Places::new();
        Self { latest: Latest::new(spool.clone(), places.clone()), spool, places }
    }

    /// All keys, as they were moments ago.
    pub(super) async fn snapshot(&self) -> Result<Arc<Snapshot>, Problem> {
        self.latest.get().await
    }

    /// Something was changed: the next look is a new one.
    pub(super) fn forget(&self) {
        self.latest.forget();
    }

    /// All of these identities.
    pub(super) async fn identities(&self, keys: Vec<String>) -> Result<Vec<Identity>, Problem> {
        let snapshot = self.latest.for_index().await;
        let index = move |spool: &Path| {
            let index = snapshot.as_ref().map(|snapshot| &snapshot.index);
            identity::of_keys(spool, &keys, index)
        };
        self.run(index).await
    }

    /// The identities that somebody may mean who types `text`.
    pub(super) async fn search(&self, text: String, limit: usize) -> Result<Found, Problem> {
        let snapshot = self.latest.get().await?;
        self.run(move |spool| search::found(spool, &snapshot, &text, limit)).await
    }

    /// A page of what was logged of crossings and refusals, of a key or of all.
    pub(super) async fn crossings(
        &self,
        key: Option<String>,
        limit: usize,
        after: Option<Cursor>,
    ) -> Result<Crossings, Problem> {
        self.run(move |spool| crossings::of_key(spool, key.as_deref(), limit, after.as_ref())).await
    }

    /// A page of what was changed by hand, of a key or of all.
    pub(super) async fn changes(
        &self,
        key: Option<String>,
        limit: usize,
        after: Option<Cursor>,
    ) -> Result<Changes, Problem> {
        self.run(move |spool| changes::of_key(spool, key.as_deref(), limit, after.as_ref())).await
    }

    /// What has happened since the last call with `reader`, which is returned.
    pub(super) async fn news(
        &self,
        mut reader: NewsReader,
    ) -> Result<(NewsReader, Result<Batch, Problem>), Problem> {
        self.run(move |spool| {
            let batch = reader.read(spool);
            Ok((reader, batch))
        })
        .await
    }

    /// The policies in use.
    pub(super) async fn policies(&self) -> Result<PoliciesInUse, Problem> {
        self.run(policies::in_use).await
    }

    /// The overrides.
    pub(super) async fn overrides(&self) -> Result<Vec<OverrideJson>, Problem> {
        self.run(|spool| {
            let mut store = rates::open(spool, Purpose::Read).map_err(unavailable)?;
            let now = text::time::now().seconds;
            let all = store.overrides().map_err(unavailable)?;
            Ok(all.iter().filter(|one| one.is_active(now)).map(OverrideJson::of).collect())
        })
        .await
    }

    async fn run<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Path) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let spool = self.spool.clone();
        self.places.run(move || look(&spool)).await
    }
}
