//! What names a person.

use schemars::JsonSchema;
use serde::Serialize;

use super::person::Person;
use crate::store::{Override, Target};
use crate::text::counted_or_no;

/// What names the person.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(super) struct TracesOfPerson {
    /// How many rates named PERSON.
    pub(super) rates: u64,
    pub(super) crossings: u64,
    pub(super) refusals: u64,
    /// Events of others.
    pub(super) mentions: u64,
    pub(super) overrides: u64,
    pub(super) audit_lines: u64,
    pub(super) held_notes: u64,
    pub(super) messages: u64,
    /// Whether they were erased.
    pub(super) erased: bool,
    /// What could not be searched, or is not removed.
    pub(super) left: Vec<String>,
}

impl TracesOfPerson {
    /// The counts that are not 0, in words.
    pub(super) fn parts(&self) -> Vec<String> {
        let all = [
            (self.rates, "record", "records"),
            (self.crossings, "crossing", "crossings"),
            (self.refusals, "refusal", "refusals"),
            (self.mentions, "name in an event of others", "names in events of others"),
            (self.overrides, "override", "overrides"),
            (self.audit_lines, "line of the audit log", "lines of the audit log"),
            (self.held_notes, "note of a held message", "notes of held messages"),
            (self.messages, "recorded message", "recorded messages"),
        ];
        let all = all.into_iter().filter(|(count, ..)| *count > 0);
        all.map(|(count, one, several)| counted_or_no(count as usize, one, several)).collect()
    }

    pub(super) fn is_any(&self) -> bool {
        !self.parts().is_empty()
    }
}

/// Whether an override is for the person alone, or names them in its reason.
pub(super) fn concerns(person: &Person, one: &Override) -> bool {
    let is_exact = matches!(one.target, Target::Exact { .. });
    is_exact && person.is_in(one.argument.as_bytes()) || person.is_in(one.reason.as_bytes())
}
