//! Setting `$sender_rate`, `$sender_rate_limit` and `$sender_rate_period`.

use crate::exim::host::abi::Uschar;
use crate::exim::host::exports::Host;
use crate::exim::host::text::{Buffer, TaintedBuffer};
use crate::exim::host::variables::VariableSource;
use std::ptr::NonNull;

/// How to set one of the variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exim) enum Setting<'a> {
    /// Do not change it.
    Leave,
    /// Unset it.
    Unset,
    /// Set to a text that is a number or a time; tainted unless it is plain, as `-0`
    /// and `.5` are not.
    Checked(&'a [u8]),
    /// Set to any text, tainted.
    Unchecked(&'a [u8]),
}

/// The three variables, and the memory behind our values of them.
pub(in crate::exim) struct RateVariables {
    addresses: Option<[NonNull<*const Uschar>; 3]>,
    rate: Buffer,
    limit: Texts,
    period: Texts,
}

/// The memory behind a variable whose text may be of either kind.
struct Texts {
    plain: Buffer,
    tainted: TaintedBuffer,
}

impl Texts {
    fn new() -> Self {
        Self { plain: Buffer::new(), tainted: TaintedBuffer::default() }
    }
}

impl RateVariables {
    /// Finds the variables and tries them once. If Exim does not see what is set
    /// there, the old values are restored and the variables are never set.
    pub(in crate::exim) fn find(source: &VariableSource<'_>) -> Self {
        let (rate, limit, period) = (Buffer::new(), Texts::new(), Texts::new());
        let mut found = Self { addresses: None, rate, limit, period };
        let addresses = (
            source.pointer(c"sender_rate", c"$sender_rate"),
            source.pointer(c"sender_rate_limit", c"$sender_rate_limit"),
            source.pointer(c"sender_rate_period", c"$sender_rate_period"),
        );
        if let (Some(rate), Some(limit), Some(period)) = addresses {
            let addresses = [rate, limit, period];
            found.addresses = found.settable(source.host, addresses).then_some(addresses);
        }
        found
    }

    /// Whether these are the variables.
    fn settable(&mut self, host: &Host, addresses: [NonNull<*const Uschar>; 3]) -> bool {
        let names = [c"$sender_rate", c"$sender_rate_limit", c"$sender_rate_period"];
        // SAFETY: see `write`.
        let is_null = |address: NonNull<*const Uschar>| unsafe { address.read() }.is_null();
        // Nothing is written if the values there are not those that Exim expands.
        let empty = |name| host.expand(name).map(|text| text.is_empty());
        if !names.iter().zip(addresses).all(|(name, at)| empty(name) == Some(is_null(at))) {
            return false;
        }
        let buffers = [&mut self.rate, &mut self.limit.plain, &mut self.period.plain];
        // SAFETY: see `write`.
        let before = addresses.map(|address| unsafe { address.read() });
        for ((address, buffer), probe) in addresses.iter().zip(buffers).zip(["a", "b", "c"]) {
            buffer.keep(probe.as_bytes());
            write(*address, buffer.pointer());
        }
        let seen = host.expand(c"$sender_rate/$sender_rate_limit/$sender_rate_period");
        for (address, text) in addresses.into_iter().zip(before) {
            write(address, text);
        }
        seen.as_deref() == Some(b"a/b/c")
    }

    /// Whether they were found, and can be set.
    pub(in crate::exim) fn work(&self) -> bool {
        self.addresses.is_some()
    }

    /// Whether `$sender_rate` still has the value that was set here. Exim unsets it
    /// between messages.
    pub(in crate::exim) fn rate_is_ours(&self) -> bool {
        // SAFETY: see `write`.
        self.addresses.is_some_and(|[rate, ..]| unsafe { rate.read() } == self.rate.pointer())
    }

    /// The values that the variables have now, to [`RateVariables::restore`] them in the
    /// same call.
    pub(in crate::exim) fn save(&self) -> [*const Uschar; 3] {
        let none = [std::ptr::null(); 3];
        // SAFETY: see `write`.
        self.addresses.map_or(none, |all| all.map(|address| unsafe { address.read() }))
    }

    /// Sets the variables to values that were saved.
    pub(in crate::exim) fn restore(&mut self, saved: [*const Uschar; 3]) {
        for (address, text) in self.addresses.into_iter().flatten().zip(saved) {
            write(address, text);
        }
    }

    /// Sets `$sender_rate`; `None` unsets it, as Exim does when its database
    /// is not available.
    pub(in crate::exim) fn set_rate(&mut self, rate: Option<f64>) {
        let Some([address, ..]) = self.addresses else { return };
        let Some(rate) = rate else { return write(address, std::ptr::null()) };
        self.rate.keep_rate(rate);
        write(address, self.rate.pointer());
    }

    /// Sets `$sender_rate_limit` and `$sender_rate_period`.
    pub(in crate::exim) fn set_texts(
        &mut self,
        host: &Host,
        limit: Setting<'_>,
        period: Setting<'_>,
    ) {
        let Some([_, limit_address, period_address]) = self.addresses else { return };
        for (setting, address, texts) in
            [(limit, limit_address, &mut self.limit), (period, period_address, &mut self.period)]
        {
            match setting {
                Setting::Leave => {}
                Setting::Unset => write(address, std::ptr::null()),
                Setting::Checked(text) if text == texts.plain.text() || texts.plain.keep(text) => {
                    write(address, texts.plain.pointer());
                }
                Setting::Checked(text) | Setting::Unchecked(text) => {
                    write(address, texts.tainted.keep(host, text).unwrap_or(std::ptr::null()));
                }
            }
        }
    }
}

fn write(address: NonNull<*const Uschar>, text: *const Uschar) {
    // SAFETY: the address is that of a `uschar *` variable of Exim's, by its
    // symbol or by its entry in the checked table; Exim only expands it. The
    // text is NULL, or in one of the buffers above, which are never freed.
    unsafe { address.write(text) }
}
