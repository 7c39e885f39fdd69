//! What an override is, and which identities it applies to.

use crate::engine::Forced;

use super::glob;

/// The most overrides of a store.
pub const OVERRIDES_MAX: usize = 4096;
/// The size limits of the texts of an override, in bytes: KEY, the exact key, the
/// reason, and who set it. What does not fit is refused.
pub const TEXT_MAX: usize = 1024;

/// The end of an override that has none.
pub const FOREVER: i64 = i64::MAX;

/// Which identities an override applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// One identity, byte for byte; with `ignore_case`, ASCII letters are the same
    /// in both cases.
    Exact {
        /// The identity.
        key: Vec<u8>,
        /// Whether case is ignored.
        ignore_case: bool,
    },
    /// All identities that a glob matches.
    Glob {
        /// Its alternatives, as [`super::compile_glob`] returns them.
        alternatives: Vec<Vec<u8>>,
        /// Whether it was compiled to ignore case.
        ignore_case: bool,
    },
}

impl Target {
    /// Whether it is, or matches, `identity`.
    #[must_use]
    pub fn applies_to(&self, identity: &[u8]) -> bool {
        match self {
            Self::Exact { key, ignore_case: true } => key.eq_ignore_ascii_case(identity),
            Self::Exact { key, ignore_case: false } => key == identity,
            Self::Glob { alternatives, ignore_case } => {
                alternatives.iter().any(|steps| glob::matches(steps, identity, *ignore_case))
            }
        }
    }
}

/// One override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// What it decides.
    pub forced: Forced,
    /// Which identities it applies to.
    pub target: Target,
    /// KEY, as it can be pasted into a command.
    pub argument: String,
    /// The second (since 1970) in which it ends; [`FOREVER`] if it does not.
    pub until: i64,
    /// The second in which it was set.
    pub since: i64,
    /// Why.
    pub reason: String,
    /// Who set it.
    pub who: String,
}

impl Override {
    /// Whether it is in force in this second.
    #[must_use]
    pub fn is_active(&self, second: i64) -> bool {
        second < self.until
    }

    /// Whether it applies to `identity`.
    #[must_use]
    pub fn applies_to(&self, identity: &[u8]) -> bool {
        self.target.applies_to(identity)
    }

    /// Whether it is about the same identities as `other`, which then replaces it.
    #[must_use]
    pub fn has_target_of(&self, other: &Self) -> bool {
        self.target == other.target
    }
}

/// The override of `list` that decides for `identity` in this second, for display:
/// as the list of all decides.
#[must_use]
pub fn deciding<'a>(list: &'a [Override], identity: &[u8], second: i64) -> Option<&'a Override> {
    let rank = |one: &Override| {
        let exact = matches!(one.target, Target::Exact { .. });
        (exact, one.forced == Forced::Deny, one.until)
    };
    list.iter()
        .filter(|one| one.is_active(second) && one.applies_to(identity))
        .max_by_key(|one| rank(one))
}
