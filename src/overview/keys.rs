//! What the rate database holds, as `exirate status` shows it.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

use crate::alerts::{self, Delivered};
use crate::engine::AlgorithmKind;
use crate::policy::model::OnCrossing;
use crate::rate::Timestamp;
use crate::rate::usage::{Sent, Usage};
use crate::spool::{EventKind, EventReader, Options, Spool, SpoolError};
use crate::standing::databases::StandingError;
use crate::standing::in_force::InForce;
use crate::standing::key_state::{KeyState, later};
use crate::standing::listed::{First, Sort};
use crate::standing::logged::{self, decisive};
use crate::standing::usage::UsageReader;
use crate::standing::{key_text, override_state};
use crate::store::FOREVER;
use crate::text::time::{midnight, now};
use crate::{place, text};

/// How many of each list are shown.
const SHOWN: usize = 5;

/// What the rate database holds.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct DatabaseKeys {
    pub(crate) keys: u64,
    pub(crate) keys_today: u64,
    /// Each spec and each policy at each stage is one.
    pub(crate) decisions_since_utc_midnight: u64,
    pub(crate) last_event: Option<String>,
    #[serde(skip)]
    pub(crate) last: Option<Timestamp>,
    pub(crate) blocked: u64,
    pub(crate) blocked_first: Vec<Blocked>,
    /// Accounts that their habits suspect.
    pub(crate) suspected: usize,
    /// Those whose alarms are the latest.
    pub(crate) suspected_first: Vec<String>,
    /// What all accounts have sent.
    #[serde(skip)]
    pub(crate) usage: Option<Usage>,
    /// What accounts have sent today; null: it is not counted.
    pub(crate) sent_today: Option<Sent>,
    /// What they sent yesterday.
    pub(crate) sent_yesterday: Option<Sent>,
    pub(crate) allowed: usize,
    pub(crate) denied: usize,
    pub(crate) overrides: Vec<OverrideShown>,
    pub(crate) crossings_today: usize,
    /// The last ones.
    pub(crate) crossings: Vec<CrossingShown>,
    pub(crate) receivers: Vec<ReceiverShown>,
    pub(crate) database: Option<Database>,
    /// Where there is a database, if not here.
    #[serde(skip)]
    pub(crate) elsewhere: Option<PathBuf>,
}

