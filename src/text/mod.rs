//! Text for people: numbers of things, durations, sizes, times, and bytes that a terminal
//! must not see as they are.
//!
//! What an administrator can type is written as it can be typed.

mod count;
mod duration;
#[cfg(feature = "cli")]
mod escape;
mod size;
#[cfg(feature = "cli")]
pub(crate) mod time;

pub(crate) use count::counted;
#[cfg(feature = "cli")]
pub(crate) use count::{counted_or_no, number, percent};
#[cfg(feature = "rates")]
pub(crate) use duration::whole_period;
#[cfg(feature = "cli")]
pub(crate) use duration::{age, kept, period, rough_age, short_wait, wait};
pub(crate) use duration::{duration, rough};
#[cfg(feature = "cli")]
pub(crate) use escape::{escape, hex, printable, shell};
pub(crate) use size::byte_size;
#[cfg(feature = "cli")]
pub(crate) use size::{bytes, parse_bytes};
#[cfg(feature = "cli")]
pub(crate) use time::{clock, iso, iso_exact, iso_second, local, local_second, utc};
