//! The functions and variables that the running Exim exports.

use super::abi::{
    DebugPrintf, ExpandString, ExpandString2, GET_TAINTED, GET_UNTAINTED, IsDebug, LOG_MAIN,
    LogWrite, LogWrite2, StoreGet3, Uschar,
};
use libloading::os::unix::Library;
use std::ffi::{CStr, CString, c_void};
use std::ptr::NonNull;

/// The program that loaded this library.
pub(in crate::exim) struct Host {
    symbols: Library,
    expand: Option<Expand>,
    store_get: Option<StoreGet3>,
    /// Since 4.100, which has another `log_write` as well.
    is_debug: Option<IsDebug>,
}

/// The function that expands strings, by which versions are distinguished.
#[derive(Clone, Copy)]
pub(in crate::exim) enum Expand {
    /// Up to 4.99.
    Classic(ExpandString),
    /// Since 4.100.
    Second(ExpandString2),
}

impl Expand {
    /// The one that the program exports.
    pub(in crate::exim) fn find(symbols: &Library) -> Option<Self> {
        // SAFETY: the types are those of local_scan.h, the API that Exim
        // exports under these names; a program that has them is Exim.
        unsafe {
            let classic = symbols.get::<ExpandString>(b"expand_string\0");
            classic.map(|f| Self::Classic(*f)).or_else(|_| {
                symbols.get::<ExpandString2>(b"expand_string_2\0").map(|f| Self::Second(*f))
            })
        }
        .ok()
    }
}

impl Host {
    /// Finds them in the running program.
    pub(in crate::exim) fn find() -> Self {
        let symbols = Library::this();
        let expand = Expand::find(&symbols);
        // SAFETY: the type is that of local_scan.h; a program that has it is Exim.
        let store_get = unsafe { symbols.get::<StoreGet3>(b"store_get_3\0").map(|f| *f) };
        let is_debug = match expand {
            // SAFETY: as above.
            Some(Expand::Second(_)) => unsafe {
                symbols.get::<IsDebug>(b"is_debug\0").map(|f| *f).ok()
            },
            // Looking up a missing symbol is slow.
            _ => None,
        };
        Self { expand, store_get: store_get.ok(), is_debug, symbols }
    }

    /// The address of the exported variable `name` (NUL-terminated).
    pub(in crate::exim) fn variable<T>(&self, name: &CStr) -> Option<*mut T> {
        // SAFETY: only the address of a data symbol is taken here; code that reads
        // through it states why `T` is its type.
        let symbol = unsafe { self.symbols.get::<*mut T>(name.to_bytes_with_nul()) };
        symbol.ok().map(|s| s.into_raw().cast::<T>()).filter(|p| !p.is_null())
    }

    /// The exported function `name`.
    ///
    /// # Safety
    /// `T` is the type by which Exim declares it.
    pub(in crate::exim) unsafe fn function<T: Copy>(&self, name: &CStr) -> Option<T> {
        // SAFETY: by this function's contract.
        unsafe { self.symbols.get::<T>(name.to_bytes_with_nul()) }.ok().map(|function| *function)
    }

    /// Has Exim expand `text`, which must have no side effects; `None` if that fails.
    pub(in crate::exim) fn expand(&self, text: &CStr) -> Option<Vec<u8>> {
        // SAFETY: the text is NUL-terminated and only read. Exim's expansion
        // returns NULL or a NUL-terminated string in its own store, which
        // lives at least until control returns to Exim.
        unsafe {
            let expanded = match self.expand? {
                Expand::Classic(expand) => expand(text.as_ptr()),
                Expand::Second(expand) => expand(text.as_ptr(), std::ptr::null_mut()),
            };
            (!expanded.is_null()).then(|| CStr::from_ptr(expanded).to_bytes().to_vec())
        }
    }

