//! Versions of formats: which ones a program knows, and what it says of another.

use std::fmt;

/// The versions of a format that a program knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The lowest that it reads. Lower ones are refused.
    pub oldest: u32,
    /// The highest, in which it writes what is new.
    pub newest: u32,
}

/// A version that a program does not know. Its text follows the name of what has it, and is
/// followed by a colon and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherVersion {
    /// The version.
    pub found: u32,
    /// Those that are known.
    pub known: Versions,
}

/// What to do about most files of a later version.
pub const USE_THE_LATER: &str = "use the later exirate that wrote it";

impl Versions {
    /// One version.
    #[must_use]
    pub const fn only(version: u32) -> Self {
        Self { oldest: version, newest: version }
    }

    /// Those that the running program knows: these, or in a test those of [`as_the_next`] or of the
    /// library that `tests/serve/exim.rs` builds.
    #[must_use]
    pub fn known(self) -> Self {
        let is_next = cfg!(exirate_next_version);
        #[cfg(test)]
        let is_next = is_next || NEXT.get();
        if is_next { Self { newest: self.newest + 1, ..self } } else { self }
    }

    /// Whether this version is one of them.
    #[must_use]
    pub const fn contain(self, version: u32) -> bool {
        self.oldest <= version && version <= self.newest
    }

    /// Nothing, if this version is one of them.
    ///
    /// # Errors
    /// It is not.
    pub const fn check(self, found: u32) -> Result<(), OtherVersion> {
        if self.contain(found) { Ok(()) } else { Err(OtherVersion { found, known: self }) }
    }

    /// The version at the end of `text`, which begins with `head`; `None` if it does not, or has
    /// no number there from 1 on.
    #[must_use]
    pub fn read(head: &str, text: &str) -> Option<u32> {
        let digits = text.strip_prefix(head)?;
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|version| is_number && *version > 0)
    }
}

impl OtherVersion {
    /// Whether a later program has written it.
    #[must_use]
    pub const fn is_later(self) -> bool {
        self.found > self.known.newest
    }

    /// That of a file which begins with `found` in place of `known`, where the last byte is the
    /// version as a digit; `None` if it is no such file, or of that version.
    #[must_use]
    pub fn of_magic(found: u64, known: [u8; 8]) -> Option<Self> {
        let ([found @ .., digit], [magic @ .., own]) = (found.to_le_bytes(), known);
        let version = |digit: u8| u32::from(digit.wrapping_sub(b'0'));
        let is_other = found == magic && (1..=9).contains(&version(digit)) && digit != own;
        is_other.then(|| Self { found: version(digit), known: Versions::only(version(own)) })
    }

    /// An error of what has this version; `remedy` says what to do.
    #[must_use]
    pub fn error(self, remedy: &str) -> std::io::Error {
        std::io::Error::other(format!("it {self}: {remedy}"))
    }
}

impl fmt::Display for OtherVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (where_, bound) = match self.is_later() {
            true => ("above", self.known.newest),
            false => ("below", self.known.oldest),
        };
        let found = self.found;
        write!(
            f,
            "is of format version {found}, and this exirate knows no version {where_} {bound}"
        )
    }
}

#[cfg(test)]
std::thread_local! {
    static NEXT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Runs `run` as the next exirate would, in which each format has one more version: it reads
/// both, and writes the higher one where nothing is yet.
#[cfg(test)]
pub(crate) fn as_the_next<T>(run: impl FnOnce() -> T) -> T {
    NEXT.set(true);
    let result = run();
    NEXT.set(false);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_and_what_is_said_of_others() {
        let known = Versions { oldest: 2, newest: 3 };
        assert_eq!((known.check(2), known.check(3)), (Ok(()), Ok(())));
        let said = |found| known.check(found).unwrap_err().to_string();
        assert_eq!(said(4), "is of format version 4, and this exirate knows no version above 3");
        assert_eq!(said(1), "is of format version 1, and this exirate knows no version below 2");
        assert!(said(u32::MAX).contains("4294967295"));
        assert!(!known.check(0).unwrap_err().is_later());
    }

    #[test]
    fn a_magic_has_a_version_at_its_end() {
        let of = |found: &[u8; 8]| OtherVersion::of_magic(u64::from_le_bytes(*found), *b"EXIRCNT1");
        let later = OtherVersion { found: 2, known: Versions::only(1) };
        assert_eq!([of(b"EXIRCNT2"), of(b"EXIRCNT1")], [Some(later), None]);
        assert_eq!([of(b"EXIRCNT0"), of(b"EXIRCNTx"), of(b"EXIRSHD2"), of(&[0; 8])], [None; 4]);
    }

    #[test]
    fn a_version_is_a_number() {
        let read = |text| Versions::read("exirate x ", text);
        assert_eq!([read("exirate x 1"), read("exirate x 12")], [Some(1), Some(12)]);
        for text in ["", "exirate x ", "exirate x 0", "exirate x +1", "exirate y 1", "exirate x 1 "]
        {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(read("exirate x 4294967296"), None);
    }
}
