//! `exirate unblock`: deletes the records of keys, and removes denials of them.

use std::ffi::OsString;
use std::io::Write as _;

use clap::Args;
use serde::Serialize;

use super::reset;
use crate::cli::shared::audit_log::AuditLog;
use crate::cli::shared::complete;
use crate::cli::shared::confirm;
use crate::cli::shared::database::{print_incidents, require_owner};
use crate::cli::shared::in_force::InForce;
use crate::cli::shared::key_state::{KeyState, KeyStateJson};
use crate::cli::shared::key_text;
use crate::cli::shared::keys::{self, Narrow, Selection};
use crate::cli::shared::override_state::{self, OverrideJson};
use crate::cli::shared::rates::Rates;
use crate::cli::shared::screen::{Screen, complain, note};
use crate::cli::shared::time::now;
use crate::cli::{Failure, Outcome};
use crate::engine::Forced;
use crate::store::Override;

/// Unblock keys: reset them, and end denials of them
#[derive(Debug, Args)]
#[command(after_help = help())]
pub(in crate::cli) struct Unblock {
    /// Unblock these keys or globs
    #[arg(value_name = "KEY", required = true, add = complete::keys())]
    keys: Vec<OsString>,

    /// Take KEY byte for byte: no globs, no escapes, no folding
    #[arg(long)]
    exact: bool,

    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,

    #[command(flatten)]
    common: Rates,
}

/// What the help says besides the options.
fn help() -> String {
    format!(
        "Examples:
  Let alice send again, whatever has stopped her:
    exirate unblock alice@example.org
  Unblock a domain, without a question:
    exirate unblock '*@example.org' --yes

{}

All records of KEY are deleted, as by `exirate reset`, and the override that `exirate
deny` has set for KEY is removed; a glob removes its own override, and those of the
keys that it matches. A denial by another glob stays in force: a message names it.
`exirate allow` is stronger for a single key. Exim's running processes apply this at
their next check. It is logged to audit.log in the database's directory, and to syslog
(facility mail).

Exit status: 0 unblocked; 1 a KEY has no record and no denial, or nothing was
unblocked, or a key is still denied; 2 an error.

JSON: an object; `reset` is an array of the deleted records, in the form of `exirate
list`, `removed` of the overrides, in the form of `exirate overrides`.",
        keys::HELP
    )
}

/// What was done, in JSON.
#[derive(Serialize)]
struct Report {
    reset: Vec<KeyStateJson>,
    removed: Vec<OverrideJson>,
}

impl Unblock {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let folding = self.common.folding()?;
        let mut targets = Vec::new();
        for key in &self.keys {
            targets.push(keys::override_target(key, self.exact, &folding)?);
        }
        require_owner(&self.common.directory()?)?;
        let mut store = self.common.open_to_change()?;
        let narrow = Narrow::unselective(self.exact);
        let mut selection = Selection::new(&self.keys, &narrow, &folding)?;
        let (records, unread) = selection.keys(&mut *store)?;
        let covered =
            |one: &Override| targets.iter().any(|(target, _)| override_state::covers(target, one));
        let is_denial = |one: &Override| one.forced == Forced::Deny && one.is_active(now().seconds);
        let denials: Vec<Override> =
            store.overrides()?.into_iter().filter(|one| is_denial(one) && covered(one)).collect();
        if selection.is_loose() && !(records.is_empty() && denials.is_empty()) {
            let records = records.iter().map(|key| key_text::stored(&key.name));
            let denials = denials.iter().map(override_state::sentence);
            if !confirm::ask("unblock", &records.chain(denials).collect::<Vec<_>>(), self.yes)? {
                note("nothing was unblocked");
                return Ok(Outcome::Found);
            }
        }
        let mut log = AuditLog::new();
        let removed = match denials.is_empty() {
            true => Vec::new(),
            false => override_state::change(&mut *store, |list| {
                list.extract_if(.., |one| is_denial(one) && covered(one)).collect::<Vec<_>>()
            })?,
        };
        for one in &removed {
            let key = override_state::key(one);
            log.add(&mut *store, format_args!("unblock removed=deny key={key}"));
        }
        // As the records stand without the denials.
        let in_force = InForce::or_note(&mut *store, &self.common.directory()?);
        let mut reset = Vec::new();
        for key in &records {
            // It may have been dropped since.
            let Some(entry) = store.remove(key.key())? else { continue };
            reset.push(KeyState::from(entry));
        }
        reset::log(&mut log, &mut *store, "unblock", &reset, || self.arguments());
        print_incidents(&mut *store);
        if self.common.json {
            screen.json(&Report {
                reset: reset.iter().map(|one| in_force.json(one)).collect(),
                removed: removed.iter().map(OverrideJson::of).collect(),
            })?;
        } else {
            for one in &removed {
                writeln!(screen, "removed: {}", override_state::sentence(one))?;
            }
            for record in &reset {
                reset::print(screen, "reset", record, &in_force)?;
            }
        }
        screen.flush()?;
        let mut failed = false;
        let left = store.overrides()?;
        for (n, (target, argument)) in targets.iter().enumerate() {
            if !selection.has_matched(n)
                && !removed.iter().any(|one| override_state::covers(target, one))
            {
                failed = true;
                complain(format_args!("{argument} has no record, and is not denied"));
            }
            let deciding = override_state::of_target(&left, target, now().seconds);
            if let Some(denial) = deciding.filter(|one| one.forced == Forced::Deny) {
                failed = true;
                complain(format_args!(
                    "{argument} is still denied by {}; `{}` ends that, or `{}`",
                    override_state::key(denial),
                    self.common.command("overrides --remove", &denial.argument),
                    self.common.command("allow", argument),
                ));
            }
        }
        if unread > 0 {
            return Err(Failure::new(format!(
                "{unread} of the 256 shards could not be read: their keys were not reset"
            )));
        }
        Ok(Outcome::found_if(failed))
    }

    /// The arguments, for the log.
    fn arguments(&self) -> String {
        let keys =
            self.keys.iter().map(|key| crate::cli::shared::text::printable(key.as_encoded_bytes()));
        keys.collect::<Vec<_>>().join(" ")
    }
}