    /// A copy of `text` in the tainted memory of Exim's current pool, for text that a
    /// client may have written: Exim refuses to use it as a file name or a command.
    ///
    /// `None` if this program has no such memory.
    pub(in crate::exim) fn tainted_copy(&self, text: &[u8]) -> Option<*const Uschar> {
        self.copy(text, GET_TAINTED)
    }

    /// A copy of `text`, which must be plain, in memory that Exim trusts: that of its
    /// current pool.
    ///
    /// `None` if this program has no such memory.
    pub(in crate::exim) fn clean_copy(&self, text: &[u8]) -> Option<*const Uschar> {
        self.copy(text, GET_UNTAINTED)
    }

    fn copy(&self, text: &[u8], kind: *const c_void) -> Option<*const Uschar> {
        let size = i32::try_from(text.len() + 1).ok()?;
        // SAFETY: store_get_3 returns `size` writable bytes or does not
        // return; they live as long as Exim's current pool.
        unsafe {
            let memory: *mut c_void = self.store_get?(size, kind, c"exirate".as_ptr(), 0);
            if memory.is_null() {
                return None;
            }
            let bytes = memory.cast::<u8>();
            std::ptr::copy_nonoverlapping(text.as_ptr(), bytes, text.len());
            *bytes.add(text.len()) = 0;
            Some(bytes.cast_const().cast())
        }
    }

    /// `size` bytes of Exim's tainted memory that live as long as this process.
    ///
    /// `None` if this program has no such memory. The other copies are in Exim's
    /// current pool: that of the message in a `dlfunc`, but in a lookup a pool that
    /// Exim empties when it closes its lookups, also within a message.
    pub(in crate::exim) fn permanent_tainted(&self, size: usize) -> Option<NonNull<Uschar>> {
        let size = i32::try_from(size).ok()?;
        // SAFETY: the type is that of store.h of every version with `store_get_3`;
        // it returns `size` writable bytes or does not return.
        unsafe {
            let get = self.symbols.get::<StoreGet3>(b"store_get_perm_3\0").ok()?;
            NonNull::new(get(size, GET_TAINTED, c"exirate".as_ptr(), 0).cast())
        }
    }

    /// Whether Exim prints debug output of `channel`, such as `acl`; `None` if it has
    /// no function for that, as up to 4.99.
    pub(in crate::exim) fn debugs(&self, channel: &CStr) -> Option<bool> {
        // SAFETY: the type is that of 4.100's local_scan.h, and the name is
        // NUL-terminated and only read.
        self.is_debug.map(|is_debug| unsafe { is_debug(channel.as_ptr()) } != 0)
    }

    /// Writes a line to Exim's debugging output.
    pub(in crate::exim) fn debug(&self, line: &str) {
        let Ok(line) = CString::new(line) else { return };
        // SAFETY: as for `log`.
        unsafe {
            if let Ok(debug_printf) = self.symbols.get::<DebugPrintf>(b"debug_printf\0") {
                debug_printf(c"%s\n".as_ptr(), line.as_ptr());
            }
        }
    }

    /// Writes a line to Exim's main log, if the program can.
    ///
    /// The function is looked up here, as it is hardly ever called.
    pub(in crate::exim) fn log(&self, line: &str) {
        // It may quote what a server has replied to the agent.
        let line = line.replace(|c: char| c.is_control(), " ");
        let Ok(line) = CString::new(line) else { return };
        // SAFETY: the type is that of this version's local_scan.h: versions with
        // `is_debug` do not have the first parameter. The format's only argument is a
        // NUL-terminated string.
        unsafe {
            if self.is_debug.is_some() {
                if let Ok(log_write) = self.symbols.get::<LogWrite2>(b"log_write\0") {
                    log_write(LOG_MAIN, c"%s".as_ptr(), line.as_ptr());
                }
            } else if let Ok(log_write) = self.symbols.get::<LogWrite>(b"log_write\0") {
                log_write(0, LOG_MAIN, c"%s".as_ptr(), line.as_ptr());
            }
        }
    }
}
