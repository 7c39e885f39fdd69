//! What the database has, read when somebody asks: each look opens it again, in a thread of its
//! own, and changes nothing.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, Semaphore};
use tokio::task::spawn_blocking;

use super::api::types::{Identity, Row, Suspicion};
use super::http::problem::{Kind, Problem};
use crate::policy::image::{ImageError, PolicyFile};
use crate::rate::habits::Sensitivity;
use crate::rate::{Timestamp, Wait};
use crate::serve::rates::{self, Purpose};
use crate::spool::habits::habits_key;
use crate::standing::accounts;
use crate::standing::in_force::InForce;
use crate::standing::key_state::{KeyState, later};
use crate::standing::key_text;
use crate::standing::override_state::{self, OverrideJson};
use crate::standing::pattern::{Pattern, Syntax};
use crate::standing::totals::{Totals, called};
use crate::standing::words;
use crate::store::{Override, OwnedKey, Target};
use crate::text;

/// From which part of its limit on a key is close to it.
const CLOSE: f64 = 0.8;
/// So many keys that are over or close are kept, the highest first.
const KEPT: usize = 10_000;
/// How old a snapshot may be, and how much longer than it took to take.
const FRESH: Duration = Duration::from_secs(2);
const FRESH_PARTS: u32 = 4;
/// How many looks there are at the same time: one more would take a processor from mail.
const LOOKS_MAX: usize = 2;

/// Reads the database.
pub(super) struct Look {
    spool: PathBuf,
    last: Mutex<Option<Arc<Snapshot>>>,
    places: Semaphore,
}

/// A key that is over or close to its limit.
#[derive(Debug)]
pub(super) struct Ranked {
    pub(super) record: KeyState,
    share: f64,
    pub(super) is_refused: bool,
}

impl Ranked {
    /// Where it is in the order of all: the highest share first.
    pub(super) fn rank(&self) -> (u64, &[u8]) {
        // A share is never negative, so that its bits are in the order of its values.
        (self.share.to_bits(), &self.record.stored)
    }

    fn order(&self, other: &Self) -> Ordering {
        let ((a, a_key), (b, b_key)) = (self.rank(), other.rank());
        b.cmp(&a).then_with(|| a_key.cmp(b_key))
    }
}

/// All keys at one moment.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) in_force: InForce,
    /// How many there are, are refused, and are close.
    pub(super) keys: u64,
    pub(super) blocked: u64,
    pub(super) close: u64,
    /// The first of those that are refused or close.
    pub(super) ranked: Vec<Ranked>,
    /// What could not be read.
    pub(super) unread: Vec<String>,
    taken: Instant,
    took: Duration,
}

impl Snapshot {
    fn take(spool: &Path) -> Result<Self, String> {
        let taken = Instant::now();
        let mut store = rates::open(spool, Purpose::Read)?;
        let (in_force, mut unread) = InForce::of(&mut *store, spool);
        let mut ranked: Vec<Ranked> = Vec::new();
        let (mut keys, mut blocked, mut close) = (0, 0, 0);
        let left_out = store.for_each(&mut |entry| {
            let record = KeyState::from(entry);
            let (is_refused, share) = (in_force.refuses(&record), record.share(in_force.now));
            keys += 1;
            blocked += u64::from(is_refused);
            if !is_refused && share < CLOSE {
                return;
            }
            close += u64::from(!is_refused);
            ranked.push(Ranked { record, share: share.max(0.0), is_refused });
            if ranked.len() >= 2 * KEPT {
                cut(&mut ranked);
            }
        });
        let left_out = left_out.map_err(|error| error.to_string())?;
        unread.extend(left_out.parts.iter().map(ToString::to_string));
        cut(&mut ranked);
        Ok(Self { in_force, keys, blocked, close, ranked, unread, taken, took: taken.elapsed() })
    }

    fn is_fresh(&self) -> bool {
        self.taken.elapsed() < FRESH.max(self.took * FRESH_PARTS)
    }

    /// One that is over or close, as the API has it.
    pub(super) fn row(&self, ranked: &Ranked) -> Row {
        row(&ranked.record, &self.in_force)
    }
}

/// Keeps those that are refused, and the highest.
fn cut(ranked: &mut Vec<Ranked>) {
    ranked.sort_unstable_by(|a, b| b.is_refused.cmp(&a.is_refused).then_with(|| a.order(b)));
    ranked.truncate(KEPT);
    ranked.sort_unstable_by(Ranked::order);
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
        let taken = self.run(|spool| Snapshot::take(&spool).map_err(unavailable)).await?;
        let taken = Arc::new(taken);
        *last = Some(Arc::clone(&taken));
        Ok(taken)
    }

    /// Something was changed: the next look is a new one.
    pub(super) async fn forget(&self) {
        self.last.lock().await.take();
    }

    /// All of one identity.
    pub(super) async fn identity(&self, key: String) -> Result<Identity, Problem> {
        self.run(move |spool| identity(&spool, &key)).await
    }

    /// The overrides.
    pub(super) async fn overrides(&self) -> Result<Vec<OverrideJson>, Problem> {
        self.run(|spool| {
            let mut store = rates::open(&spool, Purpose::Read).map_err(unavailable)?;
            let now = text::time::now().seconds;
            let all = store.overrides().map_err(unavailable)?;
            Ok(all.iter().filter(|one| one.is_active(now)).map(OverrideJson::of).collect())
        })
        .await
    }

    async fn run<T: Send + 'static>(
        &self,
        look: impl FnOnce(PathBuf) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let place = self.places.acquire().await;
        let _place = place.map_err(unavailable)?;
        let spool = self.spool.clone();
        spawn_blocking(move || look(spool)).await.map_err(unavailable)?
    }
}

