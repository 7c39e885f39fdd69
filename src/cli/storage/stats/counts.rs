//! What `exirate stats` counts.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::bypass::Bypass;
use crate::cli::Failure;
use crate::cli::shared::database::{self, Both, bar};
use crate::cli::shared::rates;
use crate::cli::shared::screen::{note, noted};
use crate::cli::shared::server_table::{JsonServer, json};
use crate::cluster::{ClusterCounts, ClusterSettings, read_counts};
use crate::policy::counters::{self, RuleCounts};
use crate::policy::word::{Action, Verdict, Word as _};
use crate::rate::Timestamp;
use crate::rate::usage::Sent;
use crate::serve::servers;
use crate::spool::{Spool, SpoolError, entry_bytes, open_directory};
use crate::standing::in_force::InForce;
use crate::standing::key_state::KeyState;
use crate::standing::usage::UsageReader;
use crate::store::Memory;
use crate::sys::secure_dir::DirError;
use crate::text;
use crate::text::time::now;
use crate::trace::{Query, TraceStore};

/// Kinds of keys that are counted one by one; the rest are counted together. A
/// database has as many as Exim's configuration has lines.
const KINDS_MAX: usize = 100;

/// Everything that is counted.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AllCounts {
    #[serde(flatten)]
    pub(super) rates: Option<Rates>,
    /// How long `exirate bypass` still lasts; 0 without one.
    pub(super) bypass_seconds: u64,
    /// Null before a policy was evaluated.
    pub(super) policies: Option<PolicyCounts>,
    /// Null where this server shares no limits.
    pub(super) cluster: Option<Cluster>,
    /// Null where there is no trace store.
    #[serde(rename = "trace")]
    pub(super) traces: Option<Traces>,
}

/// What is counted in the rate database.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Rates {
    pub(super) keys: u64,
    /// How many keys are blocked: their next event would be refused.
    pub(super) over: u64,
    pub(super) disk_bytes: u64,
    pub(super) max_bytes: u64,
    /// The used part of the size limit.
    pub(super) fill: f64,
    pub(super) heap_bytes: u64,
    pub(super) dead_bytes: u64,
    pub(super) filter_bytes: u64,
    pub(super) index_entries: u64,
    pub(super) shards: u64,
    pub(super) shards_unreadable: u64,
    pub(super) damaged_files: u64,
    pub(super) damaged_files_bytes: u64,
    pub(super) damaged_now: u64,
    pub(super) rebuilds: u64,
    pub(super) forgotten: u64,
    pub(super) evicted: u64,
    pub(super) dropped: u64,
    pub(super) lock_waits: u64,
    pub(super) events_lost: u64,
    /// What accounts have sent today, and how many have; null: it is not counted.
    pub(super) usage: Option<UsageToday>,
    /// The counts for each mode and period.
    pub(super) kinds: Vec<ModeCounts>,
}

/// What accounts have sent today.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct UsageToday {
    /// How many accounts.
    pub(super) accounts: u64,
    /// What they have sent together.
    #[serde(flatten)]
    pub(super) sent: Sent,
}

/// The keys of one mode and period.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(super) struct ModeCounts {
    pub(super) period: String,
    pub(super) mode: String,
    pub(super) keys: u64,
    pub(super) over: u64,
    pub(super) bytes: u64,
}

/// What policies have decided.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct PolicyCounts {
    pub(super) rules: Vec<RuleChecks>,
    /// Evaluations that failed.
    pub(super) errors: u64,
    /// Checks of rules for which there was no room.
    pub(super) uncounted: u64,
}

/// The checks of a rule of a policy in one mode.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RuleChecks {
    pub(super) policy: String,
    pub(super) rule: String,
    pub(super) mode: &'static str,
    pub(super) checks: u64,
    pub(super) refused: u64,
    pub(super) verdicts: BTreeMap<&'static str, u64>,
}

/// How the limits that this server shares were decided.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Cluster {
    pub(super) servers: u32,
    /// Whether the shared limits cannot be reached now.
    pub(super) is_away: bool,
    /// Events decided by the shared store.
    pub(super) decided_shared: u64,
    /// Events decided without it.
    pub(super) decided_apart: u64,
    /// Those of the latter that were over a limit.
    pub(super) apart_over: u64,
    /// The shared keys, where they were asked for and can be read.
    #[serde(flatten)]
    pub(super) keys: Option<SharedKeys>,
    /// The servers that the agent shows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) servers_seen: Vec<JsonServer>,
}

