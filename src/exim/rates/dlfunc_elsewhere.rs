//! The functions of exirate-trace.so, called in exirate.so by mistake: they return
//! `no` and log, once a process, how to call them.

use crate::exim::host::abi::{Status, Uschar};
use crate::exim::host::exports::Host;
use crate::sys::fork;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

/// The process that has logged it.
static LOGGED: AtomicU32 = AtomicU32::new(0);

/// Returns `no` to Exim for `function`, whose usual argument is `argument`.
///
/// # Safety
/// `yield_` is NULL or a place for a pointer.
unsafe fn no(function: &str, argument: &str, yield_: *mut *const Uschar) -> c_int {
    if LOGGED.swap(fork::process(), Ordering::Relaxed) != fork::process() {
        Host::find().log(&format!(
            "exirate: {function} is in exirate-trace.so; called in exirate.so, it does nothing and \
             returns \"no\" (write ${{dlfunc{{EXIRATE_TRACE}}{{{function}}}{{{argument}}}}}; \
             exirate.conf defines the macro EXIRATE_TRACE)"
        ));
    }
    if !yield_.is_null() {
        // SAFETY: by this function's contract.
        unsafe { yield_.write(c"no".as_ptr()) };
    }
    Status::Ok as c_int
}

/// `record` is in exirate-trace.so: this returns `no`.
///
/// # Safety
/// To be called by Exim as a dlfunc: `yield_` is NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn record(
    yield_: *mut *const Uschar,
    _: c_int,
    _: *const *const Uschar,
) -> c_int {
    // SAFETY: what Exim passes is passed on.
    unsafe { no("record", "OPTIONS", yield_) }
}

/// `recorded` is in exirate-trace.so: this returns `no`.
///
/// # Safety
/// To be called by Exim as a dlfunc: `yield_` is NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recorded(
    yield_: *mut *const Uschar,
    _: c_int,
    _: *const *const Uschar,
) -> c_int {
    // SAFETY: what Exim passes is passed on.
    unsafe { no("recorded", "TEXT", yield_) }
}

/// `recorded_or_no` is in exirate-trace.so: this returns `no`.
///
/// # Safety
/// To be called by Exim as a dlfunc: `yield_` is NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recorded_or_no(
    yield_: *mut *const Uschar,
    _: c_int,
    _: *const *const Uschar,
) -> c_int {
    // SAFETY: what Exim passes is passed on.
    unsafe { no("recorded_or_no", "TEXT", yield_) }
}
