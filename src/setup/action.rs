//! Having the policies refuse, or only observe.

use std::path::Path;

use super::change::apply_policies;
use super::files;
use super::{Setup, SetupError};

impl Setup<'_> {
    /// Puts the policy file `new`, which is sound, in the place of `old` and has it be in use.
    ///
    /// # Errors
    /// The file and the policies in use are as they were before.
    pub(crate) fn set_policies(&self, path: &Path, old: &str, new: &str) -> Result<(), SetupError> {
        if old != new {
            files::replace(path, new.as_bytes(), &self.steps)?;
        }
        apply_policies(path, self.server.spool()).inspect_err(|_| {
            let _ = files::replace(path, old.as_bytes(), &self.steps);
        })
    }
}
