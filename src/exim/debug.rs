//! What `exim -d+acl` shows of a check, in the words of Exim's own condition.

use crate::engine::Decision;
use crate::spec::{Request, Update};

/// What is asked for.
pub(super) fn asked(request: &Request) -> String {
    let key = String::from_utf8_lossy(&request.key);
    format!("ratelimit condition count={:.0} {:.1}/{key}", request.count, request.limit)
}

/// The answer that was remembered.
pub(super) fn recalled(decision: &Decision) -> String {
    format!("ratelimit found pre-computed rate {:.1}", decision.rate)
}

/// How the answer was computed, a line each.
pub(super) fn computed(request: &Request, decision: &Decision) -> impl Iterator<Item = String> {
    let trace = decision.trace;
    let key = if trace.found {
        "ratelimit found key in database"
    } else {
        "ratelimit initializing new key's rate data"
    };
    let expired = trace.filter_expired.then_some("ratelimit discarding old Bloom filter");
    let event = trace.seen.map(|seen| match seen {
        true => "ratelimit event found in Bloom filter",
        false => "ratelimit event added to Bloom filter",
    });
    let written = match request.update {
        _ if trace.written => "ratelimit db updated",
        Update::ReadOnly => "ratelimit db not updated: readonly mode",
        Update::Leaky | Update::Strict => "ratelimit db not updated: over the limit, but leaky",
    };
    let lines = [Some(key), expired, event, Some(written)].into_iter().flatten();
    lines.map(str::to_owned).chain([format!("ratelimit computed rate {:.1}", decision.rate)])
}
