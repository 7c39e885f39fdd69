//! `exirate overrides`: lists what `allow` and `deny` have set, and removes it.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;

use clap::Args;

use crate::cli::shared::administrator::AuditLog;
use crate::cli::shared::database::print_incidents;
use crate::cli::shared::keys;
use crate::cli::shared::rates::Rates;
use crate::cli::shared::screen::{Screen, complain, note};
use crate::cli::shared::table::{self, Column};
use crate::cli::{Failure, Json, Outcome};
use crate::rate::Timestamp;
use crate::standing::databases::require_owner;
use crate::standing::override_state::{self, OverrideJson};
use crate::store::{Override, Target};
use crate::text;
use crate::text::time::now;

/// List keys that are allowed or denied, or end an override
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Who is allowed or denied, until when, and why?
    exirate overrides
  End an override now:
    exirate overrides --remove news@example.org
  For scripts:
    exirate overrides --json | jq -r '.[].key'

`exirate allow` and `exirate deny` set overrides. SET is how long ago, WHO the user. --remove takes KEY
as it is listed; a glob removes the override of that glob, and no other.

Exit status: 0 listed, also if there are none, or removed; 1 --remove finds no such
override; 2 an error.

`exirate allow` and `exirate deny` set overrides. SET is how long ago it was set, and WHO the user
who did it (after sudo or su, also the user before). An override that has ended is not listed, and
is dropped by the next change, and by `exirate repair`. --remove takes KEY as it is listed; a glob
removes the override of that glob, and no other. Exim's running processes apply that at their next
check. The change is logged to audit.log in the database's directory, and to syslog (facility
mail). A list that was damaged is kept in that directory, and is not in force: a message names it.")]
#[command(add = Json::of::<Vec<OverrideJson>>())]
pub(in crate::cli) struct Overrides {
    /// Remove the override of this KEY; may be repeated
    #[arg(long, value_name = "KEY")]
    remove: Vec<OsString>,

    /// Take KEY byte for byte: no globs, no escapes, no folding
    #[arg(long, requires = "remove")]
    exact: bool,

    #[command(flatten)]
    common: Rates,
}

impl Overrides {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        if self.remove.is_empty() { self.list(screen) } else { self.remove(screen) }
    }

    fn list(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let now = now();
        let mut list = self.common.open()?.overrides()?;
        list.retain(|one| one.is_active(now.seconds));
        let local = self.common.spool_if_any()?;
        for kept in local.map_or_else(|| Ok(Vec::new()), |spool| spool.kept_damaged())? {
            let is_list = |name: &OsStr| name.as_encoded_bytes().starts_with(b"overrides.");
            if kept.path.file_name().is_some_and(is_list) {
                note(format_args!(
                    "{} was damaged, and is kept: audit.log lists the commands that set it; \
                     `exirate repair --damaged-older-than 0` removes it",
                    kept.path.display()
                ));
            }
        }
        if self.common.json {
            screen.json(&list.iter().map(OverrideJson::of).collect::<Vec<_>>())?;
        } else if list.is_empty() {
            note("no key is allowed or denied");
        } else {
            let rows = || list.iter().map(|one| cells(one, now));
            table::cells(screen, COLUMNS, rows)?;
        }
        Ok(Outcome::Fine)
    }

    fn remove(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let folding = self.common.folding()?;
        let mut wanted = Vec::new();
        for key in &self.remove {
            wanted.push(keys::override_target(key, self.exact, &folding)?);
        }
        require_owner(&self.common.directory()?)?;
        let mut store = self.common.open_to_change()?;
        let now = now();
        let (removed, missing) = override_state::change(&mut *store, |list| {
            list.retain(|one| one.is_active(now.seconds));
            let found = wanted.iter().map(|(target, _)| named(list, target)).collect::<Vec<_>>();
            let missing = wanted.iter().zip(&found).filter(|(_, found)| found.is_none());
            let missing: Vec<&str> = missing.map(|((_, argument), _)| &**argument).collect();
            let is_wanted = |one: &mut Override| found.iter().flatten().any(|it| *it == one.target);
            (list.extract_if(.., is_wanted).collect::<Vec<_>>(), missing)
        })?;
        let mut log = AuditLog::new();
        for one in &removed {
            let (word, key) = (one.overridden.word(), override_state::key(one));
            log.add(&mut *store, format_args!("overrides removed={word} key={key}"));
        }
        print_incidents(&mut *store);
        if self.common.json {
            screen.json(&removed.iter().map(OverrideJson::of).collect::<Vec<_>>())?;
        } else {
            for one in &removed {
                writeln!(screen, "removed: {}", override_state::sentence(one))?;
            }
        }
        screen.flush()?;
        for argument in &missing {
            complain(format_args!("no override of {argument}; `exirate overrides` lists them"));
        }
        Ok(Outcome::found_if(!missing.is_empty()))
    }
}

/// What an override of `list` has for `target`: the same, else that of this name which was set
/// with --exact.
fn named(list: &[Override], target: &Target) -> Option<Target> {
    let has = |wanted: &Target| list.iter().any(|one| one.target == *wanted);
    let literal = match target {
        Target::Exact { key, .. } => Some(Target::literal(key)),
        Target::Glob { .. } => None,
    };
    std::iter::once(target.clone()).chain(literal).find(has)
}

const COLUMNS: [Column; 6] = [
    Column::words("OVERRIDE"),
    Column::words("UNTIL"),
    Column::words("SET").spare(2),
    Column::words("WHO").spare(3),
    Column::words("KEY"),
    Column::words("REASON").spare(1),
];

fn cells(one: &Override, now: Timestamp) -> [String; 6] {
    let since = Timestamp { seconds: one.since, micros: 0 };
    [
        one.overridden.word().to_owned(),
        override_state::local_until(one),
        text::rough_age(since, now),
        text::printable(one.who.as_bytes()),
        override_state::key(one),
        text::printable(one.reason.as_bytes()),
    ]
}
