//! Whether nothing is refused now, for people.

use std::path::Path;
use std::sync::Once;

use super::screen::complain;
use super::text;
use super::time::now;
use crate::bypass::Bypass;
use crate::rate::Timestamp;

/// The bypass for people.
pub(super) fn sentence(bypass: &Bypass, now: Timestamp) -> String {
    let Bypass { until, who, reason, .. } = bypass;
    let left = text::duration((until - now.seconds).max(0) as f64);
    let until = text::local(Timestamp { seconds: *until, micros: 0 });
    let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    format!(
        "BYPASS until {until} ({left} left; {who}{why}): nothing is refused on this server; \
         `exirate bypass --end` ends it"
    )
}

/// The bypass that lasts now, for people; or why a file is none.
pub(super) fn state(spool: &Path) -> Option<Result<String, String>> {
    let now = now();
    match Bypass::read(spool) {
        Ok(found) => {
            let active = found.filter(|one| one.is_active(now.seconds))?;
            Some(Ok(sentence(&active, now)))
        }
        Err(error) => Some(Err(format!("there is no bypass: {error}"))),
    }
}

static ANNOUNCED: Once = Once::new();

/// Has [`announce`] show nothing: the command says it itself.
pub(super) fn announced() {
    ANNOUNCED.call_once(|| {});
}

/// Shows on standard error, once, that nothing is refused now.
pub(super) fn announce(spool: &Path) {
    ANNOUNCED.call_once(|| match state(spool) {
        Some(Ok(what)) => complain(what),
        Some(Err(why)) => complain(format_args!("note: {why}")),
        None => {}
    });
}
