//! The store of a library whose limits are shared by several servers: it asks the local
//! agent, and decides on the spool store when no reply comes in time.
//!
//! Without the file `cluster` in the database's directory (see [`ClusterSettings`]) it is
//! the spool store and no more.
//!
//! The rates that the shared store replies are stored in the spool store, as copies. While
//! the shared store is away, each server admits its share of what is left of each limit:
//! see [`Authority::Share`]. After some failures the processes of a host stop asking for a
//! while, and one of them tries again, at least once a second. Where the agent replies that
//! only a part of the store is away, as one node of a Redis Cluster, they go on asking, and
//! only the events of the keys there are decided by that share.
//!
//! A unique event is remembered by the store that decided it: one that the shared store
//! knows is counted again by a server that is apart, once.

mod absence;
mod agent;
#[cfg(test)]
mod bound_tests;
mod breaker;
mod settings;
#[cfg(test)]
mod tests;
pub mod wire;

use std::path::Path;
use std::time::{Duration, Instant};

use crate::engine::{self, Algorithm, Authority, Check, Decision, Overridden, Update};
use crate::rate::{Average, Timestamp};
use crate::spool::{Options, Spool, SpoolError};
use crate::store::{Counting, EventDetails, Judged, Sending, Store};
use crate::sys::clock;
use crate::text::{counted, rough};

pub use breaker::{ClusterCounts, STATE, forget_late, read_counts};
pub use settings::{
    Away, CLUSTER, CONFIG_DEFAULT, ClusterSettings, DEADLINE_DEFAULT, DEADLINE_MAX, SERVERS_MAX,
    SOCKET_DEFAULT, SettingsError,
};

use agent::{AgentConnection, AskError};
use breaker::{Breaker, Changed};

/// The store of a library: the spool store, and the agent of a cluster if there is one.
#[derive(Debug)]
pub struct ClusterStore {
    spool: Spool,
    cluster: Option<Box<Cluster>>,
    incidents: Vec<String>,
    bypassed: bool,
}

/// How the limits are shared.
#[derive(Debug)]
struct Cluster {
    settings: ClusterSettings,
    agent: AgentConnection,
    breaker: Breaker,
    /// This process does not ask before this time of the monotonic clock, in microseconds:
    /// it has just asked in vain. So an SMTP command with several checks waits once, even
    /// if other processes reach the shared store meanwhile; and once for each node of a Redis Cluster
    /// that has just fallen silent, as only the agent knows which keys are whose.
    asks_from: u64,
}

/// Why a check could not be decided.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The spool store could not be used.
    #[error("{0}")]
    Spool(#[from] SpoolError),
    /// The shared store is away, and the setting `away` is `closed`.
    #[error(
        "the shared limits cannot be reached through {} (away = closed)",
        .settings.socket.display()
    )]
    Away {
        /// The settings, for the text.
        settings: ClusterSettings,
    },
}

impl ClusterStore {
    /// Opens the database in `spool_directory`, and reads whether its limits are shared.
    /// If that cannot be read, they are not shared, which [`ClusterStore::take_incidents`]
    /// says.
    ///
    /// # Errors
    /// Those of [`Spool::open`].
    pub fn open(spool_directory: &Path, options: Options) -> Result<Self, SpoolError> {
        let spool = Spool::open(spool_directory, options)?;
        let mut incidents = Vec::new();
        let settings = ClusterSettings::read(spool.secure_directory()).unwrap_or_else(|error| {
            incidents.push(format!("this server shares no limits with others: {error}"));
            None
        });
        let cluster = settings.map(|settings| {
            let breaker = Breaker::open(spool.secure_directory());
            Box::new(Cluster { settings, agent: AgentConnection::default(), breaker, asks_from: 0 })
        });
        Ok(Self { spool, cluster, incidents, bypassed: false })
    }

    /// The spool store.
    #[must_use]
    #[inline]
    pub fn spool(&self) -> &Spool {
        &self.spool
    }

    /// As above, for changes that concern no other server.
    #[inline]
    pub fn spool_mut(&mut self) -> &mut Spool {
        &mut self.spool
    }

    /// From now on all checks only observe, or not: while a [`Bypass`](crate::bypass::Bypass)
    /// lasts, all events are accepted, and so all count.
    #[inline]
    pub fn set_bypassed(&mut self, bypassed: bool) {
        self.bypassed = bypassed;
    }

