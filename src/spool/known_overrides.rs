//! The overrides that a handle has read.

use crate::store::Overrides;
use crate::sys::mapping::Mapping;

/// The overrides as this process knows them.
#[derive(Debug, Default)]
pub(super) struct KnownOverrides {
    /// The word they belong to; 0 says that there never were any.
    pub(super) word: u64,
    pub(super) list: Overrides,
    /// Where keys are folded, so that a check allocates nothing.
    pub(super) scratch: String,
    /// The fault that was reported last.
    pub(super) reported: Option<String>,
    /// The second of the coarse clock in which the mapped file was last found to be
    /// `database`.
    pub(super) checked: i64,
}

/// The file `database`, mapped for its word.
#[derive(Debug)]
pub(super) struct DatabaseWord {
    pub(super) map: Mapping,
    /// Its device and inode.
    pub(super) identity: (u64, u64),
}