/// A key whose next event is refused.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Blocked {
    pub(crate) key: String,
    pub(crate) rate: f64,
    pub(crate) limit: f64,
    pub(crate) period: Option<String>,
    #[serde(skip)]
    pub(crate) is_of_calendar: bool,
    pub(crate) mode: Option<String>,
    pub(crate) since: Option<String>,
    #[serde(skip)]
    pub(crate) since_at: Option<Timestamp>,
    pub(crate) free_at: Option<String>,
    /// What else decides than the rate.
    pub(crate) why: Option<String>,
    #[serde(skip)]
    pub(crate) wait: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct OverrideShown {
    #[serde(rename = "override")]
    overridden: &'static str,
    key: String,
    until: Option<String>,
    #[serde(skip)]
    pub(crate) text: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CrossingShown {
    time: String,
    #[serde(skip)]
    pub(crate) at: Timestamp,
    pub(crate) key: String,
    pub(crate) rate: f64,
    pub(crate) limit: f64,
    period: String,
    #[serde(skip)]
    pub(crate) in_period: String,
    enforcement: &'static str,
    /// It has no alert.
    #[serde(skip)]
    pub(crate) is_silent: bool,
    /// The receivers that have not received it.
    pub(crate) waiting_for: Vec<&'static str>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ReceiverShown {
    pub(crate) name: &'static str,
    pub(crate) waiting: usize,
    pub(crate) failing: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Database {
    pub(crate) disk_bytes: u64,
    pub(crate) max_bytes: u64,
    pub(crate) damaged: u64,
    pub(crate) unreadable: usize,
}

impl DatabaseKeys {
    /// Reads the database in `spool`, if there is one.
    pub(crate) fn of(spool: &Path, on_crossing: &OnCrossing) -> Result<Self, StandingError> {
        let mut database = match Spool::open_existing(spool, Options::default()) {
            Ok(database) => database,
            Err(SpoolError::Absent { .. }) => {
                return Ok(Self { elsewhere: place::elsewhere(spool), ..Self::default() });
            }
            Err(error) => return Err(error.into()),
        };
        let (in_force, _) = InForce::of(&mut database, spool);
        let (now, today) = (in_force.now, midnight());
        let mut found = Self::default();
        let mut first = First::new(Sort::Share, now, SHOWN);
        found.decisions_since_utc_midnight = database.decided_on(now)?;
        let left_out = database.for_each(|entry| {
            let at = entry.average.at;
            found.keys += 1;
            found.keys_today += u64::from(at.seconds >= today);
            found.last = found.last.max(Some(at));
            let state = KeyState::from(entry);
            if in_force.refuses(&state) {
                found.blocked += 1;
                first.add(state);
            }
        })?;
        found.blocked_first = first.take().map(|one| Blocked::of(&one, &in_force)).collect();
        found.last_event = found.last.map(text::iso);
        found.database = Some(Database {
            disk_bytes: database.disk_bytes(),
            max_bytes: database.max_bytes(),
            damaged: left_out.damaged,
            unreadable: left_out.shards.len(),
        });
        let mut suspected = Vec::new();
        database.for_each_habits(|key, habits| {
            if habits.is_suspected(now.seconds) {
                suspected.push((Reverse(habits.alarm_at()), key_text::key(key.key().identity())));
            }
        })?;
        suspected.sort();
        found.suspected = suspected.len();
        found.suspected_first = suspected.into_iter().take(SHOWN).map(|(_, key)| key).collect();
        let reader = UsageReader::of(spool, now);
        if reader.is_counted() {
            let (usage, _) = reader.total(&mut database)?;
            let [.., yesterday, today] = &usage.days;
            (found.sent_today, found.sent_yesterday) = (Some(*today), Some(*yesterday));
            found.usage = Some(usage);
        }
        found.overrides(&mut database, now)?;
        found.crossings(&mut database, spool, on_crossing, today)?;
        Ok(found)
    }

    fn overrides(&mut self, database: &mut Spool, now: Timestamp) -> Result<(), StandingError> {
        let mut all = database.overrides()?;
        all.retain(|one| one.is_active(now.seconds));
        let count =
            |denials| all.iter().filter(|one| one.overridden.is_denial() == denials).count();
        (self.allowed, self.denied) = (count(false), count(true));
        // The latest first.
        all.sort_by_key(|one| Reverse(one.since));
        let shown = all.iter().take(SHOWN).map(|one| OverrideShown {
            overridden: one.overridden.word(),
            key: one.argument.clone(),
            until: (one.until != FOREVER).then(|| text::iso_second(one.until)),
            text: override_state::sentence(one),
        });
        self.overrides = shown.collect();
        Ok(())
    }

    fn crossings(
        &mut self,
        database: &mut Spool,
        spool: &Path,
        on: &OnCrossing,
        today: i64,
    ) -> Result<(), StandingError> {
        let crossings =
            database.read_events(&mut EventReader::new(EventKind::Crossings), now(), true)?;
        let delivered = alerts::delivered(spool, on, &crossings)?;
        self.crossings_today = crossings.iter().filter(|event| event.at.seconds >= today).count();
        let last = crossings.iter().enumerate().rev().take(SHOWN).map(|(at, event)| {
            let window = decisive(event);
            let is_silent = !alerts::has_alert(event, on.observed);
            let waiting = delivered.iter().filter(|one| at >= one.done && !is_silent);
            CrossingShown {
                time: text::iso(event.at),
                at: event.at,
                key: key_text::title(logged::key(event)),
                rate: window.after,
                limit: window.limit,
                period: logged::period(event, &window),
                in_period: logged::in_period(event, &window),
                enforcement: event.enforcement.word(),
                is_silent,
                waiting_for: waiting.map(|one| one.name).collect(),
            }
        });
        self.crossings = last.collect();
        self.receivers = delivered
            .iter()
            .map(|Delivered { name, waiting, failing, .. }| ReceiverShown {
                name,
                waiting: *waiting,
                failing: *failing,
            })
            .collect();
        Ok(())
    }
}

impl Blocked {
    fn of(record: &KeyState, in_force: &InForce) -> Self {
        let now = in_force.now;
        let next = in_force.next(record);
        let wait = next.wait(record, now);
        let seconds = wait.and_then(|wait| wait.whole_seconds());
        Self {
            key: key_text::title(record.key()),
            rate: record.rate(now),
            limit: record.limit,
            period: record.period_text(),
            is_of_calendar: record.algorithm == AlgorithmKind::Calendar,
            mode: record.mode(),
            since: record.over_since().map(text::iso),
            since_at: record.over_since(),
            free_at: seconds.map(|seconds| text::iso(later(now, seconds))),
            why: next.why(),
            wait: wait.map(text::short_wait),
        }
    }
}
