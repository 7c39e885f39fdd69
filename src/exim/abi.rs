//! Exim's constants and types, as `local_scan.h` (package exim4-dev) has them.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// A string of Exim's: `uschar *`.
pub(super) type Uschar = c_char;

/// What a dlfunc returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Status {
    /// `OK`: the yield is the result.
    Ok = 0,
    /// `FAIL`: the expansion fails and the yield says why. Exim logs it once,
    /// with the refusal that follows from it.
    Fail = 2,
    /// `ERROR`: as `FAIL`, and logged in the main and panic logs besides.
    Error = 3,
}

/// `uschar *expand_string(uschar *)`, up to 4.99.
pub(super) type ExpandString = unsafe extern "C" fn(*const Uschar) -> *const Uschar;
/// `const uschar *expand_string_2(const uschar *, BOOL *)`, from 4.100 on.
pub(super) type ExpandString2 = unsafe extern "C" fn(*const Uschar, *mut c_int) -> *const Uschar;
/// `void *store_get_3(int size, const void *proto_mem, const char *func, int line)`.
pub(super) type StoreGet3 =
    unsafe extern "C" fn(c_int, *const c_void, *const c_char, c_int) -> *mut c_void;

/// `void log_write(unsigned int selector, int flags, const char *format, ...)`.
pub(super) type LogWrite = unsafe extern "C" fn(c_uint, c_int, *const c_char, ...);

/// The main log, for `log_write`.
pub(super) const LOG_MAIN: c_int = 1;

/// `void debug_printf(const char *format, ...)`.
pub(super) type DebugPrintf = unsafe extern "C" fn(*const c_char, ...);

/// The bit of `debug_selector` that `-d+acl` sets. `local_scan.h` names only
/// the two before it, but they have stood in this order since 4.80 at least.
pub(super) const D_ACL: c_uint = 1 << 2;

/// `GET_TAINTED`: a `proto_mem` that asks `store_get_3` for tainted memory.
pub(super) const GET_TAINTED: *const c_void = std::ptr::without_provenance(1);
