//! The policies in use, as `exirate status` shows them.

use std::io::ErrorKind;
use std::path::Path;
use std::time::UNIX_EPOCH;

use schemars::JsonSchema;
use serde::Serialize;

use crate::doctor::DecidedBy;
use crate::policy::changes::are_applied;
use crate::policy::image::{Image, ImageError, PolicyFile};
use crate::policy::model::{self, OnCrossing};
use crate::policy::source::{FILE, read};
use crate::policy::word::Word as _;
use crate::text;

/// A policy file of more bytes is not compared with the policies in use: that takes seconds.
const COMPARED_MAX: u64 = 1 << 20;

/// The policies in use.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(super) struct Policies {
    pub(super) policies: Vec<Policy>,
    /// Their entries of `exempt`.
    pub(super) exempt: usize,
    /// When they were applied.
    pub(super) applied: Option<String>,
    #[serde(skip)]
    pub(super) applied_at: Option<i64>,
    pub(super) policy_file: String,
    /// same, differs, errors, absent, unreadable or large: not compared.
    pub(super) policy_file_state: &'static str,
    #[serde(skip)]
    pub(super) on_crossing: OnCrossing,
    #[serde(skip)]
    pub(super) error: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Policy {
    pub(super) name: String,
    pub(super) action: &'static str,
    /// Whether mail comes to something that evaluates it.
    pub(super) evaluated: bool,
}

impl Policies {
    pub(super) fn of(spool: &Path) -> Self {
        let mut found =
            Self { policy_file: FILE.to_owned(), policy_file_state: "absent", ..Self::default() };
        let file = PolicyFile::open(spool);
        let outline = match file.image() {
            Ok(image) => image.outline().map_err(|error| error.to_string()),
            Err(ImageError::Absent { .. }) => {
                found.compare(None);
                return found;
            }
            Err(error) => Err(error.to_string()),
        };
        match outline {
            Ok(outline) => {
                found.applied_at = modified(&spool.join("exirate/policy.image"));
                found.applied = found.applied_at.map(text::iso_second);
                let each = outline.policies.iter();
                found.exempt = each.clone().map(|(_, policy)| policy.exempt.len()).sum();
                let shown = |(name, policy): (&String, &model::Policy)| Policy {
                    name: name.clone(),
                    action: policy.settings.action.word(),
                    evaluated: false,
                };
                found.policies = each.map(shown).collect();
                found.on_crossing = outline.on_crossing;
                found.compare(file.image().ok());
            }
            Err(error) => found.error = Some(error),
        }
        found
    }

    /// Finds which are evaluated.
    pub(super) fn evaluated_by(&mut self, decided_by: &[DecidedBy]) {
        for policy in &mut self.policies {
            let mut evaluating = decided_by.iter().filter(|by| by.evaluates);
            policy.evaluated = evaluating
                .any(|by| by.policies.as_ref().is_none_or(|names| names.contains(&policy.name)));
        }
    }

    /// Compares the file with what is applied, if there is anything.
    fn compare(&mut self, applied: Option<&Image>) {
        let path = Path::new(FILE);
        self.policy_file_state = match path.metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => "absent",
            Err(_) => "unreadable",
            Ok(info) if info.len() > COMPARED_MAX => "large",
            Ok(_) => match read(path).map(|compiled| compiled.policies) {
                Err(_) => "unreadable",
                Ok(None) => "errors",
                Ok(Some(written)) => {
                    match applied.is_some_and(|image| are_applied(image, &written)) {
                        true => "same",
                        false => "differs",
                    }
                }
            },
        };
    }
}

/// When a file was changed last, in seconds since 1970.
fn modified(path: &Path) -> Option<i64> {
    let time = path.metadata().ok()?.modified().ok()?;
    time.duration_since(UNIX_EPOCH).ok().and_then(|age| i64::try_from(age.as_secs()).ok())
}
