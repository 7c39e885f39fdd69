//! What `exim -d+acl` shows of a check, in the words of Exim's own condition.

use crate::engine::{Decision, Overridden};
use crate::spec::{SpecRequest, Update};

/// The check.
pub(in crate::exim) fn requested(request: &SpecRequest) -> String {
    let key = String::from_utf8_lossy(&request.key);
    format!("ratelimit condition count={:.0} {:.1}/{key}", request.count, request.limit)
}

/// The database cannot be used.
pub(in crate::exim) const NOT_AVAILABLE: &str = "ratelimit database not available";

/// The cached decision.
pub(in crate::exim) fn recalled(decision: &Decision) -> impl Iterator<Item = String> {
    let rate = format!("ratelimit found pre-computed rate {:.1}", decision.rate);
    std::iter::once(rate).chain(overridden(decision).map(str::to_owned))
}

/// The override that decided, if any.
fn overridden(decision: &Decision) -> Option<&'static str> {
    decision.overridden.map(|overridden| match overridden {
        Overridden::Allow => "ratelimit override: allow, so not over the limit",
        Overridden::Deny | Overridden::Reject => "ratelimit override: deny, so over the limit",
    })
}

/// How the decision was computed, one line a step.
pub(in crate::exim) fn computed(
    request: &SpecRequest,
    decision: &Decision,
) -> impl Iterator<Item = String> {
    let details = decision.details;
    let found = details.found.then_some("ratelimit found key in database");
    let expired = details.filter_expired.then_some("ratelimit discarding old Bloom filter");
    let new = (!details.found || details.filter_expired).then_some(match &request.unique {
        Some(_) => "ratelimit creating new Bloom filter",
        None => "ratelimit creating new rate data block",
    });
    let looked_for = request.unique.as_ref().filter(|_| details.seen.is_some());
    let looked_for = looked_for.map(|event| {
        format!("ratelimit checking uniqueness of {}", String::from_utf8_lossy(event))
    });
    let event = details.seen.map(|seen| match seen {
        true => "ratelimit event found in Bloom filter",
        false => "ratelimit event added to Bloom filter",
    });
    let first = (!details.found).then_some("ratelimit initializing new key's rate data");
    let written = match request.update {
        _ if details.written => "ratelimit db updated",
        Update::ReadOnly => "ratelimit db not updated: readonly mode",
        Update::Leaky | Update::Strict => "ratelimit db not updated: over the limit, but leaky",
    };
    let own = |line: Option<&str>| line.map(str::to_owned);
    let rate = format!("ratelimit computed rate {:.1}", decision.rate);
    [own(found), own(expired), own(new), looked_for, own(event), own(first), own(Some(written))]
        .into_iter()
        .flatten()
        .chain([rate])
        .chain(own(overridden(decision)))
}
