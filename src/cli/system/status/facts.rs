//! What `exirate status` shows.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread;

use schemars::JsonSchema;
use serde::Serialize;

use super::follower::Follower;
use super::keys::DatabaseKeys;
use super::policies::{Policies, Policy};
use crate::bypass::Bypass;
use crate::cli::Failure;
use crate::cli::shared::database::open_traces;
use crate::cli::shared::hold_queue::HeldMail;
use crate::cluster::{self, ClusterSettings};
use crate::doctor::{self, DecidedBy, EXIM, Glance, UnitState, unit_states};
use crate::policy::word::{Action, Word as _};
use crate::spool::open_directory;
use crate::standing::bypass_state::sentence;
use crate::sys::host_name;
use crate::text;
use crate::text::time::now;
use crate::trace::Access;

/// What to do where nothing asks for a check.
const SETUP: &str = "run `exirate setup`";

/// Whether mail is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Limited,
    /// All policies observe.
    Observed,
    Bypassed,
    /// Something is in the way.
    Doubtful,
    NotLimited,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Status {
    pub(super) host: String,
    time: String,
    /// limited, observed, bypassed, doubtful or not_limited.
    pub(super) verdict: Verdict,
    /// The verdict in words.
    pub(super) text: String,
    pub(super) decided_by: Vec<DecidedBy>,
    #[serde(flatten)]
    pub(super) policies: Policies,
    #[serde(flatten)]
    pub(super) keys: DatabaseKeys,
    pub(super) bypass_until: Option<String>,
    /// Those that run or are to.
    pub(super) units: Vec<UnitState>,
    pub(super) follower: Option<Follower>,
    pub(super) cluster: Option<Cluster>,
    pub(super) trace: Option<Traces>,
    /// What policies hold in the mail server's queue; null: not known.
    pub(super) held: Option<HeldCount>,
    pub(super) doctor: Doctor,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct HeldCount {
    pub(super) messages: usize,
    pub(super) keys: usize,
    /// Since when the first is held.
    pub(super) since: Option<String>,
    #[serde(skip)]
    pub(super) since_second: Option<i64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Cluster {
    pub(super) servers: u32,
    pub(super) away_since: Option<String>,
    pub(super) reply_ms: Option<f64>,
    pub(super) error: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Traces {
    pub(super) messages: u64,
    pub(super) disk_bytes: u64,
    pub(super) max_bytes: u64,
    pub(super) damaged: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Doctor {
    pub(super) problems: usize,
    pub(super) warnings: usize,
    /// The first problem, or warning.
    pub(super) first: Option<String>,
    pub(super) complete: bool,
}

impl Status {
    /// That of the spool directory `spool`, which was named if `given`.
    pub(super) fn of(spool: &Path, given: bool) -> Result<Self, Failure> {
        let now = now();
        let mut policies = Policies::of(spool);
        let (glance, keys, held) = thread::scope(|scope| {
            let holding = scope.spawn(|| HeldCount::of(spool));
            let looking = scope.spawn(|| doctor::glance(given.then_some(spool)));
            let keys = DatabaseKeys::of(spool, &policies.on_crossing);
            let glance = looking.join().map_err(|_| Failure::new("an internal error"));
            (glance, keys, holding.join().ok().flatten())
        });
        let (glance, keys) = (glance?, keys?);
        policies.evaluated_by(&glance.decided_by);
        let bypass = Bypass::read(spool).ok().flatten();
        let bypass = bypass.filter(|bypass| bypass.is_active(now.seconds));
        let text = bypass.as_ref().map(|bypass| sentence(bypass, now));
        let (verdict, text) = verdict(text, &policies, &glance, spool);
        Ok(Self {
            host: host_name().to_owned(),
            time: text::iso(now),
            verdict,
            text,
            policies,
            keys,
            bypass_until: bypass.map(|bypass| text::iso_second(bypass.until)),
            units: unit_states(spool),
            follower: Follower::of(spool),
            cluster: Cluster::of(spool)?,
            trace: Traces::of(spool)?,
            held,
            doctor: Doctor {
                problems: glance.problems,
                warnings: glance.warnings,
                first: glance.first,
                complete: glance.complete,
            },
            decided_by: glance.decided_by,
        })
    }

    /// Whether mail is limited as it should be.
    pub(super) fn is_well(&self) -> bool {
        matches!(self.verdict, Verdict::Limited | Verdict::Observed) && self.doctor.problems == 0
    }
}

/// Whether mail is limited, and in words.
fn verdict(
    bypass: Option<String>,
    policies: &Policies,
    glance: &Glance,
    spool: &Path,
) -> (Verdict, String) {
    let nothing = |why: String| (Verdict::NotLimited, format!("nothing is limited: {why}"));
    let Some(server) = glance.server else {
        let why = "no mail server was found on this machine".to_owned();
        return nothing(glance.first.clone().unwrap_or(why));
    };
    if let Some(other) = glance.spool.as_ref().filter(|other| *other != spool) {
        return nothing(format!("{server} uses {}, not {}", other.display(), spool.display()));
    }
    if glance.decided_by.is_empty() {
        let why = match server {
            EXIM => "Exim's configuration never calls exirate".to_owned(),
            _ => format!("{server} does not ask exirate"),
        };
        return nothing(format!("{why}; {SETUP}"));
    }
    let specs: usize = glance.decided_by.iter().map(|by| by.specs).sum();
    let called: Vec<&Policy> = policies.policies.iter().filter(|policy| policy.evaluated).collect();
    if specs == 0 && called.is_empty() {
        let next = match policies.policy_file_state {
            "absent" => SETUP,
            _ => "run `exirate policy apply`",
        };
        let why = policies.error.clone().unwrap_or_else(|| {
            format!("{server} evaluates policies, and none of them is in use; {next}")
        });
        return nothing(why);
    }
    if let Some(bypass) = bypass {
        return (Verdict::Bypassed, bypass);
    }
    if let Some(doubt) = &glance.doubt {
        return (Verdict::Doubtful, format!("mail may not be limited: {doubt}"));
    }
    let with = |action: Action| {
        let of = called.iter().filter(move |policy| policy.action == action.word());
        of.map(|policy| &*policy.name).collect::<Vec<_>>()
    };
    let enforced = with(Action::Enforce).join(", ");
    let observed = match &with(Action::Observe)[..] {
        [] => String::new(),
        [one] => format!("{one} observes only"),
        several => format!("{} observe only", several.join(", ")),
    };
    let specs = (specs > 0).then(|| text::counted(specs, "spec", "specs"));
    let enforced = Some(enforced).filter(|names| !names.is_empty());
    let enforced = enforced.map(|names| format!("by {names}"));
    let limits: Vec<String> =
        enforced.into_iter().chain(specs.map(|n| "by ".to_owned() + &n)).collect();
    match (limits.is_empty(), observed.is_empty()) {
        (true, _) => {
            (Verdict::Observed, format!("mail is counted and nothing is refused: {observed}"))
        }
        (false, true) => (Verdict::Limited, format!("mail is limited {}", limits.join(" and "))),
        (false, false) => {
            (Verdict::Limited, format!("mail is limited {}; {observed}", limits.join(" and ")))
        }
    }
}

impl HeldCount {
    fn of(spool: &Path) -> Option<Self> {
        let messages = HeldMail::if_readable(spool)?.messages;
        let keys: BTreeSet<&[u8]> = messages.iter().map(|one| &*one.key).collect();
        let since_second = messages.iter().map(|one| one.at).min();
        let since = since_second.map(text::iso_second);
        Some(Self { messages: messages.len(), keys: keys.len(), since, since_second })
    }
}

impl Cluster {
    fn of(spool: &Path) -> Result<Option<Self>, Failure> {
        let directory = match open_directory(spool, false) {
            Ok(directory) => directory,
            // There is no database yet, or what is wrong is said of it.
            Err(_) => return Ok(None),
        };
        let Some(settings) = ClusterSettings::read(&directory)? else { return Ok(None) };
        let away_since = cluster::read_counts(&directory).unwrap_or_default().away_since;
        let reply = cluster::probe(&settings);
        Ok(Some(Self {
            servers: settings.servers,
            away_since: away_since
                .and_then(|since| i64::try_from(since).ok())
                .map(text::iso_second),
            reply_ms: reply.as_ref().ok().map(|time| (time.as_secs_f64() * 1e6).round() / 1e3),
            error: reply.err(),
        }))
    }
}

impl Traces {
    fn of(spool: &Path) -> Result<Option<Self>, Failure> {
        let Some(store) = open_traces(spool, Access::Read)? else { return Ok(None) };
        let stats = store.stats()?;
        Ok(Some(Self {
            messages: stats.messages,
            disk_bytes: stats.bytes,
            max_bytes: store.options().max_bytes,
            damaged: stats.damaged,
        }))
    }
}