/// The keys in the shared store.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(super) struct SharedKeys {
    /// The keys in the shared store, where this user can read it.
    #[serde(rename = "shared_keys")]
    pub(super) keys: u64,
    #[serde(rename = "shared_over")]
    pub(super) over: u64,
}

/// What is counted in the trace store.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Traces {
    pub(super) messages: u64,
    #[serde(skip)]
    pub(super) times: Option<(i64, i64)>,
    pub(super) oldest: Option<String>,
    pub(super) newest: Option<String>,
    pub(super) segments: u64,
    pub(super) logs: u64,
    pub(super) disk_bytes: u64,
    pub(super) max_bytes: u64,
    pub(super) fill: f64,
    pub(super) damaged_files: u64,
    pub(super) other_key_files: u64,
    pub(super) quarantined_files: u64,
    pub(super) lost_parts: u64,
    pub(super) bytes_per_message: Option<f64>,
    /// The length from which on a text is found for certain.
    pub(super) shortest: usize,
}

impl AllCounts {
    /// Counts in the stores that exist. Prints what cannot be read, and leaves
    /// it out. The shared store is asked if `shared`.
    pub(super) fn of(
        both: &mut Both,
        spool: &Path,
        shared: bool,
        now: Timestamp,
    ) -> Result<Self, Failure> {
        let bypass = Bypass::read(spool).ok().flatten();
        let bypass = bypass.filter(|bypass| bypass.is_active(now.seconds));
        let left = bypass.map_or(0, |bypass| bypass.until - now.seconds);
        Ok(Self {
            bypass_seconds: u64::try_from(left).unwrap_or(0),
            policies: match counters::read(spool) {
                Ok(counts) => counts.map(PolicyCounts::of),
                Err(error) => {
                    note(error);
                    None
                }
            },
            cluster: Cluster::of(spool, shared)?,
            rates: both.rates.as_mut().map(|rates| Rates::of(rates, spool)).transpose()?,
            traces: both.traces.as_ref().map(Traces::of).transpose()?,
        })
    }
}

