//! The functions of exirate-trace.so, called in exirate.so by mistake: they return
//! `no` and log, once a process, how to call them.

use crate::exim::host::abi::{DlfuncStatus, Uschar};
use crate::exim::host::boundary::entry_point;
use crate::exim::host::exports::Host;
use crate::sys::fork;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

/// The process that has logged it.
static LOGGED: AtomicU32 = AtomicU32::new(0);

/// A function of exirate-trace.so.
struct Elsewhere {
    name: &'static str,
    /// Its usual argument.
    argument: &'static str,
}

impl Elsewhere {
    /// Returns `no` to Exim.
    ///
    /// # Safety
    /// `yield_` is NULL or a place for a pointer.
    unsafe fn no(&self, yield_: *mut *const Uschar, _: c_int, _: *const *const Uschar) -> c_int {
        let Self { name, argument } = self;
        if LOGGED.swap(fork::process(), Ordering::Relaxed) != fork::process() {
            Host::find().log(&format!(
                "exirate: {name} is in exirate-trace.so; called in exirate.so, it does nothing and \
                 returns \"no\" (write ${{dlfunc{{EXIRATE_TRACE}}{{{name}}}{{{argument}}}}}; \
                 exirate.conf defines the macro EXIRATE_TRACE)"
            ));
        }
        if !yield_.is_null() {
            // SAFETY: by this function's contract.
            unsafe { yield_.write(c"no".as_ptr()) };
        }
        DlfuncStatus::Ok as c_int
    }
}

const RECORD: Elsewhere = Elsewhere { name: "record", argument: "OPTIONS" };
const RECORDED: Elsewhere = Elsewhere { name: "recorded", argument: "TEXT" };
const RECORDED_OR_NO: Elsewhere = Elsewhere { name: "recorded_or_no", argument: "TEXT" };

entry_point! {
    /// `record` is in exirate-trace.so: this returns `no`.
    record => RECORD.no()
}

entry_point! {
    /// `recorded` is in exirate-trace.so: this returns `no`.
    recorded => RECORDED.no()
}

entry_point! {
    /// `recorded_or_no` is in exirate-trace.so: this returns `no`.
    recorded_or_no => RECORDED_OR_NO.no()
}
