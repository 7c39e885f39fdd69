//! What the text of a key means: one identity.

use std::path::Path;

use crate::identity::fold::Folding;
use crate::policy::image::{ImageError, PolicyFile};
use crate::serve::web::http::problem::{Kind, Problem, unavailable};
use crate::standing::pattern::{Pattern, Syntax};
use crate::store::Target;

/// One identity.
#[derive(Debug)]
pub(super) struct OneKey {
    pub(super) pattern: Pattern,
    pub(super) target: Target,
    /// As it can be pasted.
    pub(super) shown: String,
}

impl OneKey {
    pub(super) fn parse(text: &str, folding: &Folding) -> Result<Self, Problem> {
        let malformed = |why: String| Problem::new(Kind::Malformed, why);
        let syntax = Syntax { exact: false, folding: folding.clone() };
        let pattern = Pattern::parse(text.as_bytes(), syntax).map_err(malformed)?;
        if pattern.is_loose() {
            return Err(malformed("expected one key, not a glob".to_owned()));
        }
        let (target, shown) = pattern.override_target().map_err(malformed)?;
        Ok(Self { pattern, target, shown })
    }
}

/// How the policies in use fold identities.
pub(super) fn folding(spool: &Path) -> Result<Folding, Problem> {
    let file = PolicyFile::open(spool);
    match file.image() {
        Ok(image) => Ok(image.identity().map_err(unavailable)?.folding.clone()),
        Err(ImageError::Absent { .. }) => Ok(Folding::default()),
        Err(error) => Err(unavailable(error)),
    }
}