fn unavailable(error: impl std::fmt::Display) -> Problem {
    Problem::new(Kind::Unavailable, error.to_string())
}

/// A record as the API has it.
fn row(record: &KeyState, in_force: &InForce) -> Row {
    let (next, now) = (in_force.next(record), in_force.now);
    Row {
        shown: key_text::shown(record.key()),
        pasted: key_text::key(record.key()),
        reason: reason(record, in_force),
        remaining: next.remaining(record, now),
        r#override: next.overridden().map(OverrideJson::of),
        state: in_force.json(record),
    }
}

/// Why its next event passes or is refused, in a sentence.
fn reason(record: &KeyState, in_force: &InForce) -> String {
    let (next, now) = (in_force.next(record), in_force.now);
    let used = words::used(record, now);
    match (next.why(), next.is_refused(), next.wait(record, now)) {
        (Some(why), ..) => format!("{why}; {used}"),
        (None, true, Some(Wait::Never)) => format!("{used}: no event ever passes"),
        (None, true, Some(wait)) => format!("{used}: the next passes {}", text::wait(wait)),
        _ => used,
    }
}

fn identity(spool: &Path, argument: &str) -> Result<Identity, Problem> {
    let malformed = |why: String| Problem::new(Kind::Malformed, why);
    let file = PolicyFile::open(spool);
    let folding = match file.image() {
        Ok(image) => image.identity().map_err(unavailable)?.folding.clone(),
        Err(ImageError::Absent { .. }) => Default::default(),
        Err(error) => return Err(unavailable(error)),
    };
    let syntax = Syntax { exact: false, folding };
    let pattern = Pattern::parse(argument.as_bytes(), syntax).map_err(malformed)?;
    if pattern.is_loose() {
        return Err(malformed("expected one key, not a glob".to_owned()));
    }
    let (target, shown) = pattern.override_target().map_err(malformed)?;
    let mut store = rates::open(spool, Purpose::Read).map_err(unavailable)?;
    let mut records = Vec::new();
    let left_out = store.for_each(&mut |entry| {
        if pattern.matches(&entry.record_key()) {
            records.push(KeyState::from(entry));
        }
    });
    if let Some(error) = left_out.map_err(unavailable)?.parts.pop() {
        return Err(unavailable(error));
    }
    let (in_force, _) = InForce::of(&mut *store, spool);
    let now = in_force.now;
    let keys: Vec<OwnedKey> = records.iter().map(|one| one.record_key().into()).collect();
    let of_records = Totals::of(&mut *store, &in_force, keys.iter().map(OwnedKey::key));
    let refusing = Totals::refusing(&mut *store, &in_force, &target);
    let totals = of_records.map_err(unavailable)?.and(refusing.map_err(unavailable)?);
    records.sort_by(|a, b| {
        b.share(now).total_cmp(&a.share(now)).then_with(|| a.stored.cmp(&b.stored))
    });
    let overrides = store.overrides().map_err(unavailable)?;
    let is_of_it = |one: &&Override| {
        one.is_active(now.seconds)
            && (override_state::covers(&target, one)
                || records.iter().any(|record| one.target.applies_to(&record.record_key())))
    };
    let overrides: Vec<Override> = overrides.iter().filter(is_of_it).cloned().collect();
    let denied = override_state::of_target(&overrides, &target, now.seconds);
    let refused: Vec<&KeyState> = records.iter().filter(|one| in_force.refuses(one)).collect();
    let names = totals.names_refusing(&in_force);
    let is_denied = denied.is_some_and(|one| one.overridden == crate::engine::Overridden::Deny);
    let mut why: Vec<String> = refused.iter().map(|one| reason(one, &in_force)).collect();
    if let (true, true, Some(one)) = (is_denied, refused.is_empty(), denied) {
        why.push(override_state::sentence(one));
    }
    if !names.is_empty() {
        why.push(format!("refused by {}", called(&names)));
    }
    let waits = refused.iter().map(|one| in_force.next(one).wait(one, now));
    let longest = waits.map(|wait| wait.and_then(Wait::whole_seconds)).max_by_key(|wait| {
        // What never passes, and what is not known, is the longest.
        wait.unwrap_or(u64::MAX)
    });
    let free = longest.flatten().filter(|_| !is_denied && names.is_empty());
    Ok(Identity {
        refused: !why.is_empty(),
        reasons: why,
        free_at: free.map(|seconds| text::iso(later(now, seconds))),
        suspicion: suspicion(spool, &target, now),
        records: records.iter().map(|record| row(record, &in_force)).collect(),
        totals: totals.records().map(|record| row(record, &in_force)).collect(),
        overrides: overrides.iter().map(OverrideJson::of).collect(),
        key: shown,
    })
}

/// What the habits of the account say, if there are any.
fn suspicion(spool: &Path, target: &Target, now: Timestamp) -> Option<Suspicion> {
    // What cannot be read says nothing.
    let mut own = rates::own(spool, Purpose::Read).ok()?;
    let habits = accounts::of_target(target).into_iter().find_map(|identity| {
        let mut name = Vec::new();
        own.habits(habits_key(&identity, &mut name)).ok().flatten()
    })?;
    let evidence = habits.evidence(habits.at());
    Some(Suspicion {
        suspected: habits.is_suspected(now.seconds),
        score: habits.score(now.seconds),
        threshold: habits.threshold(now.seconds, Sensitivity::default()),
        alarm_at: habits.alarm_at().map(text::iso_second),
        strangers: u64::from(evidence.strangers),
        messages: u64::from(evidence.messages),
        networks: u64::from(evidence.networks),
    })
}
