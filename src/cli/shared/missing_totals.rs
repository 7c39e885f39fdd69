//! The totals that refuse what a command is about.

use std::ffi::OsString;

use super::keys::{Narrow, Selection};
use super::screen::note;
use crate::identity::fold::Folding;
use crate::standing::in_force::InForce;
use crate::standing::totals::{Totals, called};
use crate::store::{Inspect, InspectError, OwnedKey};
use crate::text;

/// The records of the totals that refuse what those arguments name that have no record of their
/// own, which are then not missing; a note says so.
///
/// # Errors
/// The database cannot be read.
pub(in crate::cli) fn of_missing(
    store: &mut dyn Inspect,
    in_force: &InForce,
    selection: &mut Selection,
    (arguments, narrow): (&[OsString], &Narrow),
    folding: &Folding,
) -> Result<Vec<OwnedKey>, InspectError> {
    let mut found = Vec::new();
    for (n, argument) in arguments.iter().enumerate() {
        if narrow.is_selective() || !selection.is_missing(n) {
            continue;
        }
        let Ok(target) = narrow.override_target(argument, folding) else { continue };
        let totals = Totals::refusing_target(store, in_force, &target)?;
        let names = totals.names_refusing(in_force);
        if !names.is_empty() {
            selection.has_found(n);
            let argument = text::printable(argument.as_encoded_bytes());
            let by = called(&names);
            note(format_args!("{argument} has no record of its own; it is refused by {by}"));
            found.extend(totals.keys().cloned());
        }
    }
    Ok(found)
}
