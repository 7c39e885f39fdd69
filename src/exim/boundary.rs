//! The boundary that every call of Exim's comes and goes by.

use super::abi::{Status, Uschar};
use super::host::Host;
use super::session::{CallError, Session};
use super::text::Buffer;
use crate::sys::fork;
use std::any::Any;
use std::ffi::{CStr, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// Exim's own bound on the arguments of a dlfunc (`EXPAND_DLFUNC_MAX_ARGS`).
const MOST_ARGUMENTS: usize = 8;

/// What one Exim process keeps: Exim has one thread, the lock is for form.
static DOOR: Mutex<Door> = Mutex::new(Door { session: None, answer: None });

struct Door {
    session: Option<Session>,
    /// The text handed to Exim last; Exim copies it before it calls again.
    answer: Option<Buffer>,
}

/// What a function answers.
pub(super) enum Answer {
    Word(&'static CStr),
    /// The text in the buffer.
    Kept,
    /// A text in Exim's own memory.
    Exims(*const Uschar),
}

impl From<bool> for Answer {
    fn from(yes: bool) -> Self {
        Self::Word(if yes { c"yes" } else { c"no" })
    }
}

/// Answers one call. A panic becomes one error of Exim's, and the next call
/// starts afresh.
///
/// # Safety
/// To be called by Exim as a dlfunc: `yield_` and `argv` as `local_scan.h`
/// describes them.
pub(super) unsafe fn answer(
    yield_: *mut *const Uschar,
    argc: c_int,
    argv: *const *const Uschar,
    function: impl FnOnce(&mut Session, &mut Buffer, &[&[u8]]) -> Result<Answer, CallError>,
) -> c_int {
    // Only a panic that got past this boundary could poison the lock.
    let mut door = DOOR.lock().unwrap_or_else(PoisonError::into_inner);
    let Door { session, answer } = &mut *door;
    let buffer = answer.get_or_insert_with(Buffer::new);
    #[cfg(not(test))]
    if session.is_none() {
        // Panics are told to Exim, not to standard error: that may be a
        // client's connection. This hook is our library's own, not Exim's.
        std::panic::set_hook(Box::new(|_| {}));
    }
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut arguments = [&[][..]; MOST_ARGUMENTS];
        // SAFETY: Exim hands over `argc` NUL-terminated strings.
        let arguments = unsafe { read_arguments(argc, argv, &mut arguments) };
        let session = session.get_or_insert_with(Session::begin);
        match function(session, buffer, arguments) {
            Ok(Answer::Word(word)) => (word.as_ptr(), Status::Ok),
            Ok(Answer::Kept) => (buffer.pointer(), Status::Ok),
            Ok(Answer::Exims(text)) => (text, Status::Ok),
            Err(error) => (explain(&session.host, buffer, &error.to_string()), Status::Fail),
        }
    }));
    let (text, status) = result.unwrap_or_else(|panic| {
        buffer.keep_some("exirate: internal error: ");
        buffer.keep_more(panic_text(&*panic));
        // A panic may quote what it was about, so it is told in tainted memory.
        let session = session.take();
        let told = session.as_ref().and_then(|session| session.host.tainted_copy(buffer.text()));
        // Whatever state it is in, it is not used again, and the next call starts
        // afresh. A panic in closing its files is no second error.
        let _ = catch_unwind(AssertUnwindSafe(|| session.map(Session::abandon)));
        (told.unwrap_or(buffer.pointer()), Status::Error)
    });
    if !yield_.is_null() {
        // SAFETY: Exim hands over the place where it wants the text.
        unsafe { yield_.write(text) };
    }
    status as c_int
}

/// Answers a call as [`answer`] does, but with `no` where that fails, so that
/// no trouble of ours defers mail. The main log has the trouble, once a process.
///
/// # Safety
/// As for [`answer`].
pub(super) unsafe fn answer_or_no(
    name: &str,
    yield_: *mut *const Uschar,
    argc: c_int,
    argv: *const *const Uschar,
    function: impl FnOnce(&mut Session, &mut Buffer, &[&[u8]]) -> Result<Answer, CallError>,
) -> c_int {
    let mut text = std::ptr::null();
    // SAFETY: by this function's contract; the text is written to this frame.
    let status = unsafe { answer(&raw mut text, argc, argv, function) };
    if status != Status::Ok as c_int {
        if LOGGED.swap(fork::process(), Ordering::Relaxed) != fork::process() {
            // SAFETY: `answer` gives a NUL-terminated text with each error.
            let reason = unsafe { CStr::from_ptr(text) }.to_string_lossy();
            Host::find().log(&format!("exirate: {name}: no answer, so \"no\": {reason}"));
        }
        text = c"no".as_ptr();
    }
    if !yield_.is_null() {
        // SAFETY: Exim hands over the place where it wants the text.
        unsafe { yield_.write(text) };
    }
    Status::Ok as c_int
}

/// The process in which [`answer_or_no`] has logged an error.
static LOGGED: AtomicU32 = AtomicU32::new(0);

/// Reads Exim's arguments, without copying them.
///
/// # Safety
/// `argv` holds `argc` NUL-terminated strings that live as long as the call.
unsafe fn read_arguments<'a, 'b>(
    argc: c_int,
    argv: *const *const Uschar,
    arguments: &'b mut [&'a [u8]; MOST_ARGUMENTS],
) -> &'b [&'a [u8]] {
    let count =
        if argv.is_null() { 0 } else { usize::try_from(argc).unwrap_or(0).min(MOST_ARGUMENTS) };
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

/// What a panic says of itself.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The door is one for the process, as Exim has one thread.
    static TURN: Mutex<()> = Mutex::new(());

    fn call(
        arguments: &[&CStr],
        function: impl FnOnce(&mut Session, &mut Buffer, &[&[u8]]) -> Result<Answer, CallError>,
    ) -> (c_int, String) {
        let arguments: Vec<_> = arguments.iter().map(|a| a.as_ptr()).collect();
        let mut text = std::ptr::null();
        let argc = c_int::try_from(arguments.len()).unwrap();
        // SAFETY: the arguments are NUL-terminated and outlive the call, and
        // the text that comes back is a buffer's or a literal.
        unsafe {
            let status = answer(&raw mut text, argc, arguments.as_ptr(), function);
            (status, CStr::from_ptr(text).to_str().unwrap().to_owned())
        }
    }

    #[test]
    fn a_panic_is_one_error_and_the_next_call_works() {
        let _turn = TURN.lock();
        let (status, text) = call(&[], |_, _, _| panic!("by {}", "design"));
        assert_eq!((status, &*text), (3, "exirate: internal error: by design"));
        let (status, text) = call(&[c"a", c"b"], |_, buffer, arguments| {
            buffer.keep(arguments[1]);
            Ok(Answer::Kept)
        });
        assert_eq!((status, &*text), (0, "b"));
    }

    #[test]
    fn what_exim_never_does_is_harmless() {
        let _turn = TURN.lock();
        let twelve = [c"x"; 12];
        let (status, text) = call(&twelve, |_, _, arguments| {
            Err(CallError::Usage(arguments.len().to_string().into()))
        });
        assert_eq!((status, &*text), (2, "8"));
        // SAFETY: neither pointer is used when it is null.
        let status = unsafe {
            answer(std::ptr::null_mut(), 3, std::ptr::null(), |_, _, arguments| {
                assert!(arguments.is_empty());
                Ok(true.into())
            })
        };
        assert_eq!(status, 0);
    }
}
