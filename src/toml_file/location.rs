//! Places in files.

/// Where something is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// Which of the files that were read.
    pub file: u16,
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
}

impl Location {
    /// The start of the first file.
    pub const START: Self = Self { file: 0, line: 1, column: 1 };
}
