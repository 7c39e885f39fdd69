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
mod sighted;
pub(super) mod snapshot;
mod suspicion;
mod usage;

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::api::cursor::Cursor;
use super::api::types::{Changes, Crossings, Found, Identity, PoliciesInUse, SentOfKey};
use super::http::problem::{Problem, unavailable};
use crate::serve::rates::{self, Purpose};
use crate::standing::in_force::InForce;
use crate::standing::override_state::OverrideJson;
use crate::standing::scope::Scope;
use latest::Latest;
use news_reader::{Batch, NewsReader};
use places::{LOOKS_MAX, Places};
pub(super) use sighted::Seen;
use sighted::Sighted;
use snapshot::Snapshot;

/// For how long somebody waits for an index of the keys of a server's own database, all of which are
/// read without one.
const WAIT_INDEX: Duration = Duration::from_millis(300);

/// For how long somebody waits for an index: the names of shared rates are known without one.
fn wait_for_index(spool: &Path) -> Duration {
    if rates::are_shared(spool) { Duration::ZERO } else { WAIT_INDEX }
}

/// Reads the database.
pub(super) struct Look {
    spool: PathBuf,
    latest: Latest,
    /// The same for those who see a part.
    of_parts: RefCell<HashMap<Scope, Latest>>,
    places: Places,
    /// Where these are read, one after the other, so that all of them take no more than one place.
    part_places: Places,
    /// Those who see the same part look one after the other: many requests of one keep nobody waiting.
    own_places: RefCell<HashMap<Scope, Places>>,
    /// Of those who ask for the mail server's queue: it is read as root.
    queue_places: Places,
}

impl Look {
    pub(super) fn new(spool: PathBuf) -> Self {
        let places = Places::new(LOOKS_MAX);
        let (of_parts, part_places) = (RefCell::default(), Places::new(1));
        let latest = Latest::new(spool.clone(), places.clone(), None);
        let (own_places, queue_places) = (RefCell::default(), Places::new(LOOKS_MAX));
        Self { latest, of_parts, spool, places, part_places, own_places, queue_places }
    }

    /// The keys that somebody may see, as they were moments ago.
    pub(super) async fn snapshot(&self, seen: &Seen) -> Result<Arc<Snapshot>, Problem> {
        let Some(scope) = seen else { return self.latest.get().await };
        let latest = {
            let mut all = self.of_parts.borrow_mut();
            all.retain(|_, latest| latest.is_wanted());
            let new =
                || Latest::new(self.spool.clone(), self.part_places.clone(), Some(scope.clone()));
            all.entry(scope.clone()).or_insert_with(new).clone()
        };
        latest.get().await
    }

    /// Something was changed: the next look is a new one.
    pub(super) fn forget(&self) {
        self.latest.forget();
        self.of_parts.borrow().values().for_each(Latest::forget);
    }

    /// All of these identities.
    pub(super) async fn identities(
        &self,
        keys: Vec<String>,
        seen: Seen,
    ) -> Result<Vec<Identity>, Problem> {
        let snapshot = self.latest.for_index(wait_for_index(&self.spool)).await;
        let of = seen.clone();
        let index = move |spool: &Path| {
            let index = snapshot.as_ref().map(|snapshot| &snapshot.index);
            identity::of_keys(spool, &keys, index, seen)
        };
        self.run(&of, index).await
    }

    /// The identities that somebody may mean who types `text`.
    pub(super) async fn search(
        &self,
        text: String,
        limit: usize,
        seen: &Seen,
    ) -> Result<Found, Problem> {
        let snapshot = self.snapshot(seen).await?;
        self.run(seen, move |spool| search::found(spool, &snapshot, &text, limit)).await
    }

    /// A page of what was logged of crossings and refusals, of a key or of all.
    pub(super) async fn crossings(
        &self,
        key: Option<String>,
        limit: usize,
        after: Option<Cursor>,
        seen: Seen,
    ) -> Result<Crossings, Problem> {
        self.run(&seen.clone(), move |spool| {
            let sighted = Sighted::of(spool, seen)?;
            crossings::of_key(spool, key.as_deref(), limit, after.as_ref(), &sighted)
        })
        .await
    }

