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

/// Who looks, and what he may see.
#[derive(Clone, Debug)]
pub(super) struct Viewer {
    /// As that of a token or a person; none of streams, which are read for all who see the same.
    pub(super) name: Option<String>,
    pub(super) seen: Seen,
}

/// A group of viewers, of which one looks at a time.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Turn {
    Of(Option<String>),
    Part(Scope),
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
    /// Whoever looks does so once at a time, and so do all who see the same part: many requests of one
    /// keep nobody waiting.
    turns: RefCell<HashMap<Turn, Places>>,
    /// Of those who ask for the mail server's queue: it is read as root.
    queue_places: Places,
}

impl Look {
    pub(super) fn new(spool: PathBuf) -> Self {
        let places = Places::new(LOOKS_MAX);
        let (of_parts, part_places) = (RefCell::default(), Places::new(1));
        let latest = Latest::new(spool.clone(), places.clone(), None);
        let (turns, queue_places) = (RefCell::default(), Places::new(LOOKS_MAX));
        Self { latest, of_parts, spool, places, part_places, turns, queue_places }
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
        viewer: Viewer,
    ) -> Result<Vec<Identity>, Problem> {
        let snapshot = self.latest.for_index(wait_for_index(&self.spool)).await;
        self.run(viewer, move |spool, seen| {
            let index = snapshot.as_ref().map(|snapshot| &snapshot.index);
            identity::of_keys(spool, &keys, index, seen)
        })
        .await
    }

    /// The identities that somebody may mean who types `text`.
    pub(super) async fn search(
        &self,
        text: String,
        limit: usize,
        viewer: Viewer,
    ) -> Result<Found, Problem> {
        let snapshot = self.snapshot(&viewer.seen).await?;
        self.run(viewer, move |spool, _| search::found(spool, &snapshot, &text, limit)).await
    }

