//! The emergency stop (see [`crate::bypass`]), as a call looks for it.

use super::directory;
use super::exports::Host;
use super::variables::Variables;
use crate::bypass::Watch;
use std::fmt::Display;

/// Looks for the stop of Exim's spool directory.
#[derive(Default)]
pub(in crate::exim) struct Stop(Option<Watch>);

impl Stop {
    /// Whether nothing may be refused now. One that begins is noticed within a second.
    #[inline]
    pub(in crate::exim) fn is_active(&mut self, host: &Host, variables: &Variables) -> bool {
        self.watch(host, variables).is_some_and(Watch::is_active)
    }

    /// As above. Logs, once a process, that nothing is refused although `what`.
    #[cold]
    pub(in crate::exim) fn lifts(
        &mut self,
        host: &Host,
        variables: &Variables,
        what: &dyn Display,
    ) -> bool {
        let Some(watch) = self.watch(host, variables) else { return false };
        let is_active = watch.is_active();
        if let Some(line) = watch.line(what) {
            host.log(&format!("exirate: {line}"));
        }
        is_active
    }

    /// `None` if the directory is not known.
    fn watch(&mut self, host: &Host, variables: &Variables) -> Option<&mut Watch> {
        if self.0.is_none() {
            self.0 = directory::spool(host, variables).ok().map(|spool| Watch::new(&spool));
        }
        self.0.as_mut()
    }
}
