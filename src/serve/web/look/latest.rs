//! The latest snapshot, which all share who look at all keys.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout_at};

use super::places::Places;
use super::sighted::Seen;
use super::snapshot::Snapshot;
use crate::serve::web::http::problem::{Problem, ProblemKind, unavailable};
use crate::text::counted;

/// For how long somebody waits for a new snapshot; then he has the one before.
const WAIT: Duration = Duration::from_secs(3);
/// For how long that of a part is kept if nobody asks.
const KEPT: Duration = Duration::from_secs(600);

/// The latest snapshot.
#[derive(Clone)]
pub(super) struct Latest(Rc<Shared>);

struct Shared {
    spool: PathBuf,
    places: Places,
    seen: Seen,
    /// When somebody has asked for it last.
    asked: Cell<Instant>,
    state: RefCell<LatestState>,
    /// How many snapshots were read, or tried, and why the last was none.
    ended: watch::Sender<(u64, Option<Problem>)>,
    /// How many keys have been read of the one that is being read.
    progress: Arc<AtomicU64>,
}

#[derive(Default)]
struct LatestState {
    last: Option<Arc<Snapshot>>,
    /// How many changes there were before the last was begun, and how many there are.
    changes_of_last: u64,
    changes: u64,
    is_reading: bool,
}

impl Latest {
    /// Of the keys that somebody may see.
    pub(super) fn new(spool: PathBuf, places: Places, seen: Seen) -> Self {
        let ended = watch::channel((0, None)).0;
        let (state, progress) = (RefCell::default(), Arc::default());
        let asked = Cell::new(Instant::now());
        Self(Rc::new(Shared { spool, places, seen, asked, state, ended, progress }))
    }

    /// Whether somebody has asked for it lately.
    pub(super) fn is_wanted(&self) -> bool {
        self.0.asked.get().elapsed() < KEPT
    }

    /// Something was changed: the next snapshot is a new one.
    pub(super) fn forget(&self) {
        self.0.state.borrow_mut().changes += 1;
    }

    /// All keys, as they were moments ago; where it takes long to read them, as they were before.
    pub(super) async fn get(&self) -> Result<Arc<Snapshot>, Problem> {
        let is_new = |state: &LatestState, one: &Snapshot| {
            one.is_fresh() && state.changes_of_last == state.changes
        };
        match self.wait_for(is_new, WAIT).await? {
            Some(snapshot) => Ok(snapshot),
            None => {
                let keys = counted(self.0.progress.load(Ordering::Relaxed), "key has", "keys have");
                let detail = format!(
                    "the database is being read for the first time: {keys} been read so far; try \
                     again in a few seconds"
                );
                Err(Problem::new(ProblemKind::Unavailable, detail))
            }
        }
    }

    /// A snapshot for its index, which may be older, if there is one within this time.
    pub(super) async fn for_index(&self, wait: Duration) -> Option<Arc<Snapshot>> {
        let last = self.wait_for(|_, one| one.has_fresh_index(), wait).await.ok().flatten();
        last.filter(|snapshot| snapshot.has_usable_index())
    }

    /// One that `is_right`; if it takes longer than `wait` to read one, the last, if there is one.
    async fn wait_for(
        &self,
        is_right: impl Fn(&LatestState, &Snapshot) -> bool,
        wait: Duration,
    ) -> Result<Option<Arc<Snapshot>>, Problem> {
        self.0.asked.set(Instant::now());
        let deadline = Instant::now() + wait;
        let mut ended = self.0.ended.subscribe();
        loop {
            {
                let state = self.0.state.borrow();
                if let Some(last) = state.last.as_ref().filter(|last| is_right(&state, last)) {
                    return Ok(Some(Arc::clone(last)));
                }
            }
            self.begin();
            match timeout_at(deadline, ended.changed()).await {
                Ok(Ok(())) => {
                    if let (_, Some(problem)) = &*ended.borrow_and_update() {
                        return Err(problem.clone());
                    }
                }
                Ok(Err(_)) | Err(_) => return Ok(self.0.state.borrow().last.clone()),
            }
        }
    }

    /// Begins to read one, unless that is done already.
    fn begin(&self) {
        let shared = Rc::clone(&self.0);
        let changes = {
            let mut state = shared.state.borrow_mut();
            if std::mem::replace(&mut state.is_reading, true) {
                return;
            }
            state.changes
        };
        shared.progress.store(0, Ordering::Relaxed);
        spawn_local(async move {
            let (spool, progress) = (shared.spool.clone(), Arc::clone(&shared.progress));
            let seen = shared.seen.clone();
            let take = move || Snapshot::take(&spool, &progress, seen).map_err(unavailable);
            let taken = shared.places.run(take).await;
            let mut state = shared.state.borrow_mut();
            state.is_reading = false;
            let failed = match taken {
                Ok(taken) => {
                    state.last = Some(Arc::new(taken));
                    state.changes_of_last = changes;
                    None
                }
                Err(problem) => Some(problem),
            };
            drop(state);
            shared.ended.send_modify(|(number, why)| {
                *number += 1;
                *why = failed;
            });
        });
    }
}
