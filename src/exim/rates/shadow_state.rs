//! What is kept between calls of `shadow`.

use crate::shadow::ShadowCounters;

/// What is kept between calls of `shadow`.
#[derive(Default)]
pub(in crate::exim) struct Shadow {
    pub(in crate::exim) counters: Option<ShadowCounters>,
    /// The process that has logged an error.
    pub(in crate::exim) logged: Option<u32>,
}
