//! All keys at one moment.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::index::Index;
use super::sighted::Seen;
use super::{row, suspicion};
use crate::engine::{Kind, Overridden};
use crate::rate::Timestamp;
use crate::rate::habits::Habits;
use crate::serve::rates::{self, Purpose};
use crate::serve::web::api::cursor::{Cursor, Page};
use crate::serve::web::api::types::Row;
use crate::standing::in_force::{By, InForce};
use crate::standing::key_state::{self, KeyState};
use crate::store::{Entry, Inspect, Override, habits_key};
use crate::toml_file::Word;

/// From which part of its limit on a key is close to it.
const CLOSE: f64 = 0.8;
/// So many keys of a state are kept, the highest first.
const KEPT: usize = 10_000;
/// How old a snapshot may be, and how much longer than it took to take.
const FRESH: Duration = Duration::from_secs(2);
const FRESH_PARTS: u32 = 4;
/// The same for its index: after how much time it is read again, and is not used any more.
const INDEX_PARTS: u32 = 20;
const INDEX_MAX: Duration = Duration::from_secs(30);

/// How a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve::web) enum ListState {
    /// Its next event is refused.
    Blocked,
    /// It has used most of its limit.
    Close,
    /// Its mail is unlike its habits.
    Suspected,
    /// An override denies it.
    Denied,
    /// An override allows it, or a policy exempts it.
    Exempt,
}

impl Word for ListState {
    const ALL: &'static [Self] =
        &[Self::Blocked, Self::Close, Self::Suspected, Self::Denied, Self::Exempt];

    fn word(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Close => "close",
            Self::Suspected => "suspected",
            Self::Denied => "denied",
            Self::Exempt => "exempt",
        }
    }
}

/// A key in a list.
#[derive(Debug)]
struct Listed {
    rank: u64,
    key: ListedKey,
}

#[derive(Debug)]
enum ListedKey {
    Record(Box<KeyState>),
    Override(Override),
    Account(Vec<u8>, Box<Habits>),
}

impl Listed {
    fn record(record: KeyState, share: f64) -> Self {
        Self { rank: rank_of(share), key: ListedKey::Record(Box::new(record)) }
    }

    /// Its rank as it was then, if nothing was counted since.
    fn rank_at(&self, then: Timestamp) -> u64 {
        match &self.key {
            ListedKey::Record(record) => rank_of(record.share(then)),
            _ => self.rank,
        }
    }

    /// The latest first, before all records.
    fn of_override(one: &Override) -> Self {
        let since = u64::try_from(one.since).unwrap_or(0);
        Self { rank: since | 1 << 63, key: ListedKey::Override(one.clone()) }
    }

    /// What comes after the rank.
    fn bytes(&self) -> &[u8] {
        match &self.key {
            ListedKey::Record(record) => &record.stored,
            ListedKey::Override(one) => one.argument.as_bytes(),
            ListedKey::Account(identity, _) => identity,
        }
    }

    /// What is searched.
    fn name(&self) -> &[u8] {
        match &self.key {
            ListedKey::Record(record) => record.key(),
            _ => self.bytes(),
        }
    }

    fn row(&self, in_force: &InForce) -> Row {
        match &self.key {
            ListedKey::Record(record) => row::of_record(record, in_force),
            ListedKey::Override(one) => row::of_override(one),
            ListedKey::Account(identity, habits) => suspicion::row(identity, habits, in_force),
        }
    }
}

/// A share is never negative, so that its bits are in the order of its values.
fn rank_of(share: f64) -> u64 {
    share.max(0.0).to_bits()
}

/// The keys of one state.
#[derive(Debug, Default)]
struct List {
    count: u64,
    /// The first of them.
    kept: Vec<Listed>,
}

impl List {
    fn add(&mut self, one: Listed) {
        self.count += 1;
        self.kept.push(one);
        if self.kept.len() >= 2 * KEPT {
            self.cut();
        }
    }

    /// Keeps the highest, in order.
    fn cut(&mut self) {
        self.kept
            .sort_unstable_by(|a, b| b.rank.cmp(&a.rank).then_with(|| a.bytes().cmp(b.bytes())));
        self.kept.truncate(KEPT);
    }
}

/// All keys at one moment.
#[derive(Debug)]
pub(in crate::serve::web) struct Snapshot {
    pub(in crate::serve::web) in_force: InForce,
    /// How many there are.
    pub(in crate::serve::web) keys: u64,
    /// By the order of [`ListState::ALL`].
    lists: [List; ListState::ALL.len()],
    pub(super) index: Index,
    /// What could not be read.
    pub(in crate::serve::web) unread: Vec<String>,
    taken: Instant,
    took: Duration,
}

impl Snapshot {
    /// Reads those that somebody may see, and nothing of others; `progress` says how many have been read meanwhile.
    pub(super) fn take(spool: &Path, progress: &AtomicU64, seen: Seen) -> Result<Self, String> {
        let taken = Instant::now();
        let mut store = rates::open(spool, Purpose::Read)?;
        let (in_force, unread) = InForce::of(&mut *store, spool);
        let in_force = in_force.seen_by(seen.as_ref());
        let index = Index::new(in_force.folding());
        let (keys, lists, took) = (0, Default::default(), Duration::ZERO);
        let mut all = Self { in_force, keys, lists, index, unread, taken, took };
        let accounts = all.read_records(&mut *store, progress)?;
        all.read_overrides();
        all.read_habits(spool, accounts)?;
        all.lists.iter_mut().for_each(List::cut);
        all.took = taken.elapsed();
        Ok(all)
    }

