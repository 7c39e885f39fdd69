//! The recipients of the message that Exim is receiving.

use super::abi::{RecipientItem, Uschar};
use super::exports::Host;
use super::variables::{Number, VariableSource};
use std::ffi::CStr;
use std::ptr::NonNull;

/// Exim's list of recipients.
pub(in crate::exim) struct Recipients {
    list: Option<NonNull<*const RecipientItem>>,
    has_brightmail: bool,
}

/// Why the recipients cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exim) enum NoRecipients {
    /// This variable of Exim's was not found.
    Unknown(&'static str),
    /// Brightmail changes the layout of the list.
    Brightmail,
}

impl Recipients {
    /// Finds the list in the running program.
    pub(in crate::exim) fn find(source: &VariableSource<'_>) -> Self {
        Self {
            list: source.symbol(c"recipients_list"),
            has_brightmail: source.knows("bmi_deliver"),
        }
    }

    /// The addresses, of which there are `count`.
    pub(in crate::exim) fn read(
        &self,
        host: &Host,
        count: &Number,
    ) -> Result<Vec<&[u8]>, NoRecipients> {
        let list = self.list.ok_or(NoRecipients::Unknown("recipients_list"))?;
        let count = count.read(host).ok_or(NoRecipients::Unknown("recipients_count"))?;
        if self.has_brightmail {
            return Err(NoRecipients::Brightmail);
        }
        // SAFETY: the address is that of Exim's `recipient_item *` by that
        // name, which has as many items as its `recipients_count` says, or is
        // NULL; it does not change before we return to Exim.
        let items = unsafe {
            let first = list.read();
            let count = usize::try_from(count).unwrap_or(0);
            if first.is_null() { &[] } else { std::slice::from_raw_parts(first, count) }
        };
        // SAFETY: each address is a NUL-terminated string of Exim's.
        let text = |text: *const Uschar| unsafe { CStr::from_ptr(text).to_bytes() };
        Ok(items.iter().map(|i| i.address).filter(|a| !a.is_null()).map(text).collect())
    }
}
