//! What setup would change, as data: shown, checked by the mail server, and carried out.

use std::fmt;
use std::path::{Path, PathBuf};

use super::change::Change;
use super::diff;
use super::error::SetupError;
use super::files::{self, Contents};
use super::policy_file::{self, Facts};
use crate::policy::source::FILE;

/// What setup would change.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// What has to be there before the mail server is configured, in this order.
    pub(crate) prepare: Vec<Change>,
    /// The mail server's configuration, in this order.
    pub(crate) configure: Vec<Change>,
    /// What the administrator has to do: where, and which lines.
    pub(crate) by_hand: Vec<String>,
    /// The mail server does not yet use its configuration as it stands.
    pub(crate) outdated: bool,
    /// Files as they were when the plan was made; `None` where there was none.
    before: Contents,
}

impl Plan {
    /// Whether everything is there.
    pub(crate) fn is_empty(&self) -> bool {
        self.prepare.is_empty() && self.configure.is_empty() && !self.outdated
    }

    /// What is in a file; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn read(&mut self, path: &Path) -> Result<Option<&[u8]>, SetupError> {
        if !self.before.contains_key(path) {
            self.before.insert(path.to_owned(), files::read(path)?);
        }
        Ok(self.before.get(path).and_then(Option::as_deref))
    }

    /// Adds a directory, for the user and group with these names, or else for root, unless it
    /// exists or is planned.
    pub(super) fn directory(&mut self, path: &Path, mode: u32, owner: Option<(&str, &str)>) {
        let is_it =
            |change: &Change| matches!(change, Change::Directory { path: one, .. } if one == path);
        if !path.exists() && !self.prepare.iter().any(is_it) {
            let owner = owner.map(|(user, group)| (user.to_owned(), group.to_owned()));
            self.prepare.push(Change::Directory { path: path.to_owned(), mode, owner });
        }
    }

    /// Adds an insertion of `text` in the mail server's configuration, `at` so many bytes
    /// from the start of a file that [`Plan::read`] has read.
    pub(crate) fn insert(&mut self, file: &Path, at: usize, text: String) {
        self.configure.push(Change::Insert { file: file.to_owned(), at, text });
    }

    /// Adds lines at the end of a file that [`Plan::read`] has read.
    pub(super) fn append(&mut self, file: &Path, lines: String) {
        let before = self.before.get(file).and_then(Option::as_deref).unwrap_or_default();
        let (at, ends) = (before.len(), before.is_empty() || before.ends_with(b"\n"));
        self.insert(file, at, if ends { lines } else { format!("\n{lines}") });
    }

    /// Adds a line where the line at `at` begins, or else at the end.
    pub(super) fn insert_line(&mut self, file: &Path, at: Option<usize>, line: String) {
        match at {
            Some(at) => self.insert(file, at, line),
            None => self.append(file, line),
        }
    }

    /// Adds a file of the mail server's configuration.
    pub(crate) fn create(&mut self, file: &Path, text: String, mode: u32) {
        self.before.insert(file.to_owned(), None);
        self.configure.push(Change::Create { file: file.to_owned(), text, mode });
    }

    /// The files of the mail server's configuration as they would be.
    pub(crate) fn contents(&self) -> Contents {
        let mut contents = Contents::new();
        for change in &self.configure {
            if let Change::Create { file, text, .. } = change {
                contents.insert(file.clone(), Some(text.clone().into_bytes()));
            } else if let Change::Insert { file, .. } = change {
                let before = self.before.get(file).cloned().flatten().unwrap_or_default();
                contents
                    .entry(file.clone())
                    .or_insert_with(|| Some(inserted(&before, &self.insertions(file))));
            }
        }
        contents
    }

    /// Adds the policy file, where there is none, and has its policies be in use in `spool`.
    pub(super) fn policies(
        &mut self,
        spool: &Path,
        facts: impl FnOnce() -> Result<Facts, SetupError>,
    ) -> Result<(), SetupError> {
        let file = PathBuf::from(FILE);
        self.directory(file.parent().unwrap_or(Path::new("/")), 0o755, None);
        let text = match files::read(&file)? {
            Some(_) if spool.join("exirate/policy.image").exists() => return Ok(()),
            Some(_) => None,
            None => Some(policy_file::text(&facts()?)),
        };
        self.prepare.push(Change::Policies { file, text, spool: spool.to_owned() });
        Ok(())
    }

    /// The text of the policy file that it would write, if it writes one.
    pub(crate) fn policy_text(&mut self) -> Option<&mut String> {
        self.prepare.iter_mut().find_map(|change| match change {
            Change::Policies { text, .. } => text.as_mut(),
            _ => None,
        })
    }

    /// The insertions in a file, in the order in which they stand in it.
    pub(super) fn insertions(&self, path: &Path) -> Vec<(usize, &str)> {
        let mut found: Vec<(usize, &str)> = self
            .configure
            .iter()
            .filter_map(|change| match change {
                Change::Insert { file, at, text } if file == path => Some((*at, text.as_str())),
                _ => None,
            })
            .collect();
        found.sort_by_key(|(at, _)| *at);
        found
    }

    /// Whether a file is still as it was when the plan was made.
    pub(super) fn is_current(&self, path: &Path) -> Result<bool, SetupError> {
        let before = self.before.get(path).cloned().flatten();
        Ok(files::read(path)? == before)
    }
}

/// `before` with these texts in it.
fn inserted(before: &[u8], insertions: &[(usize, &str)]) -> Vec<u8> {
    let (mut text, mut from) = (Vec::with_capacity(before.len()), 0);
    for (at, more) in insertions {
        text.extend(before.get(from..*at).unwrap_or_default());
        text.extend(more.as_bytes());
        from = *at;
    }
    text.extend(before.get(from..).unwrap_or_default());
    text
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for change in self.prepare.iter().chain(&self.configure) {
            match change {
                Change::Insert { file, .. } => {
                    let is_first = self.configure.iter().find(|one| one.file() == Some(file));
                    if is_first == Some(change) {
                        let before = self.before.get(file).cloned().flatten().unwrap_or_default();
                        diff::insertions(f, file, &before, &self.insertions(file))?;
                    }
                }
                Change::Create { file, text, .. } => diff::new_file(f, file, text)?,
                Change::Directory { path, mode, owner } => {
                    let (user, group) = owner
                        .as_ref()
                        .map_or(("root", "root"), |(user, group)| (user.as_str(), group.as_str()));
                    writeln!(
                        f,
                        "make the directory {} ({user}:{group}, {mode:04o})",
                        path.display()
                    )?;
                }
                Change::Policies { file, text, .. } => {
                    if let Some(text) = text {
                        diff::new_file(f, file, text)?;
                    }
                    writeln!(f, "put the policies of {} in use", file.display())?;
                }
                Change::Start(service) => {
                    writeln!(f, "start {}, now and at each boot", service.name())?;
                }
            }
        }
        Ok(())
    }
}
