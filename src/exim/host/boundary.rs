//! The boundary between Exim and our functions: no panic crosses it.

use super::abi::{DlfuncStatus, Uschar};
use super::exports::Host;
use super::text::{Buffer, panic_text};
use crate::sys::fork;
use std::ffi::{CStr, c_int};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// Exim's limit on the arguments of a dlfunc (`EXPAND_DLFUNC_MAX_ARGS`).
const ARGUMENTS_MAX: usize = 8;

/// What a library keeps between calls.
pub(in crate::exim) trait Session: Sized {
    /// Why a call fails.
    type Error: Display;

    /// The state before the first call.
    fn begin() -> Self;

    /// The program that calls.
    fn host(&self) -> &Host;

    /// Whether nothing may be refused now, although `what`. It is logged.
    fn lifts(&mut self, what: &dyn Display) -> bool;

    /// Closes the files after a panic. Exim's variables may still point into the
    /// rest.
    fn abandon(self);
}

/// A session, and the only access to it. Exim has one thread, so the lock is always
/// free.
pub(in crate::exim) struct Boundary<S>(Mutex<Inside<S>>);

struct Inside<S> {
    session: Option<S>,
    /// The text that the latest call returned; Exim copies it before it calls again.
    text: Option<Buffer>,
}

/// What a function returns to Exim.
pub(in crate::exim) enum FunctionReply {
    Word(&'static CStr),
    /// The text in the buffer.
    Kept,
    /// A text in Exim's own memory.
    Exims(*const Uschar),
}

impl From<bool> for FunctionReply {
    fn from(yes: bool) -> Self {
        Self::Word(if yes { c"yes" } else { c"no" })
    }
}

impl<S: Session> Boundary<S> {
    /// Without a session: the first call makes it.
    pub(in crate::exim) const fn new() -> Self {
        Self(Mutex::new(Inside { session: None, text: None }))
    }

    /// Runs `function` for one call of Exim's. A panic becomes one error in Exim, and
    /// the next call starts with a new session. While nothing may be refused, a call that
    /// fails returns `lifted`.
    ///
    /// # Safety
    /// To be called by Exim as a dlfunc: `yield_` and `argv` as `local_scan.h`
    /// describes them.
    pub(in crate::exim) unsafe fn call(
        &self,
        yield_: *mut *const Uschar,
        argc: c_int,
        argv: *const *const Uschar,
        lifted: &'static CStr,
        function: impl FnOnce(&mut S, &mut Buffer, &[&[u8]]) -> Result<FunctionReply, S::Error>,
    ) -> c_int {
        // Only a panic that got past this boundary could poison the lock.
        let mut inside = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Inside { session, text } = &mut *inside;
        let buffer = text.get_or_insert_with(Buffer::new);
        #[cfg(not(test))]
        if session.is_none() {
            // Panics go to Exim, not to standard error: that may be a client's
            // connection. This hook is our library's own, not Exim's.
            std::panic::set_hook(Box::new(|_| {}));
        }
        let result = catch_unwind(AssertUnwindSafe(|| {
            let mut arguments = [&[][..]; ARGUMENTS_MAX];
            // SAFETY: Exim passes `argc` NUL-terminated strings.
            let arguments = unsafe { read_arguments(argc, argv, &mut arguments) };
            let session = session.get_or_insert_with(S::begin);
            match function(session, buffer, arguments) {
                Ok(FunctionReply::Word(word)) => (word.as_ptr(), DlfuncStatus::Ok),
                Ok(FunctionReply::Kept) => (buffer.pointer(), DlfuncStatus::Ok),
                Ok(FunctionReply::Exims(text)) => (text, DlfuncStatus::Ok),
                Err(error) if session.lifts(&format_args!("a call has failed: {error}")) => {
                    (lifted.as_ptr(), DlfuncStatus::Ok)
                }
                Err(error) => {
                    (explain(session.host(), buffer, &error.to_string()), DlfuncStatus::Fail)
                }
            }
        }));
        let (text, status) = result.unwrap_or_else(|panic| {
            buffer.keep_some("exirate: internal error: ");
            buffer.keep_more(panic_text(&*panic));
            // A panic may quote its input, so its text is tainted.
            let session = session.take();
            let copied =
                session.as_ref().and_then(|session| session.host().tainted_copy(buffer.text()));
            // The session may be in any state, so it is not used again. A panic while
            // its files are closed is ignored.
            let _ = catch_unwind(AssertUnwindSafe(|| session.map(S::abandon)));
            let lifts = || S::begin().lifts(&"a call has met an internal error");
            if catch_unwind(lifts).unwrap_or(false) {
                return (lifted.as_ptr(), DlfuncStatus::Ok);
            }
            (copied.unwrap_or(buffer.pointer()), DlfuncStatus::Error)
        });
        if !yield_.is_null() {
            // SAFETY: Exim passes the place for the text.
            unsafe { yield_.write(text) };
        }
        status as c_int
    }

