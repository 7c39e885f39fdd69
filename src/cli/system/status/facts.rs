//! What `exirate status` shows.

use std::io::ErrorKind;
use std::path::Path;
use std::thread;
use std::time::UNIX_EPOCH;

use serde::Serialize;

use crate::bypass::Bypass;
use crate::cli::Failure;
use crate::cli::senders::events::{self, Delivered, decisive};
use crate::cli::senders::list::{First, Sort};
use crate::cli::shared::bypass_state;
use crate::cli::shared::database::open_traces;
use crate::cli::shared::in_force::InForce;
use crate::cli::shared::key_state::{KeyState, later};
use crate::cli::shared::{key_text, override_state};
use crate::cli::system::doctor::{self, DecidedBy, Glance};
use crate::cluster::{self, ClusterSettings};
use crate::engine::Overridden;
use crate::policy::changes::settings;
use crate::policy::image::{Image, ImageError, PolicyFile};
use crate::policy::model::{self, OnCrossing};
use crate::policy::source::FILE;
use crate::policy::source::read;
use crate::policy::word::{Action, Word as _};
use crate::rate::Timestamp;
use crate::serve::config::host_name;
use crate::spool::{EventKind, EventReader, Options, Spool, SpoolError, open_directory};
use crate::store::FOREVER;
use crate::text;
use crate::text::time::{midnight, now};
use crate::trace::Access;

/// How many of each list are shown.
const SHOWN: usize = 5;
/// A policy file of more bytes is not compared with the policies in use: that takes seconds.
const COMPARED_MAX: u64 = 1 << 20;

/// Whether mail is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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

#[derive(Debug, Serialize)]
pub(super) struct Status {
    pub(super) host: String,
    time: String,
    pub(super) verdict: Verdict,
    pub(super) text: String,
    pub(super) decided_by: Vec<DecidedBy>,
    #[serde(flatten)]
    pub(super) policies: Policies,
    #[serde(flatten)]
    pub(super) keys: Keys,
    pub(super) bypass_until: Option<String>,
    pub(super) cluster: Option<Cluster>,
    pub(super) trace: Option<Traces>,
    pub(super) doctor: Doctor,
}

