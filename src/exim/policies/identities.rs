//! How `identity` folds: as the policies in use say.

use crate::identity::Field;
use crate::identity::fold::{Folding, shortened};
use crate::policy::image::PolicyFile;
use crate::sys::clock;
use std::borrow::Cow;
use std::path::PathBuf;

/// What is kept between calls of `identity`.
#[derive(Default)]
pub(in crate::exim) struct Identities {
    /// The policies in use.
    file: Option<PolicyFile>,
    /// The second of the coarse clock in which they were last looked for.
    looked: i64,
    /// How identities are folded without policies.
    default: Folding,
    folded: String,
}

impl Identities {
    /// TEXT as it is counted in `field`; itself, where nothing would be left.
    pub(in crate::exim) fn fold(&mut self, field: Field, text: &str) -> &str {
        let Self { file, default, folded, .. } = self;
        let image = file.as_ref().and_then(|file| file.image().ok());
        let folding = image.and_then(|image| image.identity().ok()).map(|one| &one.folding);
        if !folding.unwrap_or(default).field_into(field, text, folded) {
            folded.push_str(text);
        }
        if let Cow::Owned(short) = shortened(folded) {
            *folded = short;
        }
        folded
    }

    /// Opens the policies in use, in this spool directory; if there are none, tries again every
    /// second.
    pub(in crate::exim) fn look_for_policies(&mut self, spool: impl FnOnce() -> Option<PathBuf>) {
        let second = clock::coarse_seconds();
        let is_new_second = second != self.looked;
        self.looked = second;
        match &mut self.file {
            Some(file) => {
                if file.image().is_ok() || is_new_second {
                    let _ = file.refresh();
                }
            }
            none => *none = spool().map(|spool| PolicyFile::open(&spool)),
        }
    }
}
