//! Detect the end of a command or a message.
//!
//! Exim unsets some variables at the end of each ACL run, and others at the end of each
//! message. Such a variable, while unset, is set to an empty string of ours, which
//! expands like an unset one. If at least one still points there at the next call,
//! nothing has ended in between. Otherwise the command or message may have ended, and
//! is treated so: then everything counts.

use crate::exim::host::abi::Uschar;
use crate::exim::host::variables::VariableSource;
use std::ffi::CStr;
use std::ptr::NonNull;

/// Empty strings to mark with, each at its own address. Each event uses the next one:
/// Exim may save a mark and restore it after the event, such as the address data of a
/// verified sender.
static BLANKS: [u8; 4096] = [0; 4096];

/// Variables that Exim unsets at the same event.
pub(in crate::exim) struct Marks {
    addresses: Vec<NonNull<*const Uschar>>,
    current: usize,
}

impl Marks {
    /// Unset at the end of every run of an ACL (`acl_check`).
    pub(in crate::exim) fn of_command(source: &VariableSource<'_>) -> Self {
        Self::find(
            source,
            &[
                (c"sender_address_data", c"$sender_address_data"),
                (c"deliver_address_data", c"$address_data"),
                (c"deliver_domain_data", c"$domain_data"),
            ],
        )
    }

    /// Unset at the end of every message, and at RSET, EHLO and the like
    /// (`smtp_reset`).
    pub(in crate::exim) fn of_message(source: &VariableSource<'_>) -> Self {
        Self::find(
            source,
            &[
                (c"dnslist_domain", c"$dnslist_domain"),
                (c"dnslist_matched", c"$dnslist_matched"),
                (c"recipient_verify_failure", c"$recipient_verify_failure"),
            ],
        )
    }

    /// Without variables: every event may have happened.
    pub(in crate::exim) fn none() -> Self {
        Self { addresses: Vec::new(), current: 0 }
    }

    fn find(source: &VariableSource<'_>, names: &[(&CStr, &CStr)]) -> Self {
        let find = |(symbol, expansion): &(&CStr, &CStr)| source.pointer(symbol, expansion);
        Self { addresses: names.iter().filter_map(find).collect(), current: 0 }
    }

    fn mark(&self) -> *const Uschar {
        (&raw const BLANKS[self.current % BLANKS.len()]).cast()
    }

    /// Whether the event has not happened since [`Marks::set`].
    pub(in crate::exim) fn stand(&self) -> bool {
        // SAFETY: the addresses are those of `uschar *` variables of Exim's,
        // by their symbols or by their entries in the checked table.
        self.addresses.iter().any(|address| unsafe { address.read() } == self.mark())
    }

    /// The event has happened, or may have: earlier marks are invalid.
    pub(in crate::exim) fn renew(&mut self) {
        self.current = self.current.wrapping_add(1);
    }

    /// Marks every variable that is unset.
    pub(in crate::exim) fn set(&self) {
        let blanks = BLANKS.as_ptr_range();
        for address in &self.addresses {
            // SAFETY: as above; Exim only expands these variables or sets them again,
            // and BLANKS lives as long as this library is loaded, which Exim never
            // unloads.
            unsafe {
                let text = address.read();
                if text.is_null() || blanks.contains(&text.cast()) {
                    address.write(self.mark());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `test` on the marks in two variables of a small Exim.
    fn with_marks(test: impl FnOnce(&mut Marks, &mut dyn FnMut(usize, *const Uschar))) {
        let mut variables = [std::ptr::null::<Uschar>(); 2];
        let first = NonNull::new((&raw mut variables).cast::<*const Uschar>()).unwrap();
        // SAFETY: the second element of the array of two.
        let addresses = vec![first, unsafe { first.add(1) }];
        let mut marks = Marks { addresses: addresses.clone(), current: 0 };
        // SAFETY: the array outlives the closure.
        test(&mut marks, &mut |n, text| unsafe { addresses[n].write(text) });
    }

    #[test]
    fn one_mark_is_enough() {
        with_marks(|marks, write| {
            assert!(!marks.stand());
            marks.set();
            assert!(marks.stand());
            write(0, c"data".as_ptr());
            assert!(marks.stand());
            write(1, std::ptr::null());
            assert!(!marks.stand());
            marks.renew();
            marks.set();
            assert!(marks.stand());
        });
    }

    #[test]
    fn a_mark_that_is_restored_later_is_not_trusted() {
        with_marks(|marks, write| {
            marks.set();
            let old = marks.mark();
            write(0, std::ptr::null());
            write(1, std::ptr::null());
            marks.renew();
            write(0, old);
            assert!(!marks.stand());
            marks.set();
            assert!(marks.stand());
        });
    }

    #[test]
    fn without_variables_nothing_stands() {
        let marks = Marks::none();
        marks.set();
        assert!(!marks.stand());
    }
}