/// The policies in use.
#[derive(Debug, Default, Serialize)]
pub(super) struct Policies {
    pub(super) policies: Vec<Policy>,
    /// Their entries of `exempt`.
    pub(super) exempt: usize,
    pub(super) applied: Option<String>,
    #[serde(skip)]
    pub(super) applied_at: Option<i64>,
    pub(super) policy_file: String,
    pub(super) policy_file_state: &'static str,
    #[serde(skip)]
    on_crossing: OnCrossing,
    #[serde(skip)]
    pub(super) error: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Policy {
    pub(super) name: String,
    pub(super) action: &'static str,
    /// Whether mail comes to something that evaluates it.
    pub(super) evaluated: bool,
}

/// What the rate database holds.
#[derive(Debug, Default, Serialize)]
pub(super) struct Keys {
    pub(super) keys: u64,
    pub(super) keys_today: u64,
    pub(super) last_event: Option<String>,
    #[serde(skip)]
    pub(super) last: Option<Timestamp>,
    pub(super) blocked: u64,
    pub(super) blocked_first: Vec<Blocked>,
    pub(super) allowed: usize,
    pub(super) denied: usize,
    pub(super) overrides: Vec<OverrideShown>,
    pub(super) crossings_today: usize,
    pub(super) crossings: Vec<CrossingShown>,
    pub(super) receivers: Vec<ReceiverShown>,
    pub(super) database: Option<Database>,
}

/// A key whose next event is refused.
#[derive(Debug, Serialize)]
pub(super) struct Blocked {
    pub(super) key: String,
    pub(super) rate: f64,
    pub(super) limit: f64,
    pub(super) period: Option<String>,
    pub(super) mode: Option<String>,
    pub(super) since: Option<String>,
    #[serde(skip)]
    pub(super) since_at: Option<Timestamp>,
    pub(super) free_at: Option<String>,
    /// What else decides than the rate.
    pub(super) why: Option<String>,
    #[serde(skip)]
    pub(super) wait: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct OverrideShown {
    #[serde(rename = "override")]
    overridden: &'static str,
    key: String,
    until: Option<String>,
    #[serde(skip)]
    pub(super) text: String,
}

#[derive(Debug, Serialize)]
pub(super) struct CrossingShown {
    time: String,
    #[serde(skip)]
    pub(super) at: Timestamp,
    pub(super) key: String,
    pub(super) rate: f64,
    pub(super) limit: f64,
    pub(super) period: String,
    enforcement: &'static str,
    /// It has no alert.
    #[serde(skip)]
    pub(super) is_silent: bool,
    pub(super) waiting_for: Vec<&'static str>,
}

#[derive(Debug, Serialize)]
pub(super) struct ReceiverShown {
    pub(super) name: &'static str,
    pub(super) waiting: usize,
    pub(super) failing: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Database {
    pub(super) disk_bytes: u64,
    pub(super) max_bytes: u64,
    pub(super) damaged: u64,
    pub(super) unreadable: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct Cluster {
    pub(super) servers: u32,
    pub(super) away_since: Option<String>,
    pub(super) reply_ms: Option<f64>,
    pub(super) error: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Traces {
    pub(super) messages: u64,
    pub(super) disk_bytes: u64,
    pub(super) max_bytes: u64,
    pub(super) damaged: u64,
}

#[derive(Debug, Serialize)]
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
        let (glance, keys) = thread::scope(|scope| {
            let looking = scope.spawn(|| doctor::glance(given.then_some(spool)));
            let keys = Keys::of(spool, &policies.on_crossing);
            let glance = looking.join();
            (glance.unwrap_or_else(|_| Err(Failure::new("an internal error"))), keys)
        });
        let (glance, keys) = (glance?, keys?);
        policies.evaluated_by(&glance.decided_by);
        let bypass = Bypass::read(spool).ok().flatten();
        let bypass = bypass.filter(|bypass| bypass.is_active(now.seconds));
        let text = bypass.as_ref().map(|bypass| bypass_state::sentence(bypass, now));
        let (verdict, text) = verdict(text, &policies, &glance, spool);
        Ok(Self {
            host: host_name(),
            time: text::iso(now),
            verdict,
            text,
            policies,
            keys,
            bypass_until: bypass.map(|bypass| text::iso_second(bypass.until)),
            cluster: Cluster::of(spool)?,
            trace: Traces::of(spool)?,
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
        return nothing(format!("{server} comes to no line of exirate, and asks no daemon of it"));
    }
    let specs: usize = glance.decided_by.iter().map(|by| by.specs).sum();
    let called: Vec<&Policy> = policies.policies.iter().filter(|policy| policy.evaluated).collect();
    if specs == 0 && called.is_empty() {
        let why = policies
            .error
            .clone()
            .unwrap_or_else(|| format!("{server} evaluates policies, and none of them is in use"));
        return nothing(why);
    }
    if let Some(bypass) = bypass {
        return (Verdict::Bypassed, bypass);
    }
    if let Some(doubt) = &glance.doubt {
        return (Verdict::Doubtful, format!("mail may not be limited: {doubt}"));
    }
    let with = |action: Action| {
        let of = called.iter().filter(|policy| policy.action == action.word());
        of.map(|policy| &*policy.name).collect::<Vec<_>>().join(", ")
    };
    let (enforced, observed) = (with(Action::Enforce), with(Action::Observe));
    let specs = (specs > 0).then(|| text::counted(specs, "spec", "specs"));
    let enforced = Some(enforced).filter(|names| !names.is_empty());
    let enforced = enforced.map(|names| format!("by {names}"));
    let limits: Vec<String> =
        enforced.into_iter().chain(specs.map(|n| "by ".to_owned() + &n)).collect();
    match (limits.is_empty(), observed.is_empty()) {
        (true, _) => (
            Verdict::Observed,
            format!("mail is counted and nothing is refused: {observed} observes only"),
        ),
        (false, true) => (Verdict::Limited, format!("mail is limited {}", limits.join(" and "))),
        (false, false) => (
            Verdict::Limited,
            format!("mail is limited {}; {observed} observes only", limits.join(" and ")),
        ),
    }
}

impl Policies {
    fn of(spool: &Path) -> Self {
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
}

impl Policies {
    /// Finds which are evaluated.
    fn evaluated_by(&mut self, decided_by: &[DecidedBy]) {
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
                    let applied = applied.and_then(|image| image.policies().ok());
                    match applied.is_some_and(|applied| settings(&applied) == settings(&written)) {
                        true => "same",
                        false => "differs",
                    }
                }
            },
        };
    }
}

impl Keys {
    /// Reads the database in `spool`, if there is one.
    fn of(spool: &Path, on_crossing: &OnCrossing) -> Result<Self, Failure> {
        let mut database = match Spool::open_existing(spool, Options::default()) {
            Ok(database) => database,
            Err(SpoolError::Absent { .. }) => return Ok(Self::default()),
            Err(error) => return Err(error.into()),
        };
        let (in_force, _) = InForce::of(&mut database, spool);
        let (now, today) = (in_force.now, midnight());
        let mut found = Self::default();
        let mut first = First::new(Sort::Share, now, SHOWN);
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
        found.blocked_first = first.take().iter().map(|one| Blocked::of(one, &in_force)).collect();
        found.last_event = found.last.map(text::iso);
        found.database = Some(Database {
            disk_bytes: database.disk_bytes(),
            max_bytes: database.max_bytes(),
            damaged: left_out.damaged,
            unreadable: left_out.shards.len(),
        });
        found.overrides(&mut database, now)?;
        found.crossings(&mut database, spool, on_crossing, today)?;
        Ok(found)
    }

