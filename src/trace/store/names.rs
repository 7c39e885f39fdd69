//! The names of logs and segments.

use std::ffi::{CStr, CString};

use crate::sys::files;
use crate::sys::secure_dir::{DirError, SecureDir};

/// The log that is appended to.
pub(super) const OPEN: &CStr = c"open.log";
/// That log while it is being created.
pub(super) const OPEN_NEW: &CStr = c"open.new";
/// The maximum number of names that are read.
const NAMES_MAX: usize = 1 << 20;

/// A full log, or a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Numbered {
    pub(super) number: u64,
    pub(super) kind: FileKind,
}

/// The kind of a numbered file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FileKind {
    /// A sealed segment; sorted before a log of the same number.
    Segment,
    /// A full log.
    Log,
    /// A segment that could not be read, quarantined by a repair.
    QuarantinedSegment,
    /// A log that could not be read, quarantined by a repair.
    QuarantinedLog,
}

impl FileKind {
    /// The file name extension.
    fn suffix(self) -> &'static str {
        match self {
            Self::Segment => "segment",
            Self::Log => "log",
            Self::QuarantinedSegment => "segment.damaged",
            Self::QuarantinedLog => "log.damaged",
        }
    }

    /// Whether a repair has quarantined it.
    pub(super) fn is_quarantined(self) -> bool {
        matches!(self, Self::QuarantinedSegment | Self::QuarantinedLog)
    }
}

/// All kinds.
const KINDS: [FileKind; 4] =
    [FileKind::Segment, FileKind::Log, FileKind::QuarantinedSegment, FileKind::QuarantinedLog];

impl Numbered {
    /// Its name: `00000012.log`.
    pub(super) fn name(self) -> CString {
        CString::new(format!("{:08}.{}", self.number, self.kind.suffix())).unwrap_or_default()
    }

    /// Parses a file name; `None` for other files.
    fn of(name: &CStr) -> Option<Self> {
        let (number, kind) = name.to_str().ok()?.split_once('.')?;
        let kind = KINDS.into_iter().find(|known| known.suffix() == kind)?;
        let numbered = Self { number: number.parse().ok()?, kind };
        // Other spellings of a number are not ours.
        (numbered.name().as_c_str() == name).then_some(numbered)
    }
}

/// All full logs and segments, oldest first.
pub(super) fn list(dir: &SecureDir) -> Result<Vec<Numbered>, DirError> {
    let mut found = list_all(dir)?;
    found.retain(|numbered| !numbered.kind.is_quarantined());
    Ok(found)
}

/// The same, including quarantined files.
pub(super) fn list_all(dir: &SecureDir) -> Result<Vec<Numbered>, DirError> {
    let names =
        files::names(dir.directory(), NAMES_MAX).map_err(DirError::io("read", dir.path()))?;
    let mut found: Vec<_> = names.iter().filter_map(|name| Numbered::of(name)).collect();
    found.sort_unstable();
    Ok(found)
}

/// A number for the next full log, higher than all existing ones.
///
/// # Errors
/// The directory cannot be read, or the highest possible number is in use.
pub(super) fn next(dir: &SecureDir) -> Result<u64, DirError> {
    let mut number = list_all(dir)?.last().map_or(0, |last| last.number).saturating_add(1);
    // The list may lack a file that was being renamed.
    let taken = |number| {
        KINDS
            .map(|kind| files::info_at(dir.directory(), &Numbered { number, kind }.name()))
            .iter()
            .any(Result::is_ok)
    };
    while taken(number) {
        number = number.checked_add(1).ok_or_else(|| DirError::Unsafe {
            path: dir.path_of(&Numbered { number, kind: FileKind::Log }.name()),
            fault: "it has the highest possible number, and the next log needs a higher one: \
                    rename it to a lower number, or remove it"
                .to_owned(),
        })?;
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_and_others_refused() {
        for (number, kind) in [
            (0, FileKind::Log),
            (12, FileKind::Segment),
            (123_456_789, FileKind::Log),
            (3, FileKind::QuarantinedLog),
            (4, FileKind::QuarantinedSegment),
        ] {
            let numbered = Numbered { number, kind };
            assert_eq!(Numbered::of(&numbered.name()), Some(numbered));
        }
        for name in
            [c"key", c"open.log", c"12.log", c"+0000012.log", c"00000012.new", c"00000012.log.1"]
        {
            assert_eq!(Numbered::of(name), None, "{name:?}");
        }
    }
}