    /// As [`Boundary::call`], but returns `no` where that fails, so that no error of
    /// ours defers mail. The error is logged in the main log, once a process.
    ///
    /// # Safety
    /// As for [`Boundary::call`].
    pub(in crate::exim) unsafe fn call_or_no(
        &self,
        yield_: *mut *const Uschar,
        argc: c_int,
        argv: *const *const Uschar,
        name: &str,
        function: impl FnOnce(&mut S, &mut Buffer, &[&[u8]]) -> Result<FunctionReply, S::Error>,
    ) -> c_int {
        let mut text = std::ptr::null();
        // SAFETY: by this function's contract; the text is written to this frame.
        let status = unsafe { self.call(&raw mut text, argc, argv, c"no", function) };
        if status != DlfuncStatus::Ok as c_int {
            if LOGGED.swap(fork::process(), Ordering::Relaxed) != fork::process() {
                // SAFETY: `call` returns a NUL-terminated text with each error.
                let reason = unsafe { CStr::from_ptr(text) }.to_string_lossy();
                Host::find().log(&format!("exirate: {name} failed and returns \"no\": {reason}"));
            }
            text = c"no".as_ptr();
        }
        if !yield_.is_null() {
            // SAFETY: Exim passes the place for the text.
            unsafe { yield_.write(text) };
        }
        DlfuncStatus::Ok as c_int
    }
}

/// Declares a function that Exim finds by its name and calls as a dlfunc:
/// `NAME => SESSION.call(REST…)` passes on what Exim passes, and the rest. The method is
/// unsafe to call for the same reason: [`Boundary::call`], or one with its contract.
macro_rules! entry_point {
    ($(#[$doc:meta])* $name:ident => $session:ident.$method:ident($($rest:expr),* $(,)?)) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// To be called by Exim as a dlfunc: `yield_` and `argv` as `local_scan.h`
        /// describes them.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            yield_: *mut *const $crate::exim::host::abi::Uschar,
            argc: std::ffi::c_int,
            argv: *const *const $crate::exim::host::abi::Uschar,
        ) -> std::ffi::c_int {
            // SAFETY: what Exim passes is passed on.
            unsafe { $session.$method(yield_, argc, argv, $($rest),*) }
        }
    };
}
pub(in crate::exim) use entry_point;

/// The process in which [`Boundary::call_or_no`] has logged an error.
static LOGGED: AtomicU32 = AtomicU32::new(0);

/// Reads Exim's arguments, without copying them.
///
/// # Safety
/// `argv` holds `argc` NUL-terminated strings that live as long as the call.
unsafe fn read_arguments<'a, 'b>(
    argc: c_int,
    argv: *const *const Uschar,
    arguments: &'b mut [&'a [u8]; ARGUMENTS_MAX],
) -> &'b [&'a [u8]] {
    let count =
        if argv.is_null() { 0 } else { usize::try_from(argc).unwrap_or(0).min(ARGUMENTS_MAX) };
    for (n, argument) in arguments[..count].iter_mut().enumerate() {
        // SAFETY: by this function's contract; a NULL is taken for "".
        unsafe {
            let text = *argv.add(n);
            if !text.is_null() {
                *argument = CStr::from_ptr(text).to_bytes();
            }
        }
    }
    &arguments[..count]
}

