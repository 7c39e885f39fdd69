//! The entry points for `${lookup ratelimit {SPEC} {FOUND} {NOT FOUND}}` and
//! `${lookup policy {NAME}}`: exirate.so as one of Exim's dynamic lookup modules.
//!
//! Exim finds [`_lookup_module_info`] by its name and compares its magic number
//! with its own before it looks at anything else. As one library serves several
//! versions of Exim, that number is set when the library is loaded.

use super::session::{CallError, SESSION, Session};
use crate::exim::host::abi::{
    DlfuncStatus, LookupInfo, LookupModuleInfo, MAGIC_5, MAGIC_6, MAGIC_NONE, QUERY_STYLE,
    StringCatn, Uschar,
};
use crate::exim::host::boundary::FunctionReply;
use crate::exim::host::exports::{Expand, Host};
use crate::exim::host::text::Buffer;
use crate::exim::policies::dlfunc::word;
use crate::policy::reply::Fields;
use crate::spec::{SpecArguments, split_key};
use libloading::os::unix::Library;
use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_uint, c_void};

/// A structure of ours that Exim writes to.
#[repr(transparent)]
struct ForExim<T>(UnsafeCell<T>);

// SAFETY: Exim has one thread; this library writes once, in a constructor, before the
// loader returns the library to Exim.
unsafe impl<T> Sync for ForExim<T> {}

const LOOKUP: LookupInfo = LookupInfo {
    name: c"ratelimit".as_ptr(),
    kind: QUERY_STYLE,
    acquisition: 0,
    open: Some(open),
    check: None,
    find: Some(find),
    close: None,
    tidy: None,
    quote: None,
    version_report: Some(version_report),
    options: std::ptr::null(),
    options_count: 0,
    variables: std::ptr::null(),
    variables_count: 0,
};

static RATELIMIT: ForExim<LookupInfo> = ForExim(UnsafeCell::new(LOOKUP));

static POLICY: ForExim<LookupInfo> = ForExim(UnsafeCell::new(LookupInfo {
    name: c"policy".as_ptr(),
    find: Some(find_policy),
    version_report: None,
    ..LOOKUP
}));

static LOOKUPS: ForExim<[*mut LookupInfo; 2]> =
    ForExim(UnsafeCell::new([RATELIMIT.0.get(), POLICY.0.get()]));

/// `lookup_module_info`: what this module offers.
#[repr(transparent)]
pub struct Module(ForExim<LookupModuleInfo>);

/// What Exim looks for in a lookup module.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)] // Exim's own name for it
pub static _lookup_module_info: Module = Module(ForExim(UnsafeCell::new(LookupModuleInfo {
    magic: MAGIC_NONE,
    lookups: LOOKUPS.0.get().cast(),
    count: 2,
})));

/// Sets the magic number when the library is loaded.
///
/// 4.100 exports another expansion function than earlier versions. A program that
/// exports neither is not Exim, and gets a number that no Exim accepts.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOADING: extern "C" fn() = set_magic;

extern "C" fn set_magic() {
    let magic = Expand::find(&Library::this()).map_or(MAGIC_NONE, |expand| match expand {
        Expand::Classic(_) => MAGIC_5,
        Expand::Second(_) => MAGIC_6,
    });
    // SAFETY: a constructor runs before the loader returns the library, so nothing
    // else refers to the structure.
    unsafe { (*_lookup_module_info.0.0.get()).magic = magic };
}

/// There is nothing to open: any address will do as a handle.
unsafe extern "C" fn open(_: *const Uschar, _: *mut *const Uschar) -> *mut c_void {
    RATELIMIT.0.get().cast()
}

/// `${lookup ratelimit {SPEC}…}`: found, with the rate as `$value`, where the
/// dlfunc says `yes`; not found where it says `no`; deferred with the same text
/// where the dlfunc fails.
///
/// SPEC may end in `key=KEY`: all that follows `key=` is the key, taken literally and
/// never parsed, like the second argument of the dlfunc. A unique event has no such
/// form; the digest of a client's text, such as
/// `unique=${sha256:$h_subject:}`, is safe in a spec.
///
/// The result is marked as not to be cached, so that each lookup counts.
///
/// # Safety
/// To be called by Exim, as `lookupapi.h` describes it.
unsafe extern "C" fn find(
    _handle: *mut c_void,
    _file: *const Uschar,
    query: *const Uschar,
    _length: c_int,
    result: *mut *const Uschar,
    message: *mut *const Uschar,
    cache_seconds: *mut c_uint,
    options: *const Uschar,
) -> c_int {
    let call = LookupCall { query, result, message, cache_seconds, options };
    // SAFETY: Exim passes NUL-terminated strings, or NULL, and the places for the
    // results, or NULL.
    unsafe {
        call.answer(
            "ratelimit",
            "SPEC} {OVER THE LIMIT} {UNDER IT",
            None,
            |session, buffer, query| {
                let arguments = match split_key(query) {
                    Some((spec, key)) => SpecArguments { spec, key: Some(key), unique: None },
                    None => query.into(),
                };
                let found = session.ratelimit(arguments)?;
                let asked = session.asked.as_ref().and_then(Fields::rate);
                let latest = session.latest.as_ref().map(|latest| latest.decision.rate);
                let rate = asked.or(latest).unwrap_or(0.0);
                buffer.keep_rate(rate);
                // `$value` will point to this text, which must be valid after the next
                // call: that may come before `$value` is read.
                Ok(found.then(|| {
                    session
                        .host
                        .clean_copy(buffer.text())
                        .map_or(FunctionReply::Kept, FunctionReply::Exims)
                }))
            },
        )
    }
}

