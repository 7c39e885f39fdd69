//! What an override is, and which identities it applies to.

use std::borrow::Cow;

use crate::engine::{Forced, Kind, RecordKey};

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
    /// Whether it is, or matches, one of the [`names`] of `key`.
    #[must_use]
    pub fn applies_to(&self, key: &RecordKey<'_>) -> bool {
        names(key).any(|name| self.is_or_matches(&name))
    }

    fn is_or_matches(&self, name: &[u8]) -> bool {
        match self {
            Self::Exact { key, ignore_case: true } => key.eq_ignore_ascii_case(name),
            Self::Exact { key, ignore_case: false } => key == name,
            Self::Glob { alternatives, ignore_case } => {
                alternatives.iter().any(|steps| glob::matches(steps, name, *ignore_case))
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

/// The names of the identity of `key`, with which KEY arguments are compared. That of a
/// spec is its key. That of a policy, `auth:alice,client:192.0.2.7`, is this whole, and
/// each of its fields, `auth:alice`, and each of their values, `alice`.
///
/// Allocates only for a value with a comma in it, which is doubled in an identity.
pub fn names<'a>(key: &RecordKey<'a>) -> impl Iterator<Item = Cow<'a, [u8]>> {
    let identity = key.identity();
    let mut rest = Some(identity).filter(|_| key.kind == Kind::Policy);
    let mut value = None;
    let others = std::iter::from_fn(move || {
        value.take().or_else(|| {
            let field = first_field(&mut rest)?;
            value = value_of(&field);
            Some(field)
        })
    });
    // A single field is the whole.
    std::iter::once(Cow::Borrowed(identity)).chain(others.filter(move |name| **name != *identity))
}

/// Takes the first field from `rest`, in which a comma separates two.
fn first_field<'a>(rest: &mut Option<&'a [u8]>) -> Option<Cow<'a, [u8]>> {
    let text = (*rest)?;
    let (mut end, mut doubled) = (0, false);
    loop {
        match text.get(end..) {
            Some([b',', b',', ..]) => {
                end += 2;
                doubled = true;
            }
            Some([b',', after @ ..]) => {
                *rest = Some(after);
                break;
            }
            Some([_, ..]) => end += 1,
            _ => {
                *rest = None;
                break;
            }
        }
    }
    let field = text.get(..end).unwrap_or_default();
    if !doubled {
        return Some(Cow::Borrowed(field));
    }
    let mut single = Vec::with_capacity(field.len());
    let mut bytes = field.iter();
    while let Some(&byte) = bytes.next() {
        single.push(byte);
        if byte == b',' {
            bytes.next();
        }
    }
    Some(Cow::Owned(single))
}

/// What follows the first colon.
fn value_of<'a>(field: &Cow<'a, [u8]>) -> Option<Cow<'a, [u8]>> {
    let at = field.iter().position(|&byte| byte == b':')? + 1;
    match field {
        Cow::Borrowed(field) => field.get(at..).map(Cow::Borrowed),
        Cow::Owned(field) => field.get(at..).map(|value| Cow::Owned(value.to_vec())),
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
        (exact, one.forced == Forced::Deny, one.until)
    };
    list.iter()
        .filter(|one| one.is_active(second) && one.applies_to(key))
        .max_by_key(|one| rank(one))
}
