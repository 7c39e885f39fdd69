//! The servers that share the limits, as commands show them.

use std::io::Write as _;

use super::screen::Screen;
use super::table::{self, Column};
use crate::cli::Failure;
use crate::rate::Timestamp;
use crate::serve::servers::{Seen, short, unreadable};
use crate::text;

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
    table::cells(screen, columns, rows)?;
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
