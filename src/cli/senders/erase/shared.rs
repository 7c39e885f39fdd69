//! A person in what several servers share: rates, overrides, and the stream of crossings.

use std::path::Path;

use super::person::{Person, TracesOfPerson, concerns};
use crate::cluster::ClusterSettings;
use crate::redis::{SharedEvent, SharedEvents, SharedRates};
use crate::serve::servers;
use crate::spool::{LoggedEvent, open_directory};
use crate::store::{Inspect as _, InspectError, Memory, OwnedKey, Wanted};
use crate::text::counted_or_no;

/// What several servers share.
pub(super) struct SharedStores {
    rates: SharedRates,
    events: SharedEvents,
}

impl SharedStores {
    /// Connects, if this server shares its limits. What cannot be searched is added to `left`.
    pub(super) fn open(spool: &Path, left: &mut Vec<String>) -> Option<Self> {
        let directory = open_directory(spool, false).ok()?;
        let settings = match ClusterSettings::read(&directory) {
            Ok(settings) => settings?,
            Err(why) => {
                left.push(format!("what is shared with other servers: {why}"));
                return None;
            }
        };
        let connect = || {
            let redis = servers::configuration(&settings.config)?.redis;
            let failed = |error| format!("the shared rates at {redis}: {error}");
            // The command is logged with the rest.
            let rates = SharedRates::connect(&redis, Box::new(Memory::new())).map_err(failed)?;
            let events = SharedEvents::connect(&redis).map_err(failed)?;
            Ok(Self { rates, events })
        };
        connect().map_err(|why: String| left.push(why)).ok()
    }

    /// Counts what names the person; returns it for [`Shared::erase`].
    pub(super) fn search(
        &mut self,
        person: &Person,
        found: &mut TracesOfPerson,
    ) -> Result<NamedPerson, InspectError> {
        let overrides = self.rates.overrides()?.iter().filter(|one| concerns(person, one)).count();
        let mut keys: Vec<OwnedKey> = Vec::new();
        // A record names somebody in its key alone: of others, the value is not read.
        let mut wanted = Wanted { selects: &mut |key| person.is_in(key.name), identities: None };
        let unread = self
            .rates
            .for_each_wanted(&mut wanted, &mut |entry| keys.push(entry.record_key().into()))?;
        found.left.extend(unread.parts.iter().map(ToString::to_string));
        let name = self.rates.location();
        if unread.damaged > 0 {
            let damaged =
                counted_or_no(unread.damaged as usize, "damaged record", "damaged records");
            found.left.push(format!("{damaged} in {name}"));
        }
        let mut unknown = 0;
        let mut events = self.events.read(None)?;
        events.retain(|one| {
            let is_named = names(person, one);
            unknown += usize::from(is_named.is_none());
            is_named == Some(true)
        });
        if unknown > 0 {
            let crossings = counted_or_no(unknown, "crossing", "crossings");
            found.left.push(format!("{crossings} in {name} that this exirate cannot read"));
        }
        found.overrides += overrides as u64;
        let concerns = |identity: &[u8]| person.is_in(identity);
        let usage = self.rates.published_usage(&concerns, false)?;
        found.rates += keys.len() as u64 + usage;
        found.crossings += events.len() as u64;
        Ok(NamedPerson { overrides, keys, events, usage })
    }

    /// Removes what [`SharedStores::search`] has found.
    pub(super) fn erase(
        &mut self,
        person: &Person,
        named: &NamedPerson,
    ) -> Result<(), InspectError> {
        // First, so that no check sets a record again as an override says.
        if named.overrides > 0 {
            self.rates.change_overrides(&mut |list| list.retain(|one| !concerns(person, one)))?;
        }
        for key in &named.keys {
            self.rates.remove(key.key())?;
        }
        self.events.remove(&named.events)?;
        if named.usage > 0 {
            self.rates.published_usage(&|identity| person.is_in(identity), true)?;
        }
        Ok(())
    }
}

/// What names the person.
pub(super) struct NamedPerson {
    overrides: usize,
    keys: Vec<OwnedKey>,
    events: Vec<SharedEvent>,
    /// How many accounts whose usage servers have published.
    usage: u64,
}

/// Whether an event names the person; `None` if it cannot be read: it may be one of a later
/// release, and is left alone.
fn names(person: &Person, event: &SharedEvent) -> Option<bool> {
    let event = LoggedEvent::decode(&event.bytes)?;
    Some(person.is_in(&event.stored) || event.texts.values().any(|(_, text)| person.is_in(text)))
}
