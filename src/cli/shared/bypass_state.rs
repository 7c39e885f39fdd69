//! Whether nothing is refused now, for people.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Once;

use super::screen::complain;
use crate::bypass::Bypass;
use crate::rate::Timestamp;
use crate::sys::secure_dir::DirError;
use crate::text;
use crate::text::time::now;

/// The bypass for people.
pub(in crate::cli) fn sentence(bypass: &Bypass, now: Timestamp) -> String {
    let Bypass { until, who, reason, .. } = bypass;
    let left = text::duration((until - now.seconds).max(0) as f64);
    let until = text::local(Timestamp { seconds: *until, micros: 0 });
    let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    format!(
        "BYPASS until {until} ({left} left; {who}{why}): nothing is refused on this server; \
         `exirate bypass --end` ends it"
    )
}

/// Whether there is a bypass.
pub(in crate::cli) enum State {
    /// It lasts now: the sentence for people.
    Active(String),
    /// There is a file, which is none, and why.
    None(String),
    /// Only root and Exim's user can see it.
    Hidden,
}

/// The bypass that lasts now, or a file that is none.
pub(in crate::cli) fn state(spool: &Path) -> Option<State> {
    let now = now();
    match Bypass::read(spool) {
        Ok(found) => {
            let active = found.filter(|one| one.is_active(now.seconds))?;
            Some(State::Active(sentence(&active, now)))
        }
        Err(DirError::Io { source, .. }) if source.kind() == ErrorKind::PermissionDenied => {
            Some(State::Hidden)
        }
        Err(error) => Some(State::None(format!("there is no bypass: {error}"))),
    }
}

static ANNOUNCED: Once = Once::new();

/// Has [`announce`] show nothing: the command says it itself.
pub(in crate::cli) fn announced() {
    ANNOUNCED.call_once(|| {});
}

/// Shows on standard error, once, that nothing is refused now.
pub(in crate::cli) fn announce(spool: &Path) {
    ANNOUNCED.call_once(|| match state(spool) {
        Some(State::Active(what)) => complain(what),
        Some(State::None(why)) => complain(format_args!("note: {why}")),
        // The command says that it has no permission.
        Some(State::Hidden) | None => {}
    });
}
