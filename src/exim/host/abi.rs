//! Exim's constants and types, as `local_scan.h` (package exim4-dev) has them.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// A string of Exim's: `uschar *`.
pub(in crate::exim) type Uschar = c_char;

/// What a dlfunc returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(in crate::exim) enum DlfuncStatus {
    /// `OK`: the yield is the result.
    Ok = 0,
    /// `DEFER`: a lookup has no answer now, and its message says why.
    Defer = 1,
    /// `FAIL`: the expansion fails and the yield says why. Exim logs it once,
    /// with the refusal that follows from it.
    Fail = 2,
    /// `ERROR`: as `FAIL`, and logged in the main and panic logs besides.
    Error = 3,
}

/// `uschar *expand_string(uschar *)`, up to 4.99.
pub(in crate::exim) type ExpandString = unsafe extern "C" fn(*const Uschar) -> *const Uschar;
/// `const uschar *expand_string_2(const uschar *, BOOL *)`, from 4.100 on.
pub(in crate::exim) type ExpandString2 =
    unsafe extern "C" fn(*const Uschar, *mut c_int) -> *const Uschar;
/// `void *store_get_3(int size, const void *proto_mem, const char *func, int line)`,
/// and `store_get_perm_3` with the same arguments.
pub(in crate::exim) type StoreGet3 =
    unsafe extern "C" fn(c_int, *const c_void, *const c_char, c_int) -> *mut c_void;

/// `void log_write(unsigned int selector, int flags, const char *format, ...)`,
/// up to 4.99.
pub(in crate::exim) type LogWrite = unsafe extern "C" fn(c_uint, c_int, *const c_char, ...);
/// `void log_write(int flags, const char *format, ...)`, from 4.100 on.
pub(in crate::exim) type LogWrite2 = unsafe extern "C" fn(c_int, *const c_char, ...);

/// The main log, for `log_write`.
pub(in crate::exim) const LOG_MAIN: c_int = 1;

/// `header_line`: one header of the message, in Exim's memory.
#[repr(C)]
pub(in crate::exim) struct HeaderLine {
    pub(in crate::exim) next: *const HeaderLine,
    /// A letter; [`HEADER_OLD`] where it is there no more.
    pub(in crate::exim) kind: c_int,
    /// The length of its text, in bytes.
    pub(in crate::exim) length: c_int,
    /// The whole of it, with the newline at its end.
    pub(in crate::exim) text: *const Uschar,
}

/// `htype_old`: a header that was removed, or that another has replaced.
pub(in crate::exim) const HEADER_OLD: c_int = b'*' as c_int;

/// `recipient_item`: one address that the message is to go to.
///
/// With Brightmail (`EXPERIMENTAL_BRIGHTMAIL`) it has one pointer more.
#[repr(C)]
pub(in crate::exim) struct RecipientItem {
    pub(in crate::exim) address: *const Uschar,
    pub(in crate::exim) parent: c_int,
    pub(in crate::exim) errors_to: *const Uschar,
    pub(in crate::exim) original: *const Uschar,
    pub(in crate::exim) dsn_flags: c_int,
}

/// `void debug_printf(const char *format, ...)`.
pub(in crate::exim) type DebugPrintf = unsafe extern "C" fn(*const c_char, ...);

/// The bit of `debug_selector` that `-d+acl` sets, up to 4.99. `local_scan.h`
/// names only the two before it, but they have stood in this order since 4.80
/// at least.
pub(in crate::exim) const D_ACL: c_uint = 1 << 2;
/// `BOOL is_debug(const uschar *channels)`, which 4.100 has instead; it answers
/// 0 or 1, whatever the width of its BOOL.
pub(in crate::exim) type IsDebug = unsafe extern "C" fn(*const Uschar) -> u8;

/// `GET_TAINTED`: a `proto_mem` that asks `store_get_3` for tainted memory.
pub(in crate::exim) const GET_TAINTED: *const c_void = std::ptr::without_provenance(1);

/// `GET_UNTAINTED`: one that asks for memory that Exim trusts.
pub(in crate::exim) const GET_UNTAINTED: *const c_void = std::ptr::null();

/// `LOOKUP_MODULE_INFO_MAGIC` of Exim 4.96 to 4.99.
pub(in crate::exim) const MAGIC_5: c_uint = 0x4c4d_4935;
/// That of Exim 4.100.
pub(in crate::exim) const MAGIC_6: c_uint = 0x4c4d_4936;
/// One that no Exim has.
pub(in crate::exim) const MAGIC_NONE: c_uint = 0;

/// `lookup_querystyle`: a lookup of a query, in no file.
pub(in crate::exim) const QUERY_STYLE: c_int = 1;

/// `gstring *string_catn(gstring *, const uschar *, int)`.
pub(in crate::exim) type StringCatn =
    unsafe extern "C" fn(*mut c_void, *const Uschar, c_int) -> *mut c_void;

/// `lookup_info`: one kind of lookup, as `lookupapi.h` has it. Up to 4.98 there
/// is padding where later ones write the acquisition number; what stands behind
/// `version_report` is new in 4.100, and not looked at by older ones.
#[repr(C)]
pub(in crate::exim) struct LookupInfo {
    pub(in crate::exim) name: *const Uschar,
    pub(in crate::exim) kind: c_int,
    /// Written by Exim.
    pub(in crate::exim) acquisition: c_uint,
    pub(in crate::exim) open:
        Option<unsafe extern "C" fn(*const Uschar, *mut *const Uschar) -> *mut c_void>,
    pub(in crate::exim) check: Option<unsafe extern "C" fn()>,
    #[allow(clippy::type_complexity)] // it is Exim's
    pub(in crate::exim) find: Option<
        unsafe extern "C" fn(
            *mut c_void,
            *const Uschar,
            *const Uschar,
            c_int,
            *mut *const Uschar,
            *mut *const Uschar,
            *mut c_uint,
            *const Uschar,
        ) -> c_int,
    >,
    pub(in crate::exim) close: Option<unsafe extern "C" fn(*mut c_void)>,
    pub(in crate::exim) tidy: Option<unsafe extern "C" fn()>,
    pub(in crate::exim) quote: Option<unsafe extern "C" fn()>,
    pub(in crate::exim) version_report: Option<unsafe extern "C" fn(*mut c_void) -> *mut c_void>,
    pub(in crate::exim) options: *const c_void,
    pub(in crate::exim) options_count: c_uint,
    pub(in crate::exim) variables: *const c_void,
    pub(in crate::exim) variables_count: c_uint,
}

/// `lookup_module_info`: what a module offers.
#[repr(C)]
pub(in crate::exim) struct LookupModuleInfo {
    pub(in crate::exim) magic: c_uint,
    pub(in crate::exim) lookups: *mut *mut LookupInfo,
    pub(in crate::exim) count: c_uint,
}

// The layout that was tried with real Exims.
const _: () = {
    assert!(std::mem::offset_of!(LookupInfo, acquisition) == 12);
    assert!(std::mem::offset_of!(LookupInfo, open) == 16);
    assert!(std::mem::offset_of!(LookupInfo, version_report) == 64);
    assert!(std::mem::offset_of!(LookupModuleInfo, lookups) == 8);
    assert!(std::mem::offset_of!(HeaderLine, length) == 12);
    assert!(std::mem::offset_of!(HeaderLine, text) == 16);
    assert!(size_of::<RecipientItem>() == 40);
};
