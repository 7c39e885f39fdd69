//! What an override is, and which identities it applies to.

use std::borrow::Cow;

use crate::engine::{Kind, Overridden, RecordKey};
use crate::identity::fold::Folding;
use crate::identity::{Field, first_field};

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
    /// One identity.
    Exact {
        /// Its name.
        key: Vec<u8>,
        /// What a policy counts it as, if that is another name: the network of an address, or the
        /// local account with the name of a login to which a domain is added.
        counted_as: Option<Vec<u8>>,
        /// How keys of specs are folded before they are compared; `None` if names are
        /// compared byte for byte.
        folding: Option<Folding>,
    },
    /// All identities that a glob matches.
    Glob {
        /// Its alternatives, as [`super::compile_glob`] returns them.
        alternatives: Vec<Vec<u8>>,
        /// How keys of specs are folded before they are compared.
        folding: Folding,
    },
}

impl Target {
    /// The identity of this name, byte for byte.
    #[must_use]
    pub fn literal(name: &[u8]) -> Self {
        Self::Exact { key: name.to_vec(), counted_as: None, folding: None }
    }

    /// How names are compared.
    pub(super) fn folding(&self) -> Option<&Folding> {
        match self {
            Self::Exact { folding, .. } => folding.as_ref(),
            Self::Glob { folding, .. } => Some(folding),
        }
    }

    /// Whether it is, or matches, one of the names of `key`.
    #[must_use]
    pub fn applies_to(&self, key: &RecordKey<'_>) -> bool {
        let mut scratch = String::new();
        let mut applies = false;
        each_name(key, self.folding(), &mut scratch, |name, sort| {
            applies = applies || self.is_or_matches(name, sort);
        });
        applies
    }

    fn is_or_matches(&self, name: &[u8], sort: Sort) -> bool {
        match self {
            _ if sort == Sort::Other => false,
            Self::Exact { key, counted_as, .. } => {
                key == name || counted_as.as_deref() == Some(name)
            }
            Self::Glob { alternatives, .. } => {
                alternatives.iter().any(|steps| matches(steps, name, sort))
            }
        }
    }
}

/// Whether an alternative of a glob matches a name: what names a field is for globs that
/// name one.
pub(super) fn matches(steps: &[u8], name: &[u8], sort: Sort) -> bool {
    (sort == Sort::Bare || glob::names_field(steps)) && glob::matches(steps, name)
}

/// One override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// What it decides.
    pub overridden: Overridden,
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

    /// Whether it applies to the identity of `key`.
    #[must_use]
    pub fn applies_to(&self, key: &RecordKey<'_>) -> bool {
        self.target.applies_to(key)
    }

    /// Whether it is about the same identities as `other`, which then replaces it.
    #[must_use]
    pub fn has_target_of(&self, other: &Self) -> bool {
        self.target == other.target
    }
}

/// What a name of an identity is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// The key of a spec, or the value of a field that no stranger chooses: `alice`.
    Bare,
    /// Of a policy, all of its key or a field of it: `auth:alice`.
    Field,
    /// The value of another field, which overrides never mean.
    Other,
}

/// The names of the identity of `key`, with which KEY arguments are compared. That of a
/// spec is its key. That of a policy, `auth:alice,client:192.0.2.7`, is this whole, and
/// each of its fields, `auth:alice`, and each of their values, `alice`.
///
/// Allocates only for a value with a comma in it, which is doubled in an identity.
pub fn names<'a>(key: &RecordKey<'a>) -> impl Iterator<Item = (Cow<'a, [u8]>, Sort)> {
    let identity = key.identity();
    // As of a policy: the name has fields.
    let is_policy = key.kind != Kind::Spec;
    let mut rest = Some(identity).filter(|_| is_policy);
    let mut value = None;
    let others = std::iter::from_fn(move || {
        value.take().or_else(|| {
            let field = first_field(&mut rest)?;
            value = value_of(&field);
            Some((field, Sort::Field))
        })
    });
    let whole = if is_policy { Sort::Field } else { Sort::Bare };
    // A single field is the whole.
    let others = others.filter(move |(name, _)| **name != *identity);
    std::iter::once((Cow::Borrowed(identity), whole)).chain(others)
}

/// Calls `visit` with the names of `key`. The key of a spec, which is literal, is folded if
/// there is a folding; that of a policy is already. `scratch` is used again, so that nothing
/// is allocated.
pub(super) fn each_name(
    key: &RecordKey<'_>,
    folding: Option<&Folding>,
    scratch: &mut String,
    mut visit: impl FnMut(&[u8], Sort),
) {
    match folding.filter(|_| key.kind == Kind::Spec) {
        None => names(key).for_each(|(name, sort)| visit(&name, sort)),
        Some(folding) => visit(folding.folded_bytes(key.identity(), scratch), Sort::Bare),
    }
}

/// The value of a field.
fn value_of<'a>(field: &Cow<'a, [u8]>) -> Option<(Cow<'a, [u8]>, Sort)> {
    let at = field.iter().position(|&byte| byte == b':')? + 1;
    let is_bare = Field::of(field.get(..at - 1)?).is_some_and(Field::has_bare_names);
    let value = match field {
        Cow::Borrowed(field) => field.get(at..).map(Cow::Borrowed),
        Cow::Owned(field) => field.get(at..).map(|value| Cow::Owned(value.to_vec())),
    };
    Some((value?, if is_bare { Sort::Bare } else { Sort::Other }))
}

/// Of two, the one with the higher number decides.
fn strength(overridden: Overridden) -> u8 {
    match overridden {
        Overridden::Allow => 0,
        Overridden::Deny => 1,
        Overridden::Reject => 2,
    }
}

/// The override of `list` that decides for `key` in this second, for display: as the
/// list of all decides.
#[must_use]
pub fn deciding<'a>(
    list: &'a [Override],
    key: &RecordKey<'_>,
    second: i64,
) -> Option<&'a Override> {
    let rank = |one: &Override| {
        let exact = matches!(one.target, Target::Exact { .. });
        // A denial is stronger than a permission, and one for good than another.
        (exact, strength(one.overridden), one.until)
    };
    list.iter()
        .filter(|one| one.is_active(second) && one.applies_to(key))
        .max_by_key(|one| rank(one))
}
