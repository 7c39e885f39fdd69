//! Text for people: numbers of things, durations, sizes, times, and bytes that a terminal
//! must not see as they are.
//!
//! What an administrator can type is written as it can be typed.

mod count;
mod duration;
#[cfg(feature = "cli")]
mod escape;
#[cfg(feature = "cli")]
mod exim_id;
#[cfg(feature = "cli")]
pub(crate) mod input;
#[cfg(feature = "cli")]
mod json;
mod size;
#[cfg(feature = "cli")]
pub(crate) mod time;
#[cfg(feature = "cli")]
mod voice;

/// What the client reads of a policy without a `text`; the readers of logs know it.
#[cfg(any(feature = "cli", feature = "rates"))]
pub(crate) const OVER_THE_LIMIT: &str = "Over the limit";

pub(crate) use count::counted;
#[cfg(feature = "rates")]
pub(crate) use duration::whole_period;
pub(crate) use duration::{duration, rough};
pub(crate) use size::byte_size;
#[cfg(feature = "cli")]
pub(crate) use {
    count::{counted_or_no, number, percent},
    duration::{age, kept, period, rough_age, short_wait, wait},
    escape::{escape, hex, printable, shell},
    exim_id::{exim_id, is_exim_id},
    json::{json, write_json},
    size::{bytes, parse_bytes},
    time::{clock, iso, iso_exact, iso_second, local, local_second, utc},
    voice::Voice,
};
