//! The clock.

/// The current time as `gettimeofday` returns it: whole seconds since
/// 1970-01-01 00:00:00 UTC, rounded down, and microseconds within the second
/// (`0..1_000_000`).
#[must_use]
#[inline]
pub fn now() -> (i64, u32) {
    let time = read(libc::CLOCK_REALTIME);
    #[cfg(test)]
    let time = shifted::shift(time);
    (time.tv_sec, (time.tv_nsec / 1000) as u32)
}

#[cfg(test)]
pub(crate) mod shifted {
    //! A clock that tests can shift.

    use std::cell::Cell;

    thread_local! {
        static SECONDS: Cell<i64> = const { Cell::new(0) };
    }

    /// Shifts [`super::now`] by this many seconds in this thread.
    pub(crate) fn by(seconds: i64) {
        SECONDS.set(seconds);
    }

    pub(super) fn shift(time: libc::timespec) -> libc::timespec {
        libc::timespec { tv_sec: time.tv_sec + SECONDS.get(), ..time }
    }
}

/// Seconds of a monotonic clock with a resolution of a few milliseconds. It is
/// the cheapest clock available, and is used for "at most once a second".
#[must_use]
#[inline]
pub fn coarse_seconds() -> i64 {
    read(libc::CLOCK_MONOTONIC_COARSE).tv_sec
}

/// Microseconds of a clock that never goes back, the same in all processes until the
/// machine is started again.
#[must_use]
pub fn monotonic_micros() -> u64 {
    let time = read(libc::CLOCK_MONOTONIC);
    time.tv_sec.cast_unsigned() * 1_000_000 + time.tv_nsec.cast_unsigned() / 1000
}

/// The processor time that this thread has used. Unlike the time that has passed, it
/// does not depend on what else runs on the machine.
#[cfg(test)]
pub(crate) fn thread_time() -> std::time::Duration {
    let time = read(libc::CLOCK_THREAD_CPUTIME_ID);
    std::time::Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

/// More of it than anything takes that is linear, on a slow machine and not optimized, and less than what is
/// quadratic takes.
#[cfg(test)]
pub(crate) const HANGS: std::time::Duration = std::time::Duration::from_secs(100);

/// Reads one of the clocks used here; every supported kernel has them.
fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes one timespec to the pointer it is given,
    // which points at `time`, alive and exclusively ours for the call.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time
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