    /// A page of what was changed by hand, of a key or of all.
    pub(super) async fn changes(
        &self,
        key: Option<String>,
        limit: usize,
        after: Option<Cursor>,
        seen: Seen,
    ) -> Result<Changes, Problem> {
        self.run(&seen.clone(), move |spool| {
            let sighted = Sighted::of(spool, seen)?;
            changes::of_key(spool, key.as_deref(), limit, after.as_ref(), &sighted)
        })
        .await
    }

    /// What has happened since the last call with `reader`, which is returned.
    pub(super) async fn news(
        &self,
        mut reader: NewsReader,
        seen: Seen,
    ) -> Result<(NewsReader, Result<Batch, Problem>), Problem> {
        self.run(&seen.clone(), move |spool| {
            let batch = reader.read(spool, seen);
            Ok((reader, batch))
        })
        .await
    }

    /// What a key has sent.
    pub(super) async fn sent(&self, key: String, seen: Seen) -> Result<SentOfKey, Problem> {
        self.run(&seen.clone(), move |spool| usage::of_key(spool, &key, seen)).await
    }

    /// The policies in use.
    pub(super) async fn policies(&self, seen: Seen) -> Result<PoliciesInUse, Problem> {
        self.run(&seen.clone(), move |spool| policies::in_use(spool, seen)).await
    }

    /// The overrides.
    pub(super) async fn overrides(&self, seen: Seen) -> Result<Vec<OverrideJson>, Problem> {
        self.run(&seen.clone(), move |spool| {
            let mut store = rates::open(spool, Purpose::Read).map_err(unavailable)?;
            store.overrides().map_err(unavailable)?;
            let in_force = InForce::of(&mut *store, spool).0.seen_by(seen.as_ref());
            Ok(in_force.own_overrides().map(OverrideJson::of).collect())
        })
        .await
    }

    /// Looks, for whoever may see this.
    async fn run<T: Send + 'static>(
        &self,
        seen: &Seen,
        look: impl FnOnce(&Path) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let spool = self.spool.clone();
        self.in_turn(seen, self.places.run(move || look(&spool))).await
    }

    /// Asks for what is in the mail server's queue, for whoever may see this.
    pub(super) async fn queue<T>(
        &self,
        seen: &Seen,
        asked: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        let asked = async {
            let _place = self.queue_places.take().await?;
            asked.await
        };
        self.in_turn(seen, asked).await
    }

    async fn in_turn<T>(
        &self,
        seen: &Seen,
        look: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        let Some(scope) = seen else { return look.await };
        let own = {
            let mut all = self.own_places.borrow_mut();
            all.retain(|_, own| own.is_used());
            all.entry(scope.clone()).or_insert_with(|| Places::new(1)).clone()
        };
        let _own = own.take().await?;
        look.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Away, ClusterSettings};
    use crate::spool::open_directory;

    const WAIT: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn many_looks_at_one_part_keep_nobody_else_waiting() {
        let (look, part) = (Look::new(PathBuf::new()), Scope::customer("acme"));
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let ended = Arc::new(std::sync::Mutex::new(ended));
        let of_part = || {
            let ended = Arc::clone(&ended);
            look.run(&part, move |_| {
                let _ = ended.lock().unwrap().recv();
                Ok(())
            })
        };
        let other = async {
            for seen in [None, Scope::customer("other")] {
                let looked = tokio::time::timeout(WAIT, look.run(&seen, |_| Ok(()))).await;
                looked.expect("it waits for others").unwrap();
            }
            drop(end);
        };
        let all = tokio::join!(of_part(), of_part(), of_part(), other);
        assert!(all.0.and(all.1).and(all.2).is_ok());
        let _ = look.run(&None, |_| Ok(())).await;
        assert!(look.own_places.borrow().values().all(|own| !own.is_used()));
    }

    #[test]
    fn nobody_waits_for_an_index_where_limits_are_shared() {
        let spool = tempfile::tempdir().unwrap();
        assert_eq!(wait_for_index(spool.path()), WAIT_INDEX);
        let directory = open_directory(spool.path(), true).unwrap();
        assert_eq!(wait_for_index(spool.path()), WAIT_INDEX);
        let settings = ClusterSettings {
            socket: "/run/agent.sock".into(),
            agent_user: 0,
            servers: 2,
            deadline: Duration::from_millis(100),
            away: Away::Local,
            config: "/etc/exirate.toml".into(),
        };
        settings.write(&directory).unwrap();
        assert_eq!(wait_for_index(spool.path()), Duration::ZERO);
    }
}