    fn overrides(&mut self, database: &mut Spool, now: Timestamp) -> Result<(), Failure> {
        let mut all = database.overrides()?;
        all.retain(|one| one.is_active(now.seconds));
        let count = |what| all.iter().filter(|one| one.overridden == what).count();
        (self.allowed, self.denied) = (count(Overridden::Allow), count(Overridden::Deny));
        // The latest first.
        all.sort_by_key(|one| std::cmp::Reverse(one.since));
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
    ) -> Result<(), Failure> {
        let crossings =
            database.read_events(&mut EventReader::new(EventKind::Crossings), now(), true)?;
        let delivered = events::delivered(spool, on, &crossings)?;
        self.crossings_today = crossings.iter().filter(|event| event.at.seconds >= today).count();
        let last = crossings.iter().enumerate().rev().take(SHOWN).map(|(at, event)| {
            let window = decisive(event);
            let is_silent = !events::has_alert(event, on.observed);
            let waiting = delivered.iter().filter(|one| at >= one.done && !is_silent);
            CrossingShown {
                time: text::iso(event.at),
                at: event.at,
                key: key_text::title(events::key(event)),
                rate: window.after,
                limit: window.limit,
                period: events::period(event, &window),
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
            mode: record.mode(),
            since: record.over_since().map(text::iso),
            since_at: record.over_since(),
            free_at: seconds.map(|seconds| text::iso(later(now, seconds))),
            why: next.why(),
            wait: wait.map(text::rough_wait),
        }
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

/// When a file was changed last, in seconds since 1970.
fn modified(path: &Path) -> Option<i64> {
    let time = path.metadata().ok()?.modified().ok()?;
    time.duration_since(UNIX_EPOCH).ok().and_then(|age| i64::try_from(age.as_secs()).ok())
}
