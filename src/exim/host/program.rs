//! The segments of the running program, from the loader's list.

use std::ffi::{c_int, c_void};
use std::ops::Range;

/// The longest name.
const NAME_MAX: usize = 63;

/// The main program's segments in memory.
#[derive(Default)]
pub(in crate::exim) struct Program {
    readonly: Vec<Range<usize>>,
    writable: Vec<Segment>,
    /// Parts of the writable segments that the loader made read-only after relocation
    /// (RELRO).
    sealed: Vec<Range<usize>>,
}

struct Segment {
    /// All of it, with the zero-filled part.
    whole: Range<usize>,
    /// How many bytes of it come from the file; the tables do.
    from_file: usize,
}

impl Program {
    /// The running program; `None` if the loader does not list it.
    pub(in crate::exim) fn main() -> Option<Self> {
        let mut found: Option<Program> = None;
        // SAFETY: dl_iterate_phdr calls `visit_first` with the pointer given
        // here, and does not keep it.
        unsafe {
            libc::dl_iterate_phdr(Some(visit_first), (&raw mut found).cast::<c_void>());
        }
        found
    }

    /// The number of writable segments.
    pub(in crate::exim) fn segments(&self) -> usize {
        self.writable.len()
    }

    /// The words of a writable segment that come from the file.
    pub(in crate::exim) fn words(&self, segment: usize) -> &[usize] {
        let Some(Segment { whole, from_file }) = self.writable.get(segment) else { return &[] };
        let first = whole.start.next_multiple_of(size_of::<usize>());
        let count = (whole.start + from_file).saturating_sub(first) / size_of::<usize>();
        // SAFETY: these words lie in a segment that stays mapped readable for
        // as long as the program runs. Exim is single-threaded and waits for
        // us, so none of them changes while this borrow lives.
        unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(first), count) }
    }

    /// Whether `size` bytes at `address` are aligned, and writable memory of the
    /// program for as long as it runs.
    pub(in crate::exim) fn lets_write(&self, address: usize, size: usize) -> bool {
        let Some(end) = address.checked_add(size) else { return false };
        let inside = |s: &Segment| s.whole.start <= address && end <= s.whole.end;
        let sealed = |s: &Range<usize>| address < s.end && s.start < end;
        address.is_multiple_of(size)
            && self.writable.iter().any(inside)
            && !self.sealed.iter().any(sealed)
    }

    /// The bytes from `address` on, if that is in the read-only segments: as many as a
    /// name and its NUL may have.
    pub(in crate::exim) fn text(&self, address: usize) -> Option<&'static [u8]> {
        let segment = self.readonly.iter().find(|s| s.contains(&address))?;
        let length = (NAME_MAX + 1).min(segment.end - address);
        // SAFETY: the whole range lies in a segment that the loader mapped
        // readable, and not writable, for as long as the program runs.
        Some(unsafe {
            std::slice::from_raw_parts(std::ptr::with_exposed_provenance(address), length)
        })
    }
}

/// Notes the segments of the first object, which is the main program, and stops.
unsafe extern "C" fn visit_first(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    found: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a valid description, and `found` is what
    // `Program::main` passed.
    let (info, found) = unsafe { (&*info, &mut *found.cast::<Option<Program>>()) };
    if info.dlpi_phdr.is_null() {
        return 1;
    }
    // SAFETY: the loader describes `dlpi_phnum` headers at `dlpi_phdr`.
    let headers =
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let base = info.dlpi_addr as usize;
    let mut program = Program::default();
    for header in headers {
        let start = base.wrapping_add(header.p_vaddr as usize);
        let whole = start..start.wrapping_add(header.p_memsz as usize);
        if whole.is_empty() {
            continue;
        }
        match header.p_type {
            libc::PT_GNU_RELRO => program.sealed.push(whole),
            libc::PT_LOAD if header.p_flags & libc::PF_R == 0 => {}
            libc::PT_LOAD if header.p_flags & libc::PF_W == 0 => program.readonly.push(whole),
            libc::PT_LOAD => {
                let from_file = header.p_filesz.min(header.p_memsz) as usize;
                program.writable.push(Segment { whole, from_file });
            }
            _ => {}
        }
    }
    *found = Some(program);
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    static mut WRITABLE: [u64; 2] = [1, 2];
    static READ_ONLY: [u64; 2] = [1, 2];
    /// Read-only after relocation.
    static SEALED: [&[u64; 2]; 2] = [&READ_ONLY; 2];

    #[test]
    fn only_the_programs_own_writable_memory_may_be_written() {
        let program = Program::main().unwrap();
        let own = (&raw const WRITABLE).addr();
        assert!(program.lets_write(own, 8) && program.lets_write(own + 8, 8));
        assert!(!program.lets_write(own + 4, 8), "it is not aligned");
        let heap = Box::new(7_u64);
        let stack = 7_u64;
        for (place, address) in [
            ("constants", (&raw const READ_ONLY).addr()),
            ("sealed", (&raw const SEALED).addr()),
            ("code", Program::main as fn() -> Option<Program> as usize),
            ("heap", (&raw const *heap).addr()),
            ("stack", (&raw const stack).addr()),
            ("nowhere", 0),
            ("nowhere", 8),
            ("the end of it all", usize::MAX - 7),
        ] {
            assert!(!program.lets_write(address, 8), "{place}");
        }
    }
}
