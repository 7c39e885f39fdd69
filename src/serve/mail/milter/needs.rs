//! What the policies need of a session.

use std::path::Path;

use super::negotiate::Wants;
use crate::policy::image::{Image, ImageError, PolicyFile};
use crate::policy::model::Policy;
use crate::policy::word::Unit;

/// The policies that are in use, and what they need.
pub(super) struct Needs {
    file: PolicyFile,
    /// What the image needs that was open when this was found.
    known: Option<Units>,
}

/// What is counted that is not in every session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Units {
    bytes: bool,
    /// Of mail, for habits.
    marks: bool,
    rejected_recipients: bool,
}

impl Needs {
    /// Of the policies in the spool directory `spool`.
    pub(super) fn new(spool: &Path) -> Self {
        Self { file: PolicyFile::open(spool), known: None }
    }

    /// What a connection needs that begins now, besides what the configuration says.
    pub(super) fn of(&mut self, policies: Option<&[String]>, configured: Wants) -> Wants {
        let Units { bytes, marks, rejected_recipients } = self.units(policies);
        Wants { bytes, marks, rejected_recipients, ..configured }
    }

    /// Forgets what is known: other policies are used.
    pub(super) fn forget(&mut self) {
        self.known = None;
    }

    fn units(&mut self, policies: Option<&[String]>) -> Units {
        let is_current = self.file.is_current();
        if let Some(known) = self.known.filter(|_| is_current) {
            return known;
        }
        let found = self.file.refresh().ok().and_then(|image| units_of(image, policies).ok());
        self.known = found;
        // Until it can be known, nothing is left out.
        found.unwrap_or(Units { bytes: true, marks: true, rejected_recipients: true })
    }
}

fn units_of(image: &Image, policies: Option<&[String]>) -> Result<Units, ImageError> {
    let all = image.policies()?.policies;
    let used = |name: &String| policies.is_none_or(|policies| policies.contains(name));
    let used: Vec<&Policy> =
        all.iter().filter(|(name, _)| used(name)).map(|(_, policy)| policy).collect();
    let limits = |unit| used.iter().any(|policy| policy.limits(unit));
    let bytes = Unit::ALL.iter().any(|unit| unit.is_of_bytes() && limits(*unit));
    let marks = used.iter().any(|policy| policy.uses_habits());
    Ok(Units { bytes, marks, rejected_recipients: limits(Unit::RejectedRecipients) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::image::{build, install};
    use crate::policy::source::compile;

    fn apply(spool: &Path, text: &str) {
        let none = |_: &Path| Err(String::new());
        let compiled = compile(Path::new("p"), &format!("version = 1\n{text}"), &none);
        install(spool, &build(&compiled.policies.unwrap())).unwrap();
    }

    #[test]
    fn no_more_is_needed_than_the_policies_in_use_count() {
        let folder = tempfile::tempdir().unwrap();
        let spool = folder.path();
        let mut needs = Needs::new(spool);
        let all = Units { bytes: true, marks: true, rejected_recipients: true };
        assert_eq!(needs.units(None), all);
        apply(spool, "[policy.a]\ndefault.recipients = \"100 / 1h\"\n");
        let none = Units { bytes: false, marks: false, rejected_recipients: false };
        assert_eq!(needs.units(None), none);
        assert_eq!(needs.units(None), none);
        let text = "[policy.a]\ndefault.recipients = \"100 / 1h\"\n\
                    [policy.b]\npackage.x.bytes = \"1G / 1d\"\n\
                    [policy.c]\ndomain.\"example.org\".rejected_recipients = \"5 / 1h\"\n";
        apply(spool, text);
        assert_eq!(needs.units(None), Units { marks: false, ..all });
        needs.forget();
        let some = ["a".to_owned(), "b".to_owned()];
        assert_eq!(needs.units(Some(&some)), Units { bytes: true, ..none });
        needs.forget();
        assert_eq!(needs.units(Some(&some[..1])), none);
        let wants = Wants { record: true, mail: true, ..Wants::default() };
        assert_eq!(needs.of(Some(&some[..1]), wants), wants);
        apply(spool, "[policy.a]\nwhen = \"authenticated\"\npackage.x.habits = \"observe\"\n");
        assert_eq!(needs.units(None), Units { marks: true, ..none });
    }
}
