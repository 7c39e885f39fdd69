//! The request to decide the checks of one event.

use crate::engine::{Algorithm, BlockTime, Check, Kind, Overridden, RecordKey, Update};
use crate::rate::{CalendarWindow, Share};
use crate::spool::CHECKS_MAX;
use crate::store::ByteReader;

use super::{Header, REQUEST_MAGIC, WireFault, finish, item};

/// The size of the fixed part of a check.
pub const CHECK_BYTES: usize = 52;
/// The kind of a request to decide.
const DECIDE: u16 = 1;

const OBSERVED: u8 = 1;
const HAS_UNIQUE: u8 = 2;
const ALLOWED: u8 = 4;
const DENIED: u8 = 8;
const TOTAL: u8 = 16;
/// With [`DENIED`]: for good.
const REJECTED: u8 = 32;

/// A request to decide the checks of one event, as the agent reads it.
#[derive(Clone, Debug, PartialEq)]
pub struct Request<'a> {
    /// The number of the event, which the reply repeats. A store counts an event with a
    /// number that it has counted lately only once.
    pub event: u128,
    /// Microseconds until the sender gives up.
    pub deadline: u32,
    /// What is to be decided.
    pub checks: Vec<Check<'a>>,
}

/// The number of the event of a request that may be damaged or of another version, for the
/// reply that says so; 0 if it has none.
#[must_use]
pub fn event_of(message: &[u8]) -> u128 {
    let event = message.get(16..32).and_then(|bytes| bytes.try_into().ok());
    event.map_or(0, u128::from_le_bytes)
}

/// Appends a request to `out`.
///
/// # Errors
/// The checks do not fit into a message; `out` is unchanged.
pub fn write_request(
    out: &mut Vec<u8>,
    event: u128,
    deadline: u32,
    checks: &[Check<'_>],
) -> Result<(), WireFault> {
    let start = out.len();
    let written = Header { kind: DECIDE, deadline, event, count: checks.len() as u16 }.write(
        out,
        REQUEST_MAGIC,
        CHECK_BYTES as u16,
    );
    let all = match checks.len() {
        0..=CHECKS_MAX => checks.iter().try_for_each(|check| write_check(out, check)),
        _ => Err(WireFault::Field("count")),
    };
    let done = all.and_then(|()| finish(out, written));
    if done.is_err() {
        out.truncate(start);
    }
    done
}

fn write_check(out: &mut Vec<u8>, check: &Check<'_>) -> Result<(), WireFault> {
    let Check { key, algorithm, count, event, update, refuses, total, overridden, blocks } = *check;
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    let short = |bytes: usize, field| u16::try_from(bytes).map_err(|_| WireFault::Field(field));
    let unique = event.unwrap_or_default();
    let start = match algorithm {
        Algorithm::Calendar { window, .. } => window.start,
        Algorithm::Share { accepted, .. } => accepted.unwrap_or(0),
        _ => 0,
    };
    let limit = algorithm.share().map_or(algorithm.limit(), |share| share.packed());
    let start = u32::try_from(start).map_err(|_| WireFault::Field("start"))?;
    let second = algorithm.bucket().map_or(algorithm.period(), |bucket| bucket.rate);
    let kind = match key.kind {
        Kind::Spec => 1,
        Kind::Policy => 2,
        Kind::Habits | Kind::Usage => return Err(WireFault::Field("record_kind")),
    };
    let update = match update {
        Update::Leaky => 1,
        Update::Strict => 2,
        Update::ReadOnly => 3,
    };
    let flags = flag(refuses.is_none(), OBSERVED)
        | flag(total, TOTAL)
        | flag(event.is_some(), HAS_UNIQUE)
        | flag(overridden == Some(Overridden::Allow), ALLOWED)
        | flag(overridden.is_some_and(Overridden::is_denial), DENIED)
        | flag(overridden == Some(Overridden::Reject), REJECTED);
    out.extend_from_slice(&[kind, algorithm.kind().code(), update, flags]);
    out.extend_from_slice(&short(key.name.len(), "name_bytes")?.to_le_bytes());
    out.extend_from_slice(&short(key.identity_start, "identity_start")?.to_le_bytes());
    out.extend_from_slice(&short(unique.len(), "unique_bytes")?.to_le_bytes());
    out.extend_from_slice(&start.to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    for number in [limit, second, count, refuses.unwrap_or_default()] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&blocks.code().to_le_bytes());
    out.extend_from_slice(key.name);
    out.extend_from_slice(unique);
    Ok(())
}

/// Reads a whole request.
///
/// # Errors
/// It is damaged, or of another version, or has an impossible value.
pub fn read_request(message: &[u8]) -> Result<Request<'_>, WireFault> {
    let (header, item_bytes, mut rest) = Header::read(message, REQUEST_MAGIC)?;
    if header.kind != DECIDE {
        return Err(WireFault::Kind(header.kind));
    }
    if usize::from(header.count) > CHECKS_MAX {
        return Err(WireFault::Field("count"));
    }
    let mut checks = Vec::with_capacity(usize::from(header.count));
    for _ in 0..header.count {
        checks.push(read_check(&mut rest, item_bytes)?);
    }
    if !rest.rest.is_empty() {
        return Err(WireFault::Field("bytes"));
    }
    Ok(Request { event: header.event, deadline: header.deadline, checks })
}

