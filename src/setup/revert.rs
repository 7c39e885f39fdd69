//! Taking back what setup has added, also after edits around it.

use std::path::Path;

use memchr::memmem;

use super::change::{BEGIN, Change, Reverted};
use super::error::SetupError;
use super::files;
use super::manifest::{Directory, Manifest, ManifestEntry};
use super::{Contents, Setup};

impl Setup<'_> {
    /// Takes back everything that the manifest names; what stays, and why.
    ///
    /// # Errors
    /// Something could not be taken back. What could be, is; it can be run again.
    pub(crate) fn undo(&self) -> Result<Vec<String>, SetupError> {
        let Some(manifest) = Manifest::read(self.state)? else {
            return Err(SetupError::Unfit(format!(
                "setup has added nothing here: there is no manifest in {}",
                self.state.display()
            )));
        };
        let directory = Directory::make(self.state)?;
        let _guard = directory.lock()?;
        let left = self.revert(&manifest.entries)?;
        directory.write(&Manifest::default(), &self.steps)?;
        Ok(left)
    }

    /// Takes back these changes, those of the mail server's configuration first: it must not
    /// ask what is gone. What stays, and why.
    pub(super) fn revert(&self, entries: &[ManifestEntry]) -> Result<Vec<String>, SetupError> {
        let mut left = Vec::new();
        let of = |configuration: bool| {
            let some = entries.iter().rev().filter(move |one| one.configuration == configuration);
            some.map(|entry| &entry.change)
        };
        let contents = without(of(true), &mut left)?;
        if contents.iter().any(|(path, new)| files::read(path).ok().as_ref() != Some(new)) {
            self.server.check(&contents)?;
        }
        for change in of(true) {
            match change {
                // All insertions in a file at once.
                Change::Insert { file, .. } => {
                    let Some(Some(new)) = contents.get(file) else { continue };
                    files::clean(file);
                    if files::read(file)?.as_ref() != Some(new) {
                        files::replace(file, new, &self.steps)?;
                    }
                }
                other => {
                    // `without` has said what stays.
                    let _ = other.revert(&self.steps)?;
                }
            }
        }
        if of(true).next().is_some() {
            self.server.put_into_force(&self.steps)?;
        }
        for change in of(false) {
            if let Reverted::Stays(what) = change.revert(&self.steps)? {
                left.push(what);
            }
        }
        Ok(left)
    }
}

/// The configuration without these changes; what has to stay is added to `left`.
fn without<'a>(
    changes: impl Iterator<Item = &'a Change>,
    left: &mut Vec<String>,
) -> Result<Contents, SetupError> {
    let mut contents = Contents::new();
    for change in changes {
        match change {
            Change::Insert { file, text, .. } => {
                let known = match contents.remove(file) {
                    Some(known) => known,
                    None => files::read(file)?,
                };
                let Some(bytes) = known else { continue };
                let bytes = match cut(&bytes, text) {
                    Ok(bytes) => bytes,
                    Err(line) => {
                        left.push(edited(file, line));
                        bytes
                    }
                };
                contents.insert(file.clone(), Some(bytes));
            }
            Change::Create { file, text, .. } => match files::read(file)? {
                Some(bytes) if bytes != text.as_bytes() => {
                    left.push(format!("{} stays: it was changed since", file.display()));
                }
                _ => {
                    contents.insert(file.clone(), None);
                }
            },
            Change::Directory { .. } | Change::Policies { .. } | Change::Start(_) => {}
        }
    }
    Ok(contents)
}

fn edited(file: &Path, line: usize) -> String {
    format!("{}:{line} stays: what setup has inserted there was changed since", file.display())
}

/// `bytes` without `text`; where that was changed, the line at which it begins. Text that is
/// gone altogether is no fault.
fn cut(bytes: &[u8], text: &str) -> Result<Vec<u8>, usize> {
    let line_of = |at: usize| {
        bytes.get(..at).unwrap_or_default().iter().filter(|&&byte| byte == b'\n').count() + 1
    };
    let wanted = text.as_bytes();
    // Where it stands twice, all copies are alike: the last is the one that follows what the
    // administrator has written.
    if let Some(at) = memmem::rfind(bytes, wanted) {
        let end = at + wanted.len();
        let parts = [bytes.get(..at), bytes.get(end..)];
        return Ok(parts.into_iter().flatten().collect::<Vec<_>>().concat());
    }
    // Its first line, or the marker.
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or(text);
    let wanted = if text.contains(BEGIN) { BEGIN } else { first.trim() };
    match memmem::find(bytes, wanted.as_bytes()) {
        Some(at) => Err(line_of(at)),
        None => Ok(bytes.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_what_was_inserted_is_cut() {
        let block = "# begin exirate setup\nA = 1\n# end exirate setup\n";
        assert_eq!(cut(b"a\nb\n", block), Ok(b"a\nb\n".to_vec()));
        assert_eq!(cut(format!("a\n{block}b\n").as_bytes(), block), Ok(b"a\nb\n".to_vec()));
        let edited = format!("new\na\n{}b\n", block.replace("A = 1", "A = 2"));
        assert_eq!(cut(edited.as_bytes(), block), Err(3));
        // Within a line.
        let check = "check_policy_service unix:x, ";
        let line = format!("smtpd = {check}permit\n");
        assert_eq!(cut(line.as_bytes(), check), Ok(b"smtpd = permit\n".to_vec()));
        // At the end of a file without a line feed.
        let text = format!("\n{}", block.trim_end());
        assert_eq!(cut(format!("a{text}").as_bytes(), &text), Ok(b"a".to_vec()));
    }
}
