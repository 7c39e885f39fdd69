//! Who runs this Exim, by the user ids that Exim alone sets.

use super::exports::Host;
use crate::event::Caller;
use std::ffi::CStr;

/// The accounts that serve connections, from the list of that name in Exim's configuration.
pub(in crate::exim) const SERVING: &CStr = c"${listnamed_l:exirate_serving}";

/// The ordinary account that has started this Exim; if it `delivers`, the one that has handed over
/// the message.
#[cold]
pub(in crate::exim) fn account(host: &Host, delivers: bool) -> Option<u32> {
    let expanded = |text: &CStr| host.expand(text).unwrap_or_default();
    let (caller, exim) = (expanded(c"$caller_uid"), expanded(c"$exim_uid"));
    let originator = if delivers { expanded(c"$originator_uid") } else { Vec::new() };
    let of = |serving: &[u8]| Caller::of(&caller, &originator, &exim, serving).account();
    // Root and Exim are in no list.
    of(b"").and_then(|_| of(&expanded(SERVING)))
}
