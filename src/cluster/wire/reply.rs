//! The reply to a request.

use crate::engine::{AlgorithmKind, Block, Check, Decision, Details, Overridden, Update};
use crate::rate::share::Counted;
use crate::rate::{Average, CalendarWindow, Timestamp};
use crate::spool::CHECKS_MAX;
use crate::store::ByteReader;

use super::{Header, REPLY_MAGIC, WireFault, finish, item};

/// The size of a decision.
pub const DECISION_BYTES: usize = 60;

/// The bits of `outcome`.
mod outcome {
    pub(super) const OVER: u32 = 1;
    pub(super) const CROSSED: u32 = 2;
    pub(super) const ALLOWED: u32 = 4;
    pub(super) const DENIED: u32 = 8;
    pub(super) const FOUND: u32 = 16;
    pub(super) const FILTER_EXPIRED: u32 = 32;
    pub(super) const NEW: u32 = 64;
    pub(super) const KNOWN: u32 = 128;
    pub(super) const COUNTED: u32 = 256;
    pub(super) const KEPT: u32 = 512;
    /// With [`DENIED`]: for good.
    pub(super) const REJECTED: u32 = 1024;
}

/// The status of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyStatus {
    /// The checks are decided.
    Decided,
    /// The store cannot be used now.
    Unavailable,
    /// The agent has as many requests as it may have.
    Busy,
    /// The peer may not ask.
    NotAllowed,
    /// The request could not be read.
    BadRequest,
    /// The request has a version of the protocol that the agent does not know.
    OtherVersion,
    /// The part of the store that has these keys cannot be used now; others may well be.
    KeysAway,
}

impl ReplyStatus {
    const ALL: [Self; 7] = [
        Self::Decided,
        Self::Unavailable,
        Self::Busy,
        Self::NotAllowed,
        Self::BadRequest,
        Self::OtherVersion,
        Self::KeysAway,
    ];

    fn code(self) -> u16 {
        self as u16
    }

    fn of(code: u16) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// A reply, as the library reads it.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply<'a> {
    /// One decision for each check.
    Decided(Vec<Decision>),
    /// The checks are not decided: the status, and the reason.
    Refused(ReplyStatus, &'a [u8]),
}

/// Appends a reply with these decisions to `out`.
pub fn write_decisions(out: &mut Vec<u8>, event: u128, decisions: &[Decision]) {
    let decisions = decisions.get(..decisions.len().min(CHECKS_MAX)).unwrap_or_default();
    let header = Header {
        kind: ReplyStatus::Decided.code(),
        deadline: 0,
        event,
        count: decisions.len() as u16,
    };
    let start = header.write(out, REPLY_MAGIC, DECISION_BYTES as u16);
    decisions.iter().for_each(|decision| write_decision(out, decision));
    // So many decisions fit into a message.
    let _ = finish(out, start);
}

/// Appends a reply to `out` that nothing is decided, with the reason, which is cut off
/// after 1,000 bytes.
pub fn write_refusal(out: &mut Vec<u8>, event: u128, status: ReplyStatus, reason: &str) {
    let reason = reason.as_bytes();
    let reason = reason.get(..reason.len().min(1000)).unwrap_or_default();
    let header = Header { kind: status.code(), deadline: 0, event, count: reason.len() as u16 };
    let start = header.write(out, REPLY_MAGIC, 1);
    out.extend_from_slice(reason);
    let _ = finish(out, start);
}

fn write_decision(out: &mut Vec<u8>, decision: &Decision) {
    let Decision { rate, over, overridden, count, at, kept, crossed, crossings, details, .. } =
        *decision;
    // Beyond what a request can have, neither is.
    let short = |number: i64| u32::try_from(number).unwrap_or(0);
    let (start, length) = match (decision.window(), decision.algorithm) {
        (Some(window), _) => (short(window.start), window.seconds() as u32),
        (None, AlgorithmKind::Share) => {
            (short(decision.restarts), u32::try_from(decision.share.sent).unwrap_or(u32::MAX))
        }
        _ => (0, 0),
    };
    let Details { found, filter_expired, seen, written } = details;
    let flags = [
        (over, outcome::OVER),
        (crossed, outcome::CROSSED),
        (overridden == Some(Overridden::Allow), outcome::ALLOWED),
        (overridden.is_some_and(Overridden::is_denial), outcome::DENIED),
        (overridden == Some(Overridden::Reject), outcome::REJECTED),
        (found, outcome::FOUND),
        (filter_expired, outcome::FILTER_EXPIRED),
        (seen == Some(false), outcome::NEW),
        (seen == Some(true), outcome::KNOWN),
        (written, outcome::COUNTED),
        (kept.is_some(), outcome::KEPT),
    ];
    let flags = flags.iter().filter(|(set, _)| *set).fold(0, |all, (_, bit)| all | bit);
    let kept = kept.unwrap_or(Average { at, rate: 0.0 });
    out.extend_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(&crossings.to_le_bytes());
    out.extend_from_slice(&rate.to_le_bytes());
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&at.as_micros().to_le_bytes());
    out.extend_from_slice(&kept.rate.to_le_bytes());
    out.extend_from_slice(&kept.at.as_micros().to_le_bytes());
    out.extend_from_slice(&start.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&decision.blocked.map_or(0, Block::code).to_le_bytes());
}