impl Cluster {
    /// `None` if this server counts alone. The shared keys are counted if `shared`.
    fn of(spool: &Path, count: bool) -> Result<Option<Self>, Failure> {
        let directory = match open_directory(spool, false) {
            Ok(directory) => directory,
            // The trace store may be the only one.
            Err(DirError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(error) => return Err(SpoolError::from(error).into()),
        };
        let settings = ClusterSettings::read(&directory)?;
        let ClusterCounts { shared, apart, apart_over, away_since, .. } =
            read_counts(&directory).unwrap_or_default();
        Ok(settings.map(|settings| Self {
            keys: if count { SharedKeys::of(&settings, spool) } else { None },
            servers: settings.servers,
            is_away: away_since.is_some(),
            decided_shared: shared,
            decided_apart: apart,
            apart_over,
            servers_seen: servers::shown(&settings).map_or_else(|_| Vec::new(), |seen| json(&seen)),
        }))
    }
}

impl SharedKeys {
    /// Counts them; notes why, if they cannot be read.
    fn of(settings: &ClusterSettings, spool: &Path) -> Option<Self> {
        let count = || {
            let mut rates = rates::connect(settings, Box::new(Memory::new()))?;
            let in_force = noted(InForce::of(&mut *rates, spool));
            let mut counts = Self::default();
            database::visit(&mut *rates, |entry| {
                counts.keys += 1;
                counts.over += u64::from(in_force.refuses(&KeyState::from(entry)));
            })?;
            Ok(counts)
        };
        match count() {
            Ok(counts) => Some(counts),
            Err(Failure::Said(why)) => {
                note(why);
                None
            }
            Err(Failure::Output(_)) => None,
        }
    }
}

impl Rates {
    fn of(spool: &mut Spool, directory: &Path) -> Result<Self, Failure> {
        let in_force = noted(InForce::of(spool, directory));
        let mut kinds: BTreeMap<(String, String), ModeCounts> = BTreeMap::new();
        let (mut keys, mut over) = (0, 0);
        let damaged_before = spool.damaged();
        let unread = database::visit(spool, |entry| {
            let bytes = entry_bytes(&entry) as u64;
            let state = KeyState::from(entry);
            let is_over = u64::from(in_force.refuses(&state));
            keys += 1;
            over += is_over;
            let name = (state.period_text().unwrap_or_default(), state.mode().unwrap_or_default());
            // A kind that is counted by itself stays so, or its count would be too low.
            let known = kinds.len() < KINDS_MAX || kinds.contains_key(&name);
            let name = if known { name } else { Default::default() };
            let kind = kinds.entry(name).or_default();
            kind.keys += 1;
            kind.over += is_over;
            kind.bytes += bytes;
        })?;
        let damaged_now = spool.damaged() - damaged_before;
        // Which shards cannot be read has been printed.
        let stats = spool.stats_of_readable()?;
        let quarantined = spool.kept_damaged()?;
        let kinds =
            kinds.into_iter().map(|((period, mode), kind)| ModeCounts { period, mode, ..kind });
        Ok(Self {
            keys,
            over,
            disk_bytes: stats.disk,
            max_bytes: spool.max_bytes(),
            fill: stats.disk as f64 / spool.max_bytes() as f64,
            heap_bytes: stats.heap,
            dead_bytes: stats.dead,
            filter_bytes: stats.filters,
            index_entries: stats.index_entries,
            shards: stats.shards as u64,
            shards_unreadable: unread as u64,
            damaged_files: quarantined.len() as u64,
            damaged_files_bytes: quarantined.iter().map(|file| file.disk).sum(),
            damaged_now,
            rebuilds: stats.rebuilds,
            forgotten: stats.forgotten,
            evicted: stats.evicted,
            dropped: stats.dropped,
            lock_waits: stats.waits,
            events_lost: stats.lost,
            usage: UsageToday::of(spool, directory),
            kinds: kinds.collect(),
        })
    }
}

impl UsageToday {
    /// None, where it is not counted, or a part of the database cannot be read.
    fn of(spool: &mut Spool, directory: &Path) -> Option<Self> {
        let reader = UsageReader::of(directory, now());
        let (usage, accounts) = reader.is_counted().then(|| reader.total(spool).ok())??;
        Some(Self { accounts, sent: usage.last(1) })
    }
}

impl PolicyCounts {
    fn of(counts: counters::Counts) -> Self {
        let modes = |rule: RuleCounts| {
            [(Action::Enforce, rule.enforced), (Action::Observe, rule.observed)]
                .into_iter()
                .filter(|(_, counts)| counts.iter().any(|count| *count > 0))
                .map(|(mode, counts)| RuleChecks::of(&rule.policy, &rule.rule, mode, &counts))
                .collect::<Vec<_>>()
        };
        let counters::Counts { rules, errors, uncounted } = counts;
        Self { rules: rules.into_iter().flat_map(modes).collect(), errors, uncounted }
    }
}

impl RuleChecks {
    fn of(policy: &str, rule: &str, mode: Action, counts: &[u64]) -> Self {
        let each = || Verdict::ALL.iter().copied().zip(counts.iter().copied());
        let sum = |counts: &mut dyn Iterator<Item = u64>| counts.fold(0, u64::saturating_add);
        Self {
            policy: policy.to_owned(),
            rule: rule.to_owned(),
            mode: mode.word(),
            checks: sum(&mut each().map(|(_, count)| count)),
            refused: sum(&mut each().filter(|(v, _)| *v >= Verdict::Defer).map(|(_, n)| n)),
            verdicts: each().map(|(verdict, count)| (verdict.word(), count)).collect(),
        }
    }
}

impl Traces {
    fn of(store: &TraceStore) -> Result<Self, Failure> {
        let stats = store.stats()?;
        let max_bytes = store.options().max_bytes;
        // Messages of an archive are recorded in any order.
        let mut times: Option<(i64, i64)> = None;
        store.query(&Query::default(), &mut bar("messages"), &mut |answer| {
            let time = answer.envelope.time;
            let (oldest, newest) = times.unwrap_or((time, time));
            times = Some((oldest.min(time), newest.max(time)));
        })?;
        let iso = |seconds| text::iso(Timestamp { seconds, micros: 0 });
        Ok(Self {
            messages: stats.messages,
            times,
            oldest: times.map(|(oldest, _)| iso(oldest)),
            newest: times.map(|(_, newest)| iso(newest)),
            segments: stats.segments,
            logs: stats.logs,
            disk_bytes: stats.bytes,
            max_bytes,
            fill: stats.bytes as f64 / max_bytes.max(1) as f64,
            damaged_files: stats.damaged,
            other_key_files: stats.other_key,
            quarantined_files: stats.quarantined,
            lost_parts: stats.lost,
            bytes_per_message: (stats.messages > 0)
                .then(|| stats.bytes as f64 / stats.messages as f64),
            shortest: stats.shortest,
        })
    }
}
