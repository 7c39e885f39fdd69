//! `exirate bypass`: refuse nothing for a while.

use std::io::Write as _;
use std::path::Path;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::bypass::{Bypass, LONGEST};
use crate::cli::shared::administrator::{self, AuditLog};
use crate::cli::shared::database::Common;
use crate::cli::shared::screen::{Screen, complain};
use crate::cli::shared::spool_dir;
use crate::cli::{Failure, Json, Outcome};
use crate::spec::typed_period;
use crate::spool::{Options, Spool};
use crate::standing::bypass_state::sentence;
use crate::standing::databases::require_owner;
use crate::text;
use crate::text::time::now;

/// Refuse nothing for an hour, whatever limits and databases say
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Wrong limits refuse good mail: stop all limits for an hour, then look for the reason:
    exirate bypass --reason 'policy of this morning'
  For eight hours:
    exirate bypass --for 8h
  End it now:
    exirate bypass --end

Until the bypass ends, exirate refuses, defers, delays and holds nothing on this server. Events
are still counted, so `exirate list --over` shows who would be refused. Exim's own `ratelimit` is
not affected.

Exit status: 0 begun or ended; 1 there is no bypass to end; 2 an error.

Until the bypass ends, no line of exirate in Exim and no mail front end refuses, defers, delays or
holds anything: not by policies, specs or `exirate deny`, nor for an error in one of them, a
database that is damaged or that Exim may not use, shared limits that cannot be reached, or
on_error = \"fail-closed\". Events are still counted and measured: `exirate list --over` shows who
would be refused, and is refused once the bypass ends.

The bypass is the file exirate.bypass in the spool directory, which only root and the owner of
that directory can write. It applies to this server alone: run the command on each server that
shares its limits. Running processes notice it within a second, and each logs once that it
prevented a refusal. Every command that uses the spool directory shows it. It is logged to syslog
(facility mail) and, where the database can be used, to audit.log.

Exim's own `ratelimit` conditions, and whatever else refuses mail, are not affected; nor is an
Exim that cannot load the library.", add = Json::of::<BypassJson>().or::<EndedJson>("With --end"))]
pub(in crate::cli) struct BypassCommand {
    /// End it after this time, at most 1d
    #[arg(
        long = "for",
        value_name = "DURATION",
        default_value = "1h",
        value_parser = duration,
        conflicts_with = "end"
    )]
    long: i64,

    /// Say why, for the log and for those who see it
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        conflicts_with = "end"
    )]
    reason: String,

    /// End it now
    #[arg(long)]
    end: bool,

    #[command(flatten)]
    common: Common,
}

/// Whether a bypass was ended.
#[derive(Serialize, JsonSchema)]
struct EndedJson {
    ended: bool,
}

/// A bypass, in JSON.
#[derive(Serialize, JsonSchema)]
struct BypassJson {
    since: String,
    until: String,
    who: String,
    reason: String,
}

impl BypassCommand {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        spool_dir::announced();
        let spool = self.common.directory()?;
        require_owner(&spool)?;
        if self.end {
            return self.end(screen, &spool);
        }
        let now = now();
        let bypass = Bypass {
            since: now.seconds,
            until: now.seconds.saturating_add(self.long),
            who: administrator::who(),
            reason: text::printable(self.reason.as_bytes()),
        };
        bypass.begin(&spool)?;
        let Bypass { since, until, who, reason } = &bypass;
        let [since, until_text] = [*since, *until].map(text::iso_second);
        let why = if reason.is_empty() { String::new() } else { format!(" reason={reason}") };
        log(&spool, &format!("bypass until={until_text}{why}"));
        if self.common.json {
            let (who, reason) = (who.clone(), reason.clone());
            screen.json(&BypassJson { since, until: until_text, who, reason })?;
        } else {
            writeln!(screen, "{}", sentence(&bypass, now))?;
        }
        Ok(Outcome::Fine)
    }

    fn end(&self, screen: &mut Screen<'_>, spool: &Path) -> Result<Outcome, Failure> {
        let was_active =
            matches!(Bypass::read(spool), Ok(Some(one)) if one.is_active(now().seconds));
        // One that is damaged or has ended is removed as well.
        let ended = Bypass::end(spool)? && was_active;
        if ended {
            log(spool, "bypass --end");
        }
        if self.common.json {
            screen.json(&EndedJson { ended })?;
        } else {
            let what = if ended { "the limits apply again" } else { "there is no bypass to end" };
            writeln!(screen, "{what}")?;
        }
        Ok(Outcome::found_if(!ended))
    }
}

/// Logs it, also where the database cannot be used.
fn log(spool: &Path, what: &str) {
    let mut log = AuditLog::new();
    let opened = Spool::require(spool).and_then(|()| Spool::open(spool, Options::default()));
    match opened {
        Ok(mut store) => log.add(&mut store, what),
        Err(error) => {
            log.add_without_store(what);
            complain(format_args!("note: this is not in audit.log: {error}"));
        }
    }
}

/// How long it lasts, in seconds.
fn duration(text: &str) -> Result<i64, String> {
    let seconds = typed_period(text).map(|period| period.ceil() as i64);
    seconds
        .ok()
        .filter(|seconds| (1..=LONGEST).contains(seconds))
        .ok_or_else(|| "expected a duration of at most 1d, such as 1h, 30m or 2h30m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lasts_a_day_at_most() {
        assert_eq!(duration("1h"), Ok(3600));
        assert_eq!(duration("1d"), Ok(86_400));
        for text in ["0", "25h", "1w", "forever", "-1h", ""] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