    /// What `read` makes of the keys that somebody may see, which may be very many.
    pub(super) async fn of_snapshot<T: Send + 'static>(
        &self,
        viewer: Viewer,
        read: impl FnOnce(&Snapshot) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let snapshot = self.snapshot(&viewer.seen).await?;
        self.run(viewer, move |_, _| Ok(read(&snapshot))).await
    }

    /// A page of what was logged of crossings and refusals, of a key or of all.
    pub(super) async fn crossings(
        &self,
        key: Option<String>,
        limit: usize,
        after: Option<Cursor>,
        viewer: Viewer,
    ) -> Result<Crossings, Problem> {
        self.run(viewer, move |spool, seen| {
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
        viewer: Viewer,
    ) -> Result<Changes, Problem> {
        self.run(viewer, move |spool, seen| {
            let sighted = Sighted::of(spool, seen)?;
            changes::of_key(spool, key.as_deref(), limit, after.as_ref(), &sighted)
        })
        .await
    }

    /// What has happened since the last call with `reader`, which is returned.
    pub(super) async fn news(
        &self,
        mut reader: NewsReader,
        viewer: Viewer,
    ) -> Result<(NewsReader, Result<Batch, Problem>), Problem> {
        self.run(viewer, move |spool, seen| {
            let batch = reader.read(spool, seen);
            Ok((reader, batch))
        })
        .await
    }

    /// What a key has sent.
    pub(super) async fn sent(&self, key: String, viewer: Viewer) -> Result<SentOfKey, Problem> {
        self.run(viewer, move |spool, seen| usage::of_key(spool, &key, seen)).await
    }

    /// The policies in use.
    pub(super) async fn policies(&self, viewer: Viewer) -> Result<PoliciesInUse, Problem> {
        self.run(viewer, policies::in_use).await
    }

    /// The overrides.
    pub(super) async fn overrides(&self, viewer: Viewer) -> Result<Vec<OverrideJson>, Problem> {
        self.run(viewer, move |spool, seen| {
            let mut store = rates::open(spool, Purpose::Read).map_err(unavailable)?;
            store.overrides().map_err(unavailable)?;
            let in_force = InForce::of(&mut *store, spool).0.seen_by(seen.as_ref());
            Ok(in_force.own_overrides().map(OverrideJson::of).collect())
        })
        .await
    }

    /// Looks, for whoever has the turn.
    async fn run<T: Send + 'static>(
        &self,
        viewer: Viewer,
        look: impl FnOnce(&Path, Seen) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let (spool, seen) = (self.spool.clone(), viewer.seen.clone());
        self.in_turn(viewer, self.places.run(move || look(&spool, seen))).await
    }

    /// Asks for what is in the mail server's queue, for whoever has the turn.
    pub(super) async fn queue<T>(
        &self,
        viewer: Viewer,
        asked: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        let asked = async {
            let _place = self.queue_places.take().await?;
            asked.await
        };
        self.in_turn(viewer, asked).await
    }

    async fn in_turn<T>(
        &self,
        viewer: Viewer,
        look: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        let own = self.turn(Turn::Of(viewer.name));
        let of_part = viewer.seen.map(|scope| self.turn(Turn::Part(scope)));
        let _own = own.take().await?;
        let _of_part = match &of_part {
            Some(places) => Some(places.take().await?),
            None => None,
        };
        look.await
    }

    fn turn(&self, turn: Turn) -> Places {
        let mut turns = self.turns.borrow_mut();
        turns.retain(|_, places| places.is_used());
        turns.entry(turn).or_insert_with(|| Places::new(1)).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::snapshot::ListState;
    use super::*;
    use crate::cluster::{Away, ClusterSettings};
    use crate::spool::{Options, Spool, open_directory};
    use tokio::task::LocalSet;

    const WAIT: Duration = Duration::from_secs(10);

    /// Neither those of all with a part, nor those of one token that sees all.
    #[tokio::test]
    async fn many_looks_of_one_keep_nobody_else_waiting() {
        let viewer = |name: &str, seen| Viewer { name: Some(name.to_owned()), seen };
        let acme = || Scope::customer("acme");
        for many in [
            [viewer("a", acme()), viewer("b", acme()), viewer("c", acme())],
            [viewer("a", None), viewer("a", None), viewer("a", None)],
        ] {
            let look = Look::new(PathBuf::new());
            let (end, ended) = std::sync::mpsc::channel::<()>();
            let ended = Arc::new(std::sync::Mutex::new(ended));
            let [first, second, third] = many.map(|viewer| {
                let ended = Arc::clone(&ended);
                look.run(viewer, move |_, _| {
                    let _ = ended.lock().unwrap().recv();
                    Ok(())
                })
            });
            let streams = Viewer { name: None, seen: None };
            let others = [streams, viewer("d", None), viewer("e", Scope::customer("other"))];
            let other = async {
                for viewer in others {
                    let looked = tokio::time::timeout(WAIT, look.run(viewer, |_, _| Ok(()))).await;
                    looked.expect("it waits for others").unwrap();
                }
                drop(end);
            };
            let all = LocalSet::new()
                .run_until(async { tokio::join!(first, second, third, other) })
                .await;
            assert!(all.0.and(all.1).and(all.2).is_ok());
            let _ = look.run(viewer("d", None), |_, _| Ok(())).await;
            assert!(look.turns.borrow().values().all(|places| !places.is_used()));
        }
    }

    /// Nor do those that read a list of very many keys: all other requests are replied to meanwhile.
    #[tokio::test]
    async fn lists_that_one_reads_keep_nobody_else_waiting() {
        let folder = tempfile::tempdir().unwrap();
        drop(Spool::open(folder.path(), Options::default()).unwrap());
        let look = Look::new(folder.path().to_owned());
        let viewer = |name: &str| Viewer { name: Some(name.to_owned()), seen: None };
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let ended = Arc::new(std::sync::Mutex::new(ended));
        let [first, second, third] = [(); 3].map(|()| {
            let ended = Arc::clone(&ended);
            look.of_snapshot(viewer("a"), move |snapshot| {
                let _ = ended.lock().unwrap().recv();
                snapshot.count(ListState::Blocked)
            })
        });
        let other = async {
            let listed = look.of_snapshot(viewer("b"), |snapshot| snapshot.keys);
            let listed = tokio::time::timeout(WAIT, listed).await;
            assert_eq!(listed.expect("it waits for others").unwrap(), 0);
            drop(end);
        };
        let all =
            LocalSet::new().run_until(async { tokio::join!(first, second, third, other) }).await;
        assert_eq!((all.0.unwrap(), all.1.unwrap(), all.2.unwrap()), (0, 0, 0));
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
