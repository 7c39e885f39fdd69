//! The clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// The moment as `gettimeofday` gives it: whole seconds since 1970-01-01
/// 00:00:00 UTC, and microseconds within the second (`0..1_000_000`).
#[must_use]
pub fn now() -> (i64, u32) {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_micros()),
        Err(before) => {
            // Seconds are rounded down, so that microseconds are added to them.
            let before = before.duration();
            let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            match before.subsec_micros() {
                0 => (-seconds, 0),
                micros => (-seconds - 1, 1_000_000 - micros),
            }
        }
    }
}

/// Seconds of a clock that never goes backwards, a few milliseconds coarse:
/// the cheapest there is, for "at most once a second".
#[must_use]
pub fn coarse_seconds() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes one timespec to the pointer it is given,
    // which points at `time`, alive and ours alone for the call.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    if result == 0 { time.tv_sec } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_run() {
        let (seconds, micros) = now();
        assert!(seconds > 1_700_000_000);
        assert!(micros < 1_000_000);
        assert!(coarse_seconds() >= 0);
    }
}
