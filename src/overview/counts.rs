//! What `exirate stats` counts.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::bypass::Bypass;
use crate::cluster::{ClusterCounts, ClusterSettings, read_counts};
use crate::policy::counters::{self, RuleCounts};
use crate::policy::word::{Action, Verdict, Word as _};
use crate::rate::Timestamp;
use crate::rate::usage::Sent;
use crate::serve::servers::{self, JsonServer};
use crate::spool::{Spool, SpoolError, entry_bytes, open_directory};
use crate::standing::databases::{Both, StandingError, visit};
use crate::standing::in_force::InForce;
use crate::standing::key_state::KeyState;
use crate::standing::usage::UsageReader;
use crate::store::Memory;
use crate::sys::secure_dir::DirError;
use crate::text::time::now;
use crate::text::{self, Voice};
use crate::trace::{Query, TraceStore};

/// Kinds of keys that are counted one by one; the rest are counted together. A
/// database has as many as Exim's configuration has lines.
const KINDS_MAX: usize = 100;

/// Everything that is counted.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AllCounts {
    #[serde(flatten)]
    pub(crate) rates: Option<Rates>,
    /// How long `exirate bypass` still lasts; 0 without one.
    pub(crate) bypass_seconds: u64,
    /// Null before a policy was evaluated.
    pub(crate) policies: Option<PolicyCounts>,
    /// Null where this server shares no limits.
    pub(crate) cluster: Option<Cluster>,
    /// Null where there is no trace store.
    #[serde(rename = "trace")]
    pub(crate) traces: Option<Traces>,
}

/// What is counted in the rate database.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Rates {
    pub(crate) keys: u64,
    /// How many keys are blocked: their next event would be refused.
    pub(crate) over: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) max_bytes: u64,
    /// The used part of the size limit.
    pub(crate) fill: f64,
    pub(crate) heap_bytes: u64,
    pub(crate) dead_bytes: u64,
    pub(crate) filter_bytes: u64,
    pub(crate) index_entries: u64,
    pub(crate) shards: u64,
    pub(crate) shards_unreadable: u64,
    pub(crate) damaged_files: u64,
    pub(crate) damaged_files_bytes: u64,
    pub(crate) damaged_now: u64,
    pub(crate) rebuilds: u64,
    pub(crate) forgotten: u64,
    pub(crate) evicted: u64,
    pub(crate) dropped: u64,
    pub(crate) lock_waits: u64,
    pub(crate) events_lost: u64,
    /// What accounts have sent today, and how many have; null: it is not counted.
    pub(crate) usage: Option<UsageToday>,
    /// The counts for each mode and period.
    pub(crate) kinds: Vec<ModeCounts>,
}

/// What accounts have sent today.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UsageToday {
    /// How many accounts.
    pub(crate) accounts: u64,
    /// What they have sent together.
    #[serde(flatten)]
    pub(crate) sent: Sent,
}

/// The keys of one mode and period.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct ModeCounts {
    pub(crate) period: String,
    pub(crate) mode: String,
    pub(crate) keys: u64,
    pub(crate) over: u64,
    pub(crate) bytes: u64,
}

/// What policies have decided.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PolicyCounts {
    pub(crate) rules: Vec<RuleChecks>,
    /// Evaluations that failed.
    pub(crate) errors: u64,
    /// Checks of rules for which there was no room.
    pub(crate) uncounted: u64,
}

/// The checks of a rule of a policy in one mode.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RuleChecks {
    pub(crate) policy: String,
    pub(crate) rule: String,
    pub(crate) mode: &'static str,
    pub(crate) checks: u64,
    pub(crate) refused: u64,
    pub(crate) verdicts: BTreeMap<&'static str, u64>,
}

/// How the limits that this server shares were decided.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Cluster {
    pub(crate) servers: u32,
    /// Whether the shared limits cannot be reached now.
    pub(crate) is_away: bool,
    /// Events decided by the shared store.
    pub(crate) decided_shared: u64,
    /// Events decided without it.
    pub(crate) decided_apart: u64,
    /// Those of the latter that were over a limit.
    pub(crate) apart_over: u64,
    /// The shared keys, where they were asked for and can be read.
    #[serde(flatten)]
    pub(crate) keys: Option<SharedKeys>,
    /// The servers that the agent shows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) servers_seen: Vec<JsonServer>,
}

