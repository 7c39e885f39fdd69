//! `exirate compact`: as small as can be, and the bound on the size.

use std::io::Write as _;

use clap::Args;
use serde::Serialize;

use super::audit_log::AuditLog;
use super::database::{Common, now, print_incidents};
use super::screen::{Screen, note, progress};
use super::size::{bytes, parse_bytes};
use super::tidy;
use super::{Failure, Outcome};
use crate::spool::{MAX_BYTES_MIN, Spool};

/// Makes the database as small as can be, and sets how large it may grow
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Free what disk can be freed:
    exirate compact
  Let it grow to 2 GiB, and no further:
    exirate compact --max-size 2G

The database may take 1 GiB unless told otherwise, some eight million keys; at least
16 MiB. When it is full, it forgets what matters least: keys that are far from their
limits first, and each kind of key by itself. A bound that is lowered is kept to at
once; Exim's processes that run know of it as soon as they open the database anew,
at the next connection. It is shown by `exirate stats`. A changed bound is logged to
audit.log beside the database, and to syslog (facility mail).

Exit status: 0 done; 2 an error.

JSON: an object.")]
pub(super) struct Compact {
    /// The most bytes of disk that the database may take: 512M, 2G
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    max_size: Option<u64>,

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
            bound(&mut spool, max_bytes)?;
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

/// Sets the bound.
fn bound(spool: &mut Spool, max_bytes: u64) -> Result<(), Failure> {
    let before = spool.max_bytes();
    if max_bytes < MAX_BYTES_MIN {
        note(format_args!("the bound cannot be lower than {}", bytes(MAX_BYTES_MIN)));
    }
    let max_bytes = max_bytes.max(MAX_BYTES_MIN);
    if max_bytes != before {
        spool.set_max_bytes(max_bytes)?;
        AuditLog::new()
            .add(spool, format_args!("compact max_bytes={max_bytes} (was max_bytes={before})"));
    }
    Ok(())
}