/// A text for Exim that says what went wrong: in its own memory where it has
/// some, else as far as there is room in ours.
fn explain(host: &Host, buffer: &mut Buffer, text: &str) -> *const Uschar {
    host.tainted_copy(text.as_bytes()).unwrap_or_else(|| {
        buffer.keep_some(text);
        buffer.pointer()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Empty(Host);

    impl Session for Empty {
        type Error = String;

        fn begin() -> Self {
            Self(Host::find())
        }

        fn host(&self) -> &Host {
            &self.0
        }

        fn lifts(&mut self, what: &dyn Display) -> bool {
            LIFTS.get() && what.to_string().starts_with("a call has ")
        }

        fn abandon(self) {}
    }

    thread_local! {
        static LIFTS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }

    fn call(
        boundary: &Boundary<Empty>,
        arguments: &[&CStr],
        function: impl FnOnce(&mut Empty, &mut Buffer, &[&[u8]]) -> Result<FunctionReply, String>,
    ) -> (c_int, String) {
        let arguments: Vec<_> = arguments.iter().map(|a| a.as_ptr()).collect();
        let mut text = std::ptr::null();
        let argc = c_int::try_from(arguments.len()).unwrap();
        // SAFETY: the arguments are NUL-terminated and outlive the call, and
        // the text that comes back is a buffer's or a literal.
        unsafe {
            let status =
                boundary.call(&raw mut text, argc, arguments.as_ptr(), c"lifted", function);
            (status, CStr::from_ptr(text).to_str().unwrap().to_owned())
        }
    }

    #[test]
    fn a_panic_is_one_error_and_the_next_call_works() {
        let boundary = Boundary::new();
        let (status, text) = call(&boundary, &[], |_, _, _| panic!("by {}", "design"));
        assert_eq!((status, &*text), (3, "exirate: internal error: by design"));
        let (status, text) = call(&boundary, &[c"a", c"b"], |_, buffer, arguments| {
            buffer.keep(arguments[1]);
            Ok(FunctionReply::Kept)
        });
        assert_eq!((status, &*text), (0, "b"));
    }

    #[test]
    fn nothing_fails_while_nothing_may_be_refused() {
        let boundary = Boundary::new();
        for lifts in [true, false, true] {
            LIFTS.set(lifts);
            let panicked = call(&boundary, &[], |_, _, _| panic!("by design"));
            let failed = call(&boundary, &[], |_, _, _| Err("wrong".to_owned()));
            let lifted = (0, "lifted".to_owned());
            assert_eq!((panicked == lifted, failed == lifted), (lifts, lifts));
            assert_eq!(call(&boundary, &[], |_, _, _| Ok(true.into())), (0, "yes".to_owned()));
        }
        LIFTS.set(false);
    }

    #[test]
    fn calls_that_exim_never_makes_are_harmless() {
        let boundary = Boundary::new();
        let twelve = [c"x"; 12];
        let (status, text) =
            call(&boundary, &twelve, |_, _, arguments| Err(arguments.len().to_string()));
        assert_eq!((status, &*text), (2, "8"));
        // SAFETY: neither pointer is used when it is null.
        let status = unsafe {
            boundary.call(std::ptr::null_mut(), 3, std::ptr::null(), c"", |_, _, arguments| {
                assert!(arguments.is_empty());
                Ok(true.into())
            })
        };
        assert_eq!(status, 0);
    }
}
