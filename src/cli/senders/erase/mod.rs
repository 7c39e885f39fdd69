//! `exirate erase`: remove a person from everything that is stored.

mod person;
mod shared;

use std::io::Write as _;
use std::path::Path;

use clap::Args;

use self::person::{Person, TracesOfPerson, concerns};
use self::shared::SharedStores;
use crate::cli::shared::administrator::AuditLog;
use crate::cli::shared::confirm;
use crate::cli::shared::database::{Common, print_incidents};
use crate::cli::shared::screen::{Screen, TERMINAL, Terminal, note};
use crate::cli::{Failure, Json, Outcome};
use crate::policy::changes::settings;
use crate::policy::image::PolicyFile;
use crate::spool::Spool;
use crate::standing::databases::Both;
use crate::store::OwnedKey;
use crate::text::time::now;
use crate::text::{counted_or_no, printable};
use crate::trace::TraceStore;

/// Remove a person from everything that exirate stores
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  What is stored about alice?
    exirate erase alice@example.org --dry-run
  Remove it:
    exirate erase alice@example.org --yes

PERSON is an address, or a login without `@`. Rates, events, overrides, and the address in
recorded messages are removed. Exim's logs, backups and the policy file are not changed. Where
limits are shared, run it on each server.

Exit status: 0 removed; 1 nothing was found, or something is left, which is reported; 2 an
error.

PERSON is an address, or a login without `@`. It is matched as a whole, in any case of letters,
and also as the policies in use fold it: alice@example.org matches neither malice@example.org nor
alice+news@example.org. It is removed from

  rates      records whose name contains it are deleted, and its habits
  events     crossings and refusals of it are removed; of those of others, only its name
  overrides  `allow` and `deny` for it alone are removed, and those whose reason names it
  logs       in audit.log and held.log, it is overwritten by `*`
  messages   in the trace store's envelopes, [erased] takes its place

Where limits are shared, it is also removed from what all servers share: its records and
overrides, and all crossings in which it is named. Run the command on each server, for what is
stored only there.

Hashes of PERSON remain, which reveal nothing without their keys: unique events until their period
ends, digests of messages until trace.keep removes them, failed deliveries, which `exirate serve
follow` counts, for 10 days, and 8 bits in the habits of each account that wrote to PERSON until
another recipient takes their place. Exim's logs, backups, exports and the policy file are not
changed; policies in use that name PERSON are reported. Checks and recording continue meanwhile; a
second run finds what they add. The command itself is logged without PERSON.")]
#[command(add = Json::of::<TracesOfPerson>())]
pub(in crate::cli) struct Erase {
    /// The address or login to remove
    #[arg(value_name = "PERSON")]
    person: String,

    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,

    /// Change nothing: show what would be removed
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    common: Common,
}

impl Erase {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let person = Person::of(&self.person, &self.common.folding()?).map_err(Failure::new)?;
        let directory = self.common.directory()?;
        let mut both = match self.dry_run {
            true => Both::open(&directory, &Terminal)?,
            false => Both::open_to_change(&directory, &Terminal)?,
        };
        let mut unsearched = Vec::new();
        let mut shared = SharedStores::open(&directory, &mut unsearched);
        let mut in_shared = TracesOfPerson::default();
        let search = |shared: &mut SharedStores| shared.search(&person, &mut in_shared);
        let named = shared.as_mut().map(search).transpose()?;
        let mut found = look(&person, &mut both, in_shared.clone())?;
        if !self.dry_run {
            let parts = found.parts().join(", ");
            let question = format!("this removes {}: {parts}", printable(self.person.as_bytes()));
            if found.is_any() && !confirm::losses(&[&question], self.yes)? {
                note("nothing was removed");
                return Ok(Outcome::Found);
            }
            if let Some((shared, named)) = shared.as_mut().zip(named) {
                shared.erase(&person, &named)?;
            }
            found = TracesOfPerson { erased: true, ..erase(&person, &mut both, in_shared)? };
        }
        found.left.extend(unsearched);
        found.left.extend(left(&person, &directory, &both)?);
        screen.show(self.common.json, &found, |screen, found| self.print(screen, found))?;
        Ok(Outcome::found_if(!found.is_any() || !found.left.is_empty()))
    }

    fn print(&self, screen: &mut Screen<'_>, found: &TracesOfPerson) -> Result<(), Failure> {
        let person = printable(self.person.as_bytes());
        if found.is_any() {
            let how = if found.erased { "removed" } else { "would be removed" };
            writeln!(screen, "{person}: {how}: {}", found.parts().join(", "))?;
        } else {
            note(format_args!("nothing is stored about {person}"));
        }
        for one in &found.left {
            note(format_args!("left: {one}"));
        }
        Ok(())
    }
}

