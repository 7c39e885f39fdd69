//! `exirate compact`: make the database as small as possible, and set its size limit.

use std::io::{self, IsTerminal as _, Write as _};

use clap::Args;
use serde::Serialize;

use super::audit_log::AuditLog;
use super::database::{Common, now, print_incidents};
use super::screen::{Screen, progress};
use super::size::{bytes, parse_bytes};
use super::tidy;
use super::{Failure, Outcome};
use crate::spool::{MAX_BYTES_MIN, Spool};

/// Make the database as small as possible, and set its size limit
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Free what disk can be freed:
    exirate compact
  Let it grow to 2 GiB, and no further:
    exirate compact --max-size 2G

The database may take 1 GiB unless told otherwise, some eight million keys; at least
16 MiB. When it is full, it forgets what matters least: keys that are far from their
limits first, and each kind of key by itself. A lower limit takes effect at once: where
keys would be dropped for it, this asks, or fails where there is no terminal, unless
--yes is given. Running Exim processes use the new limit from their next connection on.
`exirate stats` shows it. A change is logged to audit.log beside the database, and to
syslog (facility mail).

Exit status: 0 done; 2 an error.

JSON: an object.")]
pub(super) struct Compact {
    /// Set the size limit of the database, such as 512M or 2G
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    max_size: Option<u64>,

    /// Lower the size limit without asking, even where keys are dropped for it
    #[arg(long, short)]
    yes: bool,

    #[command(flatten)]
    common: Common,
}

/// What was done, as JSON has it.
#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    compacted: tidy::Answer,
    max_bytes: u64,
    max_bytes_before: u64,
}

impl Compact {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let mut spool = self.common.open_to_change()?;
        let max_bytes_before = spool.max_bytes();
        if let Some(max_bytes) = self.max_size {
            self.set_limit(&mut spool, max_bytes)?;
        }
        let bar = progress(256, "shards");
        let compacted = tidy::Answer::of(&mut spool, |spool| {
            Ok(spool.compact(now(), |done| bar.set_position(done as u64))?)
        })?;
        bar.finish_and_clear();
        print_incidents(&mut spool);
        let max_bytes = spool.max_bytes();
        if self.common.json {
            screen.json(&Answer { compacted, max_bytes, max_bytes_before })?;
            return Ok(Outcome::Fine);
        }
        compacted.tell(screen)?;
        if max_bytes == max_bytes_before {
            writeln!(screen, "it may take {}", bytes(max_bytes))?;
        } else {
            writeln!(screen, "it may take {}, was {}", bytes(max_bytes), bytes(max_bytes_before))?;
        }
        Ok(Outcome::Fine)
    }
}

impl Compact {
    /// Sets the size limit.
    fn set_limit(&self, spool: &mut Spool, max_bytes: u64) -> Result<(), Failure> {
        let before = spool.max_bytes();
        if max_bytes < MAX_BYTES_MIN {
            return Err(Failure::new(format!(
                "--max-size {} is too low: it must be at least {}",
                bytes(max_bytes),
                bytes(MAX_BYTES_MIN)
            )));
        }
        if max_bytes == before {
            return Ok(());
        }
        if max_bytes < before && !self.yes && would_evict(spool, max_bytes)? {
            confirm(spool, max_bytes)?;
        }
        spool.set_max_bytes(max_bytes)?;
        AuditLog::new()
            .add(spool, format_args!("compact max_bytes={max_bytes} (was max_bytes={before})"));
        Ok(())
    }
}

/// Whether keys may have to go for this limit: a shard drops keys from 7/8 of its
/// part of the limit on.
fn would_evict(spool: &mut Spool, max_bytes: u64) -> Result<bool, Failure> {
    let part = max_bytes / 256 / 8 * 7;
    Ok(spool.verify()?.shards.iter().any(|shard| shard.disk > part))
}

/// Asks whether keys may be dropped.
fn confirm(spool: &mut Spool, max_bytes: u64) -> Result<(), Failure> {
    let text = format!(
        "the database takes {}: with a size limit of {}, keys that still count may be dropped",
        bytes(spool.stats()?.disk),
        bytes(max_bytes)
    );
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::new(format!("{text}; nothing was changed; --yes sets it anyway")));
    }
    let mut screen = io::stderr().lock();
    write!(screen, "{text}. Set it? [y/N] ")?;
    screen.flush()?;
    let mut reply = String::new();
    io::stdin().read_line(&mut reply)?;
    match reply.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::new("nothing was changed")),
    }
}
