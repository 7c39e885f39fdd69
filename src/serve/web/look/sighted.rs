//! Whose identities somebody may see, by the policies in use.

use std::path::Path;

use crate::identity::fold::Folding;
use crate::policy::image::PolicyFile;
use crate::serve::web::http::problem::{Problem, ProblemKind, unavailable};
use crate::standing::one_key::OneKey;
use crate::standing::scope::{Scope, Sight};

/// Whose identities somebody may see: all, if none.
pub(in crate::serve::web) type Seen = Option<Scope>;

/// The policies in use, and what somebody sees by them.
pub(super) struct Sighted {
    pub(super) policies: PolicyFile,
    pub(super) folding: Folding,
    pub(super) seen: Seen,
}

impl Sighted {
    pub(super) fn of(spool: &Path, seen: Seen) -> Result<Self, Problem> {
        let policies = PolicyFile::open(spool);
        let folding = policies.folding().map_err(unavailable)?;
        Ok(Self { policies, folding, seen })
    }

    pub(super) fn sight(&self) -> Sight<'_> {
        Sight::by(self.seen.as_ref(), &self.policies, &self.folding)
    }

    /// The key that a text means, if somebody may see it.
    pub(super) fn one_key(&self, text: &str) -> Result<OneKey, Problem> {
        let (key, sight) = (OneKey::parse(text, &self.folding)?, self.sight());
        match sight.has_target(&key.target) {
            true => Ok(key),
            false => Err(Problem::new(ProblemKind::Bounds, sight.refusal())),
        }
    }
}
