//! The servers that share the limits, as commands show them.

use std::io::Write as _;

use anstyle::Style;
use schemars::JsonSchema;
use serde::Serialize;

use super::screen::Screen;
use super::table::{Column, Layout};
use crate::cli::Failure;
use crate::rate::Timestamp;
use crate::redis::KnownServer;
use crate::serve::servers::{Seen, short, unreadable};
use crate::text;

/// A server, as JSON has it.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::cli) struct JsonServer {
    pub(in crate::cli) name: String,
    /// Whether it is this server.
    pub(in crate::cli) this: bool,
    /// The digest of its policies.
    pub(in crate::cli) policy: Option<String>,
    #[serde(flatten)]
    pub(in crate::cli) agent: Option<JsonAgent>,
}

/// Its agent.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::cli) struct JsonAgent {
    pub(in crate::cli) seen_lately: bool,
    /// In seconds since 1970.
    pub(in crate::cli) seen: u64,
    pub(in crate::cli) release: String,
    /// In seconds since 1970.
    pub(in crate::cli) started: u64,
    pub(in crate::cli) decisions: u64,
    /// In seconds.
    pub(in crate::cli) clock_offset: f64,
    /// How many its agent is configured for.
    pub(in crate::cli) servers: u32,
    /// The same for agents that count together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) secret: Option<String>,
    pub(in crate::cli) name_conflict: bool,
}

/// The servers for JSON.
pub(in crate::cli) fn json(seen: &Seen) -> Vec<JsonServer> {
    let one = |(name, server): (&String, &KnownServer)| JsonServer {
        name: name.clone(),
        this: *name == seen.own,
        policy: server.policy.as_ref().map(|policy| policy.digest.clone()),
        agent: server.agent.as_ref().map(|agent| JsonAgent {
            seen_lately: seen.known.is_seen_lately(server),
            seen: agent.seen,
            release: agent.release.clone(),
            started: agent.started,
            decisions: agent.decisions,
            clock_offset: agent.clock,
            servers: agent.servers,
            secret: agent.secret.map(|secret| format!("{secret:08x}")),
            name_conflict: agent.conflict,
        }),
    };
    seen.known.servers.iter().map(one).collect()
}

/// Prints a table of the servers, and what is wrong with it.
pub(in crate::cli) fn print(screen: &mut Screen<'_>, seen: &Seen) -> Result<(), Failure> {
    let known = &seen.known;
    let columns = [
        Column::words("SERVER"),
        Column::words("RELEASE"),
        Column::words("SEEN"),
        Column::words("RUNS SINCE").spare(2),
        Column::numbers("DECISIONS").spare(1),
        Column::numbers("CLOCK"),
        Column::words("POLICY"),
    ];
    let now = time(known.now);
    let rows = || {
        known.servers.iter().map(|(name, server)| {
            let agent = server.agent.as_ref();
            let of = |text: Option<String>| text.unwrap_or_default();
            [
                text::printable(name.as_bytes()),
                of(agent.map(|agent| text::printable(agent.release.as_bytes()))),
                agent.map_or("never".to_owned(), |one| text::rough_age(time(one.seen), now)),
                of(agent.map(|agent| text::iso(time(agent.started)))),
                of(agent.map(|agent| agent.decisions.to_string())),
                of(agent.map(|agent| offset(agent.clock))),
                server.policy.as_ref().map_or("none".to_owned(), |one| short(&one.digest)),
            ]
        })
    };
    let layout = Layout::of(screen, columns, rows());
    layout.head(screen)?;
    layout.write(screen, Style::new(), rows(), None)?;
    for (name, server) in &known.servers {
        if server.agent.as_ref().is_some_and(|agent| agent.conflict) {
            let name = text::printable(name.as_bytes());
            writeln!(screen, "several servers have the name {name}: see `exirate doctor`")?;
        }
    }
    if known.secrets().len() > 1 {
        let text = "the agents use different secrets, so they do not count together";
        writeln!(screen, "{text}: see `exirate doctor`")?;
    }
    if known.unreadable > 0 {
        writeln!(screen, "{}", unreadable(known.unreadable))?;
    }
    Ok(())
}

/// How a clock differs.
pub(in crate::cli) fn offset(seconds: f64) -> String {
    if seconds.abs() < 1.0 {
        format!("{:+.1} ms", seconds * 1e3)
    } else {
        format!("{seconds:+.1} s")
    }
}

/// A time in seconds since 1970.
fn time(seconds: u64) -> Timestamp {
    Timestamp { seconds: seconds.try_into().unwrap_or(i64::MAX), micros: 0 }
}
