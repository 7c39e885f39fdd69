//! The administrator who runs a command, and the logs of what it changes: see [`audit_log`].

use std::fmt::Display;

use super::screen::note;
use crate::standing::audit_log;
use crate::standing::changer::Changer;
use crate::store::Inspect;
use crate::text;

/// The logs of one command.
pub(in crate::cli) struct AuditLog {
    by: Changer,
    /// Whether a failure to write the log has been reported.
    failed: bool,
}

impl AuditLog {
    pub(in crate::cli) fn new() -> Self {
        Self { by: Changer::administrator(who()), failed: false }
    }

    /// As [`Changer::log`]; a failure is reported once.
    pub(in crate::cli) fn add(&mut self, store: &mut dyn Inspect, what: impl Display) {
        self.with(|by| by.log(store, what));
    }

    /// Has a change be made and logged; a failure to log it is reported once.
    pub(in crate::cli) fn with<T>(&mut self, change: impl FnOnce(&mut Changer) -> T) -> T {
        let result = change(&mut self.by);
        if let Some(unlogged) = self.by.unlogged().filter(|_| !self.failed) {
            note(unlogged);
            self.failed = true;
        }
        result
    }

    /// Logs a change to syslog alone.
    pub(in crate::cli) fn add_without_store(&self, what: impl Display) {
        audit_log::to_syslog(self.by.who(), what);
    }
}

/// Who runs this, in one word for each thing that is known of it.
pub(in crate::cli) fn who() -> String {
    let mut who = format!("uid={}", rustix::process::geteuid().as_raw());
    // The user who has logged in, whatever he has become since.
    let login = std::fs::read_to_string("/proc/self/loginuid").unwrap_or_default();
    if let Ok(login) = login.trim().parse::<u32>()
        && login != u32::MAX
    {
        who += &format!(" login={login}");
    }
    if let Some(user) = std::env::var_os("SUDO_USER") {
        who += &format!(" sudo={}", text::printable(user.as_encoded_bytes()).replace(' ', "_"));
    }
    who
}
