//! What decides the next event of a key, for commands.

use std::path::Path;

use super::screen::note;
use crate::standing::in_force::InForce;
use crate::store::Inspect;

/// As [`InForce::of`]; notes what cannot be read.
pub(in crate::cli) fn or_note(store: &mut dyn Inspect, spool: &Path) -> InForce {
    let (found, problems) = InForce::of(store, spool);
    problems.iter().for_each(note);
    found
}
