//! Sockets that the service manager has kept for this process while none of it ran: those that
//! `sd_listen_fds` returns. Each has the name that it was given when it was handed over.

use std::env;
use std::ffi::c_int;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The first of them.
const FIRST: c_int = 3;

/// Those that nobody has taken.
fn all() -> &'static Mutex<Vec<(String, OwnedFd)>> {
    static ALL: OnceLock<Mutex<Vec<(String, OwnedFd)>>> = OnceLock::new();
    ALL.get_or_init(|| Mutex::new(from_environment()))
}

fn from_environment() -> Vec<(String, OwnedFd)> {
    let value = |name| env::var(name).unwrap_or_default();
    let (count, names) = (value("LISTEN_FDS"), value("LISTEN_FDNAMES"));
    if value("LISTEN_PID").parse() != Ok(std::process::id()) {
        return Vec::new();
    }
    let names = names.split(':').map(str::to_owned);
    (FIRST..)
        .take(count.parse().unwrap_or(0))
        .zip(names)
        .filter_map(|(n, name)| Some((name, own(n)?)))
        .collect()
}

/// Owns a descriptor, if it is open.
fn own(number: c_int) -> Option<OwnedFd> {
    // SAFETY: F_SETFD changes only whether a program that this process executes gets the
    // descriptor, and any number may be passed.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return None;
    }
    // SAFETY: it is open, as fcntl says, and nothing else owns it: the service manager has put it
    // there for this process, as LISTEN_PID says, and this is done once.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// The one of this name, once.
#[must_use]
pub fn take(name: &str) -> Option<OwnedFd> {
    let mut all = all().lock().unwrap_or_else(PoisonError::into_inner);
    let found = all.iter().position(|(own, _)| own == name)?;
    Some(all.swap_remove(found).1)
}

/// Closes those that nobody has taken, and returns their names.
#[must_use]
pub fn close_rest() -> Vec<String> {
    let mut all = all().lock().unwrap_or_else(PoisonError::into_inner);
    all.drain(..).map(|(name, _)| name).collect()
}
