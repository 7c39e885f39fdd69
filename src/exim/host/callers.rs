//! Who runs this Exim, by the user ids that Exim alone sets.

use super::exports::Host;
use crate::event::Caller;
use std::ffi::CStr;

/// The accounts that serve connections, from the list of that name in Exim's configuration.
pub(in crate::exim) const SERVING: &CStr = c"${listnamed_l:exirate_serving}";

/// Who has started an Exim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exim) enum Starter {
    /// An ordinary account.
    Account,
    /// Exim's own user: another Exim, which an account may have started.
    Exim,
    /// Root, or an account that serves connections.
    Other,
}

/// Who has started this Exim.
#[cold]
pub(in crate::exim) fn starter(host: &Host) -> Starter {
    let is_exim = || {
        let [caller, exim] = [c"$caller_uid", c"$exim_uid"].map(|text| host.expand(text));
        caller.is_some() && caller == exim && caller.as_deref() != Some(b"0")
    };
    match account(host, false) {
        Some(_) => Starter::Account,
        None if is_exim() => Starter::Exim,
        None => Starter::Other,
    }
}

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