/// Counts what names the person. `found` is what is shared with other servers.
fn look(
    person: &Person,
    both: &mut Both,
    mut found: TracesOfPerson,
) -> Result<TracesOfPerson, Failure> {
    if let Some(spool) = &mut both.rates {
        found.rates += records(person, spool, &mut found.left)?.len() as u64;
        let events = spool.count_events_of(&|text| person.is_in(text))?;
        found.crossings += events.crossings;
        found.refusals = events.refusals;
        found.mentions = events.recipients + events.damaged;
        let overrides = spool.overrides()?;
        found.overrides += overrides.iter().filter(|one| concerns(person, one)).count() as u64;
        found.audit_lines = spool.find_in_audit_log(&|line| person.places(line), false)?;
        found.held_notes = spool.find_in_held_notes(&|line| person.places(line), false)?;
    }
    if let Some(traces) = &both.traces {
        let named = traces.count_named(&|text| person.is_in(text.as_bytes()))?;
        found.messages = named.messages;
        found.left.extend(named.problems.iter().map(ToString::to_string));
    }
    Ok(found)
}

/// Removes the person. Each step may be repeated, so a second run completes one that was
/// killed. `found` is what was removed from what other servers share.
fn erase(
    person: &Person,
    both: &mut Both,
    mut found: TracesOfPerson,
) -> Result<TracesOfPerson, Failure> {
    if let Some(spool) = &mut both.rates {
        erase_rates(person, spool, &mut found)?;
    }
    if let Some(traces) = &mut both.traces {
        found.messages = erase_messages(person, traces, &mut found.left)?;
    }
    if let Some(spool) = &mut both.rates {
        let counts = found.parts().join(", ");
        AuditLog::new().add(spool, format_args!("erase removed: {counts}"));
        print_incidents(spool);
    }
    Ok(found)
}

fn erase_rates(
    person: &Person,
    spool: &mut Spool,
    found: &mut TracesOfPerson,
) -> Result<(), Failure> {
    // First, so that no check sets a record again as an override says.
    let removed = spool.overrides()?.iter().any(|one| concerns(person, one));
    if removed {
        found.overrides += spool.change_overrides(|list| {
            list.extract_if(.., |one| concerns(person, one)).count() as u64
        })?;
    }
    for key in records(person, spool, &mut found.left)? {
        spool.forget(key.key())?;
        found.rates += 1;
    }
    // The names of removed records, also of earlier ones, stay in a shard until it is
    // rebuilt.
    spool.compact(now(), TERMINAL.shards())?;
    let events = spool.erase_events_of(&|text| person.is_in(text))?;
    found.crossings += events.crossings;
    found.refusals = events.refusals;
    found.mentions = events.recipients + events.damaged;
    found.audit_lines = spool.find_in_audit_log(&|line| person.places(line), true)?;
    found.held_notes = spool.find_in_held_notes(&|line| person.places(line), true)?;
    Ok(())
}

fn erase_messages(
    person: &Person,
    traces: &mut TraceStore,
    left: &mut Vec<String>,
) -> Result<u64, Failure> {
    let erased = traces.erase(&|text| person.is_in(text.as_bytes()));
    traces.take_incidents().iter().for_each(note);
    let erased = erased?;
    left.extend(erased.problems.iter().map(ToString::to_string));
    Ok(erased.messages)
}

/// The keys of the records whose names contain the person.
fn records(
    person: &Person,
    spool: &mut Spool,
    left: &mut Vec<String>,
) -> Result<Vec<OwnedKey>, Failure> {
    let (keys, unread) = spool.keys_named(&|name| person.is_in(name))?;
    left.extend(unread.iter().map(ToString::to_string));
    Ok(keys)
}

/// What names the person and is not removed, and what is not searched.
fn left(person: &Person, directory: &Path, both: &Both) -> Result<Vec<String>, Failure> {
    let mut left = Vec::new();
    let policies = PolicyFile::open(directory);
    if let Some(Ok(policies)) = policies.image().ok().map(|image| image.policies()) {
        let settings = settings(&policies);
        let named = settings.iter().filter(|(name, value)| {
            person.is_in(name.as_bytes()) || person.is_in(value.as_bytes())
        });
        let named = named.count();
        if named > 0 {
            let settings = counted_or_no(named, "setting", "settings");
            left.push(format!(
                "{settings} of the policies in use: remove them from the policy file, and run \
                 `exirate policy apply`"
            ));
        }
    }
    if let Some(spool) = &both.rates {
        for one in spool.kept_damaged()? {
            let path = printable(one.path.as_os_str().as_encoded_bytes());
            left.push(format!(
                "{path} is quarantined: `exirate repair --damaged-older-than 0s` removes it"
            ));
        }
    }
    Ok(left)
}