    /// Returns, once, what the administrator should know, in one sentence each.
    #[inline]
    pub fn take_incidents(&mut self) -> Vec<String> {
        let mut incidents = self.spool.take_incidents();
        incidents.append(&mut self.incidents);
        incidents
    }

    /// Decides the checks of one event by the shared store, or without it.
    #[cold]
    fn decide_shared(
        &mut self,
        checks: &[Check<'_>],
        asked_at: Timestamp,
        decisions: &mut Vec<Decision>,
    ) -> Result<(), ClusterError> {
        let Some(cluster) = self.cluster.as_deref_mut() else {
            return Ok(self.spool.decide_as(
                Authority::Local,
                checks,
                &mut || asked_at,
                decisions,
            )?);
        };
        decisions.clear();
        if checks.is_empty() {
            return Ok(());
        }
        // The overrides of this server come first.
        let checks = self.spool.with_overrides(checks, asked_at);
        let servers = cluster.settings.servers;
        let monotonic = clock::monotonic_micros();
        let seconds = u64::try_from(asked_at.seconds).unwrap_or(0);
        if monotonic >= cluster.asks_from && cluster.breaker.may_ask(monotonic) {
            let begun = Instant::now();
            let deadline = begun + cluster.settings.deadline;
            let changed = match cluster.agent.ask(&cluster.settings, &checks, deadline) {
                Ok(mut decided) => {
                    let changed = cluster.breaker.succeeded(seconds);
                    self.incidents.extend(changed.map(|one| cluster.incident(one, None)));
                    decided.iter_mut().for_each(|one| redate(one, asked_at));
                    let authority = Authority::Cluster { decisions: &decided, servers };
                    // A copy that cannot be stored must not refuse what is decided.
                    let stored =
                        self.spool.decide_as(authority, &checks, &mut || asked_at, &mut Vec::new());
                    if let Err(error) = stored {
                        self.incidents.push(format!("the shared rates cannot be stored: {error}"));
                    }
                    *decisions = decided;
                    return Ok(());
                }
                Err(error) => {
                    if begun.elapsed() >= cluster.settings.deadline / 2 {
                        cluster.breaker.late(seconds);
                    }
                    if error.is_of_keys() {
                        // The agent knows it from now on, and says so at once.
                        cluster.breaker.reached();
                        None
                    } else {
                        cluster.asks_from = clock::monotonic_micros() + breaker::PAUSE;
                        let changed = cluster.breaker.failed(monotonic, seconds);
                        changed.map(|changed| (changed, error))
                    }
                }
            };
            let incident = changed.map(|(changed, error)| cluster.incident(changed, Some(&error)));
            self.incidents.extend(incident);
        }
        let away = cluster.settings.away;
        if away == Away::Closed {
            cluster.breaker.count_apart(true);
            return Err(ClusterError::Away { settings: cluster.settings.clone() });
        }
        let checks = match away {
            Away::Open => checks.iter().map(allowed).collect(),
            _ => checks,
        };
        // Other processes may have counted events while this one waited for a reply. If this
        // event were dated before theirs, what was admitted apart would decay twice.
        let mut now = || {
            let waited = clock::monotonic_micros().saturating_sub(monotonic);
            let waited = i64::try_from(waited).unwrap_or(0);
            Timestamp::from_micros(asked_at.as_micros().saturating_add(waited))
        };
        let share = Authority::Share { servers };
        self.spool.decide_as(share, &checks, &mut now, decisions)?;
        cluster.breaker.count_apart(decisions.iter().any(|decision| decision.over));
        Ok(())
    }
}

impl Cluster {
    /// What the administrator should know of a change.
    #[cold]
    fn incident(&self, changed: Changed, error: Option<&AskError>) -> String {
        let ClusterSettings { socket, servers, away, .. } = &self.settings;
        let socket = socket.display();
        match changed {
            Changed::Away => {
                let error = error.map_or(String::new(), |error| format!(" ({error})"));
                let then = match away {
                    Away::Local => format!(
                        "this server admits 1/{servers} of what is left of each limit until it can"
                    ),
                    Away::Open => "no limit refuses anything until it can".to_owned(),
                    Away::Closed => "checks fail until it can".to_owned(),
                };
                format!(
                    "the shared limits cannot be reached through the agent at {socket}{error}; {then}"
                )
            }
            Changed::Back { seconds, apart, over } => format!(
                "the shared limits are reached again through the agent at {socket}, after {} \
                 in which {} decided without them, {over} of them over a limit",
                rough(seconds as f64),
                counted(apart, "event was", "events were")
            ),
        }
    }
}

/// The check, which refuses nothing unless an override denies it.
fn allowed<'a>(check: &Check<'a>) -> Check<'a> {
    Check { overridden: check.overridden.or(Some(Overridden::Allow)), ..*check }
}

