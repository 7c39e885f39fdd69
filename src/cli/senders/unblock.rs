//! `exirate unblock`: deletes the records of keys, and removes denials of them.
//!
//! What it says of a record is in `standing::words`, of a denial in `standing::override_state`, of
//! what still refuses in `standing::left`. `exirate reset` says the same of records; the broker of
//! the web service does the same by `standing::change`.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::habits::account::suspected;
use crate::cli::shared::administrator::AuditLog;
use crate::cli::shared::database::{parts, print_incidents};
use crate::cli::shared::keys::{self, Narrow, Selection};
use crate::cli::shared::rates::Rates;
use crate::cli::shared::screen::{Screen, complain, note, noted};
use crate::cli::shared::{complete, confirm};
use crate::cli::{Failure, Json, Outcome};
use crate::identity::fold::Folding;
use crate::standing::accounts::InUse;
use crate::standing::databases::require_owner;
use crate::standing::in_force::{By, InForce};
use crate::standing::key_state::{KeyState, KeyStateJson};
use crate::standing::override_state::{self, OverrideJson};
use crate::standing::totals::Totals;
use crate::standing::{change, key_text, left, words};
use crate::store::{Inspect, Override, OwnedKey, Target};
use crate::text;
use crate::text::time::now;

/// Unblock keys: delete their records, and end denials of them
#[derive(Debug, Args)]
#[command(after_help = help(), add = Json::of::<UnblockReport>())]
pub(in crate::cli) struct Unblock {
    /// Unblock these keys or globs
    #[arg(value_name = "KEY", required_unless_present = "over", add = complete::keys())]
    keys: Vec<OsString>,

    #[command(flatten)]
    narrow: Narrow,

    /// Unblock only keys that their rates block: one more event would be refused
    #[arg(long)]
    over: bool,

    /// Delete records only: whoever is denied stays denied
    #[arg(long)]
    keep_denials: bool,

    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,

    /// Change nothing: show what would be unblocked
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    common: Rates,
}