fn read_check<'a>(rest: &mut ByteReader<'a>, item_bytes: usize) -> Result<Check<'a>, WireFault> {
    let fixed: [u8; CHECK_BYTES] = item(rest, item_bytes, "item_bytes")?;
    let mut fixed = ByteReader { rest: &fixed };
    let short = WireFault::Field("bytes");
    let [kind, algorithm, update, flags] = fixed.array().ok_or(short)?;
    let sizes = [fixed.u16(), fixed.u16(), fixed.u16()].map(|size| size.map(usize::from));
    let [Some(name_bytes), Some(identity_start), Some(unique_bytes)] = sizes else {
        return Err(short);
    };
    let start = i64::from(fixed.u32().ok_or(short)?);
    fixed.take(2).ok_or(short)?;
    let mut number = || fixed.array().map(f64::from_le_bytes).ok_or(short);
    let (limit, period, count, from) = (number()?, number()?, number()?, number()?);
    let blocks = BlockTime::of_code(fixed.u32().ok_or(short)?);
    let name = rest.take(name_bytes).ok_or(WireFault::Field("name_bytes"))?;
    let unique = rest.take(unique_bytes).ok_or(WireFault::Field("unique_bytes"))?;
    if identity_start > name_bytes {
        return Err(WireFault::Field("identity_start"));
    }
    let kind = match kind {
        1 => Kind::Spec,
        2 => Kind::Policy,
        _ => return Err(WireFault::Field("record_kind")),
    };
    let update = match update {
        1 => Update::Leaky,
        2 => Update::Strict,
        3 => Update::ReadOnly,
        _ => return Err(WireFault::Field("update")),
    };
    // What a Check demands. A comparison with NaN is false.
    let algorithm = match algorithm {
        1 if limit >= 0.0 && period > 0.0 => Algorithm::MovingAverage { limit, period },
        2 if limit > 0.0 && period >= 0.0 => Algorithm::Bucket { burst: limit, rate: period },
        3 if limit >= 0.0 && (1.0..=f64::from(u32::MAX)).contains(&period) => {
            Algorithm::Calendar { limit, window: CalendarWindow::lasting(start, period) }
        }
        4 if limit >= 0.0 && period > 0.0 => Algorithm::Share {
            share: Share::of_packed(limit, period),
            accepted: (start > 0).then_some(start),
        },
        1..=4 if limit >= 0.0 => return Err(WireFault::Field("period")),
        1..=4 => return Err(WireFault::Field("limit")),
        _ => return Err(WireFault::Field("algorithm")),
    };
    if !(count >= 0.0 && (update != Update::ReadOnly || count == 0.0)) {
        return Err(WireFault::Field("count"));
    }
    let overridden = match flags & (ALLOWED | DENIED) {
        0 => None,
        ALLOWED => Some(Overridden::Allow),
        DENIED if flags & REJECTED != 0 => Some(Overridden::Reject),
        DENIED => Some(Overridden::Deny),
        _ => return Err(WireFault::Field("flags")),
    };
    let event = match flags & HAS_UNIQUE {
        0 if unique_bytes > 0 => return Err(WireFault::Field("unique_bytes")),
        0 => None,
        _ => Some(unique),
    };
    let key = RecordKey { name, identity_start, kind, algorithm: algorithm.kind() };
    let refuses = match flags & OBSERVED {
        0 if from > 0.0 => Some(from),
        0 if from == 0.0 => Some(1.0),
        0 => return Err(WireFault::Field("refuses")),
        _ => None,
    };
    let total = flags & TOTAL != 0;
    Ok(Check { key, algorithm, count, event, update, refuses, total, overridden, blocks })
}
