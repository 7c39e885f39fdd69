//! All keys at one moment.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{row, suspicion};
use crate::engine::Overridden;
use crate::rate::habits::Habits;
use crate::serve::rates::{self, Purpose};
use crate::serve::web::api::cursor::{Cursor, Page};
use crate::serve::web::api::types::Row;
use crate::standing::in_force::{By, InForce};
use crate::standing::key_state::KeyState;
use crate::store::{Inspect, Override};
use crate::toml_file::Word;

/// From which part of its limit on a key is close to it.
const CLOSE: f64 = 0.8;
/// So many keys of a state are kept, the highest first.
const KEPT: usize = 10_000;
/// How old a snapshot may be, and how much longer than it took to take.
const FRESH: Duration = Duration::from_secs(2);
const FRESH_PARTS: u32 = 4;

/// How a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve::web) enum State {
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

impl Word for State {
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
    key: Key,
}

#[derive(Debug)]
enum Key {
    Record(Box<KeyState>),
    Override(Override),
    Account(Vec<u8>, Box<Habits>),
}

impl Listed {
    fn record(record: KeyState, share: f64) -> Self {
        // A share is never negative, so that its bits are in the order of its values.
        Self { rank: share.max(0.0).to_bits(), key: Key::Record(Box::new(record)) }
    }

    /// The latest first, before all records.
    fn of_override(one: &Override) -> Self {
        let since = u64::try_from(one.since).unwrap_or(0);
        Self { rank: since | 1 << 63, key: Key::Override(one.clone()) }
    }

    /// What comes after the rank.
    fn bytes(&self) -> &[u8] {
        match &self.key {
            Key::Record(record) => &record.stored,
            Key::Override(one) => one.argument.as_bytes(),
            Key::Account(identity, _) => identity,
        }
    }

    /// What is searched.
    fn name(&self) -> &[u8] {
        match &self.key {
            Key::Record(record) => record.key(),
            _ => self.bytes(),
        }
    }

    fn row(&self, in_force: &InForce) -> Row {
        match &self.key {
            Key::Record(record) => row::of_record(record, in_force),
            Key::Override(one) => row::of_override(one),
            Key::Account(identity, habits) => suspicion::row(identity, habits, in_force),
        }
    }
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
    /// By the order of [`State::ALL`].
    lists: [List; State::ALL.len()],
    /// What could not be read.
    pub(in crate::serve::web) unread: Vec<String>,
    taken: Instant,
    took: Duration,
}

impl Snapshot {
    pub(super) fn take(spool: &Path) -> Result<Self, String> {
        let taken = Instant::now();
        let mut store = rates::open(spool, Purpose::Read)?;
        let (in_force, unread) = InForce::of(&mut *store, spool);
        let keys = 0;
        let (lists, took) = (Default::default(), Duration::ZERO);
        let mut all = Self { in_force, keys, lists, unread, taken, took };
        all.read_records(&mut *store)?;
        all.read_overrides(&mut *store)?;
        all.read_habits(spool)?;
        all.lists.iter_mut().for_each(List::cut);
        all.took = taken.elapsed();
        Ok(all)
    }

    fn read_records(&mut self, store: &mut dyn Inspect) -> Result<(), String> {
        let Self { in_force, keys, lists: [blocked, close, _, _, exempt], unread, .. } = self;
        let has_exempt = in_force.has_exemptions();
        let left_out = store.for_each(&mut |entry| {
            let record = KeyState::from(entry);
            let (is_refused, share) = (in_force.refuses(&record), record.share(in_force.now));
            *keys += 1;
            if is_refused {
                blocked.add(Listed::record(record, share));
            } else if has_exempt && matches!(in_force.next(&record).by, By::Exempt(..)) {
                exempt.add(Listed::record(record, share));
            } else if share >= CLOSE {
                close.add(Listed::record(record, share));
            }
        });
        let left_out = left_out.map_err(|error| error.to_string())?;
        unread.extend(left_out.parts.iter().map(ToString::to_string));
        Ok(())
    }

    fn read_overrides(&mut self, store: &mut dyn Inspect) -> Result<(), String> {
        let now = self.in_force.now.seconds;
        let [_, _, _, denied, exempt] = &mut self.lists;
        // What cannot be read is said.
        for one in store.overrides().unwrap_or_default().iter().filter(|one| one.is_active(now)) {
            match one.overridden {
                Overridden::Deny => denied.add(Listed::of_override(one)),
                Overridden::Allow => exempt.add(Listed::of_override(one)),
            }
        }
        Ok(())
    }

    fn read_habits(&mut self, spool: &Path) -> Result<(), String> {
        let now = self.in_force.now.seconds;
        let [_, _, suspected, ..] = &mut self.lists;
        let mut own = rates::own(spool, Purpose::Read)?;
        let left_out = own.for_each_habits(|key, habits| {
            if habits.is_suspected(now) {
                let rank = u64::try_from(habits.alarm_at().unwrap_or(0)).unwrap_or(0);
                let identity = key.key().identity().to_vec();
                suspected.add(Listed { rank, key: Key::Account(identity, Box::new(habits)) });
            }
        });
        left_out.map_err(|error| error.to_string())?;
        Ok(())
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.taken.elapsed() < FRESH.max(self.took * FRESH_PARTS)
    }

    fn list(&self, state: State) -> &List {
        let [blocked, close, suspected, denied, exempt] = &self.lists;
        match state {
            State::Blocked => blocked,
            State::Close => close,
            State::Suspected => suspected,
            State::Denied => denied,
            State::Exempt => exempt,
        }
    }

    /// How many keys there are of a state.
    pub(in crate::serve::web) fn count(&self, state: State) -> u64 {
        self.list(state).count
    }

    /// A page of the keys of a state that contain `search`, which is in lower case.
    pub(in crate::serve::web) fn page(
        &self,
        state: State,
        search: &str,
        limit: usize,
        after: Option<&Cursor>,
    ) -> Page<Row> {
        let is_after =
            |one: &&Listed| after.is_none_or(|after| after.is_before(one.rank, one.bytes()));
        let contains = |one: &&Listed| {
            search.is_empty() || String::from_utf8_lossy(one.name()).to_lowercase().contains(search)
        };
        let all = self.list(state).kept.iter().filter(is_after).filter(contains);
        let cursor = |one: &&Listed| Cursor { rank: one.rank, key: one.bytes().to_vec() };
        let Page { items, next } = Page::of(all, limit, cursor);
        Page { items: items.into_iter().map(|one| one.row(&self.in_force)).collect(), next }
    }
}
