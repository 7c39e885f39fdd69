//! The limits that servers share.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::cluster::{self, ClusterCounts, ClusterSettings};
use crate::serve::servers::{self, JsonServer, Seen};
use crate::sys::secure_dir::SecureDir;

/// What `exirate cluster status` shows, in JSON.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ClusterReport<'a> {
    pub(crate) socket: String,
    pub(crate) agent_user: u32,
    pub(crate) servers: u32,
    pub(crate) deadline_ms: u128,
    pub(crate) away: &'static str,
    pub(crate) config: String,
    /// How long the agent took to reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reply_ms: Option<f64>,
    /// Why the agent has not replied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    pub(crate) decided_shared: u64,
    pub(crate) decided_apart: u64,
    pub(crate) apart_over: u64,
    /// How often there was no reply in time since the deadline was set.
    pub(crate) late: u64,
    /// Since when the shared limits cannot be reached, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) away_since: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) servers_seen: Option<Vec<JsonServer>>,
    /// Why the servers are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) servers_error: Option<String>,
    /// The settings, and what was counted.
    #[serde(skip)]
    pub(crate) settings: &'a ClusterSettings,
    #[serde(skip)]
    pub(crate) counts: ClusterCounts,
    /// The servers, or why they are not known.
    #[serde(skip)]
    pub(crate) seen: Result<Seen, String>,
}

impl<'a> ClusterReport<'a> {
    /// Of these settings of the database in `directory` of the spool directory `spool`. The agent and
    /// the shared store are asked.
    pub(crate) fn of(spool: &Path, directory: &SecureDir, settings: &'a ClusterSettings) -> Self {
        let counts = cluster::read_counts(directory).unwrap_or_default();
        let ClusterCounts { shared, apart, apart_over, away_since, late, .. } = counts;
        let reply = cluster::probe(settings);
        let seen = servers::look(settings, spool, true);
        Self {
            socket: settings.socket.display().to_string(),
            agent_user: settings.agent_user,
            servers: settings.servers,
            deadline_ms: settings.deadline.as_millis(),
            away: settings.away.word(),
            config: settings.config.display().to_string(),
            reply_ms: reply.as_ref().ok().map(|time| (time.as_secs_f64() * 1e6).round() / 1e3),
            error: reply.err(),
            decided_shared: shared,
            decided_apart: apart,
            apart_over,
            late,
            away_since,
            servers_seen: seen.as_ref().ok().map(Seen::json),
            servers_error: seen.as_ref().err().cloned(),
            settings,
            counts,
            seen,
        }
    }
}