/// The keys in the shared store.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct SharedKeys {
    /// The keys in the shared store, where this user can read it.
    #[serde(rename = "shared_keys")]
    pub(crate) keys: u64,
    #[serde(rename = "shared_over")]
    pub(crate) over: u64,
}

/// What is counted in the trace store.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Traces {
    pub(crate) messages: u64,
    #[serde(skip)]
    pub(crate) times: Option<(i64, i64)>,
    pub(crate) oldest: Option<String>,
    pub(crate) newest: Option<String>,
    pub(crate) segments: u64,
    pub(crate) logs: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) max_bytes: u64,
    pub(crate) fill: f64,
    pub(crate) damaged_files: u64,
    pub(crate) other_key_files: u64,
    pub(crate) quarantined_files: u64,
    pub(crate) lost_parts: u64,
    pub(crate) bytes_per_message: Option<f64>,
    /// The length from which on a text is found for certain.
    pub(crate) shortest: usize,
}

impl AllCounts {
    /// Counts in the stores that exist. Prints what cannot be read, and leaves
    /// it out. The shared store is asked if `shared`.
    pub(crate) fn of(
        both: &mut Both,
        spool: &Path,
        shared: bool,
        now: Timestamp,
        voice: &dyn Voice,
    ) -> Result<Self, StandingError> {
        let bypass = Bypass::read(spool).ok().flatten();
        let bypass = bypass.filter(|bypass| bypass.is_active(now.seconds));
        let left = bypass.map_or(0, |bypass| bypass.until - now.seconds);
        Ok(Self {
            bypass_seconds: u64::try_from(left).unwrap_or(0),
            policies: match counters::read(spool) {
                Ok(counts) => counts.map(PolicyCounts::of),
                Err(error) => {
                    voice.note(format_args!("{error}"));
                    None
                }
            },
            cluster: Cluster::of(spool, shared, voice)?,
            rates: both.rates.as_mut().map(|rates| Rates::of(rates, spool, voice)).transpose()?,
            traces: both.traces.as_ref().map(|traces| Traces::of(traces, voice)).transpose()?,
        })
    }
}

impl Cluster {
    /// `None` if this server counts alone. The shared keys are counted if `shared`.
    fn of(spool: &Path, count: bool, voice: &dyn Voice) -> Result<Option<Self>, StandingError> {
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
            keys: if count { SharedKeys::of(&settings, spool, voice) } else { None },
            servers: settings.servers,
            is_away: away_since.is_some(),
            decided_shared: shared,
            decided_apart: apart,
            apart_over,
            servers_seen: servers::shown(&settings).map_or_else(|_| Vec::new(), |seen| seen.json()),
        }))
    }
}

impl SharedKeys {
    /// Counts them; notes why, if they cannot be read.
    fn of(settings: &ClusterSettings, spool: &Path, voice: &dyn Voice) -> Option<Self> {
        let count = || {
            let mut rates = servers::rates(settings, Box::new(Memory::new()))
                .map_err(|why| format!("{why}; --local uses the copies that this server has"))?;
            let in_force = voice.noted(InForce::of(&mut *rates, spool));
            let mut counts = Self::default();
            let counted = visit(&mut *rates, voice, |entry| {
                counts.keys += 1;
                counts.over += u64::from(in_force.refuses(&KeyState::from(entry)));
            });
            counted.map_err(|error| error.to_string())?;
            Ok(counts)
        };
        count().map_err(|why: String| voice.note(format_args!("{why}"))).ok()
    }
}

impl Rates {
    fn of(spool: &mut Spool, directory: &Path, voice: &dyn Voice) -> Result<Self, StandingError> {
        let in_force = voice.noted(InForce::of(spool, directory));
        let mut kinds: BTreeMap<(String, String), ModeCounts> = BTreeMap::new();
        let (mut keys, mut over) = (0, 0);
        let damaged_before = spool.damaged();
        let unread = visit(spool, voice, |entry| {
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
    fn of(store: &TraceStore, voice: &dyn Voice) -> Result<Self, StandingError> {
        let stats = store.stats()?;
        let max_bytes = store.options().max_bytes;
        // Messages of an archive are recorded in any order.
        let mut times: Option<(i64, i64)> = None;
        store.query(&Query::default(), &mut *voice.progress("messages"), &mut |answer| {
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
