//! What the database has, read when somebody asks: each look opens it again, in a thread of its
//! own, and changes nothing.

mod changes;
mod crossings;
mod identity;
mod one_key;
mod policies;
mod row;
mod search;
pub(super) mod snapshot;
mod suspicion;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{Mutex, Semaphore};
use tokio::task::spawn_blocking;

use super::api::cursor::Cursor;
use super::api::types::{Changes, Crossings, Found, Identity, PoliciesInUse};
use super::http::problem::{Kind, Problem};
use crate::serve::rates::{self, Purpose};
use crate::standing::override_state::OverrideJson;
use crate::text;
use snapshot::Snapshot;

/// How many looks there are at the same time: one more would take a processor from mail.
const LOOKS_MAX: usize = 2;

/// Reads the database.
pub(super) struct Look {
    spool: PathBuf,
    last: Mutex<Option<Arc<Snapshot>>>,
    places: Semaphore,
}

impl Look {
    pub(super) fn new(spool: PathBuf) -> Self {
        Self { spool, last: Mutex::new(None), places: Semaphore::new(LOOKS_MAX) }
    }

    /// All keys, as they were moments ago.
    pub(super) async fn snapshot(&self) -> Result<Arc<Snapshot>, Problem> {
        // Whoever comes meanwhile waits, and has the same.
        let mut last = self.last.lock().await;
        if let Some(snapshot) = last.as_ref().filter(|snapshot| snapshot.is_fresh()) {
            return Ok(Arc::clone(snapshot));
        }
        let taken = self.run(|spool| Snapshot::take(spool).map_err(unavailable)).await?;
        let taken = Arc::new(taken);
        *last = Some(Arc::clone(&taken));
        Ok(taken)
    }

    /// Something was changed: the next look is a new one.
    pub(super) async fn forget(&self) {
        self.last.lock().await.take();
    }

    /// All of these identities.
    pub(super) async fn identities(&self, keys: Vec<String>) -> Result<Vec<Identity>, Problem> {
        self.run(move |spool| identity::of_keys(spool, &keys)).await
    }

    /// The identities that somebody may mean who types `text`.
    pub(super) async fn search(&self, text: String, limit: usize) -> Result<Found, Problem> {
        self.run(move |spool| search::found(spool, &text, limit)).await
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
        let place = self.places.acquire().await;
        let _place = place.map_err(unavailable)?;
        let spool = self.spool.clone();
        spawn_blocking(move || look(&spool)).await.map_err(unavailable)?
    }
}

fn unavailable(error: impl std::fmt::Display) -> Problem {
    Problem::new(Kind::Unavailable, error.to_string())
}