/// `${lookup policy {NAME / ATTRIBUTE}}`: always found, with what the dlfunc `policy`
/// returns; deferred with the same text where the dlfunc fails.
///
/// ATTRIBUTE may be left out. All that follows its `=` is its value, taken literally.
///
/// # Safety
/// To be called by Exim, as `lookupapi.h` describes it.
unsafe extern "C" fn find_policy(
    _handle: *mut c_void,
    _file: *const Uschar,
    query: *const Uschar,
    _length: c_int,
    result: *mut *const Uschar,
    message: *mut *const Uschar,
    cache_seconds: *mut c_uint,
    options: *const Uschar,
) -> c_int {
    let call = LookupCall { query, result, message, cache_seconds, options };
    // SAFETY: as for `find`.
    unsafe {
        call.answer("policy", "NAME / package=TEXT", Some(c"accept"), |session, _, query| {
            let slash = query.iter().position(|&b| b == b'/');
            let (name, attribute) = query.split_at(slash.unwrap_or(query.len()));
            let attribute = attribute.strip_prefix(b"/");
            Ok(Some(FunctionReply::Word(word(session.policy(name, attribute.as_slice())?))))
        })
    }
}

/// What Exim passes to the function of a lookup, of which it may leave out each.
struct LookupCall {
    query: *const Uschar,
    result: *mut *const Uschar,
    message: *mut *const Uschar,
    cache_seconds: *mut c_uint,
    options: *const Uschar,
}

impl LookupCall {
    /// Returns to Exim what `work` has found for the query, that it has found nothing, or
    /// why it failed; it is never cached, so that each lookup counts. `usage` is what the
    /// braces of `${lookup NAME {…}}` hold; `lifted` is found where it fails while nothing may
    /// be refused.
    ///
    /// # Safety
    /// The query and the options are NULL or NUL-terminated strings, the others NULL or
    /// places for what they are called.
    unsafe fn answer(
        self,
        name: &str,
        usage: &str,
        lifted: Option<&'static CStr>,
        work: impl FnOnce(&mut Session, &mut Buffer, &[u8]) -> Result<Option<FunctionReply>, CallError>,
    ) -> c_int {
        let Self { query, result, message, cache_seconds, options } = self;
        let arguments = [query];
        let mut text = std::ptr::null();
        let mut found = lifted.is_some();
        // SAFETY: by this function's contract.
        unsafe {
            if !cache_seconds.is_null() {
                cache_seconds.write(0);
            }
            let status = SESSION.call(
                &raw mut text,
                1,
                arguments.as_ptr(),
                lifted.unwrap_or(c""),
                |session, buffer, queries| {
                    refuse_options(name, usage, options)?;
                    let reply =
                        work(session, buffer, queries.first().copied().unwrap_or_default())?;
                    found = reply.is_some();
                    Ok(reply.unwrap_or(FunctionReply::Kept))
                },
            );
            let (place, code) = match (status, found) {
                (0, false) => return DlfuncStatus::Fail as c_int,
                (0, true) => (result, DlfuncStatus::Ok),
                _ => (message, DlfuncStatus::Defer),
            };
            if !place.is_null() {
                place.write(text);
            }
            code as c_int
        }
    }
}

/// Refuses options, which our lookups do not have.
///
/// # Safety
/// `options` is NULL or a NUL-terminated string.
unsafe fn refuse_options(
    lookup: &str,
    arguments: &str,
    options: *const Uschar,
) -> Result<(), CallError> {
    // SAFETY: by this function's contract.
    let options = unsafe { options.as_ref().map(|first| CStr::from_ptr(first)) };
    let Some(options) = options.filter(|options| !options.is_empty()) else { return Ok(()) };
    let text = format!(
        "the {lookup} lookup has no options, but \"{}\" was given (write ${{lookup {lookup} \
         {{{arguments}}}}})",
        options.to_string_lossy().escape_debug()
    );
    Err(CallError::Usage(text.into()))
}

/// Adds our version to the output of `exim -d -bV`.
///
/// # Safety
/// To be called by Exim, as `lookupapi.h` describes it.
unsafe extern "C" fn version_report(string: *mut c_void) -> *mut c_void {
    const LINE: &CStr = match CStr::from_bytes_with_nul(
        concat!("Library version: ratelimit: exirate ", env!("CARGO_PKG_VERSION"), "\n\0")
            .as_bytes(),
    ) {
        Ok(line) => line,
        Err(_) => c"",
    };
    // SAFETY: the type is that of Exim's functions.h; the text is copied.
    unsafe {
        match Host::find().function::<StringCatn>(c"string_catn") {
            Some(string_catn) => string_catn(string, LINE.as_ptr(), LINE.count_bytes() as c_int),
            None => string,
        }
    }
}
