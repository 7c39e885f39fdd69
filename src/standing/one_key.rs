//! What the text of a key means: one identity.

use super::pattern::{Pattern, Syntax};
use crate::identity::fold::{Folding, TOTALS, split_field};
use crate::identity::{Field, first_field};
use crate::store::Target;

/// One identity.
#[derive(Debug)]
pub(crate) struct OneKey {
    pub(crate) pattern: Pattern,
    pub(crate) target: Target,
    /// As it can be pasted.
    pub(crate) shown: String,
}

/// Why a text means no identity, or several.
#[derive(Debug)]
pub(crate) enum NotOne {
    /// It cannot be a key: in words.
    Wrong(String),
    /// It may match more than one.
    Glob,
}

impl OneKey {
    /// Whether many who have nothing to do with each other are counted by it: the users of a domain
    /// or of a customer together, or all clients of a server. `sender_domain:d,client:a` is of one
    /// client.
    pub(crate) fn is_of_group(&self) -> bool {
        let Target::Exact { .. } = &self.target else { return true };
        self.has_only(|name| Field::of(name).is_none_or(Field::is_of_group))
    }

    /// Whether it is the total of a domain or a customer.
    pub(crate) fn is_total(&self) -> bool {
        self.has_only(|name| TOTALS.iter().any(|total| total.as_bytes() == name))
    }

    /// Whether it has fields, and `is_one` holds for the name of each.
    fn has_only(&self, is_one: impl Fn(&[u8]) -> bool) -> bool {
        let Target::Exact { key, .. } = &self.target else { return false };
        let mut rest = Some(&**key);
        let mut fields = std::iter::from_fn(|| first_field(&mut rest));
        fields.all(|field| split_field(&field).is_some_and(|(name, _)| is_one(name)))
    }

    /// Reads a key as somebody types it.
    ///
    /// # Errors
    /// It is none, or a glob.
    pub(crate) fn parse(text: &str, folding: &Folding) -> Result<Self, NotOne> {
        let syntax = Syntax { exact: false, folding: folding.clone() };
        let pattern = Pattern::parse(text.as_bytes(), syntax).map_err(NotOne::Wrong)?;
        if pattern.is_loose() {
            return Err(NotOne::Glob);
        }
        let (target, shown) = pattern.override_target().map_err(NotOne::Wrong)?;
        Ok(Self { pattern, target, shown })
    }
}
