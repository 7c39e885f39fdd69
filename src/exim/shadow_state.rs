//! What is kept between calls of `shadow`.

use crate::shadow::ShadowCounters;

/// What is kept between calls of `shadow`.
#[derive(Default)]
pub(super) struct Shadow {
    pub(super) counters: Option<ShadowCounters>,
    /// The process that has logged an error.
    pub(super) logged: Option<u32>,
}
