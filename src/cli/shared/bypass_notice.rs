//! Whether nothing is refused now, shown once.

use std::path::Path;
use std::sync::Once;

use super::screen::complain;
use crate::standing::bypass_state::{BypassState, state};

static ANNOUNCED: Once = Once::new();

/// Has [`announce`] show nothing: the command says it itself.
pub(in crate::cli) fn announced() {
    ANNOUNCED.call_once(|| {});
}

/// Shows on standard error, once, that nothing is refused now.
pub(in crate::cli) fn announce(spool: &Path) {
    ANNOUNCED.call_once(|| match state(spool) {
        Some(BypassState::Active(what)) => complain(what),
        Some(BypassState::None(why)) => complain(format_args!("note: {why}")),
        // The command says that it has no permission.
        Some(BypassState::Hidden) | None => {}
    });
}
