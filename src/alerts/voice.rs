//! Where it is said what does not work: standard error of a command, or the log of a daemon.

use std::fmt::Arguments;

/// Where it is said what does not work.
pub(crate) trait Voice: Sync {
    /// Something does not work.
    fn complain(&self, what: Arguments<'_>);
    /// Something to know.
    fn note(&self, what: Arguments<'_>);
}
