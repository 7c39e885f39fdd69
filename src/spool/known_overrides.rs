//! The overrides that a handle has read.

use crate::store::{ListFault, Overrides};

/// The overrides as this process knows them.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The word they belong to; 0 says that there never were any.
    pub(super) word: u64,
    pub(super) list: Overrides,
    /// The fault of the file that was reported last.
    pub(super) reported: Option<ListFault>,
}