/// The check, which refuses nothing, and so counts all.
#[cold]
fn observing_check<'a>(check: &Check<'a>) -> Check<'a> {
    Check { refuses: None, ..*check }
}

/// Gives a decision the times of this server's clock.
fn redate(decision: &mut Decision, now: Timestamp) {
    let decided = decision.at.as_micros();
    decision.kept = decision.kept.map(|kept| {
        // Negative, if the clock of the shared store was set back.
        let age = decided.saturating_sub(kept.at.as_micros());
        Average { at: Timestamp::from_micros(now.as_micros().saturating_sub(age)), ..kept }
    });
    decision.at = now;
}

/// Asks the agent to decide a check that counts nothing. Returns how long that took.
///
/// # Errors
/// There is no agent, or it cannot reach the shared store: why.
pub fn probe(settings: &ClusterSettings) -> Result<Duration, String> {
    let check = Check {
        count: 0.0,
        update: Update::ReadOnly,
        refuses: None,
        ..Check::new(
            b"exirate cluster status",
            Algorithm::MovingAverage { limit: 1.0, period: 1.0 },
        )
    };
    let start = Instant::now();
    let asked = AgentConnection::default().ask(settings, &[check], start + settings.deadline);
    asked.map(|_| start.elapsed()).map_err(|error| error.to_string())
}

impl Store for ClusterStore {
    type Error = ClusterError;

    #[inline]
    fn decide(
        &mut self,
        checks: &[Check<'_>],
        clock: impl FnOnce() -> Timestamp,
        decisions: &mut Vec<Decision>,
    ) -> Result<(), ClusterError> {
        let observing: Vec<_>;
        let checks = match self.bypassed {
            false => checks,
            true => {
                observing = checks.iter().map(observing_check).collect();
                &observing
            }
        };
        if self.cluster.is_some() {
            return self.decide_shared(checks, clock(), decisions);
        }
        Ok(self.spool.decide(checks, clock, decisions)?)
    }

    #[inline]
    fn decide_one(
        &mut self,
        check: &Check<'_>,
        clock: impl FnOnce() -> Timestamp,
    ) -> Result<Decision, ClusterError> {
        let observing;
        let check = match self.bypassed {
            false => check,
            true => {
                observing = observing_check(check);
                &observing
            }
        };
        if self.cluster.is_none() {
            return Ok(self.spool.decide_one(check, clock)?);
        }
        let (now, mut decisions) = (clock(), Vec::with_capacity(1));
        self.decide_shared(std::slice::from_ref(check), now, &mut decisions)?;
        // There is one for each check.
        let none = || engine::decide_one(check, None, None, now).decision();
        Ok(decisions.pop().unwrap_or_else(none))
    }

    #[inline]
    fn habits_hash(&self, text: &[u8]) -> u64 {
        self.spool.habits_hash(text)
    }

    fn learn(
        &mut self,
        sending: &Sending<'_>,
        clock: impl FnOnce() -> Timestamp,
    ) -> Result<Judged, ClusterError> {
        Ok(self.spool.learn(sending, clock)?)
    }

    #[inline]
    fn count_usage(
        &mut self,
        counting: &Counting<'_>,
        clock: impl FnOnce() -> Timestamp,
    ) -> Result<(), ClusterError> {
        Ok(self.spool.count_usage(counting, clock)?)
    }

    /// No lock is kept while the agent is asked.
    #[inline]
    fn keep_lock(&mut self, keeps: bool) {
        if self.cluster.is_none() {
            self.spool.keep_lock(keeps);
        }
    }

    #[inline]
    fn has_events(&self) -> bool {
        self.spool.has_events()
    }

    fn describe(&mut self, details: &EventDetails<'_>) {
        self.spool.describe(details);
    }
}