/// What the help says besides the options.
fn help() -> String {
    format!(
        "Examples:
  Let alice send again: delete her rates, and end a denial of her:
    exirate unblock alice@example.org
  Reset her hourly limit, and keep the daily one:
    exirate unblock alice@example.org --period 1h
  Show what a glob would unblock:
    exirate unblock '*@example.org' --dry-run
  Unblock every key that is over its limit now:
    exirate unblock --over --yes

{key} Its rates start from nothing, and the denial by
`exirate deny` ends. With --mode, --period, --over or --keep-denials, only rates are deleted. Where
several keys may match, it asks first; without a terminal, --yes is needed.

Exit status: 0 unblocked; 1 a KEY has no record and no denial, or nothing was unblocked, or
a key is still denied or suspected; 2 an error.

{manual}

The records of KEY are deleted: its rates, the unique events it has counted, and the block that a
crossing has set (`deny` of [on.crossing]), which --over leaves alone. The next check of
the key starts from nothing, with the limit in Exim's configuration. The override that `exirate
deny` has set for KEY is removed as well; a glob removes its own override, and those of the keys
that it matches. With --mode, --period, --over or --keep-denials, only records are deleted. A
denial by another glob stays in force, and a message names it; `exirate allow` for the single key
is stronger. An account that is suspected for its habits stays suspected, and a message names the
command that ends it. A total that refuses KEY is a key of its own, such as customer:acme: a note
names it. Exim may run meanwhile; its running processes apply this at their next check.

Where several keys may match (a glob or --over), it asks first; without a terminal, --yes
is needed. What was done is logged to audit.log in the database's directory, and to syslog
(facility mail): one line for each record, or one for all if they are more than 100.",
        key = keys::HELP,
        manual = keys::MANUAL
    )
}

/// The records that were reset, and the denials that were removed.
#[derive(Serialize, JsonSchema)]
struct UnblockReport {
    dry_run: bool,
    /// The deleted records.
    reset: Vec<KeyStateJson>,
    /// The overrides that were removed.
    removed: Vec<OverrideJson>,
}

/// Which records have been deleted so far, or would be.
#[derive(Default)]
struct Done {
    count: usize,
    /// For JSON.
    records: Vec<KeyStateJson>,
}

impl Unblock {
    /// As `exirate reset`, an older word: records only.
    pub(in crate::cli) fn reset(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        self.unblock(screen, false)
    }

    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        self.unblock(screen, !(self.keep_denials || self.over || self.narrow.is_selective()))
    }

    /// Deletes records and, with `denials`, ends denials; or shows what it would do.
    fn unblock(&self, screen: &mut Screen<'_>, denials: bool) -> Result<Outcome, Failure> {
        let directory = self.common.directory()?;
        let folding = self.common.folding()?;
        let targets = if denials { self.targets(&folding) } else { Vec::new() };
        let mut store = if self.dry_run {
            self.common.open()?
        } else {
            require_owner(&directory)?;
            self.common.open_to_change()?
        };
        let mut selection = Selection::new(&self.keys, &self.narrow, &folding)?;
        let (mut keys, unread) = selection.keys(&mut *store)?;
        let mut denied = if denials { store.overrides()? } else { Vec::new() };
        denied.retain(|one| is_denial(one, &targets));
        for (argument, target, _) in &targets {
            if denied.iter().any(|one| override_state::covers(target, one)) {
                selection.has_found(*argument);
            }
        }
        let missing = selection.report_missing(&mut *store)?;
        if self.over {
            let in_force = noted(InForce::of(&mut *store, &directory));
            keys = blocked_by_rate(&mut *store, keys, &in_force)?;
        }
        let nothing = keys.is_empty() && denied.is_empty();
        if selection.is_loose() && !self.dry_run && !nothing {
            let records = keys.iter().map(|key| key_text::stored(&key.name));
            let denials = denied.iter().map(override_state::sentence);
            if !confirm::ask("unblock", &records.chain(denials).collect::<Vec<_>>(), self.yes)? {
                note("nothing was unblocked");
                return Ok(Outcome::Found);
            }
        }
        let mut log = AuditLog::new();
        if !self.dry_run && !denied.is_empty() {
            let is_meant = |one: &Override| is_denial(one, &targets);
            denied = log.with(|by| change::remove_denials(&mut *store, is_meant, by))?;
        }
        if !self.common.json {
            let verb = if self.dry_run { "would remove" } else { "removed" };
            for one in &denied {
                writeln!(screen, "{verb}: {}", override_state::sentence(one))?;
            }
        }
        // As the records stand without the denials.
        let in_force = noted(InForce::of(&mut *store, &directory));
        let mut done = Done::default();
        let result = self.delete(&mut *store, &keys, &in_force, screen, (&mut log, &mut done));
        print_incidents(&mut *store);
        if self.common.json {
            screen.json(&UnblockReport {
                dry_run: self.dry_run,
                reset: done.records,
                removed: denied.iter().map(OverrideJson::of).collect(),
            })?;
        } else if self.over && nothing && unread == 0 {
            writeln!(screen, "no key is blocked by its rate")?;
        }
        screen.flush()?;
        result.map_err(|failure| match failure {
            Failure::Said(what) if !self.dry_run && keys.len() > 1 => Failure::new(format!(
                "{what}; {} of {} records were reset; run the command again for the rest",
                done.count,
                keys.len()
            )),
            failure => failure,
        })?;
        let left = self.report_left(&mut *store, &targets, &denied)?;
        self.report_totals(&mut *store, &folding, &keys, &in_force)?;
        let left = denials && self.report_suspected(&directory)? || left;
        if unread > 0 {
            return Err(Failure::new(format!(
                "{} not be read: their keys were not reset",
                parts(unread)
            )));
        }
        Ok(Outcome::found_if(missing || nothing || left))
    }

    /// What the arguments mean as keys of overrides, with their numbers and how they are shown;
    /// without those that cannot be such a key.
    fn targets(&self, folding: &Folding) -> Vec<(usize, Target, String)> {
        let target = |key| keys::override_target(key, self.narrow.is_exact(), folding).ok();
        let all = self.keys.iter().enumerate();
        all.filter_map(|(n, key)| target(key).map(|(target, shown)| (n, target, shown))).collect()
    }

    /// Deletes the records of these keys, or finds those that would be, and prints each; stops at
    /// the first error.
    fn delete(
        &self,
        store: &mut dyn Inspect,
        keys: &[OwnedKey],
        in_force: &InForce,
        screen: &mut Screen<'_>,
        (log, done): (&mut AuditLog, &mut Done),
    ) -> Result<(), Failure> {
        let verb = if self.dry_run { "would reset" } else { "reset" };
        let mut see = |record: KeyState| -> Result<(), Failure> {
            done.count += 1;
            if self.common.json {
                done.records.push(in_force.json(&record));
            } else {
                writeln!(screen, "{verb} {}", words::stood(&record, in_force))?;
            }
            Ok(())
        };
        if self.dry_run {
            for key in keys {
                store.get(key.key())?.map(KeyState::from).map_or(Ok(()), &mut see)?;
            }
            return Ok(());
        }
        log.with(|by| change::delete(store, keys, &self.arguments(), by, see))
    }

    /// Names what still denies an argument. Returns whether there is something.
    fn report_left(
        &self,
        store: &mut dyn Inspect,
        targets: &[(usize, Target, String)],
        removed: &[Override],
    ) -> Result<bool, Failure> {
        if targets.is_empty() {
            return Ok(false);
        }
        let mut left = store.overrides()?;
        left.retain(|one| !removed.contains(one));
        let mut denied = false;
        for (_, target, argument) in targets {
            let deciding = override_state::of_target(&left, target, now().seconds);
            if let Some(denial) = deciding.filter(|one| one.overridden.is_denial()) {
                denied = true;
                complain(format_args!(
                    "{}; `{}` ends that, or `{}`",
                    left::denied(argument, denial),
                    self.common.commands().about("overrides --remove", &denial.argument),
                    self.common.commands().about("allow", argument),
                ));
            }
        }
        Ok(denied)
    }

    /// Names the accounts that are suspected all the same. Returns whether there is one.
    fn report_suspected(&self, directory: &Path) -> Result<bool, Failure> {
        let (in_use, now) = (InUse::of(directory), now().seconds);
        let accounts = suspected(&self.common, &in_use, &self.keys, &self.narrow, now)?;
        for account in &accounts {
            let key = account.shown();
            let accept = self.common.commands().here("habits accept", &key);
            complain(format_args!(
                "{}; if it was the owner, `{accept}` ends that",
                left::suspected(&key)
            ));
        }
        Ok(!accounts.is_empty())
    }

    /// Names the totals that still refuse what the keys send.
    fn report_totals(
        &self,
        store: &mut dyn Inspect,
        folding: &Folding,
        keys: &[OwnedKey],
        in_force: &InForce,
    ) -> Result<(), Failure> {
        let mut totals = Totals::of(store, in_force, keys.iter().map(OwnedKey::key))?;
        for (_, target, _) in self.targets(folding) {
            totals = totals.and(Totals::refusing_target(store, in_force, &target)?);
        }
        for name in totals.names_refusing(in_force) {
            let unblock = self.common.commands().about("unblock", &name);
            note(format_args!("{}: `{unblock}` resets it", left::total(&name)));
        }
        Ok(())
    }

    /// The arguments, for the log.
    fn arguments(&self) -> String {
        let over = self.over.then(|| "--over".to_owned());
        let keys = self.keys.iter().map(|key| text::printable(key.as_bytes()));
        over.into_iter().chain(self.narrow.arguments()).chain(keys).collect::<Vec<_>>().join(" ")
    }
}

/// Whether this override denies what one of the targets means.
fn is_denial(one: &Override, targets: &[(usize, Target, String)]) -> bool {
    targets.iter().any(|(_, target, _)| change::is_denial_of(one, target, now().seconds))
}

/// Those of these keys that their rates block: to reset others helps nobody.
fn blocked_by_rate(
    store: &mut dyn Inspect,
    keys: Vec<OwnedKey>,
    in_force: &InForce,
) -> Result<Vec<OwnedKey>, Failure> {
    let mut over = Vec::new();
    for key in keys {
        let entry = store.get(key.key())?;
        let Some(record) = entry.map(KeyState::from) else { continue };
        let next = in_force.next(&record);
        if next.is_refused() && matches!(next.by, By::Rate) {
            over.push(key);
        }
    }
    Ok(over)
}