/// Reads a whole reply to the request for `event` with these checks.
///
/// # Errors
/// It is damaged, or of another version, or to another request.
pub fn read_reply<'a>(
    message: &'a [u8],
    event: u128,
    checks: &[Check<'_>],
) -> Result<Reply<'a>, WireFault> {
    let (header, item_bytes, mut rest) = Header::read(message, REPLY_MAGIC)?;
    let count = usize::from(header.count);
    let status = ReplyStatus::of(header.kind).ok_or(WireFault::Kind(header.kind))?;
    // The agent refuses a process before it has read what it asks.
    let unread = header.event == 0 && status != ReplyStatus::Decided;
    if header.event != event && !unread {
        return Err(WireFault::OtherEvent);
    }
    if status != ReplyStatus::Decided {
        return match rest.take(count) {
            Some(reason) if rest.rest.is_empty() => Ok(Reply::Refused(status, reason)),
            _ => Err(WireFault::Field("count")),
        };
    }
    if count != checks.len() {
        return Err(WireFault::Field("count"));
    }
    let read = |check| read_decision(&item(&mut rest, item_bytes, "item_bytes")?, check);
    let decisions = checks.iter().map(read).collect::<Result<_, _>>()?;
    match rest.rest {
        [] => Ok(Reply::Decided(decisions)),
        _ => Err(WireFault::Field("bytes")),
    }
}

/// Reads the decision of a check.
///
/// # Errors
/// A number is impossible.
pub fn read_decision(
    bytes: &[u8; DECISION_BYTES],
    check: &Check<'_>,
) -> Result<Decision, WireFault> {
    let mut fixed = ByteReader { rest: bytes };
    let short = WireFault::Field("bytes");
    let (flags, crossings) = (fixed.u32().ok_or(short)?, fixed.u32().ok_or(short)?);
    let (rate, count) = (fixed.array(), fixed.array());
    let at = fixed.i64();
    let (kept_rate, kept_at) = (fixed.array(), fixed.i64());
    let (start, length) = (fixed.u32().ok_or(short)?, fixed.u32().ok_or(short)?);
    let blocked = Block::held(fixed.u32().ok_or(short)?);
    let (Some(rate), Some(count), Some(at), Some(kept_rate), Some(kept_at)) =
        (rate, count, at, kept_rate, kept_at)
    else {
        return Err(short);
    };
    let has = |bit| flags & bit != 0;
    let kept = Average { rate: f64::from_le_bytes(kept_rate), at: Timestamp::from_micros(kept_at) };
    let (rate, count) = (f64::from_le_bytes(rate), f64::from_le_bytes(count));
    if ![rate, count, kept.rate].iter().all(|number| *number >= 0.0) {
        return Err(WireFault::Field("rate"));
    }
    let mut shared = Counted::default();
    let (start, period, restarts) = match (check.algorithm.window(), check.algorithm.share()) {
        (None, None) => (0, check.algorithm.period(), 0),
        (_, Some(share)) => {
            shared = Counted { sent: length.into(), failed: count as u64 };
            (share.least.into(), share.period, start.into())
        }
        (Some(_), _) if length == 0 => return Err(WireFault::Field("kept_length")),
        (Some(window), _) => {
            let start = i64::from(start);
            let kept = CalendarWindow::lasting(start, length.into());
            let window = window.at(at.div_euclid(1_000_000), Some(kept));
            (start, kept.seconds(), window.restarts(kept))
        }
    };
    Ok(Decision {
        rate,
        over: has(outcome::OVER),
        overridden: match (has(outcome::ALLOWED), has(outcome::DENIED)) {
            (true, _) => Some(Overridden::Allow),
            // The script of a store says that it is denied, and not how.
            (_, true) if has(outcome::REJECTED) => Some(Overridden::Reject),
            (_, true) => Some(check.overridden.unwrap_or(Overridden::Deny)),
            _ => None,
        },
        blocked,
        algorithm: check.algorithm.kind(),
        limit: check.algorithm.limit(),
        period,
        start,
        restarts,
        share: shared,
        leak: check.algorithm.leak(),
        count,
        next_count: if check.update == Update::ReadOnly { 1.0 } else { check.count },
        at: Timestamp::from_micros(at),
        kept: has(outcome::KEPT).then_some(kept),
        crossed: has(outcome::CROSSED),
        crossings,
        details: Details {
            found: has(outcome::FOUND),
            filter_expired: has(outcome::FILTER_EXPIRED),
            seen: match (has(outcome::NEW), has(outcome::KNOWN)) {
                (true, _) => Some(false),
                (_, true) => Some(true),
                _ => None,
            },
            written: has(outcome::COUNTED),
        },
    })
}
