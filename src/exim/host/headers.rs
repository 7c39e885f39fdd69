//! The headers of the message that Exim is receiving.

use super::abi::{HEADER_OLD, HeaderLine};
use super::variables::VariableSource;
use std::ptr::NonNull;

/// The most headers that are read.
const HEADERS_MAX: usize = 1 << 20;

/// Exim's list of headers.
pub(in crate::exim) struct Headers(Option<NonNull<*const HeaderLine>>);

impl Headers {
    /// Finds the list in the running program.
    pub(in crate::exim) fn find(source: &VariableSource<'_>) -> Self {
        Self(source.symbol(c"header_list"))
    }

    /// Whether the list was found.
    #[cfg(feature = "trace")]
    pub(in crate::exim) fn are_known(&self) -> bool {
        self.0.is_some()
    }

    /// The current headers, each whole with its newline; none where the list was not found.
    pub(in crate::exim) fn each(&self) -> impl Iterator<Item = &[u8]> {
        // SAFETY: the address is that of Exim's `header_line *` by that name: a list of lines in
        // Exim's memory that ends in NULL, and that does not change before we return to Exim.
        let mut next = self.0.map_or(std::ptr::null(), |list| unsafe { list.read() });
        let lines = std::iter::from_fn(move || {
            // SAFETY: as above.
            let line = unsafe { next.as_ref() }?;
            next = line.next;
            Some(line)
        });
        lines.take(HEADERS_MAX).filter_map(|line| {
            let length = usize::try_from(line.length).unwrap_or(0);
            // The first is a placeholder until the Received: header is made.
            if line.kind == HEADER_OLD || line.text.is_null() {
                return None;
            }
            // SAFETY: the text has `length` bytes.
            Some(unsafe { std::slice::from_raw_parts(line.text.cast::<u8>(), length) })
        })
    }
}
