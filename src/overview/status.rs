//! Whether mail is limited, by what, and who is blocked: `exirate status`. All records are read once;
//! meanwhile the doctor looks at everything else.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::thread;
use std::time::UNIX_EPOCH;

use schemars::JsonSchema;
use serde::Serialize;

use super::keys::DatabaseKeys;
use crate::bypass::Bypass;
use crate::cluster::{self, ClusterSettings};
use crate::doctor::{self, DecidedBy, EXIM, Glance, UnitState, unit_states};
use crate::mta::held::HeldMail;
use crate::policy::changes::are_applied;
use crate::policy::image::{Image, ImageError, PolicyFile};
use crate::policy::model::{self, OnCrossing};
use crate::policy::source::{FILE, read};
use crate::policy::word::{Action, Word as _};
use crate::serve::config::{self, read_follow};
use crate::serve::follow::state::FollowerState;
use crate::spool::open_directory;
use crate::standing::bypass_state::sentence;
use crate::standing::databases::StandingError;
use crate::standing::held::HeldMessage;
use crate::sys::host_name;
use crate::text::time::now;
use crate::text::{self, counted_or_no};
use crate::trace::{Access, TraceStore};

/// What to do where nothing asks for a check.
const SETUP: &str = "run `exirate setup`";

/// Whether mail is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Limited,
    /// All policies observe.
    Observed,
    Bypassed,
    /// Something is in the way.
    Doubtful,
    NotLimited,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Status {
    pub(crate) host: String,
    time: String,
    /// limited, observed, bypassed, doubtful or not_limited.
    pub(crate) verdict: Verdict,
    /// The verdict in words.
    pub(crate) text: String,
    pub(crate) decided_by: Vec<DecidedBy>,
    #[serde(flatten)]
    pub(crate) policies: Policies,
    #[serde(flatten)]
    pub(crate) keys: DatabaseKeys,
    pub(crate) bypass_until: Option<String>,
    /// Those that run or are to.
    pub(crate) units: Vec<UnitState>,
    pub(crate) follower: Option<Follower>,
    pub(crate) cluster: Option<Cluster>,
    pub(crate) trace: Option<Traces>,
    /// What policies hold in the mail server's queue; null: not known.
    pub(crate) held: Option<HeldCount>,
    /// What waits there for room within a limit at delivery; null: not known.
    pub(crate) waiting: Option<HeldCount>,
    pub(crate) doctor: Doctor,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HeldCount {
    pub(crate) messages: usize,
    pub(crate) keys: usize,
    /// Since when the first is held, or in the queue.
    pub(crate) since: Option<String>,
    #[serde(skip)]
    pub(crate) since_second: Option<i64>,
    /// About when the last has left, if they wait and that is known.
    pub(crate) until: Option<String>,
    #[serde(skip)]
    pub(crate) until_second: Option<i64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Cluster {
    pub(crate) servers: u32,
    pub(crate) away_since: Option<String>,
    pub(crate) reply_ms: Option<f64>,
    pub(crate) error: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Traces {
    pub(crate) messages: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) max_bytes: u64,
    pub(crate) damaged: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Doctor {
    pub(crate) problems: usize,
    pub(crate) warnings: usize,
    /// The first problem, or warning.
    pub(crate) first: Option<String>,
    pub(crate) complete: bool,
}

impl Status {
    /// That of the spool directory `spool`, which was named if `given`.
    pub(crate) fn of(spool: &Path, given: bool) -> Result<Self, StandingError> {
        let now = now();
        let mut policies = Policies::of(spool);
        let (glance, keys, held) = thread::scope(|scope| {
            let holding = scope.spawn(|| {
                let held = HeldMail::if_readable(spool)?;
                Some((HeldCount::of(&held.messages), HeldCount::of(&held.waiting)))
            });
            let looking = scope.spawn(|| doctor::glance(given.then_some(spool)));
            let keys = DatabaseKeys::of(spool, &policies.on_crossing);
            let glance =
                looking.join().map_err(|_| StandingError::Unfit("an internal error".to_owned()));
            (glance, keys, holding.join().ok().flatten())
        });
        let (glance, keys) = (glance?, keys?);
        let (held, waiting) = held.unzip();
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
            waiting,
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
    pub(crate) fn is_well(&self) -> bool {
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
    fn of(messages: &[HeldMessage]) -> Self {
        let keys: BTreeSet<&[u8]> = messages.iter().map(|one| &*one.key).collect();
        let since_second = messages.iter().map(|one| one.at).min();
        let is_known = messages.iter().all(|one| one.until.is_some());
        let until_second = messages.iter().map(|one| one.until).max().flatten();
        let until_second = until_second.filter(|_| is_known);
        Self {
            messages: messages.len(),
            keys: keys.len(),
            since: since_second.map(text::iso_second),
            since_second,
            until: until_second.map(text::iso_second),
            until_second,
        }
    }
}

impl Cluster {
    fn of(spool: &Path) -> Result<Option<Self>, StandingError> {
        // There is no database yet, or what is wrong is said of it.
        let Ok(directory) = open_directory(spool, false) else { return Ok(None) };
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
    fn of(spool: &Path) -> Result<Option<Self>, StandingError> {
        let Some(store) = TraceStore::open_if_any(spool, Access::Read)? else { return Ok(None) };
        let stats = store.stats()?;
        Ok(Some(Self {
            messages: stats.messages,
            disk_bytes: stats.bytes,
            max_bytes: store.options().max_bytes,
            damaged: stats.damaged,
        }))
    }
}

/// So far behind, in seconds, is worth a word.
const BEHIND: i64 = 60;

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Follower {
    log: String,
    running: bool,
    /// How far before now it has read the log; if it does not run, when it last did.
    behind_seconds: i64,
    /// How many failed recipients it found today; a policy may leave some out, such as those of mail
    /// with an empty sender.
    counted_today: u64,
    error: Option<String>,
}

impl Follower {
    /// That which counts in `spool`, if it ever ran and can be looked at.
    pub(crate) fn of(spool: &Path) -> Option<Self> {
        let config =
            read_follow(Path::new(config::FILE)).ok()?.config.filter(|one| one.spool == spool)?;
        let FollowerState { alive, read, log, today, day, error, .. } =
            FollowerState::read(&config.state).ok().flatten()?;
        let now = now().seconds;
        let running = FollowerState::runs(alive, now);
        let since = if running { read } else { alive };
        let behind_seconds = now.saturating_sub(since).max(0);
        let counted_today = if day == text::time::midnight() { today } else { 0 };
        Some(Self { log, running, behind_seconds, counted_today, error })
    }

    pub(crate) fn shown(&self) -> String {
        let Self { log, running, behind_seconds, counted_today, error } = self;
        let behind = || text::rough(*behind_seconds as f64);
        let state = match error {
            _ if !running => format!("does not run since {} ago", behind()),
            Some(error) => format!("counts nothing: {error}"),
            None if *behind_seconds > BEHIND => format!("is behind by {}", behind()),
            None => format!("reads {log}"),
        };
        let count = counted_or_no(*counted_today, "failed recipient", "failed recipients");
        format!("{state}; {count} found today")
    }
}

/// A policy file of more bytes is not compared with the policies in use: that takes seconds.
const COMPARED_MAX: u64 = 1 << 20;

/// The policies in use.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Policies {
    pub(crate) policies: Vec<Policy>,
    /// Their entries of `exempt`.
    pub(crate) exempt: usize,
    /// When they were applied.
    pub(crate) applied: Option<String>,
    #[serde(skip)]
    pub(crate) applied_at: Option<i64>,
    pub(crate) policy_file: String,
    /// same, differs, errors, absent, unreadable or large: not compared.
    pub(crate) policy_file_state: &'static str,
    #[serde(skip)]
    pub(crate) on_crossing: OnCrossing,
    #[serde(skip)]
    pub(crate) error: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Policy {
    pub(crate) name: String,
    pub(crate) action: &'static str,
    /// Whether mail comes to something that evaluates it.
    pub(crate) evaluated: bool,
}

impl Policies {
    pub(crate) fn of(spool: &Path) -> Self {
        let mut found =
            Self { policy_file: FILE.to_owned(), policy_file_state: "absent", ..Self::default() };
        let file = PolicyFile::open(spool);
        let outline = match file.image() {
            Ok(image) => image.outline().map_err(|error| error.to_string()),
            Err(ImageError::Absent { .. }) => {
                found.compare(None);
                return found;
            }
            Err(error) => Err(error.to_string()),
        };
        match outline {
            Ok(outline) => {
                found.applied_at = modified(&spool.join("exirate/policy.image"));
                found.applied = found.applied_at.map(text::iso_second);
                let each = outline.policies.iter();
                found.exempt = each.clone().map(|(_, policy)| policy.exempt.len()).sum();
                let shown = |(name, policy): (&String, &model::Policy)| Policy {
                    name: name.clone(),
                    action: policy.settings.action.word(),
                    evaluated: false,
                };
                found.policies = each.map(shown).collect();
                found.on_crossing = outline.on_crossing;
                found.compare(file.image().ok());
            }
            Err(error) => found.error = Some(error),
        }
        found
    }

    /// Finds which are evaluated.
    pub(crate) fn evaluated_by(&mut self, decided_by: &[DecidedBy]) {
        for policy in &mut self.policies {
            let mut evaluating = decided_by.iter().filter(|by| by.evaluates);
            policy.evaluated = evaluating
                .any(|by| by.policies.as_ref().is_none_or(|names| names.contains(&policy.name)));
        }
    }

    /// Compares the file with what is applied, if there is anything.
    fn compare(&mut self, applied: Option<&Image>) {
        let path = Path::new(FILE);
        self.policy_file_state = match path.metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => "absent",
            Err(_) => "unreadable",
            Ok(info) if info.len() > COMPARED_MAX => "large",
            Ok(_) => match read(path).map(|compiled| compiled.policies) {
                Err(_) => "unreadable",
                Ok(None) => "errors",
                Ok(Some(written)) => {
                    match applied.is_some_and(|image| are_applied(image, &written)) {
                        true => "same",
                        false => "differs",
                    }
                }
            },
        };
    }
}

/// When a file was changed last, in seconds since 1970.
fn modified(path: &Path) -> Option<i64> {
    let time = path.metadata().ok()?.modified().ok()?;
    time.duration_since(UNIX_EPOCH).ok().and_then(|age| i64::try_from(age.as_secs()).ok())
}
