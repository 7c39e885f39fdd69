//! Whether nothing is refused now, for people.

use std::io::ErrorKind;
use std::path::Path;

use crate::bypass::Bypass;
use crate::rate::Timestamp;
use crate::sys::secure_dir::DirError;
use crate::text;
use crate::text::time::now;

/// The bypass for people.
pub(crate) fn sentence(bypass: &Bypass, now: Timestamp) -> String {
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
pub(crate) enum BypassState {
    /// It lasts now: the sentence for people.
    Active(String),
    /// There is a file, which is none, and why.
    None(String),
    /// Only root and Exim's user can see it.
    Hidden,
}

/// The bypass that lasts now, or a file that is none.
pub(crate) fn state(spool: &Path) -> Option<BypassState> {
    let now = now();
    match Bypass::read(spool) {
        Ok(found) => {
            let active = found.filter(|one| one.is_active(now.seconds))?;
            Some(BypassState::Active(sentence(&active, now)))
        }
        Err(DirError::Io { source, .. }) if source.kind() == ErrorKind::PermissionDenied => {
            Some(BypassState::Hidden)
        }
        Err(error) => Some(BypassState::None(format!("there is no bypass: {error}"))),
    }
}