    /// Reads all records; returns the accounts that may be suspected.
    fn read_records(
        &mut self,
        store: &mut dyn Inspect,
        progress: &AtomicU64,
    ) -> Result<Vec<Vec<u8>>, String> {
        let Self { in_force, keys, lists: [blocked, close, _, _, exempt], unread, index, .. } =
            self;
        let (now, has_exempt) = (in_force.now, in_force.has_exemptions());
        let (mut overridden, sight) = (in_force.quick_overrides(), in_force.sight());
        let mut accounts = Vec::new();
        // The store is locked meanwhile: most records are only looked at.
        let left_out = store.survey(&mut |key, remembered| {
            if !sight.has(&key) {
                return;
            }
            if key.kind == Kind::Habits {
                index.add(&key, 0.0);
                if remembered.state.average.is_some_and(|average| average.rate >= 1.0) {
                    accounts.push(key.identity().to_vec());
                }
                return;
            }
            *keys += 1;
            if *keys % 1024 == 0 {
                progress.store(*keys, Ordering::Relaxed);
            }
            let share = key_state::share_at_most(key.algorithm, &remembered.state, now);
            index.add(&key, share as f32);
            let mut is_denied = || overridden(&key).is_some_and(Overridden::is_denial);
            let may_be_exempt = has_exempt && key.kind == Kind::Policy;
            if share < CLOSE && !may_be_exempt && !is_denied() {
                return;
            }
            let Some(entry) = Entry::of(&key, remembered) else { return };
            let record = KeyState::from(entry);
            let (is_refused, share) = (in_force.refuses(&record), record.share(now));
            if is_refused {
                blocked.add(Listed::record(record, share));
            } else if may_be_exempt && matches!(in_force.next(&record).by, By::Exempt(..)) {
                exempt.add(Listed::record(record, share));
            } else if share >= CLOSE {
                close.add(Listed::record(record, share));
            }
        });
        let left_out = left_out.map_err(|error| error.to_string())?;
        unread.extend(left_out.parts.iter().map(ToString::to_string));
        index.finish();
        Ok(accounts)
    }

    fn read_overrides(&mut self) {
        let [_, _, _, denied, exempt] = &mut self.lists;
        for one in self.in_force.own_overrides() {
            match one.overridden {
                Overridden::Deny | Overridden::Reject => denied.add(Listed::of_override(one)),
                Overridden::Allow => exempt.add(Listed::of_override(one)),
            }
        }
    }

    /// Reads the habits of accounts.
    fn read_habits(&mut self, spool: &Path, accounts: Vec<Vec<u8>>) -> Result<(), String> {
        let now = self.in_force.now.seconds;
        let [_, _, suspected, ..] = &mut self.lists;
        let mut own = rates::own(spool, Purpose::Read)?;
        for identity in accounts {
            let mut name = Vec::new();
            let habits = own.habits(habits_key(&identity, &mut name));
            let habits = habits.map_err(|error| error.to_string())?;
            if let Some(habits) = habits.filter(|habits| habits.is_suspected(now)) {
                let rank = u64::try_from(habits.alarm_at().unwrap_or(0)).unwrap_or(0);
                suspected.add(Listed { rank, key: ListedKey::Account(identity, Box::new(habits)) });
            }
        }
        Ok(())
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.taken.elapsed() < FRESH.max(self.took * FRESH_PARTS)
    }

    /// Whether its index may be used, and need not be read again yet.
    pub(super) fn has_fresh_index(&self) -> bool {
        self.taken.elapsed() < FRESH.max(self.took * INDEX_PARTS)
    }

    /// Whether its index may be used.
    pub(super) fn has_usable_index(&self) -> bool {
        self.taken.elapsed() < INDEX_MAX.max(self.took * 2 * INDEX_PARTS)
    }

    /// The identities of the accounts that are suspected.
    pub(super) fn suspected(&self) -> impl Iterator<Item = &[u8]> {
        self.list(ListState::Suspected).kept.iter().map(Listed::bytes)
    }

    fn list(&self, state: ListState) -> &List {
        let [blocked, close, suspected, denied, exempt] = &self.lists;
        match state {
            ListState::Blocked => blocked,
            ListState::Close => close,
            ListState::Suspected => suspected,
            ListState::Denied => denied,
            ListState::Exempt => exempt,
        }
    }

    /// How many keys there are of a state.
    pub(in crate::serve::web) fn count(&self, state: ListState) -> u64 {
        self.list(state).count
    }

    /// A page of the keys of a state that contain `search`, which is in lower case. The order is
    /// that of the time of the first page: rates that only decay keep their places.
    pub(in crate::serve::web) fn page(
        &self,
        state: ListState,
        search: &str,
        limit: usize,
        after: Option<&Cursor>,
    ) -> Page<Row> {
        let begun = after.and_then(|after| i64::try_from(after.at).ok());
        let begun = begun.map_or(self.in_force.now, Timestamp::from_micros);
        let at = u64::try_from(begun.as_micros()).unwrap_or(0);
        let contains = |one: &&Listed| {
            search.is_empty() || String::from_utf8_lossy(one.name()).to_lowercase().contains(search)
        };
        let all = self.list(state).kept.iter().filter(contains);
        let all = all.map(|one| (one.rank_at(begun), one));
        let is_after = |(rank, one): &(u64, &Listed)| {
            after.is_none_or(|after| after.is_before(*rank, one.bytes()))
        };
        let mut all: Vec<(u64, &Listed)> = all.filter(is_after).collect();
        all.sort_by(|(a, one), (b, other)| b.cmp(a).then_with(|| one.bytes().cmp(other.bytes())));
        let cursor =
            |(rank, one): &(u64, &Listed)| Cursor { at, rank: *rank, key: one.bytes().to_vec() };
        let Page { items, next } = Page::of(all, limit, cursor);
        Page { items: items.into_iter().map(|(_, one)| one.row(&self.in_force)).collect(), next }
    }
}
